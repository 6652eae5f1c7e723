"""The OSU Micro-Benchmarks by an MPI alone and with hetccl: paper 002's figures 4, 6 and 7.

    python bench/osu.py FOLDER [--memory host|cuda|rocm] [--ranks 4] [--draw FOLDER]
    python bench/osu.py --build SOURCE [--configure "--enable-rocm --with-rocm=/opt/rocm"]

FOLDER has the benchmarks, 7.0 or newer, built for the MPI whose mpirun is in PATH; --build builds
them from an unpacked release into build/bench/osu. Nothing is fetched. Two nodes are emulated on
this machine, and talk over its loopback interface, unless --hosts says how the launcher spreads
ranks over two. Emulated, the MPI uses that interface within a node, too, where hetccl shares
memory: give each node one rank (--ranks 2) to compare the two. Values are checked. Every series
takes its turn in each round; medians are shown.

4: the MPI's compositions beside hetccl, 1 and 2 nodes. 6: the MPI, hetccl, and rules that choose
between them by size (--rules, else the paper's: hetccl above 8 KiB on one node, 32 KiB on two).
7: hetccl's all-reduce whole, in parts on 4 streams, and on 4 streams of 4 communicators.
--ucx adds Open MPI over UCX, which then must take the memory that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import osu_report
from mpis import run_job
from report import machine
from rich.console import Console

from hetccl import mpi

BUILD = Path(__file__).parent.parent / "build/bench/osu"
UCX = "MPI by UCX"
DEVICE = {"algorithm=device": {}}
PARTS = {"algorithm=device": {"streams=4": {}}}
COMMUNICATORS = {"algorithm=device": {"streams=4": {}, "communicators=4": {}}}
BY_MPI = {"algorithm=mpi": {}}
ALPHA = {"composition=alpha": {}}
HYBRID = {
    "comm_size=node_comm_size": {"avg_msg_size<=8192": BY_MPI, "any": DEVICE},
    "any": {"avg_msg_size<=32768": ALPHA, "any": DEVICE},
}
# In each rank: which node it is on, and which of the machine's GPUs it takes.
RANK = """
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$rank}}
[ -z "$OSU_NODES" ] || export HETCCL_HOSTID=node$((rank * OSU_NODES / OSU_RANKS))
[ -z "$OSU_NODES" ] || export NCCL_HOSTID=$HETCCL_HOSTID
exec "$0" "$@"
"""
BY_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")
BY_UCX = ("--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any")


@dataclass(frozen=True)
class Series:
    """One line of a figure: the MPI with these rules of hetccl's, or without hetccl."""

    name: str
    rules: dict[str, object] | None = None
    settings: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Figure:
    """The series that a figure compares, on so many nodes."""

    number: int
    nodes: int
    series: tuple[Series, ...]
    sizes: str
    base: str = ""  # the series over which the last one's speed-up is shown


def figures(options: argparse.Namespace, launcher: str) -> Iterator[Figure]:
    """Yields the figures that the command line names."""
    # hetccl copies memory that the MPI cannot reach.
    aware = options.memory == "host" or options.aware
    plain = Series("MPI") if aware else Series("MPI, through the host", {"any": BY_MPI})
    device = Series("hetccl", {"any": DEVICE})
    peers = (plain, Series(UCX)) if options.ucx else (plain,)
    for nodes in options.nodes:
        own: list[Series] = []
        if launcher == "MPICH" and aware:
            chosen = {"beta": "2", "gamma": "3"} if nodes == 1 else {"alpha": "1", "beta": "2"}
            own = [Series(f"MPICH's {name}", None, {"MPIR_CVAR_ALLREDUCE_COMPOSITION": value})
                   for name, value in chosen.items()]  # fmt: skip
        leaders = [Series("leaders (alpha)", {"any": ALPHA})] if nodes > 1 else []
        hybrid = json.loads(options.rules.read_text()) if options.rules else HYBRID
        last = Series("hybrid", hybrid)
        parts = Series("4 streams", {"any": PARTS})
        communicators = Series("4 communicators", {"any": COMMUNICATORS})
        all_figures = (
            Figure(4, nodes, (*peers, *own, *leaders, device), options.sizes),
            Figure(6, nodes, (*peers, device, last), options.sizes, plain.name),
            Figure(7, nodes, (device, parts, communicators), options.large),
        )
        yield from (figure for figure in all_figures if figure.number in options.figure)


