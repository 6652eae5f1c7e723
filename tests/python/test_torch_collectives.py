"""Every collective of the torch backend, compared with torch's results in one process."""

import functools
import itertools

import pytest
from patience import share
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from hetccl.torch_backend import backend_of  # noqa: E402

FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
    torch.int64, torch.uint64,
]  # fmt: skip
COUNTS = [0, 1, 7, 1001, 70_001]
LAYOUTS = ["", "aabb", "abab", "aaab"]


def values(rank, count, dtype, spread=3):
    """Small integers that differ by rank and position, exact in every type."""
    return ((torch.arange(count) + rank) % spread + 1).to(dtype)


def reduced(size, count, dtype, op):
    """The reference, exact, in int64 or float64."""
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    every = torch.stack([values(r, count, torch.int64).to(wide) for r in range(size)])
    if op == "AVG":
        mean = every.sum(0) / size
        return (mean if dtype.is_floating_point else mean.trunc()).to(dtype)
    fold = {"SUM": "sum", "PRODUCT": "prod", "MIN": "amin", "MAX": "amax"}[op]
    return getattr(every, fold)(0).to(dtype)


def same(got, want):
    """Bitwise equality; torch compares few of its unsigned types."""
    return bytes(got.contiguous().flatten().view(torch.uint8).numpy()) == bytes(
        want.contiguous().flatten().view(torch.uint8).numpy()
    )


def counted(types, layout):
    """Pairs of a type and a count. Each of the four layouts runs a quarter of all pairs."""
    return share(itertools.product(types, COUNTS), layout, len(LAYOUTS))


def reductions(rank, size, layout):
    for dtype, count in counted(FLOATS + INTEGERS, layout):
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            name = f"{op} of {count} {dtype}"
            how = getattr(dist.ReduceOp, op)
            tensor = values(rank, count, dtype)
            dist.all_reduce(tensor, op=how)
            assert same(tensor, reduced(size, count, dtype, op)), name
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for count in share(COUNTS, layout, 2):
            whole = values(rank, size * count, dtype)
            part = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(part, whole)
            want = reduced(size, size * count, dtype, "SUM")[rank * count : (rank + 1) * count]
            assert same(part, want), f"reduce_scatter_tensor of {count} {dtype}"
            part.zero_()
            dist.reduce_scatter(part, list(whole.clone().chunk(size)) if count else [part] * size)
            assert same(part, want), f"reduce_scatter of {count} {dtype}"
            apart = [whole[r * count : (r + 1) * count].clone() for r in range(size)]
            part.zero_()
            dist.reduce_scatter(part, apart)
            assert same(part, want), f"reduce_scatter of separate {count} {dtype}"


def rooted(rank, size, layout):
    for dtype, count in counted([torch.float32, torch.int16, torch.bfloat16], layout):
        for root in range(size):
            for op in ("SUM", "MAX", "AVG"):
                tensor = values(rank, count, dtype)
                dist.reduce(tensor, root, op=getattr(dist.ReduceOp, op))
                mine = values(rank, count, dtype)
                want = reduced(size, count, dtype, op) if rank == root else mine
                assert same(tensor, want), f"{op} of {count} {dtype} at {root}"
    work = dist.reduce(torch.ones(9), 0, async_op=True)
    work.wait()
    assert work.result()[0].tolist() == [float(size) if rank == 0 else 1.0] * 9


@pytest.mark.parametrize("labels", LAYOUTS)
def test_rooted_reductions(labels, tmp_path):
    run(4, rooted, LAYOUTS.index(labels), folder=tmp_path, labels=labels)


