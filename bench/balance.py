"""Training on unlike ranks: equal shares, shares by profiles, and shares that move.

    python bench/balance.py [--steps 40] [--rate 1gbit]

Four ranks on two emulated hosts, two clusters. Control groups give the ranks of the first host half
of a processor each, those of the second a quarter. Efficiency is as in paper 000, section 5.3:
samples per second over the sum of what the two hosts reach alone. In the last job the hosts' quotas
change places in mid-run.
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
from quotas import limited
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
FAST, SLOW = 0.5, 0.25  # of a processor
BATCH = 48
IDEAL = 1.5  # times the speed of equal shares: (2 * 2 + 2 * 1) / (4 * 1)


def run(options: argparse.Namespace, case: str, processors: list[float]) -> dict[str, Any]:
    """One job of a rank per quota: what its rank 0 tells."""
    hosts = [0 if quota == FAST else 1 for quota in processors]
    hosts = [host - min(hosts) for host in hosts]
    with (
        tempfile.TemporaryDirectory() as folder,
        place_of(max(hosts) + 1, options.rate) as hosts_of_job,
        limited(hosts_of_job, len(hosts), Path(folder) / "processors") as place,
    ):
        env = {
            "CASE": case, "STEPS": str(options.steps), "BATCH": str(BATCH), "FOLDER": folder,
            "PROCESSORS": json.dumps(processors),
        }  # fmt: skip
        argvs = [[sys.executable, str(HERE / "balance_worker.py")]] * len(hosts)
        return dict(json.loads(run_ranks(place, argvs, hosts, env, 900, case)))


def rate_of(found: dict[str, Any], first: int, last: int) -> float:
    """Samples per second over some steps."""
    return BATCH / statistics.mean(found["seconds"][first:last])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    mixed, half = [FAST, FAST, SLOW, SLOW], options.steps // 2
    alone = [rate_of(run(options, "equal", two), half, options.steps)
             for two in ([FAST] * 2, [SLOW] * 2)]  # fmt: skip
    jobs = {case: run(options, case, mixed) for case in ("equal", "profiled", "online", "moved")}
    table = Table("shares", "samples/s", "of equal", "of the ideal", "efficiency", "last shares",
                  box=None, header_style="dim")  # fmt: skip
    base = rate_of(jobs["equal"], half, options.steps)
    for case, found in jobs.items():
        rate = rate_of(found, len(found["seconds"]) - half, len(found["seconds"]))
        table.add_row(
            case, f"{rate:.1f}", f"{rate / base:.2f}", f"{rate / base / IDEAL:.2f}",
            f"{rate / sum(alone):.3f}", "/".join(map(str, found["shares"][-1])),
        )  # fmt: skip
    console = Console()
    console.print(f"alone: {alone[0]:.1f} and {alone[1]:.1f} samples/s; batch {BATCH}")
    console.print(table)
    moved = jobs["moved"]
    at = options.steps
    settled = next(
        (step for step in range(at, len(moved["shares"])) if moved["shares"][step][0] <= BATCH / 5),
        None,
    )
    told = "never" if settled is None else f"{settled - at} steps later"
    console.print(f"the quotas change places at step {at}; the shares follow {told}")
    for case in ("online", "moved"):
        shares = jobs[case]["shares"]
        changes = [(step, now) for step, now in enumerate(shares) if now != shares[step - 1]]
        console.print(
            f"{case}: " + ", ".join(f"step {s}: {'/'.join(map(str, n))}" for s, n in changes)
        )


if __name__ == "__main__":
    main()
