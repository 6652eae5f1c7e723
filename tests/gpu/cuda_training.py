"""Training over hetccl on GPUs, mixed with hosts or not: what one process computes."""

import torch
import torch.distributed as dist
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


TRAINING = [data_parallel, hooks]
TRAINING_ON_GPUS = [fully_sharded]
