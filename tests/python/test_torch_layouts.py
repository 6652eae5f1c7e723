"""Tensors whose elements lie in another order than their indices: channels_last, transposed."""

import pytest
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

LAYOUTS = (
    lambda t: t.contiguous(memory_format=torch.channels_last),
    lambda t: t.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
    lambda t: t.contiguous(),
)


def image(value, dtype=torch.float32):
    return (torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) % 11 + value).to(dtype)


def laid(rank, kind, value=None):
    """The image in one of the layouts: in `kind` itself, or in another on every rank."""
    which = kind if kind < len(LAYOUTS) else rank % len(LAYOUTS)
    return LAYOUTS[which](image(rank if value is None else value))


def elementwise(rank, size):
    summed = sum(image(r) for r in range(size))
    for kind in range(len(LAYOUTS) + 1):
        for later in (False, True):
            tensor = laid(rank, kind)
            strides = tensor.stride()
            for call, want in (
                (lambda t, k: dist.all_reduce(t, **k), summed),
                (lambda t, k: dist.broadcast(t, 1, **k), image(1)),
                (lambda t, k: dist.reduce(t, 1, **k), summed if rank == 1 else None),
            ):
                tensor.copy_(image(rank))
                work = call(tensor, {"async_op": later})
                if later:
                    work.wait()
                assert want is None or torch.equal(tensor, want), (kind, later)
                assert tensor.stride() == strides
    several = [laid(rank, kind, kind) for kind in range(len(LAYOUTS) + 1)]
    dist.all_reduce_coalesced(several)
    assert all(torch.equal(t, size * image(kind)) for kind, t in enumerate(several))
    leaf = laid(rank, 0).requires_grad_()
    dist.all_reduce(leaf.detach())
    assert torch.equal(leaf, summed)


def moves(rank, size):
    for kind in range(len(LAYOUTS) + 1):
        mine = laid(rank, kind)
        parts = [laid(r + rank, kind, -1) for r in range(size)]
        dist.all_gather(parts, mine)
        assert all(torch.equal(part, image(r)) for r, part in enumerate(parts)), kind
        # Parts that lie side by side in one storage, in another order than their indices.
        beside = [part.permute(0, 3, 1, 2) for part in torch.empty(size, 2, 4, 5, 3).unbind()]
        dist.all_gather(beside, mine)
        assert all(torch.equal(part, image(r)) for r, part in enumerate(beside)), kind
        joined = torch.empty(size, 2, 3, 4, 5)
        dist.all_gather_into_tensor(joined, mine)
        assert torch.equal(joined, torch.stack([image(r) for r in range(size)])), kind
        out = laid(rank, kind, -1)
        dist.reduce_scatter(out, [laid(r, kind, 10 * r + rank) for r in range(size)])
        assert torch.equal(out, sum(image(10 * rank + r) for r in range(size))), kind
        dist.scatter(out, [laid(r, kind, 7 * r) for r in range(size)] if rank == 1 else None, 1)
        assert torch.equal(out, image(7 * rank)), kind
        dist.gather(mine, parts if rank == 0 else None, 0)
        assert rank or all(torch.equal(part, image(r)) for r, part in enumerate(parts)), kind
        dist.all_to_all(parts, [laid(r, kind, 10 * rank + r) for r in range(size)])
        assert all(torch.equal(p, image(10 * r + rank)) for r, p in enumerate(parts)), kind
        sent = dist.isend(mine, (rank + 1) % size)
        dist.recv(out, (rank - 1) % size)
        sent.wait()
        assert torch.equal(out, image((rank - 1) % size)), kind


def both(rank, size):
    elementwise(rank, size)
    moves(rank, size)


@pytest.mark.parametrize("labels", ["", "aab"])
def test_layouts(labels, tmp_path):
    run(3, both, folder=tmp_path, labels=labels)


def network():
    torch.manual_seed(1)
    convolutions = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(4 * 4 * 4, 5)).double()


def train(model, inputs):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.eval()  # batch statistics would be of each rank's own part
    for batch in inputs:
        model(batch).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def convolutional(rank, size):
    inputs = torch.randn(4, 8, 3, 8, 8, generator=torch.Generator().manual_seed(3)).double()
    want = train(network(), inputs)
    share = 8 // size
    mine = inputs[:, rank * share : (rank + 1) * share]
    images = [batch.contiguous(memory_format=torch.channels_last) for batch in mine]
    for options in ({}, {"gradient_as_bucket_view": True}):
        model = network().to(memory_format=torch.channels_last)
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01, **options)
        assert torch.allclose(train(model, images), want, rtol=1e-9)
    # Without the wrapper: each gradient as it lies.
    model = network().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.eval()
    for batch in images:
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimiser.step()
        optimiser.zero_grad()
    got = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(got, want, rtol=1e-9)


def test_convolutional_network(tmp_path):
    run(2, convolutional, folder=tmp_path)
