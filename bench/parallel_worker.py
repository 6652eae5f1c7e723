"""One rank of bench/parallel.py: it measures itself and its links, or trains by a strategy."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from models import GptBlock, Shape
from torch import nn
from torch.nn.functional import cross_entropy

from hetccl.parallel import Pipeline, Strategy, measure, measure_links, read_topology

LAYERS = 12
SHAPE = Shape(LAYERS, 192, 4, 32, 256)
WARMUPS = 2


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def head() -> nn.Module:
    return nn.Linear(SHAPE.width, SHAPE.vocabulary)


def limit(rank: int, folder: Path, processors: list[float]) -> None:
    """Gives each rank so much of a processor from now on; bench/parallel.py does it. Collective."""
    dist.barrier()
    if rank == 0:
        (folder / "draft").write_text(json.dumps(processors))
        (folder / "draft").rename(folder / "processors")
    time.sleep(0.1)
    dist.barrier()


def measure_all(rows: int) -> dict[str, object]:
    """Measures seconds of a layer and of the head by rank, and bytes/s by level."""
    sample = torch.randn(1, SHAPE.context, SHAPE.width)
    return {
        "layer": measure(GptBlock(SHAPE), sample, rows),
        "head": measure(head(), sample, rows),
        "rates": measure_links(2 << 20),
        "topology": read_topology(),
    }


def train(strategy: Strategy, steps: int) -> dict[str, object]:
    """The seconds of each step, without the first ones, and the last loss."""
    layers = [lambda: GptBlock(SHAPE)] * LAYERS
    pipeline = Pipeline(
        layers, strategy, loss_of, first=lambda: nn.Embedding(SHAPE.vocabulary, SHAPE.width),
        last=head,
    )  # fmt: skip
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
    torch.manual_seed(1)
    text = torch.randint(SHAPE.vocabulary, (strategy.batch, SHAPE.context + 1))
    seconds = []
    for _ in range(WARMUPS + steps):
        begin = time.perf_counter()
        loss = pipeline.step(text[:, :-1], text[:, 1:])
        seconds.append(time.perf_counter() - begin)
        optimizer.step()
        optimizer.zero_grad()
    return {"seconds": seconds[WARMUPS:], "loss": loss.item()}


def main() -> None:
    case, folder = os.environ["CASE"], Path(os.environ["FOLDER"])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "hetccl", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    limit(rank, folder, json.loads(os.environ["PROCESSORS"]))
    if case == "measure":
        found = measure_all(int(os.environ["ROWS"]))
    else:
        strategy = Strategy.load(os.environ["STRATEGY"])
        found = train(strategy, int(os.environ["STEPS"]))
    limit(rank, folder, [1] * size)
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
