"""The ways to measure that entries share: hetccl's commands and the benchmarks of this folder."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from entry import Found, MissingError, Number
from places import place_of, run_ranks
from report import EMULATED_SCENES, least_on_a_link

from hetccl.hosts import EmulatedHosts

BENCH = Path(__file__).resolve().parent.parent
SCENES = {scene.name: scene.host_of_rank for scene in EMULATED_SCENES} | {"AB": (0, 1)}
RATE, RATE_BYTES = "1gbit", 1e9 / 8
TIMEOUT = 900.0  # of one job; the runner ends the entry before
ON_A_LINK = {"all_to_all": "all_to_all_single"} | dict.fromkeys(
    ("reduce", "send_recv"), "broadcast"
)
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


def n_gpus() -> int:
    """Returns the number of GPUs of this machine, as torch sees them."""
    import torch

    return torch.cuda.device_count()


def need_gpus(count: int) -> None:
    """Raises MissingError if there are fewer."""
    if n_gpus() < count:
        raise MissingError(f"needs {count} GPUs; this machine has {n_gpus()}")


def need_hosts() -> None:
    """Raises MissingError if hosts cannot be emulated."""
    if (reason := EmulatedHosts.unavailable()) is not None:
        raise MissingError(f"needs emulated hosts: {reason}")


def need_rdma() -> None:
    """Raises MissingError if the kernel knows no RDMA device."""
    if not any(Path("/sys/class/infiniband").glob("*")):
        raise MissingError("needs an RDMA card: this machine has none")


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Returns a command's output. If it fails, raises RuntimeError with the end of the output."""
    done = subprocess.run(
        argv, env={**os.environ, **(env or {})}, capture_output=True, text=True,
        errors="replace", timeout=TIMEOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-1500:]
        raise RuntimeError(f"{' '.join(argv[1:4])} exits with {done.returncode}: {said}")
    return done.stdout


