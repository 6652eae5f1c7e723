"""Jobs of training on unlike ranks: equal shares, shares by profiles, and shares that move.

Two emulated hosts, a cluster each. Control groups give each rank a part of a processor.
`bench/papers/run.py 000-figure-9 000-table-4` measures by these jobs what paper 000 claims.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from places import place_of, run_ranks
from quotas import limited

WORKER = Path(__file__).parent / "balance_worker.py"
FAST, SLOW = 0.5, 0.25  # of a processor
BATCH = 48
RATE = "1gbit"
TIMEOUT = 900


def run(case: str, steps: int, processors: list[float]) -> dict[str, Any]:
    """Runs a job of a rank per quota. Returns the seconds of each step, and each rank's shares.

    `case` is "equal", "profiled" or "online". Slow ranks are on the second host of two.
    """
    hosts = [0 if quota == FAST else 1 for quota in processors]
    hosts = [host - min(hosts) for host in hosts]
    with (
        tempfile.TemporaryDirectory() as folder,
        place_of(max(hosts) + 1, RATE) as hosts_of_job,
        limited(hosts_of_job, len(hosts), Path(folder) / "processors") as place,
    ):
        env = {
            "CASE": case, "STEPS": str(steps), "BATCH": str(BATCH), "FOLDER": folder,
            "PROCESSORS": json.dumps(processors),
        }  # fmt: skip
        argvs = [[sys.executable, str(WORKER)]] * len(hosts)
        return dict(json.loads(run_ranks(place, argvs, hosts, env, TIMEOUT, case)))


def rate_of(found: dict[str, Any]) -> float:
    """Returns the samples per second over the second half of the steps."""
    seconds = found["seconds"]
    return BATCH / statistics.mean(seconds[len(seconds) // 2 :])