def program(folder: Path, collective: str) -> Path:
    """The benchmark of a collective."""
    found = sorted(path for path in folder.rglob(f"osu_{collective}")
                   if path.is_file() and ".libs" not in path.parts)  # fmt: skip
    if not found:
        sys.exit(f"osu.py: {folder} has no program osu_{collective}: --build builds them")
    return found[0]


def settings_of(
    series: Series, nodes: int, options: argparse.Namespace, rules: Path
) -> dict[str, str]:
    """A rank's environment, beside the launcher's."""
    settings = {"OSU_RANKS": str(options.ranks), **series.settings}
    if nodes > 1 and not options.hosts:
        settings |= {"OSU_NODES": str(nodes), "MPIR_CVAR_NOLOCAL": "1",
                     "UCX_TLS": "tcp,self,cuda_copy,rocm_copy", "HETCCL_SOCKET_IFNAME": "=lo",
                     "NCCL_SOCKET_IFNAME": "lo"}  # fmt: skip
    if series.rules is not None:
        rules.write_text(json.dumps(series.rules))
        settings |= {"LD_PRELOAD": str(mpi.LIBRARY), "HETCCL_MPI_FILE": str(rules)}
    return settings


def command(
    launcher: mpi.Launcher, series: Series, nodes: int, settings: dict[str, str],
    options: argparse.Namespace,
) -> list[str]:  # fmt: skip
    """Returns the command by which the launcher starts so many ranks of the shell that becomes the
    benchmark.
    """
    argv = [launcher.path, "-n", str(options.ranks)]
    open_mpi = launcher.name == "Open MPI"
    for name, value in settings.items():
        argv += ["-x", f"{name}={value}"] if open_mpi else ["-genv", name, value]
    if series.name == UCX:
        argv += BY_UCX
    if nodes > 1 and options.hosts:
        argv += shlex.split(options.hosts)
    elif open_mpi:
        if options.ranks > (os.cpu_count() or 1):
            argv.append("--oversubscribe")
        if nodes > 1 and series.name != UCX:
            argv += BY_TCP
    return [*argv, "bash", "-c", RANK]