def hetccl(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Output of hetccl's command."""
    return run([sys.executable, "-m", "hetccl", *arguments], env)


def script(name: str, *arguments: str) -> Any:
    """The JSON that a benchmark of this folder writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        argv = [sys.executable, str(BENCH / name), *arguments, "--json", str(path)]
        run(argv, NO_MULTICAST)
        return json.loads(path.read_text())


def sweep(least: int, most: int, calls: int, factor: int = 4) -> list[str]:
    """Options of `hetccl bench`. Values are checked once a size; no call overtakes the next."""
    sizes = ["-b", str(least), "-e", str(most), "-f", str(factor)]
    return [*sizes, "-n", str(calls), "-w", "2", "-z", "1"]


def seconds_of(text: str) -> dict[float, float]:
    """Returns the seconds of a call by bytes. Raises RuntimeError if a value is wrong."""
    rows = json.loads(text)["rows"]
    if wrong := [row["size"] for row in rows if row["out_of_place"]["wrong"]]:
        raise RuntimeError(f"wrong values at {wrong[0]} bytes")
    return {row["size"]: row["out_of_place"]["seconds"] for row in rows}


def over_link(
    scene: str, collective: str, options: Sequence[str], env: Mapping[str, str] | None = None
) -> dict[float, float]:
    """Returns the seconds of a call by bytes, between emulated hosts whose links have RATE."""
    need_hosts()
    hosts = SCENES[scene]
    argv = [sys.executable, "-m", "hetccl", "bench", collective, *options, "--json"]
    with place_of(len(set(hosts)), RATE) as place:
        given = {"MASTER_ADDR": place.address, "MASTER_PORT": "29404", **(env or {})}
        what = f"{scene}, {collective}"
        return seconds_of(run_ranks(place, [argv] * len(hosts), hosts, given, TIMEOUT, what))


def over_rails(rates: Sequence[str], collective: str, options: Sequence[str]) -> dict[float, float]:
    """Returns the seconds of a call by bytes, between two hosts of one rank, with a network card of
    each of these rates.
    """
    need_hosts()
    argv = [sys.executable, "-m", "hetccl", "bench", collective, *options, "--json"]
    with place_of(2, rates) as place:
        env = {"MASTER_ADDR": place.address, "MASTER_PORT": "29405",
               "HETCCL_CARD_MBPS": place.card_mbps}  # fmt: skip
        return seconds_of(run_ranks(place, [argv] * 2, (0, 1), env, TIMEOUT, ", ".join(rates)))


def on_host(
    ranks: int, clusters: int, collective: str, options: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> dict[float, float]:  # fmt: skip
    """Returns the seconds of a call by bytes, on this machine, in so many clusters."""
    shape = ["--ranks", str(ranks), "--clusters", str(clusters)]
    return seconds_of(hetccl("bench", collective, *shape, *options, "--json", env=env))


def of_limit(scene: str, collective: str, size: float, seconds: float) -> float:
    """Returns the time that the link alone would take, over the measured time."""
    hosts = SCENES[scene]
    ranks = [hosts.count(host) for host in sorted(set(hosts))]
    least = least_on_a_link(ON_A_LINK.get(collective, collective), ranks)
    return least * size / RATE_BYTES / seconds


def rates(seconds: Mapping[float, float]) -> dict[float, float]:
    """Returns GB/s of the buffer, by bytes."""
    return {size: size / took / 1e9 for size, took in seconds.items()}


def measure_beside_library(
    layout: str, sizes: Sequence[str], quick: bool, ranks: int = 2
) -> dict[str, dict[str, dict[float, float]]]:
    """Median seconds by contender, collective and bytes, of a layout of bench/gpu.py: on the GPUs
    of this machine if there are two, else on ranks of the host beside Gloo."""
    arguments = ["--only", layout, "--bytes", *sizes, "--repeats", "3" if quick else "7"]
    arguments += ["--timeout", "240"]
    if n_gpus() < 2:
        arguments += ["--devices", "cpu", "--ranks", str(ranks)]
    found: dict[str, dict[str, dict[float, float]]] = {}
    for name, ran in script("gpu.py", *arguments)[0]["contenders"].items():
        for cell in ran["cells"]:
            if cell["rounds"]:
                by_size = found.setdefault(name, {}).setdefault(cell["collective"], {})
                took = statistics.median(one["seconds"] for one in cell["rounds"])
                by_size[cell["bytes"]] = took
    return found


def regress(seconds: Mapping[float, float]) -> tuple[float, float, float]:
    """Latency in seconds, bytes a second and R^2 of seconds = latency + bytes / rate (001, 6.1)."""
    slope, start = statistics.linear_regression(list(seconds), list(seconds.values()))
    mean = statistics.fmean(seconds.values())
    left = sum((took - start - slope * size) ** 2 for size, took in seconds.items())
    whole = sum((took - mean) ** 2 for took in seconds.values())
    return start, 1 / slope, 1 - left / whole


def collectives_of_limit(collectives: Sequence[str], quick: bool, scene: str = "AABB") -> Found:
    """Measures each collective's share of the limit of the link between two clusters, and GB/s by
    bytes.
    """
    most, calls = (8 << 20, 4) if quick else (64 << 20, 7)
    found = {one: over_link(scene, one, sweep(most >> 6, most, calls, 8)) for one in collectives}
    return Found(
        where=f"{scene}: CPU ranks, two clusters, an emulated link of 1 Gbit/s",
        values={one: of_limit(scene, one, most, took[most]) for one, took in found.items()},
        series={one: rates(took) for one, took in found.items()},
    )


def over_peer(
    layout: str, collectives: Mapping[str, str], quick: bool, peer: str = "nccl"
) -> Found:
    """Measures a peer's time over hetccl's in a layout of bench/gpu.py, at the largest size.
    `collectives` has labels, by their names there.
    """
    sizes = ("1M", "64M") if quick else ("64K", "1M", "16M", "64M", "256M", "1G")
    found = measure_beside_library(layout, sizes, quick)
    series: dict[str, dict[float, float]] = {}
    values: dict[str, Number | str] = {}
    for name, label in collectives.items():
        ours, theirs = (found[one][name] for one in ("hetccl", peer))
        series |= {f"{label}, hetccl": rates(ours), f"{label}, {peer}": rates(theirs)}
        values[label] = theirs[max(ours)] / ours[max(ours)]
    ranks = f"{n_gpus()} GPUs" if n_gpus() >= 2 else "two CPU ranks"
    return Found(f"{ranks}, layout {layout!r} of bench/gpu.py", values, series)


def alternate(
    rounds: int, measures: Mapping[str, Callable[[], dict[float, float]]]
) -> dict[str, dict[float, float]]:
    """Runs the contenders in turns. Returns each one's median by size."""
    runs: dict[str, list[dict[float, float]]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            runs[name].append(measure())
    return {
        name: {size: statistics.median(one[size] for one in got) for size in got[0]}
        for name, got in runs.items()
    }


def numbers(lines: Sequence[str]) -> Iterator[list[str]]:
    """Cells of the rows of a Markdown table, its head first."""
    for line in lines:
        if line.startswith("|") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]
