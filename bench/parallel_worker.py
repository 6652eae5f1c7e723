"""One rank of bench/parallel.py: it measures itself and its links, or trains by a strategy.

With GPUS in the environment it has a GPU, and trains in bfloat16.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from models import GptBlock, Shape
from quotas import limit
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

from hetccl.balance.stopwatch import synchronize
from hetccl.parallel import (
    Pipeline,
    Strategy,
    measure,
    measure_links,
    measure_reduces,
    measure_split,
    read_topology,
)

GPUS = "GPUS" in os.environ
SHAPE = Shape(24, 2048, 16, 1024, 32000) if GPUS else Shape(12, 384, 6, 64, 256)
TYPE = torch.bfloat16 if GPUS else torch.float32
WARMUPS = 2


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def block() -> nn.Module:
    return GptBlock(SHAPE).to(TYPE)


def embedding() -> nn.Module:
    return nn.Embedding(SHAPE.vocabulary, SHAPE.width, dtype=TYPE)


def head() -> nn.Module:
    return nn.Linear(SHAPE.width, SHAPE.vocabulary, dtype=TYPE)


def share(layer: nn.Module, mesh: DeviceMesh) -> None:
    """Applies tensor parallelism: each rank has its part of a block's heads and of its perceptron.

    A rank's rows of `mixed` are its queries, keys and values. Another order of random weights is as
    good a model.
    """
    if isinstance(layer, GptBlock):
        layer.heads //= mesh.size()
        plan = {"mixed": ColwiseParallel(), "projected": RowwiseParallel(),
                "wide": ColwiseParallel(), "narrow": RowwiseParallel()}  # fmt: skip
        parallelize_module(layer, mesh, plan)


def measure_all(rows: int, device: torch.device) -> dict[str, object]:
    """Measures seconds of a layer and of the head by rank, and bytes/s by level."""
    sample = torch.randn(1, SHAPE.context, SHAPE.width, dtype=TYPE, device=device)
    split = measure_split(block().to(device), sample, rows)
    return {
        "layer": [one.to_values() for one in measure(block().to(device), sample, rows)],
        "head": [one.to_values() for one in measure(head().to(device), sample, rows)],
        "rates": measure_links((32 if GPUS else 2) << 20, device),
        "reduces": measure_reduces(device=device),
        "topology": read_topology(),
        "shape": {
            "layers": SHAPE.layers, "hidden": SHAPE.width, "heads": SHAPE.heads,
            "vocabulary": SHAPE.vocabulary, "sequence": SHAPE.context, "type_bytes": TYPE.itemsize,
            "split_backward": split,
        },
    }  # fmt: skip


def train(strategy: Strategy, steps: int, device: torch.device) -> dict[str, object]:
    """Returns the seconds of each step, without the first ones, and the last loss."""
    pipeline = Pipeline(
        [block] * SHAPE.layers, strategy, loss_of, first=embedding, last=head, parallelize=share,
        device=device,
    )  # fmt: skip
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
    torch.manual_seed(1)
    text = torch.randint(SHAPE.vocabulary, (strategy.batch, SHAPE.context + 1), device=device)
    seconds = []
    for _ in range(WARMUPS + steps):
        synchronize(device)
        begin = time.perf_counter()
        loss = pipeline.step(text[:, :-1], text[:, 1:])
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
        optimizer.step()
        optimizer.zero_grad()
    return {"seconds": seconds[WARMUPS:], "loss": loss.item()}


def main() -> None:
    case, folder = os.environ["CASE"], Path(os.environ["FOLDER"])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if GPUS else torch.device("cpu")
    if GPUS:
        torch.cuda.set_device(device)
        os.environ["HETCCL_CLUSTER"] = "A" if rank < size // 2 else "B"
    torch.set_num_threads(1)
    dist.init_process_group(
        "hetccl", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    if not GPUS:
        limit(rank, folder, json.loads(os.environ["PROCESSORS"]))
    if case == "measure":
        found = measure_all(int(os.environ["ROWS"]), device)
    else:
        found = train(Strategy.load(os.environ["STRATEGY"]), int(os.environ["STEPS"]), device)
    if not GPUS:
        limit(rank, folder, [1] * size)
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
