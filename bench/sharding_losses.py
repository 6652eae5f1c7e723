"""Losses of a GPT on real text: FSDP2, three-level sharding, encodings, a checkpoint in the middle.

    python bench/sharding_losses.py [--steps 300] [--ranks 8] [--cases ...] --json PATH

All ranks are on this machine, in clusters of four. Writes each case's loss of each step and, last,
on text that was not trained on. In float32 the order of sums changes the losses, more with each
step: so the same is compared in float64. `bench/papers/run.py 003-figure-9` shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from places import finish
from torch.distributed.fsdp import fully_shard

import hetccl  # noqa: F401
from hetccl.demo.data import batch, text
from hetccl.demo.model import GPT, Shape
from hetccl.sharding import shard

WARM = 30  # steps until the full rate of learning
THREE = {"preset": "three-level", "gradients": 4, "weight_wire": "", "gradient_wire": ""}
WIRES = {**THREE, "weight_wire": "int8", "gradient_wire": "int4"}
CASES: dict[str, dict[str, Any]] = {
    "float64: fsdp2": {},
    "float64: three-level, exact": THREE,
    "float64: three-level, other degrees after half": THREE,
    "fsdp2": {},
    "three-level, exact": THREE,
    "int8 weights, int4 gradients": WIRES,
    "int8 weights, int4 gradients, stochastic": {**WIRES, "gradient_wire": "int4:stochastic"},
    "int8 weights, int4 gradients, int8 updates": {**WIRES, "update_wire": "int8"},
    "zero++": {"preset": "zero++", "secondary": 4},
}


def make(case: str, options: argparse.Namespace, folder: str | None = None) -> Any:
    """Returns the model, its optimizer, and the object that shards it."""
    model = GPT(Shape(layers=options.layers), seed=1)
    if case.startswith("float64"):
        model.double()
    if case.endswith("fsdp2"):
        for unit in (*model.blocks, model):
            fully_shard(unit)
        return model, torch.optim.AdamW(model.parameters(), lr=options.rate), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    given = CASES[case] if folder is None else {"preset": "zero3", "gradient_wire": ""}
    sharded = shard(model, optimizer, **given)
    if folder is not None:
        sharded.load(folder)
    return model, optimizer, sharded


def work(options: argparse.Namespace) -> None:
    """One rank."""
    torch.set_num_threads(1)
    case = options.case
    folder = os.environ["FOLDER"]
    dist.init_process_group("hetccl", init_method=f"file://{folder}/{case}.store",
                            rank=int(os.environ["RANK"]), world_size=options.ranks)  # fmt: skip
    rank, data, losses = dist.get_rank(), text(), []
    model, optimizer, sharded = make(case, options)
    length, share = model.positions.weight.shape[0], options.sequences
    held_out, data = data[: len(data) // 16], data[len(data) // 16 :]
    mine = slice(rank * share, (rank + 1) * share)
    for number in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min((number + 1) / WARM, 1 - number / options.steps)
        if case.endswith("after half") and number == options.steps // 2:
            sharded.save(f"{folder}/checkpoint")
            model, optimizer, sharded = make(case, options, f"{folder}/checkpoint")
        tokens, targets = batch(data, number, options.ranks * share, length)
        loss = model(tokens[mine], targets[mine])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach().clone()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    losses.append(evaluate(model, held_out, 16 * options.ranks, length))
    if rank == 0:
        Path(folder, f"{case}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def evaluate(model: GPT, data: torch.Tensor, sequences: int, length: int) -> float:
    """Returns the loss on a text that is the same for all cases."""
    tokens, targets = batch(data, 0, sequences, length)
    share = sequences // dist.get_world_size()
    mine = slice(dist.get_rank() * share, (dist.get_rank() + 1) * share)
    with torch.no_grad():
        loss = model(tokens[mine], targets[mine])
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return float(loss)


def launch(case: str, options: argparse.Namespace, folder: str) -> list[float]:
    """Returns the losses of each step of a case."""
    workers = []
    for rank in range(options.ranks):
        env = {"RANK": str(rank), "FOLDER": folder, "HETCCL_CLUSTER": str(rank // 4),
               "HETCCL_WIRE_LEAST_BYTES": "1024"}  # fmt: skip
        command = [sys.executable, *sys.argv, "--case", case]
        workers.append(subprocess.Popen(command, env={**os.environ, **env}, text=True))
    finish(workers, case, options.timeout)
    losses: list[float] = json.loads(Path(folder, f"{case}.json").read_text())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=4, help="of a rank, a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--json", metavar="PATH", required=True, help="write all losses here")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        work(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {case: launch(case, options, folder) for case in options.cases}
    Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
