"""Steps of a GPT on an emulated tree of slow links: FSDP2 over Gloo and hetccl, and the presets.

    python bench/sharding.py [--rate 1gbit] [--trunk 200mbit] [--steps 4] --json PATH

Eight ranks: two sites (nodes) of two hosts (packages) of two ranks. The ranks of a host share
memory, hosts have a link of --rate, sites a slower one of --trunk. Bytes are those of a step that
the kernel counts on a link in one direction, headers included; `formula` is what hetccl.sharding's
planner says. `bench/papers/run.py 003-figure-7` shows both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from places import finish
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
    """Runs one job. Returns rank 0's results, and the bytes of a step on a host's link and on a
    trunk.
    """
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


def arguments() -> argparse.Namespace:
    """The command line."""
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
    parser.add_argument("--json", metavar="PATH", required=True, help="write all rounds here")
    return parser.parse_args()


def with_formulas(case: str, found: dict[str, Any], micro_batches: int) -> dict[str, Any]:
    """Adds the formulas' predictions of the same bytes to the results, if there are formulas for
    the case.
    """
    trunk, host = (
        predict(case, found["parameters"], micro_batches, places) for places in (SITES, HOSTS)
    )
    if trunk is None or host is None:
        return found
    formula = {"trunk": trunk.leaving[0], "host": host.leaving[0], "memory": host.memory.kept}
    return {**found, "formula": formula}


def main() -> None:
    options = arguments()
    rounds = [
        {
            case: with_formulas(case, run(options, case), options.micro_batches)
            for case in options.cases
        }
        for _ in range(options.rounds)
    ]
    Path(options.json).write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