def pre_multiplied(rank, size, layout):
    premul = dist._make_nccl_premul_sum
    for dtype, count in counted([*FLOATS, *FP8], layout):
        every = [values(r, count * size, torch.float32, 2) - 1 for r in range(size)]
        factors = [(1.0, 2.0, 1.0, 3.0)[r] for r in range(size)]  # at most 7: exact everywhere
        want = sum(f * v for f, v in zip(factors, every, strict=True)).to(dtype)
        name = f"{count} {dtype}"
        for factor in (factors[rank], torch.tensor([factors[rank]], dtype=torch.float32)):
            tensor = every[rank].to(dtype, copy=True)
            dist.all_reduce(tensor, op=premul(factor))
            assert same(tensor, want), f"all_reduce of {name}"
        mine = slice(rank * count, (rank + 1) * count)
        part = torch.empty(count, dtype=dtype)
        dist.reduce_scatter_tensor(part, every[rank].to(dtype, copy=True), op=premul(factors[rank]))
        assert same(part, want[mine]), f"reduce_scatter_tensor of {name}"
        tensor = every[rank].to(dtype, copy=True)
        dist.reduce(tensor, size - 1, op=premul(factors[rank]))
        assert same(tensor, want if rank == size - 1 else every[rank].to(dtype, copy=True)), (
            f"reduce {name}"
        )
    spin = torch.full((5,), complex(1, -1))
    dist.all_reduce(spin, op=premul(0.5))
    assert spin.tolist() == [complex(size / 2, -size / 2)] * 5


@pytest.mark.parametrize("labels", LAYOUTS)
def test_pre_multiplied_sums(labels, tmp_path):
    run(4, pre_multiplied, LAYOUTS.index(labels), folder=tmp_path, labels=labels)


def bitwise(rank, size):
    fold = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    types = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    for dtype in [*types, torch.bool, torch.uint16, torch.uint32, torch.uint64]:
        for op, combine in fold.items():
            generator = torch.Generator().manual_seed(5)
            every = torch.randint(-(2**62), 2**62, (size, 1001), generator=generator)
            every = every % 3 == 0 if dtype == torch.bool else every.to(dtype)
            same_bits = {torch.uint16: torch.int16, torch.uint32: torch.int32}
            same_bits |= {torch.uint64: torch.int64}
            signed = every.view(same_bits.get(dtype, dtype))  # torch's own lack some of these
            want = functools.reduce(combine, signed.unbind())
            reduce_op = getattr(dist.ReduceOp, op)
            tensor, part = every[rank].clone(), torch.empty(7, dtype=dtype)
            dist.all_reduce(tensor, reduce_op)
            assert torch.equal(tensor.view(want.dtype), want), f"{op} of {dtype}"
            tensor = every[rank].clone()
            dist.reduce(tensor, 0, reduce_op)
            assert rank or torch.equal(tensor.view(want.dtype), want), f"reduce {op} of {dtype}"
            dist.reduce_scatter_tensor(part, every[rank][: 7 * size].clone(), reduce_op)
            mine = want[7 * rank : 7 * rank + 7]
            assert torch.equal(part.view(want.dtype), mine), f"scattered {op} of {dtype}"


@pytest.mark.parametrize("labels", ["", "aabb"])
def test_bitwise_reductions(labels, tmp_path):
    run(4, bitwise, folder=tmp_path, labels=labels)


