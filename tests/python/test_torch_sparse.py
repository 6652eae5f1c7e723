"""All-reduce of sparse tensors: the same result as Gloo's, bit for bit."""

from datetime import timedelta

import pytest
from torch_ranks import run, tell, wait_for

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

TYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
)


def entries(rank, sizes, sparse_dims, count, dtype):
    """As many entries on every rank as `count` says, some of them at one place."""
    generator = torch.Generator().manual_seed(7 * rank + count)
    limits = torch.tensor(sizes[:sparse_dims]).unsqueeze(1)
    indices = torch.rand(sparse_dims, count, generator=generator).mul(limits).long()
    values = torch.randn(count, *sizes[sparse_dims:], generator=generator).mul(9).to(dtype)
    return torch.sparse_coo_tensor(indices, values, sizes)


def halves(rank, size):
    """Types of which Gloo, or torch itself, adds none."""
    for counts in counts_of(size):
        sizes = (40, 3)
        ours = entries(rank, sizes, 1, counts[rank], torch.float16)
        dist.all_reduce(ours)
        want = entries(0, sizes, 1, counts[0], torch.float16).coalesce().to_dense()
        for r in range(1, size):
            want += entries(r, sizes, 1, counts[r], torch.float16).coalesce().to_dense()
        assert torch.equal(ours.to_dense(), want)


def counts_of(size):
    """Entries by rank: all some, some none, none any."""
    return [[100 + 37 * r for r in range(size)], [0, 5, 0, 50][:size], [0] * size]


def same(ours, theirs):
    assert ours.is_coalesced() and theirs.is_coalesced(), (ours, theirs)
    assert torch.equal(ours.indices(), theirs.indices())
    assert ours.values().dtype == theirs.values().dtype
    bits = [t.values().contiguous().flatten().view(torch.uint8) for t in (ours, theirs)]
    assert torch.equal(*bits)


def compared(rank, size):
    halves(rank, size)
    gloo = dist.new_group(backend="gloo")
    for dtype in TYPES:
        for sizes, sparse_dims in (((40,), 1), ((20, 30), 2), ((50, 3, 2), 1), ((4, 5, 6), 2)):
            for counts in counts_of(size):
                ours = entries(rank, sizes, sparse_dims, counts[rank], dtype)
                theirs = ours.clone()
                dist.all_reduce(ours)
                dist.all_reduce(theirs, group=gloo)
                same(ours, theirs)
                dense = sum(
                    entries(r, sizes, sparse_dims, counts[r], torch.float64).to_dense()
                    for r in range(size)
                )
                if dtype == torch.float64:
                    assert torch.allclose(ours.to_dense(), dense)
    several = [entries(rank, (64, 4), 1, 10 * rank + i, torch.float32) for i in range(5)]
    wanted = [tensor.clone() for tensor in several]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in several]
    for work, ours, theirs in zip(works, several, wanted, strict=True):
        dist.all_reduce(theirs, group=gloo)
        work.wait()
        assert work.result()[0] is ours or torch.equal(work.result()[0].values(), ours.values())
        same(ours, theirs)
    later = entries(rank, (64, 4), 1, 20, torch.float32)
    wanted = later.clone()
    dist.all_reduce(wanted, group=gloo)
    future = dist.all_reduce(later, async_op=True).get_future()
    same(future.then(lambda done: done.value()[0]).wait(), wanted)


@pytest.mark.parametrize("labels", ["", "aab"])
def test_like_gloo(labels, tmp_path):
    run(3, compared, folder=tmp_path, labels=labels)


def refused(rank, size):
    one = torch.eye(4).to_sparse()
    with pytest.raises(NotImplementedError, match="sparse tensors reduce by SUM only"):
        dist.all_reduce(one, dist.ReduceOp.MAX)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # torch itself stops these first
    with pytest.raises(ValueError, match=r"Csr.*to_sparse_coo"):
        backend.allreduce([one.to_sparse_csr()])
    with pytest.raises(ValueError, match=r"broadcast.*is sparse, which all_reduce alone takes"):
        backend.broadcast([one], dist.BroadcastOptions())
    # An error that only all ranks together can find is raised on each.
    other = torch.zeros(4 + rank, 4).to_sparse()
    shapes = r"rank \d has \[\d, 4\] of Float with 2 sparse dimensions, and rank \d has"
    with pytest.raises(ValueError, match=shapes):
        dist.all_reduce(other)
    with pytest.raises(ValueError, match=r"of Double with 2 sparse.* of Float|Float.* of Double"):
        dist.all_reduce(one.double() if rank else one.clone())
    dist.all_reduce(one)  # none of these has harmed the group
    assert torch.equal(one.to_dense(), size * torch.eye(4))


def test_refusals(tmp_path):
    run(2, refused, folder=tmp_path)


def late(rank, size):
    one = torch.eye(4).to_sparse()
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
    if rank == 1:
        wait_for("time is up")
        return
    with pytest.raises(dist.DistBackendError, match=r"all_reduce_sparse.*timed out.*1"):
        dist.all_reduce(one)
    tell("time is up")


def test_a_rank_does_not_come(tmp_path):
    run(2, late, folder=tmp_path)


class Words(nn.Module):
    """An embedding of which each batch uses few rows, so that gradients are sparse."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(500, 16, sparse=True)
        self.layer = nn.Linear(16, 3)

    def forward(self, words):
        return self.layer(self.table(words).mean(1))


def train(model, batches):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for words in batches:
        model(words).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def embedded(rank, size):
    batches = torch.randint(500, (6, 4 * size, 7), generator=torch.Generator().manual_seed(3))
    want = train(Words().double(), batches)
    mine = batches[:, 4 * rank : 4 * rank + 4]
    got = train(nn.parallel.DistributedDataParallel(Words().double()), mine)
    assert torch.allclose(got, want, rtol=1e-9)
    every = [torch.empty_like(got) for _ in range(size)]
    dist.all_gather(every, got)
    assert all(torch.equal(other, got) for other in every)


@pytest.mark.parametrize("labels", ["", "aab"])
def test_sparse_embeddings(labels, tmp_path):
    run(3, embedded, folder=tmp_path, labels=labels)