def measure(
    launcher: mpi.Launcher, figure: Figure, series: Series, collective: str,
    options: argparse.Namespace,
) -> dict[int, float] | str:  # fmt: skip
    """Returns microseconds by bytes, or the reason why there are none."""
    least, most = (parse_size(part) for part in figure.sizes.split(":"))
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(series, figure.nodes, options, Path(folder) / "rules.json")
        argv = command(launcher, series, figure.nodes, settings, options)
        argv += [str(program(options.folder, collective)), "-m", f"{least}:{most}", "-c"]
        argv += ["-M", str(max(4 * most * options.ranks, 1 << 29)), "-T", "mpi_float"]
        if options.iterations:
            argv += ["-i", str(options.iterations), "-x", str(max(options.iterations // 10, 2))]
        if options.memory != "host":
            argv += ["-d", options.memory]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        status, said = run_job(argv, {**os.environ, **allowed}, options.timeout)
    rows = re.findall(r"^(\d+)\s+([\d.]+)(?:\s+(\w+))?\s*$", said, re.MULTILINE)
    wrong = [size for size, _, verdict in rows if verdict == "Fail"]
    if wrong:
        return f"wrong values at {wrong[0]} bytes"
    if rows and not all(verdict for _, _, verdict in rows):
        return "the benchmarks check no values: 7.0 and newer do"
    if status != 0 or not rows:
        return status_text(status, said)
    return {int(size): float(us) for size, us, _ in rows}


def status_text(status: int | None, said: str) -> str:
    """Returns, as a line, the reason that a job without numbers gives."""
    if status is None:
        return "not done in time"
    lines = [line.strip() for line in said.splitlines() if line.strip(" -")]
    return next((line for line in lines if re.search("error|fail|cannot", line, re.IGNORECASE)),
                f"exit status {status}")  # fmt: skip


def rounds(
    launcher: mpi.Launcher, figure: Figure, collective: str, options: argparse.Namespace,
    console: Console,
) -> dict[str, dict[int, float] | str]:  # fmt: skip
    """Measures all series in turns. Returns the median of each size by series, or the reason why a
    series has none.
    """
    measured: dict[str, list[dict[int, float]]] = {one.name: [] for one in figure.series}
    failed: dict[str, str] = {}
    for turn in range(options.rounds):
        for series in figure.series:
            if series.name in failed:
                continue
            what = f"figure {figure.number}, {collective}, {figure.nodes} nodes, round {turn + 1}"
            with console.status(f"{what}: {series.name}"):
                got = measure(launcher, figure, series, collective, options)
            if isinstance(got, str):
                failed[series.name] = got
            else:
                measured[series.name].append(got)
    return {
        name: failed.get(name)
        or {size: statistics.median(one[size] for one in got) for size in got[0]}
        for name, got in measured.items()
    }


def parse_size(text: str) -> int:
    """Bytes: "4", "64K", "1M"."""
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def build(source: Path, configure: str) -> None:
    """Builds the benchmarks for the MPI whose mpicc is in PATH, in a copy of their own."""
    BUILD.mkdir(parents=True, exist_ok=True)
    script = source.resolve() / "configure"
    if not script.is_file():
        sys.exit(f"osu.py: {source} has no configure: it takes an unpacked release")
    subprocess.run([str(script), "CC=mpicc", "CXX=mpicxx", *shlex.split(configure)],
                   cwd=BUILD, check=True)  # fmt: skip
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}"], cwd=BUILD, check=True)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="of the benchmarks, built")
    parser.add_argument("--build", type=Path, metavar="SOURCE", help="build them, and no more")
    parser.add_argument("--configure", default="", help="options of their configure")
    parser.add_argument("--memory", choices=("host", "cuda", "rocm"), default="host")
    parser.add_argument("--aware", action="store_true", help="the MPI takes such memory by itself")
    parser.add_argument("--ucx", action="store_true", help="Open MPI over UCX, too")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, nargs="+", choices=(1, 2), default=[1, 2])
    parser.add_argument("--hosts", default="", help="the launcher's options for two real nodes")
    parser.add_argument("--figure", type=int, nargs="+", choices=(4, 6, 7), default=[4, 6, 7])
    parser.add_argument("--collective", nargs="+", default=["allreduce"])
    parser.add_argument("--sizes", default="4:1M", help="of figures 4 and 6")
    parser.add_argument("--large", default="4:512M", help="of figure 7")
    parser.add_argument("--rules", type=Path, help="of the hybrid, as of hetccl tune --mpi")
    parser.add_argument("--iterations", type=int, help="of a size; else the benchmark's own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one job")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers here")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="of the pictures")
    return parser.parse_args(given)


def main() -> int:
    """Returns 1 if a series could not be measured."""
    options = arguments()
    if options.build:
        build(options.build, options.configure)
        return 0
    launcher = mpi.find_launcher()
    if options.folder is None or launcher is None:
        sys.exit(
            "osu.py: " + ("no mpirun in PATH" if options.folder else "which FOLDER? or --build")
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"{machine()}; {launcher.name} {launcher.version}; {options.ranks} ranks; "
                  f"{options.memory} memory")  # fmt: skip
    panels = []
    for figure in figures(options, launcher.name):
        for collective in ["allreduce"] if figure.number == 7 else options.collective:
            times = rounds(launcher, figure, collective, options, console)
            panels.append(osu_report.Panel(figure.number, figure.nodes, collective, times,
                                           figure.base))  # fmt: skip
            console.print(panels[-1].sheet().to_rich())
            console.print(panels[-1].failures())
    if options.json:
        options.json.write_text(json.dumps([panel.document() for panel in panels], indent=1) + "\n")
    if options.draw:
        osu_report.draw(options.draw, panels)
    return int(any(panel.failures() for panel in panels))


if __name__ == "__main__":
    sys.exit(main())