def eight_bits(rank, size):
    for dtype in FP8:
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            tensor = values(rank, 1001, torch.float32, 2).to(dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            every = torch.stack([values(r, 1001, torch.float64, 2) for r in range(size)])
            fold = {"SUM": "sum", "PRODUCT": "prod", "MIN": "amin", "MAX": "amax", "AVG": "mean"}[
                op
            ]
            assert same(tensor, getattr(every, fold)(0).to(dtype)), f"{op} of {dtype}"
        large = torch.full((9,), 400.0 if dtype == torch.float8_e4m3fn else 50000.0).to(dtype)
        dist.all_reduce(large)
        assert (large.float() == torch.finfo(dtype).max).all()  # saturates, as NCCL does


@pytest.mark.parametrize("labels", ["", "aabb"])
def test_eight_bit_floats(labels, tmp_path):
    run(4, eight_bits, folder=tmp_path, labels=labels)


@pytest.mark.parametrize("labels", LAYOUTS)
def test_reductions(labels, tmp_path):
    run(4, reductions, LAYOUTS.index(labels), folder=tmp_path, labels=labels)


def moves(rank, size, layout):
    for dtype, count in counted([*FLOATS, *INTEGERS, torch.bool, torch.complex64, *FP8], layout):
        every = [values(r, count, torch.float32).to(dtype) for r in range(size)]
        joined = torch.cat([t.view(torch.uint8) for t in every]).view(dtype)
        gathered = torch.empty(size * count, dtype=dtype)
        dist.all_gather_into_tensor(gathered, every[rank])
        assert same(gathered, joined), f"all_gather_into_tensor of {count} {dtype}"
        apart = [torch.empty(count, dtype=dtype) for _ in range(size)]
        dist.all_gather(apart, every[rank])
        assert all(same(a, b) for a, b in zip(apart, every, strict=True)), f"all_gather {dtype}"
        views = list(torch.empty(size * count, dtype=dtype).split(count)) if count else apart
        dist.all_gather(views, every[rank])
        assert all(same(a, b) for a, b in zip(views, every, strict=True)), f"views {dtype}"
        for root in (0, size - 1):
            tensor = every[rank].clone()
            dist.broadcast(tensor, root)
            assert same(tensor, every[root]), f"broadcast of {count} {dtype} from {root}"
    dist.barrier()


@pytest.mark.parametrize("labels", LAYOUTS)
def test_moves(labels, tmp_path):
    run(4, moves, LAYOUTS.index(labels), folder=tmp_path, labels=labels)


def special_types(rank, size):
    flags = torch.tensor([rank == 0, True, False])
    any_, all_ = flags.clone(), flags.clone()
    dist.all_reduce(any_, op=dist.ReduceOp.SUM)
    dist.all_reduce(all_, op=dist.ReduceOp.PRODUCT)
    assert any_.tolist() == [True, True, False]
    assert all_.tolist() == [False, True, False]
    spin = torch.full((5,), complex(rank, 1))
    dist.all_reduce(spin, op=dist.ReduceOp.AVG)
    assert spin.tolist() == [complex((size - 1) / 2, 1)] * 5
    matrix = torch.full((3, 4), float(rank))
    dist.all_reduce(matrix)
    assert matrix.shape == (3, 4)
    leaf = torch.zeros(3, requires_grad=True)
    dist.all_gather([leaf, torch.empty(3)], torch.ones(3))
    assert leaf.tolist() == [1, 1, 1]


@pytest.mark.smoke
def test_special_types(tmp_path):
    run(2, special_types, folder=tmp_path, labels="ab")


def asynchronous(rank, size):
    tensors = [torch.full((n,), float(rank + 1)) for n in (1, 1000, 300_000)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors for _ in range(3)]
    for work in works:
        assert work.wait()
        assert work.is_completed()
    total = sum(range(1, size + 1)) * size**2
    assert all((t == total).all() for t in tensors)

    tensor = torch.ones(100_000)
    seen = []
    chained = (
        dist.all_reduce(tensor, async_op=True)
        .get_future()
        .then(lambda future: seen.append(future.value()[0][0].item()) or 7)
    )
    assert chained.wait() == 7
    assert seen == [size]

    apart = [torch.zeros(9) for _ in range(size)]
    work = dist.all_gather(apart, torch.full((9,), float(rank)), async_op=True)
    work.get_future().wait()
    assert [t[0].item() for t in apart] == list(range(size))
    late = work.get_future()
    assert late.done()

    dropped = torch.ones(500_000)
    dist.all_reduce(dropped, async_op=True)  # nobody keeps the Work
    dist.barrier()
    assert (dropped == size).all()
    for _ in range(1500):  # more than may be in flight
        last = dist.all_reduce(torch.ones(4), async_op=True)
    last.wait()


def test_asynchronous(tmp_path):
    run(4, asynchronous, folder=tmp_path, labels="abab")


def groups_and_objects(rank, size):
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3]), dist.new_group([3, 0])]
    for members, group in zip(([0, 2], [1, 3], [0, 3]), pairs, strict=True):
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members)
            dist.broadcast(tensor.fill_(rank), members[1], group=group)
            assert tensor.item() == members[1]
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = torch.tensor([5.0])
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=alone)
    assert tensor.item() == 5

    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    assert [o["rank"] for o in objects] == list(range(size))
    shared = [rank, "from", rank] if rank == 1 else [None] * 3
    dist.broadcast_object_list(shared, src=1)
    assert shared == [1, "from", 1]

    a, b = torch.full((3,), float(rank)), torch.full((50,), 2.0)
    dist.all_reduce_coalesced([a, b])
    assert a.tolist() == [sum(range(size))] * 3
    assert (b == 2 * size).all()
    default = dist.distributed_c10d._get_default_group()
    outs, ins = [torch.empty(4), torch.empty(8)], [torch.full((1,), 1.0), torch.full((2,), rank)]
    default.allgather_into_tensor_coalesced(outs, [t.float() for t in ins]).wait()
    assert outs[1].tolist() == [float(r) for r in range(size) for _ in range(2)]
    outs, ins = [torch.empty(1), torch.empty(2)], [torch.ones(4), torch.full((8,), 2.0)]
    default.reduce_scatter_tensor_coalesced(outs, ins).wait()
    assert [outs[0].tolist(), outs[1].tolist()] == [[4.0], [8.0, 8.0]]
    backend = backend_of(default)
    stats = backend.stats()
    assert stats["operations"] > 0
    assert "clusters" in backend.topology()
    assert '"mode":"off"' in backend.tuning()
    return stats["cross_bytes_sent"]


