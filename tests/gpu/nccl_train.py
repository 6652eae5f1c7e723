"""Trains with PyTorch's own backends and writes the losses: a program that knows nothing of hetccl.

    python tests/gpu/nccl_train.py LOSSES.json SCENE...     # by NCCL, or by Gloo with no GPU
The environment is torchrun's (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Each process
sees one GPU, as on a cluster whose nodes have one. All scenes train one model on one sequence of
batches, so their losses are alike, whatever the number of ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

ON_GPU = torch.cuda.is_available()
BACKEND = "nccl" if ON_GPU else "gloo"
DEVICE = torch.device("cuda:0" if ON_GPU else "cpu")
STEPS, BATCH, WIDTH, KINDS, BLOCKS = 12, 32, 64, 16, 7
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RATE = 0.05

Trained = list[float]


class Block(nn.Module):
    """An MLP beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make_model() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, KINDS)).to(DEVICE)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    directions = torch.randn(WIDTH, KINDS, generator=generator)
    inputs = torch.randn(STEPS, BATCH, WIDTH, generator=generator)
    return [(x.to(DEVICE), (x @ directions).argmax(1).to(DEVICE)) for x in inputs]


def mean(loss: torch.Tensor, group: dist.ProcessGroup | None = None) -> float:
    loss = loss.detach().clone()
    dist.all_reduce(loss, group=group)
    return (loss / dist.get_world_size(group)).item()


def share(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    return tensor.chunk(size)[rank]


def train(
    model: nn.Module, rank: int, size: int, group: dist.ProcessGroup | None = None
) -> Trained:
    """With this rank's part of each batch; the loss of a batch is the mean over `group`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for inputs, targets in batches():
        loss = cross_entropy(model(share(inputs, rank, size)), share(targets, rank, size))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss, group))
    return losses


def ddp() -> Trained:
    model = nn.parallel.DistributedDataParallel(make_model(), bucket_cap_mb=0.1)
    return train(model, RANK, SIZE)


def fsdp2() -> Trained:
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for block in model:
        fully_shard(block)
    return train(fully_shard(model), RANK, SIZE)


def mesh() -> Trained:
    """Tensor parallel within a row of two ranks, FSDP2 between rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    rows = SIZE // 2
    grid = init_device_mesh(DEVICE.type, (rows, 2), mesh_dim_names=("data", "tensor"))
    model = make_model()
    for block in list(model)[:BLOCKS]:
        parallelize_module(
            block, grid["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
        )
        fully_shard(block, mesh=grid["data"])
    fully_shard(model, mesh=grid["data"])
    return train(model, RANK // 2, rows, grid["data"].get_group())


def pipeline() -> Trained:
    """One stage a rank, one forward and one backward in turn."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = list(make_model())
    per_stage = -(-len(layers) // SIZE)
    mine = nn.Sequential(*layers[RANK * per_stage : (RANK + 1) * per_stage])
    stage = PipelineStage(mine, RANK, SIZE, DEVICE)
    schedule = Schedule1F1B(stage, n_microbatches=2 * SIZE, loss_fn=cross_entropy)
    optimizer = torch.optim.SGD(mine.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for inputs, targets in batches():
        parts: list[torch.Tensor] = []
        if RANK == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=parts)
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.stack(parts).mean() if RANK == SIZE - 1 else torch.zeros((), device=DEVICE)
        loss = loss.detach().clone()
        dist.broadcast(loss, SIZE - 1)
        losses.append(loss.item())
    return losses


def lightning() -> Trained:
    """Lightning makes the process group, as on nodes of one GPU each."""
    try:
        import lightning.pytorch as library
        from lightning.pytorch.strategies import DDPStrategy
    except ImportError:
        import pytorch_lightning as library
        from pytorch_lightning.strategies import DDPStrategy

    losses = []

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_model()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)

        def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
            inputs, targets = batch
            loss = cross_entropy(self.net(share(inputs, RANK, SIZE)), share(targets, RANK, SIZE))
            losses.append(mean(loss))
            return loss

    os.environ["NODE_RANK"] = str(RANK)
    trainer = library.Trainer(
        accelerator="gpu" if ON_GPU else "cpu", devices=1, num_nodes=SIZE, max_epochs=1,
        strategy=DDPStrategy(process_group_backend=BACKEND), logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(batches(), batch_size=None))
    return losses


def accelerate() -> Trained:
    """Accelerate makes the process group."""
    import accelerate as library

    accelerator = library.Accelerator(cpu=not ON_GPU)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for inputs, targets in batches():
        loss = cross_entropy(model(share(inputs, RANK, SIZE)), share(targets, RANK, SIZE))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach().clone(), "mean").item())
    return losses


def run_in_group(body: Callable[[], Trained]) -> Trained:
    options = {"device_id": DEVICE} if ON_GPU else {}
    dist.init_process_group(BACKEND, **options)
    return body()


SCENES: dict[str, Callable[[], Trained]] = {
    **{body.__name__: partial(run_in_group, body) for body in (ddp, fsdp2, mesh, pipeline)},
    "lightning": lightning,
    "accelerate": accelerate,
}


def main() -> None:
    path, *scenes = sys.argv[1:]
    losses = {}
    port = int(os.environ["MASTER_PORT"])
    for number, scene in enumerate(scenes):
        os.environ["MASTER_PORT"] = str(port + number)  # a store of its own for each
        started = time.monotonic()
        losses[scene] = SCENES[scene]()
        dist.destroy_process_group()
        if RANK == 0:
            print(f"   {scene}: {losses[scene][-1]:.6f}, {time.monotonic() - started:.1f} s")
            Path(path).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
