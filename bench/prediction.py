"""Measures how well the cost model predicts a call's time, on emulated links.

Predictions are measured as they are, for single calls; and corrected by the settings that a job
with HETCCL_TUNE has learnt for some sizes, for blocking calls in a row, as jobs learn them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import place_of, run_ranks
from report import EMULATED_SCENES, Scene, Sheet, goal

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SCENES = tuple(scene for scene in EMULATED_SCENES if scene.name in ("AABB", "AABC"))
GOAL = 0.25  # of the measured time
GOAL_SHARE = 0.9  # of calls, after tuning
PORT = 29404
SIZES = ("-b", "4K", "-e", "16M", "-f", "16")
CALLS = ("-n", "20", "-w", "5", "-z", "1", "--check", "0")
# Broadcasts are tuned by steps alone.
TUNED_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LEARNT_SIZES = ("-b", "4K", "-e", "1M", "-f", "4")
LEARNING_CALLS = ("-n", "1000", "-w", "5", "-z", "1", "--check", "0")
# So many calls that what the emulated link lets pass after a pause matters little.
FORESEEN = (
    ("-b", "4K", "-e", "256K", "-f", "4", "-n", "200", "-w", "60", "-z", "1", "--check", "0"),
    ("-b", "1M", "-e", "64M", "-f", "4", "-n", "5", "-w", "2", "-z", "1", "--check", "0"),
)


def run(
    scene: Scene,
    operation: str,
    rate: str,
    timeout: float,
    *,
    argv: Sequence[str] = (*SIZES, *CALLS, "--predict"),
    tuned: dict[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Runs `hetccl bench` across hosts. Returns its rows."""
    argv = [sys.executable, "-m", "hetccl", "bench", operation, *argv, "--json"]
    with place_of(scene.hosts, rate) as place:
        env = {
            "MASTER_ADDR": place.address,
            "MASTER_PORT": str(PORT),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            **(tuned or {}),
        }
        hosts = scene.host_of_rank
        what = f"{scene.name}, {operation}, predicted"
        said = run_ranks(place, [argv] * len(hosts), hosts, env, timeout, what)
    rows: list[dict[str, Any]] = json.loads(said)["rows"]
    return rows


def measure(options: argparse.Namespace, rate: str) -> dict[str, Any]:
    """All scenes: rows by scene and operation."""
    return {
        scene.name: {name: run(scene, name, rate, options.timeout) for name in OPERATIONS}
        for scene in SCENES
    }


def measure_tuned(options: argparse.Namespace, rate: str) -> dict[str, Any]:
    """Measures all scenes after a job has tuned some sizes. All jobs of a scene share a file."""
    found: dict[str, Any] = {}
    for scene in EMULATED_SCENES:
        with tempfile.TemporaryDirectory() as folder:
            file = {"HETCCL_TUNE_FILE": str(Path(folder) / "tuning.json")}
            search = {"HETCCL_TUNE": "online", "HETCCL_TUNE_BUDGET": "10000", **file}
            learn = (*LEARNT_SIZES, *LEARNING_CALLS)
            for name in TUNED_OPERATIONS:
                run(scene, name, rate, options.timeout, argv=learn, tuned=search)
            frozen = {"HETCCL_TUNE": "frozen", **file}
            found[scene.name] = {
                name: [
                    row
                    for argv in FORESEEN
                    for row in run(
                        scene, name, rate, options.timeout, argv=(*argv, "--predict"), tuned=frozen
                    )
                ]
                for name in TUNED_OPERATIONS
            }
    return found


def tuned_sheet(measured: dict[str, Any]) -> Sheet:
    """Returns the share of each scene's calls that were predicted well, and those that were not."""
    rows = []
    for scene, operations in measured.items():
        misses, n_good, n_all = [], 0, 0
        for name, found in operations.items():
            for row in found:
                ratio = row["predicted"] / row["out_of_place"]["seconds"]
                n_all += 1
                n_good += abs(ratio - 1) <= GOAL
                if abs(ratio - 1) > GOAL:
                    misses.append(f"{name} {row['size'] >> 10} KiB {ratio:.2f}")
        share = goal(f"{n_good} of {n_all}", n_good >= GOAL_SHARE * n_all)
        rows.append((scene, share, ", ".join(misses)))
    title = "Predictions within 25 % after tuning of 4 KiB to 1 MiB; calls of 4 KiB to 64 MiB"
    return Sheet(title, ("ranks", "within 25 %", "the others, predicted over measured"), rows)


def sheet(measured: dict[str, Any]) -> Sheet:
    """Prediction over measurement, a column for each size."""
    rows = []
    sizes: list[str] = []
    for scene, operations in measured.items():
        for name, found in operations.items():
            cells = []
            for row in found:
                taken = row["alone"]
                ratio = row["predicted"] / taken
                text = f"{1e3 * row['predicted']:.3g} / {1e3 * taken:.3g} = {ratio:.2f}"
                cells.append(goal(text, abs(ratio - 1) <= GOAL))
            sizes = [f"{row['size'] >> 10} KiB" for row in found]
            rows.append((scene, name, *cells))
    title = "What the cost model predicts, over what one call by itself took, ms"
    return Sheet(title, ("ranks", "collective", *sizes), rows)


@dataclass(frozen=True)
class Part:
    """One kind of prediction: how it is measured, and shown."""

    measure: Callable[[argparse.Namespace, str], dict[str, Any]]
    sheet: Callable[[dict[str, Any]], Sheet]


PARTS = {
    "prediction": Part(measure, sheet),
    "tuned prediction": Part(measure_tuned, tuned_sheet),
}