@pytest.mark.smoke
def test_groups_and_objects(tmp_path):
    assert sum(run(4, groups_and_objects, folder=tmp_path, labels="aabb")) > 0


def refusals(rank, size):
    def refused(kind, text, call, *args, **kwargs):
        with pytest.raises(kind, match=text):
            call(*args, **kwargs)

    grid = torch.ones(4, 6)
    refused(ValueError, r"all_reduce on rank \d: tensor is not contiguous.*contiguous\(\)",
            dist.all_reduce, grid[:, ::2])  # fmt: skip
    refused(ValueError, "input is not contiguous", dist.all_gather_into_tensor,
            torch.empty(24 * size), grid[:, :2])  # fmt: skip
    refused(ValueError, "output has 5 elements, but must have 8", dist.all_gather_into_tensor,
            torch.empty(5), torch.empty(4))  # fmt: skip
    refused(ValueError, "input has 5 elements, but must have 8", dist.reduce_scatter_tensor,
            torch.empty(4), torch.empty(5))  # fmt: skip
    refused(ValueError, f"output {rank} has 3 elements", dist.all_gather,
            [torch.empty(3), torch.empty(3)], torch.empty(4))  # fmt: skip
    refused(TypeError, "Float.*where Int is needed", dist.all_gather_into_tensor,
            torch.empty(8), torch.empty(4, dtype=torch.int32))  # fmt: skip
    refused(TypeError, "bitwise.*Float", dist.all_reduce, grid, dist.ReduceOp.BAND)
    premul = dist._make_nccl_premul_sum
    refused(TypeError, "no pre-multiplied sum", dist.all_reduce, grid.int(), premul(2.0))
    refused(ValueError, "PREMUL_SUM is on meta", dist.all_reduce, grid,
            premul(torch.ones(1, device="meta")))  # fmt: skip
    refused(TypeError, "reduced", dist.all_reduce, grid.to(torch.float8_e4m3fnuz))
    refused(TypeError, "bool", dist.all_reduce, grid.bool(), dist.ReduceOp.AVG)
    group = dist.distributed_c10d._get_default_group()
    options = dist.ReduceOptions()
    options.rootRank = size
    refused(ValueError, "root 2 is not a rank", group.reduce, [grid], options)
    dist.all_reduce(grid)  # none of these has harmed the group
    assert (grid == size).all()


@pytest.mark.smoke
def test_refusals(tmp_path):
    run(2, refusals, folder=tmp_path)
