"""DistributedDataParallel over unlike devices: ranks on GPUs and ranks on CPUs train one model.

    torchrun --nproc-per-node 4 examples/ddp.py

The first ranks of a host take its GPUs, one each. The others train on CPUs. On a host without a GPU
two clusters of CPU ranks stand for two vendors. Fast devices wait for slow ones here, since all
ranks have equal batches: `hetccl.balance` gives each the batch that it computes in the same time.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hetccl  # registers the backend

STEPS, BATCH, INPUTS = 20, 64, 32  # BATCH is a step's, over all ranks


def choose_device() -> torch.device:
    """Returns this rank's GPU, or the CPU, which then gets a cluster by its local rank."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    if not torch.cuda.is_available():
        os.environ.setdefault("HETCCL_CLUSTER", "ab"[local_rank % 2])
    return torch.device("cpu")


def make_model() -> nn.Module:
    """Makes the same model on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 256), nn.Tanh(), nn.Linear(256, 1))


def make_batch(step: int) -> torch.Tensor:
    """Returns a step's inputs; each rank takes its part of the rows."""
    return torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Returns the error in learning the sum of the inputs."""
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def main() -> None:
    """Trains as one rank."""
    device = choose_device()
    dist.init_process_group("hetccl", device_id=device if device.type == "cuda" else None)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        mine = make_batch(step).chunk(size)[rank].to(device)
        loss = loss_of(model, mine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    final = loss_of(model.module, make_batch(STEPS).to(device)).detach().cpu()
    losses = [torch.empty(()) for _ in range(size)]
    dist.all_gather(losses, final)
    devices = [None] * size
    dist.all_gather_object(devices, str(device))
    if rank == 0:
        print(f"hetccl {hetccl.__version__}: {size} ranks on {', '.join(devices)}")
        print("loss on each rank:", *(f"{loss.item():.6f}" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
