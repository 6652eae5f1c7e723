"""A pipeline over two clusters: each trains half of the layers, and only activations cross.

    torchrun --nproc-per-node 2 examples/pipeline.py

Between vendors a pipeline sends the least: the activations of a micro-batch and their gradients,
not weights. While one micro-batch is on the link, the next one is computed.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import hetccl

STEPS, BATCH, MICRO_BATCHES, WIDTH = 10, 64, 4, 32


def make_stages() -> list[nn.Module]:
    """Makes both halves, the same on every rank."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
    return [first, nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))]


def make_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a step's inputs and targets."""
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    return x, x.sum(1, keepdim=True)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns the mean squared error."""
    return (output - target).square().mean()


def main() -> None:
    """Trains as one rank, which is one stage."""
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    os.environ.setdefault("HETCCL_CLUSTER", "ab"[rank % 2])
    has_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local_rank) if has_gpus else torch.device("cpu")
    dist.init_process_group("hetccl", device_id=device if has_gpus else None)
    if dist.get_world_size() != 2:
        raise SystemExit("this model has two stages: start two ranks")
    module = make_stages()[rank].to(device)
    stage = PipelineStage(module, rank, num_stages=2, device=device)
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    for step in range(STEPS):
        x, target = (tensor.to(device) for tensor in make_batch(step))
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target, losses=losses)
            print(f"step {step}: loss {torch.stack(losses).mean().item():.6f}", flush=True)
        optimizer.step()
    if rank == 0:
        sent = hetccl.torch_backend.backend_of(dist.group.WORLD).stats()["cross_bytes_sent"]
        print(f"stage 0 has sent {sent / STEPS / 1000:.1f} kB a step across clusters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
