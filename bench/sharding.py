"""Steps of a GPT on an emulated tree of slow links: FSDP2 over Gloo and hetccl, and the presets.

    python bench/sharding.py [--rate 1gbit] [--trunk 200mbit] [--micro-batches 4] [--steps 4]

Eight ranks: two sites (nodes) of two hosts (packages) of two ranks. The ranks of a host share
memory, hosts have a link of --rate, sites a slower one of --trunk. Bytes are those of a step that
the kernel counts on a link in one direction, headers included; in parentheses are what the formulas
of hetccl.sharding.plan say, and how much more was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from places import finish
from rich.console import Console
from rich.table import Table
from sharding_cases import CASES, HOSTS, RANKS, SITES, predict

from hetccl.hosts import INTERFACE, EmulatedHosts

HERE = Path(__file__).parent
ROUNDS = 2


def wait_for(path: Path, workers: list[subprocess.Popen[str]], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not path.exists():
        if any(worker.poll() not in (None, 0) for worker in workers) or time.monotonic() > deadline:
            finish(workers, path.name, 0)
        time.sleep(0.02)


def run(options: argparse.Namespace, case: str) -> dict[str, Any]:
    """One job: what its rank 0 found, and the bytes of a step on a host's link and on a trunk."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmulatedHosts(HOSTS, options.rate, SITES, options.trunk) as hosts,
    ):
        workers = []
        for rank in range(RANKS):
            host = rank * HOSTS // RANKS
            env = {
                "MASTER_ADDR": hosts.address(0), "MASTER_PORT": "29500", "RANK": str(rank),
                "WORLD_SIZE": str(RANKS), "FOLDER": folder, "CASE": case,
                "OPTIONS": json.dumps(vars(options)), "GLOO_SOCKET_IFNAME": INTERFACE,
                "HETCCL_SOCKET_IFNAME": f"={INTERFACE}", "HETCCL_WIRE_LEAST_BYTES": "4096",
            }  # fmt: skip
            command = [sys.executable, str(HERE / "sharding_worker.py")]
            workers.append(hosts.popen(host, command, env={**os.environ, **env}, text=True))
        sent = []
        for begins, ends in (("warm", "go"), ("done", "end")):
            wait_for(Path(folder, begins), workers, options.timeout)
            sent.append([hosts.tx_bytes(0), hosts.trunk_bytes(0)])
            Path(folder, ends).touch()
        finish(workers, case, 60)
        found: dict[str, Any] = json.loads(Path(folder, "result").read_text())
    per_step = [(after - before) / options.steps for before, after in zip(*sent, strict=True)]
    return {**found, "host": per_step[0], "trunk": per_step[1]}


def beside_formulas(case: str, found: dict[str, Any], micro_batches: int) -> list[str]:
    """The bytes of the trunk, of a host's link and of a rank's memory."""
    counted = [found["trunk"], found["host"], sum(found["memory"].values())]
    costs = [predict(case, found["parameters"], micro_batches, n) for n in (SITES, HOSTS)]
    trunk, host = costs
    if trunk is None or host is None:
        return [f"{one / 1e6:.2f}" for one in counted]
    wanted = [trunk.leaving[0], host.leaving[0], host.memory.kept]
    return [
        f"{one / 1e6:.2f} ({want / 1e6:.2f}, {one / want - 1:+.1%})"
        for one, want in zip(counted, wanted, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--trunk", default="200mbit")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=64, help="tokens of a rank a pass")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    rounds = [{case: run(options, case) for case in options.cases} for _ in range(options.rounds)]
    title = f"GPT of {rounds[0][options.cases[0]]['parameters'] / 1e6:.1f} million parameters, "
    title += f"{options.micro_batches} micro-batches, links {options.rate}, trunk {options.trunk}"
    table = Table(title=title)
    columns = ("case", "s a step", "as fast", "trunk MB", "host's MB", "rank's MB", "loss")
    for column in columns:
        table.add_column(column, justify="left" if column == "case" else "right")
    first = 0.0
    for case in options.cases:
        seconds = statistics.median(s for one in rounds for s in one[case]["seconds"])
        first = first or seconds
        table.add_row(case, f"{seconds:.2f}", f"{first / seconds:.2f}",
                      *beside_formulas(case, rounds[-1][case], options.micro_batches),
                      f"{rounds[-1][case]['loss']:.4f}")  # fmt: skip
    Console(width=140).print(table)
    print(json.dumps(rounds))


if __name__ == "__main__":
    main()
