"""`make bench`: hetccl beside Gloo, MPIs and plain sockets, on one host and over emulated links.

Each scene starts the same worker (torch_worker.py) for one backend after the other, in the same
run and on the same links; native.py does the same without torch. Prints tables; --json keeps the
numbers, and --write puts the tables into docs/benchmarks.md. Fails when a rank fails or a value is
wrong, not when hetccl is slow.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import native
import native_report
import prediction
from places import place_of, run_ranks
from report import EMULATED_SCENES, Measured, Scene, large_sheet, markdown, show, small_sheet
from rich.console import Console

from hetccl.hosts import INTERFACE, EmulatedHosts

HERE = Path(__file__).parent
BACKENDS = ("hetccl", "gloo")
RATE = "1gbit"
RATE_BYTES = 1e9 / 8
PORT = 29400

SCENES = (
    *EMULATED_SCENES,
    Scene("one host, 2 ranks", (0, 0)),
    Scene("one host, 4 ranks", (0, 0, 0, 0)),
)


def measure(scene: Scene, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a scene with one backend. Returns rank 0's output."""
    argv = [sys.executable, str(HERE / "torch_worker.py"), "--backend", backend]
    argv += ["--bytes", str(options.bytes), "--repeats", str(options.repeats)]
    argv += ["--small-repeats", str(options.small_repeats)]
    if scene.hosts > 1:
        argv += ["--interface", INTERFACE]
    with place_of(scene.hosts, RATE) as place:
        env = {
            "MASTER_ADDR": place.address,
            "MASTER_PORT": str(PORT),
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # emulated hosts have no names
            "PYTHONWARNINGS": "ignore::FutureWarning",
            "GLOO_SOCKET_IFNAME": place.interface,
        }
        hosts = scene.host_of_rank
        what = f"{scene.name}, {backend}"
        said = run_ranks(place, [argv] * len(hosts), hosts, env, options.timeout, what)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of the large buffer")
    parser.add_argument("--repeats", type=int, default=7, help="of large ones, after 2 warm-ups")
    parser.add_argument("--small-repeats", type=int, default=200, help="of 4 KiB all-reduces")
    parser.add_argument("--rounds", type=int, default=1, help="of both backends, alternating")
    parser.add_argument("--native-rounds", type=int, default=3, help="of what goes without torch")
    names = [*(scene.name for scene in SCENES), *native.PARTS, *prediction.PARTS]
    parser.add_argument("--scene", action="append", choices=names)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers here")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    return parser.parse_args()


def measure_scenes(options: argparse.Namespace, console: Console) -> list[Measured]:
    """All scenes under torch, one backend after the other."""
    measured: list[Measured] = []
    for scene in SCENES:
        if not wanted(scene.name, scene.hosts, options, console):
            continue
        runs: dict[str, list[dict[str, Any]]] = {backend: [] for backend in BACKENDS}
        for _ in range(options.rounds):
            for backend in BACKENDS:
                with console.status(f"{scene.name}: {backend}"):
                    runs[backend].append(measure(scene, backend, options))
        measured.append(Measured(scene, runs, RATE_BYTES))
    return measured


def wanted(name: str, hosts: int, options: argparse.Namespace, console: Console) -> bool:
    """Returns whether the part was asked for and can run. If it only cannot run, prints so."""
    if options.scene and name not in options.scene:
        return False
    unavailable = EmulatedHosts.unavailable() if hosts > 1 else None
    if unavailable is not None:
        console.print(f"skipped: {name}: {unavailable}", style="yellow")
    return unavailable is None


def main() -> int:
    """Runs all scenes, and shows the results."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    measured = measure_scenes(options, console)
    parts: dict[str, dict[str, Any]] = {}
    for name, part in native.PARTS.items():
        if wanted(name, part.hosts, options, console):
            with console.status(name):
                parts[name] = part.measure(options)
    predicted: dict[str, dict[str, Any]] = {}
    for name, predictions in prediction.PARTS.items():
        if wanted(name, 3, options, console):
            with console.status(name):
                predicted[name] = predictions.measure(options, RATE)
    sheets = [sheet for sheet in (large_sheet(measured), small_sheet(measured)) if sheet.rows]
    sheets += native_report.sheets(parts)
    sheets += [prediction.PARTS[name].sheet(found) for name, found in predicted.items()]
    show(sheets, console)
    if options.json:
        documents = [{"scene": m.scene.name, "runs": m.runs} for m in measured]
        documents += [{"scene": name, "runs": part} for name, part in parts.items()]
        documents += [{"scene": name, "runs": found} for name, found in predicted.items()]
        options.json.write_text(json.dumps(documents, indent=1) + "\n")
    if options.write:
        command = f"make bench ARGS='{' '.join(sys.argv[1:])}'"
        torch = measured[0].runs["hetccl"][0]["torch"] if measured else "not used"
        (HERE.parent / "docs/benchmarks.md").write_text(markdown(sheets, torch, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
