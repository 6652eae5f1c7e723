"""Groups split off others: by split_group, by a DeviceMesh, and by ranks that take two ways."""

import time
from datetime import timedelta
from unittest import mock

import pytest
from patience import PROMPT, seconds
from torch_ranks import TIMEOUT, run, tell, wait_for

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from hetccl.torch_backend import Backend, _join  # noqa: E402

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BOUND = torch.device("cpu", 0)


def total(group, value):
    """The sum over `group` of each rank's `value`."""
    tensor = torch.full((1001,), float(value))
    group.allreduce([tensor]).wait()
    assert (tensor == tensor[0]).all()
    return int(tensor[0])


def split_apart(rank, size):
    world = dist.group.WORLD
    before = world._get_backend(CPU).options
    halves = [[r for r in range(size) if r % 2 == parity] for parity in (0, 1)]
    half = world.split_group(halves[rank % 2], group_name=f"half{rank % 2}")
    assert (half.rank(), half.size()) == (rank // 2, len(halves[rank % 2]))
    assert total(half, rank) == sum(halves[rank % 2])
    assert half._get_backend(CPU) is half._get_backend(CUDA)  # one, not one for each device
    assert half._get_backend(CPU).options.global_ranks_in_group == halves[rank % 2]
    after = world._get_backend(CPU).options
    assert (after.group_name, after._timeout) == (before.group_name, before._timeout)
    pair = half.split_group([0, 1], group_name=f"pair{rank % 2}")
    if half.rank() > 1:
        assert pair is None
    else:
        assert pair._get_backend(CPU).options.global_ranks_in_group == halves[rank % 2][:2]
        assert total(pair, rank) == sum(halves[rank % 2][:2])
    for alone in range(size):  # each in turn; the others have no color
        one = world.split_group([alone], group_name=f"alone{alone}")
        assert (one is None) == (rank != alone)
        if one is not None:
            assert total(one, 7) == 7
    assert total(world, 1) == size
    return total(half, 1)


def test_split(tmp_path):
    assert run(5, split_apart, folder=tmp_path) == [3, 2, 3, 2, 3]


@pytest.mark.smoke
def test_split_of_clusters(tmp_path):
    assert run(4, split_apart, folder=tmp_path, labels="aabb") == [2, 2, 2, 2]


def as_if_bound():
    """torch splits where there is an accelerator and the default group is bound to a device."""
    dist.group.WORLD.bound_device_id = BOUND
    return (
        mock.patch("torch.accelerator.is_available", lambda: True),
        mock.patch("torch.accelerator.current_accelerator", lambda: CPU),
    )


def split_by_torch(rank, size):
    available, accelerator = as_if_bound()
    with available, accelerator:
        group = dist.split_group(split_ranks=[[0, 2], [1, 3]], timeout=timedelta(seconds=99))
        tensor = torch.full((9,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert (tensor == 2 * (rank % 2) + 2).all()
        assert dist.get_group_rank(group, rank) == rank // 2
        assert group._get_backend(CPU).options._timeout == timedelta(seconds=99)
        some = dist.split_group(split_ranks=[[1, 2]])
        assert (some is not None) == (rank in (1, 2))
        for _ in range(2):  # the same ranks again are another group
            again = dist.split_group(split_ranks=[[0, 1, 2, 3]])
            dist.barrier(again)
            again.monitored_barrier(TIMEOUT)
            dist.destroy_process_group(again)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        for name, ranks in (("rows", [rank % 2, rank % 2 + 2]), ("columns", [rank & 2, rank | 1])):
            dim = mesh.get_group(name)
            tensor = torch.full((9,), float(rank))
            dist.all_reduce(tensor, group=dim)
            assert (tensor == sum(ranks)).all()
    dist.group.WORLD.bound_device_id = None  # of which torch lets no new_group be the host
    new = dist.new_group([0, 3])
    if rank in (0, 3):
        assert total(new, rank) == 3
    else:  # as torch has a bound rank do
        dist.group.WORLD._get_backend(CPU).perform_nocolor_split(BOUND)
    dist.destroy_process_group(group)
    dist.barrier()


def test_split_group_and_mesh(tmp_path):
    run(4, split_by_torch, folder=tmp_path)


def end_parent_first(rank, size):
    world = dist.group.WORLD
    child = world.split_group([0, 1, 2], group_name="child")
    work = None
    if child is not None:
        work = child.allreduce([torch.ones(100_000)])
    world._get_backend(CPU).shutdown()
    if child is None:
        return
    work.wait()
    assert total(child, 2) == 6
    with pytest.raises(dist.DistBackendError, match=r"rank \d of process group .* has been destr"):
        world.split_group([0, 1], group_name="late")
    grandchild = child.split_group([2, 0], group_name="grandchild")
    child._get_backend(CPU).shutdown()
    if grandchild is not None:
        assert total(grandchild, 5) == 10


def test_parents_end_first(tmp_path):
    run(4, end_parent_first, folder=tmp_path)


def miss(rank, size):
    world = dist.group.WORLD
    with pytest.raises(ValueError, match=r"split on rank \d: 9 is not a rank of a group of 3"):
        world.split_group([0, 9], group_name="wrong")
    dist.barrier()
    if rank == 2:
        for other in (0, 1):
            wait_for(f"{other} has gone on")
        return
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"could not split it: .*rank 2"):
        world.split_group([0, 1], timeout=timedelta(seconds=seconds(2)), group_name="without 2")
    assert time.monotonic() - started < PROMPT
    tell(f"{rank} has gone on")


def test_a_rank_does_not_come(tmp_path):
    run(3, miss, folder=tmp_path)


def lose(rank, size):
    if rank == 2:
        return
    with pytest.raises(dist.DistBackendError, match="rank 2"):
        dist.group.WORLD.split_group([0, 1], group_name="without 2")


def test_a_rank_has_left(tmp_path):
    run(3, lose, folder=tmp_path)


def options_of(store, rank, ranks, name):
    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_id, options.timeout = store, name, TIMEOUT
    options.group_rank, options.group_size = ranks.index(rank), len(ranks)
    options.global_ranks_in_group = ranks
    return options


def make_group(rank, size, store, bound):
    """As torch makes a default group: bound to a device on the ranks in `bound`."""
    group = dist.ProcessGroup(store, rank, size)
    if rank in bound:
        group.bound_device_id = BOUND
    options = options_of(store, rank, list(range(size)), "made")
    backend = _join(options)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    group._register_backend(CPU, dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_group_name("made")
    if rank in bound:
        assert backend.supports_splitting
        backend.eager_connect_single_device(BOUND)
    return group, backend


def two_ways(rank, size):
    """Ranks 0 and 1 split, as with a device_id; 2 and 3 make new groups, as without."""
    store = dist.PrefixStore("made", dist.distributed_c10d._get_default_store())
    group, backend = make_group(rank, size, store, bound=(0, 1))
    for round in range(2):
        for first, second in (([0, 2], [1, 3]), ([0, 1], [2, 3]), ([0, 1, 2, 3], [])):
            mine = first if rank in first else second
            if rank < 2:
                child = group.split_group(mine, group_name=f"{round}{mine}")
            else:
                options = options_of(dist.HashStore(), rank, mine, "another name")
                child = _join(options, None, Backend(backend))
            assert (child.rank(), child.size()) == (mine.index(rank), len(mine))
            tensor = torch.full((9,), float(rank + round))
            child.allreduce([tensor]).wait()
            assert (tensor == sum(mine) + round * len(mine)).all()
    tensor = torch.ones(9)
    group.allreduce([tensor]).wait()
    assert (tensor == size).all()


def test_ranks_that_take_two_ways_meet(tmp_path):
    run(4, two_ways, folder=tmp_path)


def all_bound(rank, size):
    store = dist.PrefixStore("made", dist.distributed_c10d._get_default_store())
    group, backend = make_group(rank, size, store, bound=range(size))
    assert Backend(backend).stats()["operations"] == 0  # it is joined
    half = group.split_group([0, 1] if rank < 2 else [2, 3], group_name=f"half{rank // 2}")
    assert total(half, rank) == 1 if rank < 2 else 5
    dist.barrier()
    dist.destroy_process_group()
    return divmod(rank, 2)


def test_all_ranks_bound(tmp_path):
    assert run(4, all_bound, folder=tmp_path) == [(0, 0), (0, 1), (1, 0), (1, 1)]
