"""Losses of a GPT on real text: FSDP2, three-level sharding, encodings, a checkpoint in the middle.

    python bench/sharding_losses.py [--steps 300] [--ranks 8] [--cases ...]

All ranks are on this machine, in clusters of four that exchange by TCP or shared memory. Prints
each case's loss over the last tenth of the steps, and its largest difference to FSDP2's.
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
from rich.console import Console
from rich.table import Table
from torch.distributed.fsdp import fully_shard

import hetccl  # noqa: F401
from hetccl.demo.data import batch, text
from hetccl.demo.model import GPT, Shape
from hetccl.sharding import shard

THREE = {"preset": "three-level", "gradients": 4, "weight_wire": "", "gradient_wire": ""}
WIRES = {**THREE, "weight_wire": "int8", "gradient_wire": "int4"}
CASES: dict[str, dict[str, Any]] = {
    "fsdp2": {},
    "three-level, exact": THREE,
    "three-level, other degrees after half": THREE,
    "int8 weights, int4 gradients": WIRES,
    "int8 weights, int4 gradients, stochastic": {**WIRES, "gradient_wire": "int4:stochastic"},
    "int8 weights, int4 gradients, int8 updates": {**WIRES, "update_wire": "int8"},
    "zero++": {"preset": "zero++", "secondary": 4},
}


def make(case: str, options: argparse.Namespace, folder: str | None = None) -> Any:
    """The model, its optimizer, and what shards it."""
    model = GPT(Shape(layers=options.layers), seed=1)
    if case == "fsdp2":
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
    for number in range(options.steps):
        if case.endswith("after half") and number == options.steps // 2:
            sharded.save(f"{folder}/checkpoint")
            model, optimizer, sharded = make(case, options, f"{folder}/checkpoint")
        tokens, targets = batch(data, number, options.ranks, model.positions.weight.shape[0])
        loss = model(tokens[rank : rank + 1], targets[rank : rank + 1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach().clone()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    if rank == 0:
        Path(folder, f"{case}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def launch(case: str, options: argparse.Namespace, folder: str) -> list[float]:
    """The losses of each step of a case."""
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
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        work(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {case: launch(case, options, folder) for case in options.cases}
    first = found[options.cases[0]]
    last = max(1, options.steps // 10)
    table = Table(title=f"{options.steps} steps, {options.ranks} ranks")
    for column in ("case", "loss", "to the first", "largest difference"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case, losses in found.items():
        mean, wanted = sum(losses[-last:]) / last, sum(first[-last:]) / last
        far = max(abs(a - b) / b for a, b in zip(losses, first, strict=True))
        table.add_row(case, f"{mean:.5f}", f"{mean / wanted - 1:+.2e}", f"{far:.2e}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
