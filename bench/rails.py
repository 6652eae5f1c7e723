"""Collectives between two emulated hosts of one, two and four rails, equal and unequal.

    python bench/rails.py [--ranks 1] [--bytes 67108864] [--calls 3] [--rails 500,200 ...]

For each collective: the rate at which data leaves a host, as a part of the sum of its rails, and
how many MiB the kernel counted on each interface of host 0. `--ranks` is of each host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from places import finish
from rails_worker import COLLECTIVES, HOSTS
from rich.console import Console
from rich.table import Table

from hetccl.hosts import EmulatedHosts

WORKER = Path(__file__).parent / "rails_worker.py"
RAILS = ("500", "500,500", "500,200", "200,200,200,200", "500,300,300,200")


def run(rates: list[str], ranks: int, arguments: list[str], timeout: float) -> dict[str, Any]:
    """What the worker's rank 0 printed, with the bytes that host 0 sent over each rail."""
    with EmulatedHosts(HOSTS, rates) as hosts:
        env = {
            "MASTER_ADDR": hosts.address(0),
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(HOSTS * ranks),
            "HETCCL_CARD_MBPS": hosts.card_mbps(),
        }
        before = [hosts.tx_bytes(0, rail) for rail in range(hosts.rails)]
        workers = [
            hosts.popen(
                rank // ranks, [sys.executable, str(WORKER), *arguments],
                env | {"RANK": str(rank), "LOCAL_RANK": str(rank % ranks)},
                stdout=subprocess.PIPE if rank == 0 else None, text=True,
            )
            for rank in range(HOSTS * ranks)
        ]  # fmt: skip
        finish(workers, ", ".join(rates), timeout)
        assert workers[0].stdout is not None
        found: dict[str, Any] = json.loads(workers[0].stdout.read())
        sent = [hosts.tx_bytes(0, rail) for rail in range(hosts.rails)]
        return {"results": found, "sent": [b - a for a, b in zip(before, sent, strict=True)]}


def efficiency(result: dict[str, Any], rates: list[str]) -> float:
    """The rate of the data that left a host, as a part of the sum of its rails."""
    seconds = statistics.median(result["seconds"])
    return 8e-6 * float(result["leaving"]) / seconds / sum(float(rate[:-4]) for rate in rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=1, help="of each host")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="that leave each host")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--rails", nargs="+", default=RAILS, help="Mbit/s of each rail: 500,200")
    parser.add_argument("--timeout", type=float, default=300)
    options = parser.parse_args()
    table = Table(
        title=f"{options.bytes >> 20} MiB from host to host, two hosts of {options.ranks} ranks"
    )
    for column in ("rails, Mbit/s", "collective", "ms", "of the sum", "MiB sent by up0, up1, ..."):
        table.add_column(column, justify="right" if column in ("ms", "of the sum") else "left")
    for text in options.rails:
        rates = [f"{rate}mbit" for rate in text.split(",")]
        for collective in COLLECTIVES:
            arguments = [str(options.bytes), str(options.calls), collective]
            found = run(rates, options.ranks, arguments, options.timeout)
            result = found["results"][collective]
            table.add_row(
                text,
                collective,
                f"{1000 * statistics.median(result['seconds']):.0f}",
                f"{efficiency(result, rates):.3f}",
                ", ".join(f"{sent / (1 << 20):.0f}" for sent in found["sent"]),
            )
    Console(width=90).print(table)


if __name__ == "__main__":
    main()
