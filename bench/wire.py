"""Encoded collectives over a slow link of two emulated hosts, beside the same ones as they are.

    python bench/wire.py [--rate 1gbit] [--bytes 67108864] [--ranks 2]

For each encoding: how many times as fast, what is possible (bits that cross), and the largest error
as a part of the largest element.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from places import place_of, run_ranks
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
WIRES = ("", "int8", "e4m3", "int4", "int4:64")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
ROUNDS = 2


def possible(wire: str, dtype: str) -> float:
    """By how much fewer bits cross."""
    if not wire:
        return 1.0
    name, _, block = wire.partition(":")
    bits = (4 if name == "int4" else 8) + 32 / int(block or 256)
    return (32 if dtype == "float32" else 16) / bits


def run(options: argparse.Namespace, wire: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "wire_worker.py"), str(options.bytes), options.dtype]
    hosts = [rank * 2 // options.ranks for rank in range(options.ranks)]
    with tempfile.TemporaryDirectory() as folder, place_of(2, options.rate) as place:
        env = {"MASTER_ADDR": place.address, "MASTER_PORT": "29500", "FOLDER": folder}
        env |= {"HETCCL_WIRE": wire, "HETCCL_WIRE_GATHER": wire}
        text = run_ranks(place, [command] * options.ranks, hosts, env, options.timeout, wire)
    found: dict[str, Any] = json.loads(text)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of the whole buffer")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--timeout", type=float, default=300)
    options = parser.parse_args()
    rounds = [{wire: run(options, wire) for wire in WIRES} for _ in range(ROUNDS)]
    table = Table(title=f"{options.bytes >> 20} MiB of {options.dtype}, {options.ranks} ranks on "
                        f"two hosts, {options.rate}")  # fmt: skip
    for column in ("collective", "wire", "ms", "as fast", "possible", "error"):
        table.add_column(column, justify="left" if column in ("collective", "wire") else "right")
    for collective in COLLECTIVES:
        plain = 0.0
        for wire in WIRES:
            ms = statistics.median(ms for one in rounds for ms in one[wire][collective]["ms"])
            plain = plain or ms
            error = max(one[wire][collective]["error"] for one in rounds)
            table.add_row(collective, wire or "as it is", f"{ms:.1f}", f"{plain / ms:.2f}",
                          f"{possible(wire, options.dtype):.2f}", f"{error:.1e}")  # fmt: skip
    Console(width=90).print(table)


if __name__ == "__main__":
    main()
