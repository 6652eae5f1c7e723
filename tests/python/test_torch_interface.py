"""The rest of torch.distributed's interface to a backend: Works, objects, coalescing, groups,
forks."""

import multiprocessing
import time
from datetime import timedelta

import pytest
from patience import HANG
from torch_ranks import FOREVER, run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import WorkResult  # noqa: E402

CPU = torch.device("cpu")


def mine(rank, count, dtype=torch.float32):
    return (torch.arange(count) + 10 * rank).to(dtype)


def rooted(rank, size):
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64):
        for count in (0, 1, 1001):
            every = [mine(r, count, dtype) for r in range(size)]
            for root in (0, size - 1):
                apart = [torch.empty(count, dtype=dtype) for _ in range(size)]
                joined = list(torch.empty(size, count, dtype=dtype).unbind())
                for parts in (apart, joined):
                    dist.gather(every[rank], parts if rank == root else None, dst=root)
                    if rank == root:
                        assert all(torch.equal(p, e) for p, e in zip(parts, every, strict=True))
                for parts in (every, list(torch.stack(every).unbind())):
                    got = torch.empty(count, dtype=dtype)
                    dist.scatter(got, parts if rank == root else None, src=root)
                    assert torch.equal(got, every[rank])
    matrix = torch.full((2, 3), float(rank))
    parts = [torch.zeros(2, 3) for _ in range(size)] if rank == 0 else None
    work = dist.gather(matrix, parts, async_op=True)
    work.wait()
    assert rank or [p[1, 2].item() for p in parts] == list(range(size))
    if rank:
        with pytest.raises(ValueError, match=r"scatter on rank \d: got 1 input lists"):
            dist.group.WORLD.scatter([matrix], [[matrix] * size], dist.ScatterOptions())
    else:
        with pytest.raises(ValueError, match="input 1 has 5 elements"):
            dist.scatter(torch.empty(4), [torch.ones(4)] + [torch.ones(5)] * (size - 1))


def objects(rank, size):
    value = {"rank": rank, "text": "x" * rank * 1000}
    gathered = [None] * size
    dist.all_gather_object(gathered, value)
    assert [o["rank"] for o in gathered] == list(range(size))
    shared = [rank, "from", rank] if rank == 1 else [None] * 3
    dist.broadcast_object_list(shared, src=1)
    assert shared == [1, "from", 1]
    collected = [None] * size if rank == 1 else None
    dist.gather_object(value, collected, dst=1)
    assert rank != 1 or [len(o["text"]) for o in collected] == [1000 * r for r in range(size)]
    received = [None]
    dist.scatter_object_list(received, [f"for {r}" * (r + 1) for r in range(size)], src=0)
    assert received == [f"for {rank}" * (rank + 1)]


def rooted_and_objects(rank, size):
    rooted(rank, size)
    objects(rank, size)


@pytest.mark.parametrize("labels", ["", "aab"])
def test_rooted_and_objects(labels, tmp_path):
    run(3, rooted_and_objects, folder=tmp_path, labels=labels)


def works(rank, size):
    makers = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(9), async_op=True),
        "broadcast": lambda: dist.broadcast(torch.ones(9), 1, async_op=True),
        "barrier": lambda: dist.barrier(async_op=True),
        "all_gather": lambda: dist.all_gather(
            [torch.empty(2) for _ in range(size)], torch.ones(2), async_op=True
        ),
        "reduce_scatter": lambda: dist.reduce_scatter(
            torch.empty(2), [torch.ones(2) for _ in range(size)], async_op=True
        ),
        "scatter": lambda: dist.scatter(
            torch.empty(2), None if rank else [torch.ones(2)] * size, async_op=True
        ),
    }
    for name, make in makers.items():
        work = make()
        assert work.wait(FOREVER), name
        assert work.is_completed(), name
        work.block_current_stream()
        work.synchronize()
        assert isinstance(work.get_future().wait(), list), name
        assert WorkResult(work.get_future_result().wait()) == WorkResult.SUCCESS, name
        early = make()
        outcome, values = early.get_future_result(), early.get_future()
        assert WorkResult(outcome.wait()) == WorkResult.SUCCESS, name
        values.wait()
        assert early.get_future().done(), name
        polled = make()
        while not polled.is_completed():
            time.sleep(0.001)

    late = dist.new_group()
    if rank == 0:
        late._get_backend(CPU).set_timeout(timedelta(seconds=1))
        work = dist.all_reduce(torch.ones(4), group=late, async_op=True)
        assert WorkResult(work.get_future_result().wait()) == WorkResult.TIMEOUT
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            work.get_future().wait()
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            work.wait()
    dist.barrier()  # the timeout was of the other group alone


