"""The demo as one rank of a launcher: mpirun, srun, flux run or torchrun has started the ranks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from hetccl.demo import launch
from hetccl.launchers.placement import Placement

_RANKS = (2, 4, 8)  # each has as many of the 8 sequences of a step


def check(options: argparse.Namespace, placement: Placement) -> None:
    """Raises DemoError if these ranks cannot train, or if an option would have no effect."""
    if options.loopback or options.rate is not None:
        raise launch.DemoError(
            "--rate and --loopback are for the hosts that the demo emulates itself: "
            f"{placement.launcher.name} has started these ranks"
        )
    if placement.size not in _RANKS:
        raise launch.DemoError(
            f"the demo trains with 2, 4 or 8 ranks, and {placement.launcher.name} has started "
            f"{placement.size}"
        )


def run(options: argparse.Namespace, placement: Placement, arguments: Sequence[str]) -> None:
    """Runs both trainings as one rank. Rank 0 prints the results and writes the report. Raises
    DemoError.

    If the job gives its ranks no HETCCL_CLUSTER, the first half of them is one cluster, and the
    second half the other.
    """
    check(options, placement)
    os.environ.setdefault("HETCCL_CLUSTER", "ab"[2 * placement.rank // placement.size])
    for name in launch.WIRES:
        os.environ.pop(name, None)
    from hetccl.demo.train import train

    ours = train("hetccl", options.steps, None)
    runs: list[dict[str, Any]] = [ours]
    if not options.no_gloo:
        runs.append(train("gloo", options.steps, ours["clusters"]))
    if placement.rank != 0:
        return
    for one in runs:
        print(launch.describe(one))
    verdict = launch.compare(*runs) if len(runs) == 2 else launch.describe(ours)
    if len(runs) == 2:
        print(verdict)
    if not options.no_report:
        launch.write_report(options.report or launch.REPORT, runs, verdict, None, arguments)
