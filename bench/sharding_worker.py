"""One rank of bench/sharding.py: times of steps, their loss, and the memory of a rank's state."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sharding_cases import SHARDINGS
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import hetccl  # noqa: F401
from hetccl.demo.data import batch, text
from hetccl.demo.model import GPT, Shape
from hetccl.sharding import Sharded, shard

WARM = 1


def make(case: str, model: GPT) -> tuple[torch.optim.Optimizer, Sharded | None]:
    """Returns the optimizer, and the object that shards the model unless FSDP2 does it alone."""
    if case.startswith("fsdp2"):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for unit in (*model.blocks, model):
            fully_shard(unit, mp_policy=policy)
        return torch.optim.AdamW(model.parameters(), lr=1e-3), None
    model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return optimizer, shard(model, optimizer, **SHARDINGS[case])


def memory_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, sharded: Sharded | None
) -> dict[str, int]:
    if sharded is not None:
        return sharded.memory()

    def size(tensors: Any) -> int:
        return sum(t.to_local().nbytes if hasattr(t, "to_local") else t.nbytes for t in tensors)

    states = (value for state in optimizer.state.values() for value in state.values())
    parameters = list(model.parameters())
    return {
        "weights": size(parameters),
        "gradients": size(p.grad for p in parameters if p.grad is not None),
        "optimizer_states": size(states),
    }


def main() -> None:
    case, options = os.environ["CASE"], json.loads(os.environ["OPTIONS"])
    folder = Path(os.environ["FOLDER"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if "gloo" in case else "hetccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shape = Shape(width=options["width"], layers=options["layers"],
                  context=options["context"])  # fmt: skip
    model = GPT(shape, seed=1)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer, sharded = make(case, model)
    data, passes = text(), options["micro_batches"]
    result: dict[str, Any] = {"parameters": parameters, "seconds": []}

    def step(number: int) -> None:
        total = 0.0
        for index in range(passes):
            tokens, targets = batch(data, number * passes + index, ranks, shape.context)
            is_last = index == passes - 1
            if case.endswith(
                "one sum"
            ):  # whole gradients are kept on each rank until the last pass
                model.set_requires_gradient_sync(is_last)
            with nullcontext() if is_last or sharded is None else sharded.accumulate():
                loss = model(tokens[rank : rank + 1], targets[rank : rank + 1]) / passes
                loss.backward()
            total += loss.item()
            if index == max(passes - 2, 0) and number == WARM + options["steps"] - 1:
                result["memory"] = memory_of(model, optimizer, sharded)
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.tensor(total / ranks)
        dist.all_reduce(loss)
        result["loss"] = loss.item()

    def meet(told: str, awaited: str) -> None:
        dist.barrier()
        if rank == 0:
            (folder / told).touch()
            while not (folder / awaited).exists():
                time.sleep(0.01)
        dist.barrier()

    for number in range(WARM):
        step(number)
    meet("warm", "go")
    for number in range(options["steps"]):
        started = time.perf_counter()
        step(WARM + number)
        result["seconds"].append(time.perf_counter() - started)
    if rank == 0:
        (folder / "result").write_text(json.dumps(result))
    meet("done", "end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
