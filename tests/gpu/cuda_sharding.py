"""Three-level sharding on GPUs, mixed with hosts or not: what one process computes."""

import torch
import torch.distributed as dist
from cuda_ranks import Rank
from cuda_training import check, network, share, wanted


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, sharded, inputs) -> None:
    for batch in inputs:
        half = batch.shape[0] // 2

        def loss(part: torch.Tensor, of: int = batch.shape[0]) -> torch.Tensor:
            return model(part).square().mean() * part.shape[0] / of

        with sharded.accumulate():
            loss(batch[:half]).backward()
        loss(batch[half:]).backward()
        optimizer.step()
        optimizer.zero_grad()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.full_tensor().detach().cpu().flatten() for p in model.parameters()])


def sharding(where: Rank) -> None:
    """All degrees of the number of ranks."""
    from hetccl.sharding import shard

    size = where.size
    want = wanted()
    cases = [
        (1, 1, size, {}),
        (1, size, size, {}),
        (size, size, size, {"secondary": min(1, size - 1)}),
    ]
    if size == 4:
        cases += [(2, 2, 4, {}), (1, 2, 4, {}), (2, 4, 4, {"secondary": 4}), (2, 2, 2, {})]
    for w, g, o, options in cases:
        model = network().to(where.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        degrees = {"weights": w, "gradients": g, "optimizer_states": o, **options}
        sharded = shard(model, optimizer, "zero3", units=list(model)[::2], **degrees)
        train(model, optimizer, sharded, share(where))
        check(where, flat(model), want, 1e-9)


def encoded_sharding(where: Rank) -> None:
    """Weights by 8 bits, gradients by 4, updates by 8: close to what is wanted, and alike."""
    from hetccl.sharding import shard

    size = where.size
    want = wanted()
    moved = (want - flat_of(network())).norm()
    for w, options in ((size, {}), (1, {"update_wire": "int8"})):
        for dtype, bound in ((torch.float32, 0.2), (torch.bfloat16, 0.3)):
            model = network().to(where.device, dtype)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            sharded = shard(
                model, optimizer, "zero++", weights=w, units=list(model)[::2],
                secondary=min(1, w - 1), **options,
            )  # fmt: skip
            train(model, optimizer, sharded, share(where).to(dtype))
            got = flat(model).double()
            error = ((got - want).norm() / moved).item()
            assert error < bound, (w, dtype, error)
            assert size == 1 or error > 1e-5, "nothing was encoded"
            every = [torch.empty_like(got) for _ in range(size)]
            dist.all_gather(every, got)
            assert all(torch.equal(other, got) for other in every), (w, dtype)


def flat_of(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])
