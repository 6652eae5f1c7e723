"""The part of `make bench` without torch: small programs (bench/native) on either side.

Measures all-reduces on one host, against MPIs; messages and collectives between hosts whose link is
not shaped, against plain sockets and the limits of the processors; and the cost of a launch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import places
from mpis import MPIS, Mpi, run_job
from places import Place, place_of

import hetccl
import hetccl.mpi

HERE = Path(__file__).parent
BUILD = HERE.parent / "build/bench"
PORT = "29401"
SIZES = {2: (8, 64 << 10, 1 << 20, 16 << 20), 8: (1 << 20,)}  # by the number of ranks
STREAMS = 2  # of a TCP channel, as HETCCL_TCP_STREAMS' default
BATCHES = 21
MPI_TIMEOUT = 60.0  # with more ranks than cores some spin on and on
PROBED_BYTES = 16 << 20

Numbers = dict[str, dict[str, Any]]


def build(program: str, *flags: str, name: str | None = None) -> Path:
    """Compiles bench/native/PROGRAM.cc."""
    BUILD.mkdir(parents=True, exist_ok=True)
    made = BUILD / (name or program)
    source = HERE / "native" / f"{program}.cc"
    command = ["g++", "-std=c++20", "-O3", "-Wall", "-Wextra", str(source), "-o", str(made)]
    subprocess.run([*command, *flags, "-pthread"], check=True)
    return made


def build_with_hetccl(program: str) -> Path:
    """Compiles bench/native/PROGRAM.cc against the installed library."""
    package = Path(hetccl.__file__).parent
    lib = package / "lib"
    return build(program, f"-I{package}/include", f"-L{lib}", "-lhetccl", f"-Wl,-rpath,{lib}")


def bound(argv: list[str], rank: int, ranks: int) -> list[str]:
    """Returns the command bound to a core of its own, as MPI's launchers bind ranks while there are
    enough cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if ranks > len(cores) or shutil.which("taskset") is None:
        return argv
    return ["taskset", "-c", str(cores[rank]), *argv]


def run_ranks(
    place: Place, hosts: Iterable[int], argv: list[str], timeout: float, bind: bool = False
) -> Numbers:
    """Starts a rank of a program on each of `hosts`. Returns rank 0's output."""
    ranks = list(hosts)
    argvs = [bound(argv, rank, len(ranks)) if bind else argv for rank in range(len(ranks))]
    with tempfile.TemporaryDirectory() as meet:
        env = {"MEET": f"{meet}/id", "ADDRESS": place.address, "PORT": PORT}
        said = places.run_ranks(place, argvs, ranks, env, timeout, " ".join(argv))
    return dict(json.loads(said.splitlines()[-1]))


def run_mpi(mpi: Mpi, ranks: int, program: list[str], timeout: float) -> Numbers | str:
    """Starts a program under an MPI's launcher. Returns rank 0's output, or the reason why it did
    not run.
    """
    status, said = run_job(mpi.argv(ranks, program), {**os.environ, **mpi.env(ranks)}, timeout)
    if status is None:
        return f"not done within {timeout:.0f} s"
    lines = [line for line in said.splitlines() if line.strip()]
    if status != 0 or not lines:
        return lines[-1] if lines else f"exit status {status}"
    return dict(json.loads(lines[-1]))


def alternating(
    rounds: int, runs: dict[str, Callable[[], Numbers | str]]
) -> dict[str, Numbers | str]:
    """Runs each in turn, `rounds` times. Returns the median of each number, or the reason why one
    did not run.
    """
    results: dict[str, list[Numbers]] = {name: [] for name in runs}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            if name in failed:
                continue
            got = run()
            if isinstance(got, str):
                failed[name] = got
            else:
                results[name].append(got)
    return {name: failed.get(name) or _medians(got) for name, got in results.items()}


def _medians(runs: list[Numbers]) -> Numbers:
    return {
        row: {key: statistics.median(run[row][key] for run in runs) for key in first}
        for row, first in runs[0].items()
    }


def build_for(mpi: Mpi) -> Path:
    """Compiles the program of calls for one MPI."""
    return build("mpi_calls", *mpi.compiling(), name=f"{mpi.package}_calls")


def measure_mpi(options: argparse.Namespace) -> dict[str, Any]:
    """Measures all-reduces of hetccl and of every MPI on one host, by the number of ranks."""
    limit = min(MPI_TIMEOUT, options.timeout)
    return {
        str(ranks): measure_calls("all_reduce", ranks, sizes, options.native_rounds, limit)
        for ranks, sizes in SIZES.items()
    }