def coalescing(rank, size):
    def tensors():
        return [torch.full((3 + i,), float(rank + i)) for i in range(4)]

    for device in (None, CPU):
        ours = tensors()
        with dist._coalescing_manager(device=device, async_ops=True) as block:
            for tensor in ours:
                dist.all_reduce(tensor)
        block.wait()
        assert [t[0].item() for t in ours] == [i * size + sum(range(size)) for i in range(4)]
    apart = tensors()
    with dist._coalescing_manager(device=CPU, async_ops=True) as block:
        for i, tensor in enumerate(apart):
            dist.broadcast(tensor, i % size, async_op=True)
        lists = [[torch.zeros(2) for _ in range(size)] for _ in range(2)]
        for parts in lists:
            dist.all_gather(parts, torch.full((2,), float(rank)), async_op=True)
    block.wait()
    assert [t[0].item() for t in apart] == [i % size + i for i in range(4)]
    assert all([p[1].item() for p in parts] == list(range(size)) for parts in lists)

    ins = tensors()[:2]
    outs = [torch.empty(size * t.numel()) for t in ins]
    with dist._coalescing_manager():
        for out, tensor in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(out, tensor)
    assert outs[1].tolist() == [r + 1.0 for r in range(size) for _ in range(4)]
    with dist._coalescing_manager():
        for out, tensor in zip(outs, ins, strict=True):
            dist.reduce_scatter_tensor(tensor, out)
    assert ins[1].tolist() == [size * (rank + 1.0)] * 4

    lists = [[torch.empty(2), torch.empty(5)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((n,), float(rank)) for n in (2, 5)])
    assert [[t[-1].item() for t in pair] for pair in lists] == [[r, r] for r in range(size)]
    backend = dist.group.WORLD._get_backend(CPU)
    backend._start_coalescing()
    backend._end_coalescing().wait()  # of nothing
    with pytest.raises(ValueError, match="without startCoalescing"):
        backend._end_coalescing()


def works_and_coalescing(rank, size):
    works(rank, size)
    coalescing(rank, size)


@pytest.mark.smoke
def test_works_and_coalescing(tmp_path):
    run(2, works_and_coalescing, folder=tmp_path, labels="ab")


def many_groups(rank, size):
    for _ in range(3):
        groups = [dist.new_group([r for r in range(size) if r != out]) for out in range(size)]
        groups += [dist.new_group() for _ in range(8)]
        works, tensors = [], []
        for out, group in enumerate(groups):
            if out != rank:
                tensors.append(torch.full((100,), float(rank)))
                works.append(dist.all_reduce(tensors[-1], group=group, async_op=True))
        for work in reversed(works):
            work.wait()
        total = sum(range(size))
        want = [total - out for out in range(size) if out != rank] + [total] * 8
        assert [t[0].item() for t in tensors] == want
        for out, group in enumerate(groups):
            if out != rank:
                dist.destroy_process_group(group)


def test_many_groups(tmp_path):
    run(4, many_groups, folder=tmp_path, labels="abab")


class Numbers(torch.utils.data.Dataset):
    """A data set whose workers, forked from a rank, misuse what they inherit."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        try:
            dist.all_reduce(torch.ones(4))
        except dist.DistBackendError as error:
            assert "forked" in str(error)
        else:
            raise AssertionError("a forked child took part")
        return torch.full((4,), float(index))


def end_as_child(work):
    del work
    dist.destroy_process_group()


def forks(rank, size):
    multiprocessing.current_process()._config["daemon"] = False  # it may have children
    flight = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(20)]
    future = flight[0].get_future()
    for _ in range(2):
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork"
        )
        for batch in loader:
            total = batch.sum()
            dist.all_reduce(total)
            assert total == size * batch.sum()
    child = multiprocessing.get_context("fork").Process(target=end_as_child, args=(flight[-1],))
    child.start()
    child.join(HANG)
    assert child.exitcode == 0
    assert [work.wait() for work in flight] == [True] * 20
    future.wait()
    dist.barrier()


def test_forked_children(tmp_path):
    run(2, forks, folder=tmp_path, labels="ab")
