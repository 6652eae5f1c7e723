"""Training over hetccl on GPUs, mixed with hosts or not: what one process computes."""

import torch
import torch.distributed as dist
from cuda_balance import follow_devices, train_balanced
from cuda_ranks import Rank
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
BATCH = 12  # divides among 1, 2, 3 and 4 ranks


def network() -> nn.Module:
    """In double precision, whose sums differ little between devices and orders."""
    torch.manual_seed(1)
    layers = [nn.Linear(33, 128), nn.ReLU(), nn.Linear(128, 129), nn.LayerNorm(129)]
    return nn.Sequential(*layers).double()


def batches() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(STEPS, BATCH, 33, generator=generator, dtype=torch.float64)


def train(model: nn.Module, inputs: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in inputs:
        model(batch).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])


def wanted() -> torch.Tensor:
    model = network()
    train(model, batches())
    return flat(model)


def share(where: Rank) -> torch.Tensor:
    rows = BATCH // where.size
    return batches()[:, where.rank * rows : (where.rank + 1) * rows].to(where.device)


def check(where: Rank, got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    moved = (want - flat(network())).norm()
    error = ((got - want).norm() / moved).item()
    assert error < tolerance, error
    every = [torch.empty_like(got) for _ in range(where.size)]
    dist.all_gather(every, got)
    # The optimiser's own arithmetic is each device's.
    same = torch.equal if len({device[:4] for device in where.devices}) == 1 else torch.allclose
    assert all(same(other, got) for other in every)


def data_parallel(where: Rank) -> None:
    want = wanted()
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        model = DistributedDataParallel(network().to(where.device), bucket_cap_mb=0.05, **options)
        train(model, share(where))
        check(where, flat(model), want, 1e-9)


def balanced(where: Rank) -> None:
    model = train_balanced(where, network(), batches().flatten(0, 1), BATCH)
    check(where, flat(model), wanted(), 1e-9)
    follow_devices(where)


def halving(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    half = bucket.buffer().bfloat16().div_(dist.get_world_size())
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def hooks(where: Rank) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    want = wanted()
    registered = {
        "all-reduce": (default_hooks.allreduce_hook, 1e-9),
        "fp16": (default_hooks.fp16_compress_hook, 5e-2),
        "own": (halving, 2e-1),
    }
    for hook, tolerance in registered.values():
        model = DistributedDataParallel(network().to(where.device), bucket_cap_mb=0.05)
        model.register_comm_hook(None, hook)
        train(model, share(where))
        check(where, flat(model), want, tolerance)


def fully_sharded(where: Rank) -> None:
    want = wanted()
    for reshard in (True, False):
        model = network().to(where.device)
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, reshard_after_forward=reshard)
        fully_shard(model)
        train(model, share(where))
        full = [p.detach().full_tensor().cpu().flatten() for p in model.parameters()]
        check(where, torch.cat(full), want, 1e-9)


def layouts(where: Rank) -> None:
    """Tensors that lie in another order on every rank meet by their indices."""
    image = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    orders = (torch.channels_last, torch.contiguous_format)
    mine = (image + where.rank).to(where.device, memory_format=orders[where.rank % 2])
    for later in (False, True):
        tensor = mine.clone()
        work = dist.all_reduce(tensor, async_op=later)
        if later:
            work.wait()
        assert tensor.stride() == mine.stride()
        want = where.size * image + where.size * (where.size - 1) / 2
        assert torch.equal(tensor.cpu(), want)
        dist.broadcast(tensor, 0)
        assert torch.equal(tensor.cpu(), want)


def convolutional(where: Rank) -> None:
    """A network in channels_last, each gradient reduced as it lies and in DDP's buckets."""

    def made() -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(64, 5)).double()

    images = torch.randn(STEPS, BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(3)).double()
    want = made()
    train(want, images)
    rows = BATCH // where.size
    mine = images[:, where.rank * rows : (where.rank + 1) * rows].to(where.device)
    batches_last = [batch.contiguous(memory_format=torch.channels_last) for batch in mine]
    model = made().to(where.device, memory_format=torch.channels_last)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.01)
    train(wrapped, batches_last)
    assert torch.allclose(flat(wrapped), flat(want), rtol=1e-9)
    model = made().to(where.device, memory_format=torch.channels_last)
    model(batches_last[0]).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
    single = made()
    single(images[0]).square().mean().backward()
    for ours, theirs in zip(model.parameters(), single.parameters(), strict=True):
        assert torch.allclose(ours.grad.cpu(), theirs.grad, rtol=1e-9)


class Words(nn.Module):
    """An embedding of which each batch uses few rows, so that gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(500, 16, sparse=True)
        self.layer = nn.Linear(16, 3)
        self.double()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(words).mean(1))


def sparse_embeddings(where: Rank) -> None:
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(500, (STEPS, BATCH, 7), generator=generator)
    rows = BATCH // where.size
    models = [Words(), DistributedDataParallel(Words().to(where.device))]
    for model, parts in zip(
        models, (words, words[:, where.rank * rows : (where.rank + 1) * rows]), strict=True
    ):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        for part in parts.to(next(model.parameters()).device):
            model(part).square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()
    want, got = (flat(model) for model in models)
    assert torch.allclose(got, want, rtol=1e-9)
    one = torch.eye(where.size).to_sparse().to(where.device) * (where.rank + 1)
    empty = torch.zeros(where.size, where.size).to_sparse().to(where.device)
    tensor = one if where.rank % 2 == 0 else empty
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    evens = sum(rank + 1 for rank in range(0, where.size, 2))
    assert torch.equal(tensor.to_dense().cpu(), evens * torch.eye(where.size))


TRAINING = [data_parallel, balanced, hooks, layouts, convolutional, sparse_embeddings]
TRAINING_ON_GPUS = [fully_sharded]
