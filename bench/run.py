"""`make bench`: hetccl and Gloo side by side, over an emulated slow link and on one host.

Each scene starts the same worker (torch_worker.py) for one backend after the other, in the same
run and on the same links. Prints tables; --json keeps the numbers, and --write puts the tables
into docs/benchmarks.md. Fails when a rank fails or a value is wrong, not when hetccl is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Measured, Scene, markdown, show
from rich.console import Console

from hetccl.hosts import INTERFACE, EmulatedHosts

HERE = Path(__file__).parent
BACKENDS = ("hetccl", "gloo")
RATE = "1gbit"
RATE_BYTES = 1e9 / 8
PORT = 29400

SCENES = (
    Scene("AABB", (0, 0, 1, 1)),
    Scene("ABAB", (0, 1, 0, 1)),
    Scene("ABBAB", (0, 1, 1, 0, 1)),
    Scene("AABC", (0, 0, 1, 2)),
    Scene("one host, 2 ranks", (0, 0)),
    Scene("one host, 4 ranks", (0, 0, 0, 0)),
)

Start = Callable[[int, list[str], dict[str, str], Any], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Place:
    """Where the ranks of a scene run: how to start one on a host, and where rank 0 is."""

    start: Start
    address: str
    interface: str


@contextmanager
def place_of(scene: Scene) -> Iterator[Place]:
    """Emulated hosts, or this machine's loopback where there is one host and no right to more."""
    if scene.hosts == 1 and EmulatedHosts.unavailable() is not None:

        def start(host: int, argv: list[str], env: dict[str, str], out: Any) -> Any:
            return subprocess.Popen(argv, env={**os.environ, **env}, stdout=out, text=True)

        yield Place(start, "127.0.0.1", "lo")
        return
    with EmulatedHosts(scene.hosts, RATE if scene.hosts > 1 else None) as hosts:
        yield Place(
            lambda host, argv, env, out: hosts.popen(host, argv, env, stdout=out, text=True),
            hosts.address(0),
            INTERFACE,
        )


def measure(scene: Scene, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """One backend's run of a scene: what its rank 0 printed."""
    argv = [sys.executable, str(HERE / "torch_worker.py"), "--backend", backend]
    argv += ["--bytes", str(options.bytes), "--repeats", str(options.repeats)]
    argv += ["--small-repeats", str(options.small_repeats)]
    if scene.hosts > 1:
        argv += ["--interface", INTERFACE]
    with tempfile.TemporaryFile("w+") as out, place_of(scene) as place:
        workers = []
        for rank, host in enumerate(scene.host_of_rank):
            env = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(scene.host_of_rank)),
                "LOCAL_RANK": str(scene.host_of_rank[:rank].count(host)),
                "MASTER_ADDR": place.address,
                "MASTER_PORT": str(PORT),
                "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",  # emulated hosts have no names
                "PYTHONWARNINGS": "ignore::FutureWarning",
                "GLOO_SOCKET_IFNAME": place.interface,
                "HETCCL_SOCKET_IFNAME": f"={place.interface}",
            }
            workers.append(place.start(host, argv, env, out if rank == 0 else None))
        finish(workers, f"{scene.name}, {backend}", options.timeout)
        out.seek(0)
        result: dict[str, Any] = json.loads(out.read().splitlines()[-1])
        return result


def finish(workers: list[subprocess.Popen[str]], what: str, timeout: float) -> None:
    """Waits for all; the first failure or the deadline ends them all."""
    deadline = time.monotonic() + timeout
    try:
        while any(worker.poll() is None for worker in workers):
            failed = [rank for rank, worker in enumerate(workers) if worker.returncode]
            if failed:
                raise SystemExit(f"bench: {what}: rank {failed[0]} failed; see above")
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {what}: not done within {timeout:.0f} s")
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"bench: {what}: a rank failed; see above")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of the large buffer")
    parser.add_argument("--repeats", type=int, default=7, help="of large ones, after 2 warm-ups")
    parser.add_argument("--small-repeats", type=int, default=200, help="of 4 KiB all-reduces")
    parser.add_argument("--rounds", type=int, default=1, help="of both backends, alternating")
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in SCENES])
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers here")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    return parser.parse_args()


def main() -> int:
    """Runs all scenes and shows what came out."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    unavailable = EmulatedHosts.unavailable()
    measured: list[Measured] = []
    for scene in SCENES:
        if options.scene and scene.name not in options.scene:
            continue
        if scene.hosts > 1 and unavailable:
            console.print(f"skipped: {scene.name}: {unavailable}", style="yellow")
            continue
        runs: dict[str, list[dict[str, Any]]] = {backend: [] for backend in BACKENDS}
        for _ in range(options.rounds):
            for backend in BACKENDS:
                with console.status(f"{scene.name}: {backend}"):
                    runs[backend].append(measure(scene, backend, options))
        measured.append(Measured(scene, runs, RATE_BYTES))
    show(measured, console)
    if options.json:
        documents = [{"scene": m.scene.name, "runs": m.runs} for m in measured]
        options.json.write_text(json.dumps(documents, indent=1) + "\n")
    if options.write:
        command = f"make bench ARGS='{' '.join(sys.argv[1:])}'"
        (HERE.parent / "docs/benchmarks.md").write_text(markdown(measured, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
