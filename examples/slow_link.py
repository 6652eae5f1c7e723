"""Sharding over a slow link: weights stay near, and what crosses the link may be encoded.

    torchrun --nproc-per-node 4 examples/slow_link.py exact
    torchrun --nproc-per-node 4 examples/slow_link.py three-level

Ranks 0 and 1 play one host, 2 and 3 another. The preset says among how many ranks weights,
gradients and optimizer states are split, and which of them travel in few bits: docs/sharding.md.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import hetccl
import hetccl.sharding

STEPS, BATCH, WIDTH = 5, 64, 256


def make_model() -> nn.Sequential:
    """Makes the model; rank 0's weights become everybody's."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def make_batch(step: int) -> torch.Tensor:
    """Returns a step's inputs; each rank takes its part of the rows."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Returns the error in learning the mean of the inputs."""
    return (model(x) - x.mean(1, keepdim=True)).square().mean()


def main() -> None:
    """Trains as one rank."""
    preset = sys.argv[1] if len(sys.argv) > 1 else "exact"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("HETCCL_HOSTID", f"host{rank * 2 // size}")
    dist.init_process_group("hetccl")
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sharded = hetccl.sharding.shard(model, optimizer, preset, units=list(model))
    for step in range(STEPS):
        loss = loss_of(model, make_batch(step).chunk(size)[rank])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        loss = loss_of(model, make_batch(STEPS))
    memory = sum(sharded.memory().values())
    if rank == 0:
        print(f"{preset}: degrees {sharded.degrees}, {memory / 1e6:.2f} MB of state on rank 0")
        print(f"loss: {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
