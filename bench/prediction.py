"""How well the cost model tells a call's time: prediction beside measurement, on emulated links."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from places import place_of, run_ranks
from report import Scene, Sheet, goal

NAME = "prediction"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SCENES = (Scene("AABB", (0, 0, 1, 1)), Scene("AABC", (0, 0, 1, 2)))
GOAL = 0.25  # of the measured time
PORT = 29404
SIZES = ("-b", "4K", "-e", "16M", "-f", "16")
CALLS = ("-n", "20", "-w", "5", "-z", "1", "--check", "0")


def run(scene: Scene, operation: str, rate: str, timeout: float) -> list[dict[str, Any]]:
    """`hetccl bench --predict` across hosts: its rows."""
    argv = [sys.executable, "-m", "hetccl", "bench", operation, *SIZES, *CALLS]
    argv += ["--predict", "--json"]
    with place_of(scene.hosts, rate) as place:
        env = {
            "MASTER_ADDR": place.address,
            "MASTER_PORT": str(PORT),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
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
