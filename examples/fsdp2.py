"""FSDP2 over two clusters: weights are split inside each cluster and copied between clusters.

    torchrun --nproc-per-node 4 examples/fsdp2.py

So the gathers of weights, which come in every pass, stay on the fast links of a cluster, and only
the sums of gradients cross the slow link. Ranks 0 and 1 are cluster "a" here, 2 and 3 cluster "b";
on hosts of unlike vendors the clusters are found, and the label goes.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hetccl

STEPS, BATCH, WIDTH, CLUSTERS = 10, 64, 64, 2


def make_model() -> nn.Module:
    """Makes the same model on every rank."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def make_batch(step: int) -> torch.Tensor:
    """Returns a step's inputs; each rank takes its part of the rows."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Returns the error in learning the sum of the inputs."""
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def main() -> None:
    """Trains as one rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("HETCCL_CLUSTER", "ab"[rank * CLUSTERS // size])
    has_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpus else None
    dist.init_process_group("hetccl", device_id=device)
    mesh = init_device_mesh(
        "cuda" if has_gpus else "cpu",
        (CLUSTERS, size // CLUSTERS),
        mesh_dim_names=("between", "inside"),  # the first is for copies, the second for parts
    )
    model = make_model().to(device or "cpu")
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        loss = loss_of(model, make_batch(step).chunk(size)[rank].to(device or "cpu"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        loss = loss_of(model, make_batch(STEPS).to(device or "cpu")).item()
    if rank == 0:
        parts = sum(p.to_local().numel() for p in model.parameters())
        whole = sum(p.numel() for p in model.parameters())
        print(f"hetccl {hetccl.__version__}: a rank has {parts} of {whole} weights")
        print(f"loss: {loss:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
