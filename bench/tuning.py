"""What online tuning finds on emulated hosts, beside an exhaustive sweep of a thinned space.

For each key: the default's time over the tuned setting's (gain), the tuned setting's over the best
of the sweep, and the calls that the search took. Then the link is halved while a job runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from places import place_of, run_ranks
from report import EMULATED_SCENES
from rich.console import Console
from rich.table import Table

from hetccl.hosts import EmulatedHosts

HERE = Path(__file__).parent
SCENES = {scene.name: scene.host_of_rank for scene in EMULATED_SCENES}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)


def run(scene: str, rate: str, argv: list[str], env: dict[str, str], timeout: float) -> Any:
    """The worker on all ranks of a scene: what rank 0 printed."""
    hosts = SCENES[scene]
    command = [sys.executable, str(HERE / "tuning_worker.py"), *argv]
    with tempfile.TemporaryDirectory() as folder, place_of(len(set(hosts)), rate) as place:
        mine = {
            "MEETING": f"{folder}/id",
            "HETCCL_TUNE": "online",
            "HETCCL_TUNE_BUDGET": "10000",  # calls are all that the job does
            "HETCCL_TUNE_FILE": f"{folder}/tuning.json",
            **env,
        }
        said = run_ranks(place, [command] * len(hosts), hosts, mine, timeout, scene)
    return json.loads(said)


def show(console: Console, scene: str, rows: list[dict[str, Any]]) -> None:
    """A table of one scene's keys."""
    table = Table("collective", "KiB", "default", "tuned", "gain", "over best", "calls", "points")
    for row in rows:
        table.add_row(
            row["collective"],
            str(row["size"] >> 10),
            f"{1e3 * row['default']:.3g} ms",
            f"{1e3 * row['tuned']:.3g} ms",
            f"{row['default'] / row['tuned']:.2f}",
            f"{row['tuned'] / row['best']:.2f}",
            str(row["calls"]),
            str(row["points"]),
        )
    console.print(f"\n{scene}, 1 Gbit/s")
    console.print(table)


def summarize(console: Console, rows: list[dict[str, Any]]) -> None:
    """The goals of the issue, over all keys."""
    near = [row["tuned"] <= 1.05 * row["best"] for row in rows]
    gains = [row["default"] / row["tuned"] for row in rows]
    calls = [row["calls"] for row in rows]
    console.print(
        f"\n{sum(near)} of {len(rows)} keys within 5 % of the best of the sweep (goal: 90 %); gain "
        f"over the default: median {statistics.median(gains):.2f}, most {max(gains):.2f}, least "
        f"{min(gains):.2f} (goal: 0.97); calls until a key's search was over: median "
        f"{statistics.median(calls):.0f}, most {max(calls)}"
    )


def halve(options: argparse.Namespace) -> dict[str, Any]:
    """A job of 1 MiB all-reduces whose link is halved half-way, with tuning and without."""
    results = {}
    for mode in ("off", "online"):
        with tempfile.TemporaryDirectory() as folder, EmulatedHosts(2, options.rate) as hosts:
            changed: list[float] = []

            def change(hosts: EmulatedHosts = hosts, changed: list[float] = changed) -> None:
                time.sleep(options.follow / 2)
                hosts.shape("500mbit")
                changed.append(time.time())

            command = [sys.executable, str(HERE / "tuning_worker.py"), "--collectives", "-"]
            command += ["--sizes", str(1 << 20), "--follow", str(options.follow)]
            env = {
                "MEETING": f"{folder}/id",
                "HETCCL_TUNE": mode,
                "HETCCL_TUNE_BUDGET": "10000",
                "HETCCL_TUNE_FILE": f"{folder}/tuning.json",
                "HETCCL_SOCKET_IFNAME": "=up0",
                "WORLD_SIZE": "4",
            }
            threading.Thread(target=change, daemon=True).start()
            workers = [
                hosts.popen(
                    SCENES["AABB"][rank],
                    command,
                    {**env, "RANK": str(rank)},
                    stdout=-1 if rank == 0 else None,
                    text=True,
                )
                for rank in range(4)
            ]
            said, _ = workers[0].communicate(timeout=options.timeout)
            for worker in workers:
                worker.wait(timeout=60)
            results[mode] = {"changed": changed[0], **json.loads(said)}
    return results


def show_halved(console: Console, results: dict[str, Any]) -> None:
    """Medians before, and after; and when calls were as fast as in the end."""
    table = Table("tuning", "before", "after", "recovered after", "calls", "rounds")
    for mode, result in results.items():
        before = [took for at, took in result["times"] if at + took < result["changed"]]
        after = [(at, took) for at, took in result["times"] if at > result["changed"]]
        end = statistics.median(took for _, took in after[-len(after) // 4 :])
        windows = range(0, len(after) - 8, 8)
        fast = next(
            (i for i in windows if statistics.median(t for _, t in after[i : i + 8]) < 1.1 * end),
            len(after) - 1,
        )
        table.add_row(
            mode,
            f"{1e3 * statistics.median(before[-len(before) // 4 :]):.3g} ms",
            f"{1e3 * end:.3g} ms",
            f"{after[fast][0] - result['changed']:.2f} s",
            str(fast),
            str(result["tuning"].get("rounds", 0)),
        )
    console.print("\nAABB, all-reduce of 1 MiB: the link falls from 1 Gbit/s to 500 Mbit/s")
    console.print(table)


def main() -> int:
    """Runs the scenes, shows tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scene", action="append", choices=[*SCENES, "halved"])
    parser.add_argument("--collective", action="append", choices=COLLECTIVES)
    parser.add_argument("--size", action="append", type=int, help="bytes of the whole buffer")
    parser.add_argument("--points", type=int, default=5, help="of each axis of the sweep")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--follow", type=float, default=24, help="seconds of the halved job")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one scene")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers here")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    argv = ["--points", str(options.points)]
    argv += ["--collectives", *(options.collective or COLLECTIVES)]
    argv += ["--sizes", *(str(size) for size in options.size or SIZES)]
    wanted = options.scene or [*SCENES, "halved"]
    found = {}
    for scene in SCENES:
        if scene in wanted:
            found[scene] = run(scene, options.rate, argv, {}, options.timeout)
            show(console, scene, found[scene])
    if found:
        summarize(console, [row for rows in found.values() for row in rows])
    if "halved" in wanted:
        found["halved"] = halve(options)
        show_halved(console, found["halved"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