def measure_calls(
    call: str, ranks: int, sizes: Iterable[int], rounds: int, timeout: float, batches: int = BATCHES
) -> dict[str, Numbers | str]:
    """Measures, in turns, calls of hetccl and of every MPI between ranks of one host ("all_reduce",
    "exchange"). An MPI that cannot run has a reason instead.
    """
    arguments = [call, str(batches), *map(str, sizes)]
    ours = [str(build_with_hetccl("hetccl_calls")), *arguments]
    absent = {mpi.name: why for mpi in MPIS if (why := mpi.missing()) is not None}
    programs = [(mpi, str(build_for(mpi))) for mpi in MPIS if mpi.name not in absent]
    with place_of(1, None) as place:
        runs: dict[str, Callable[[], Numbers | str]] = {
            "hetccl": lambda: run_ranks(place, [0] * ranks, ours, timeout, bind=True)
        }
        for mpi, program in programs:
            argv = [program, *arguments]
            runs[mpi.name] = lambda mpi=mpi, argv=argv: run_mpi(  # type: ignore[misc]
                mpi, ranks, argv, timeout
            )
        return {**absent, **alternating(rounds, runs)}


def measure_rules(
    mpi: Mpi, rules: Mapping[str, object], sizes: Iterable[int], nodes: int, rounds: int,
    timeout: float, batches: int = BATCHES,
) -> dict[str, Numbers | str]:  # fmt: skip
    """Measures MPI_Allreduce of two ranks, in turns: with each of these rules of hetccl's; None is
    without hetccl. Emulates two nodes, which share no memory.
    """
    argv = [str(build_for(mpi)), "all_reduce", str(batches), *map(str, sizes)]
    apart = ["-genv", "MPIR_CVAR_NOLOCAL", "1"] if nodes > 1 else []
    # In each rank, since both are on one machine.
    host = 'export HETCCL_HOSTID=$PMI_RANK; exec "$0" "$@"' if nodes > 1 else 'exec "$0" "$@"'
    with tempfile.TemporaryDirectory() as folder:

        def options_of(name: str, rule: object) -> list[str]:
            if rule is None:
                return apart
            file = Path(folder) / f"{name}.json"
            file.write_text(json.dumps(rule))
            return [*apart, "-genv", "LD_PRELOAD", str(hetccl.mpi.LIBRARY),
                    "-genv", "HETCCL_MPI_FILE", str(file)]  # fmt: skip

        def run(name: str, rule: object) -> Callable[[], Numbers | str]:
            program = [*options_of(name, rule), "bash", "-c", host, *argv]
            return lambda: run_mpi(mpi, 2, program, timeout)

        return alternating(rounds, {name: run(name, rule) for name, rule in rules.items()})


def measure_link(options: argparse.Namespace) -> dict[str, Any]:
    """Measures messages, plain sockets, collectives and probes between two hosts whose link is as
    fast as the kernel.
    """
    link, probe = str(build_with_hetccl("hetccl_link")), str(build("probe"))
    repeats, size = str(options.repeats), str(options.bytes)
    with place_of(2, None) as place:

        def run(hosts: tuple[int, ...], *argv: str) -> Callable[[], Numbers]:
            return lambda: run_ranks(place, hosts, list(argv), options.timeout)

        def tcp(streams: int, ways: int) -> Callable[[], Numbers]:
            return run((0, 1), probe, "tcp", repeats, size, str(streams), str(ways))

        return alternating(
            options.native_rounds,
            {
                "messages": run((0, 1), link, "messages", repeats, size),
                "tcp": tcp(STREAMS, 1),
                "tcp of 1 stream": tcp(1, 1),
                "collectives": run((0, 0, 1, 1), link, "collectives", repeats, size),
                "tcp both ways": tcp(STREAMS, 2),
                "memory": run((0,), probe, "memory", repeats, str(PROBED_BYTES)),
            },
        )


def measure_launch(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the cost of an asynchronous all-reduce for its caller, on one host."""
    launch = str(build_with_hetccl("hetccl_launch"))
    with place_of(1, None) as place:
        return alternating(
            options.native_rounds,
            {"hetccl": lambda: run_ranks(place, (0, 0), [launch, "101"], options.timeout)},
        )


@dataclass(frozen=True)
class Part:
    """Something to measure, and how many hosts it takes."""

    hosts: int
    measure: Callable[[argparse.Namespace], dict[str, Any]]


PARTS = {
    "MPI": Part(1, measure_mpi),
    "link": Part(2, measure_link),
    "launch": Part(1, measure_launch),
}
