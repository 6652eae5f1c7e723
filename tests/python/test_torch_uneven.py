"""All-to-all, and lists of tensors of different lengths."""

import random

import pytest
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64)


def block(source, to, rows, width=3, dtype=torch.float32):
    """Returns the `rows` rows from `source` to `to`, different for each pair."""
    return (torch.arange(rows * width).reshape(rows, width) % 5 + source + 2 * to).to(dtype)


def all_to_all_single(rank, size):
    choices = random.Random(5)  # the same on every rank
    for round_ in range(30):
        rows = [[choices.choice((0, 1, 7, 500)) for _ in range(size)] for _ in range(size)]
        dtype = DTYPES[round_ % len(DTYPES)]
        sent = torch.cat([block(rank, to, rows[rank][to], dtype=dtype) for to in range(size)])
        want = torch.cat([block(r, rank, rows[r][rank], dtype=dtype) for r in range(size)])
        got = torch.empty_like(want)
        into = [rows[r][rank] for r in range(size)]
        work = dist.all_to_all_single(got, sent, into, rows[rank], async_op=round_ % 2 == 0)
        if work is not None:
            work.wait()
        assert torch.equal(got, want)
    even = torch.arange(4.0 * size) + 100 * rank
    got = torch.empty_like(even)
    dist.all_to_all_single(got, even)
    want = torch.cat([torch.arange(4.0) + 4 * rank + 100 * r for r in range(size)])
    assert torch.equal(got, want)


def all_to_all_lists(rank, size):
    rows = [[(3 * r + to) % 4 for to in range(size)] for r in range(size)]
    sent = [block(rank, to, rows[rank][to]) for to in range(size)]
    got = [torch.empty(rows[r][rank], 3) for r in range(size)]
    dist.all_to_all(got, sent)
    for r in range(size):
        assert torch.equal(got[r], block(r, rank, rows[r][rank]))


def uneven_lists(rank, size):
    lengths = [0, 5, 1000, 3][:size]
    every = [block(r, 0, lengths[r]) for r in range(size)]
    got = [torch.empty(n, 3) for n in lengths]
    dist.all_gather(got, every[rank])
    assert all(torch.equal(g, e) for g, e in zip(got, every, strict=True))
    parts = [block(rank, to, lengths[to]) for to in range(size)]
    for op, factor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, 1 / size)):
        mine = torch.empty(lengths[rank], 3)
        dist.reduce_scatter(mine, parts, op=op)
        want = sum(block(r, rank, lengths[rank]) for r in range(size)) * factor
        assert torch.allclose(mine, want)


class Expert(torch.autograd.Function):
    """Tokens to their experts, and the gradients of what comes out of them back."""

    @staticmethod
    def forward(ctx, tokens, into, out):
        ctx.splits = into, out
        received = tokens.new_empty(sum(into), tokens.shape[1])
        dist.all_to_all_single(received, tokens.contiguous(), into, out)
        return received

    @staticmethod
    def backward(ctx, gradient):
        into, out = ctx.splits
        back = gradient.new_empty(sum(out), gradient.shape[1])
        dist.all_to_all_single(back, gradient.contiguous(), out, into)
        return back, None, None


def expert_parallel(rank, size):
    """A mixture of experts: each rank has one, and its counts change with every batch."""
    torch.manual_seed(1)
    experts = [torch.nn.Linear(8, 8) for _ in range(size)]
    for step in range(3):
        tokens = torch.randn(size, 20, 8, generator=torch.Generator().manual_seed(step))
        choice = torch.randint(size, (size, 20), generator=torch.Generator().manual_seed(9 + step))
        order = choice[rank].argsort(stable=True)
        counts = torch.bincount(choice[rank], minlength=size)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        into, out = incoming.tolist(), counts.tolist()
        x = tokens[rank].clone().requires_grad_()
        done = experts[rank](Expert.apply(x[order], into, out))
        back = Expert.apply(done, out, into)
        back.square().sum().backward()

        reference = tokens[rank].clone().requires_grad_()
        want = torch.stack([experts[c](t) for t, c in zip(reference, choice[rank], strict=True)])
        want.square().sum().backward()
        assert torch.allclose(back, want[order], rtol=1e-5, atol=1e-6)
        assert torch.allclose(x.grad, reference.grad, rtol=1e-5, atol=1e-6)


def functional(rank, size):
    sent = torch.arange(2.0 * size) + 10 * rank
    got = funcol.all_to_all_single(sent, [2] * size, [2] * size, dist.group.WORLD)
    assert torch.equal(got, torch.cat([torch.arange(2.0) + 2 * rank + 10 * r for r in range(size)]))


def refusals(rank, size):
    rows = torch.ones(2 * size + 1, 3)
    with pytest.raises(ValueError, match=r"do not divide among \d ranks: pass split sizes"):
        dist.group.WORLD.alltoall_base(rows, rows.clone(), [], [], dist.AllToAllOptions())
    with pytest.raises(ValueError, match=r"add up to its \d rows"):
        wrong = [1] * size
        dist.group.WORLD.alltoall_base(rows, rows.clone(), wrong, wrong, dist.AllToAllOptions())
    with pytest.raises(dist.DistBackendError, match="rank"):  # counts that do not match
        dist.barrier()  # what is still in flight on a slower rank would fail, too
        out, into = [1] * size, [1] * size
        if rank == 0:
            out[1] = 2
        dist.all_to_all_single(torch.empty(sum(into)), torch.ones(sum(out)), into, out)
        dist.barrier()  # ranks 2 and 3 had no part in it


def everything(rank, size):
    for part in (all_to_all_single, all_to_all_lists, uneven_lists, expert_parallel, functional):
        part(rank, size)
    refusals(rank, size)


@pytest.mark.parametrize("labels", ["", "aabb", "abac"])
def test_uneven(labels, tmp_path):
    run(4, everything, folder=tmp_path, labels=labels)
