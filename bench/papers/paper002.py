"""Paper 002, MPI4AI: figures 4, 6 and 7. Memory of GPUs: bench/osu.py, which draws the same."""

from __future__ import annotations

import native
from entry import Entry, Found, MissingError
from mpis import MPIS
from osu import ALPHA, COMMUNICATORS, DEVICE, HYBRID, PARTS

from hetccl.units import binary_size

MPICH = next(mpi for mpi in MPIS if mpi.name == "MPICH")
SMALL = tuple(4 << (3 * power) for power in range(7))  # to 1 MiB
GPUS = "AMD's GPUs and RCCL, for which the paper's factors hold; bench/osu.py measures memory of " \
    "GPUs where the OSU Micro-Benchmarks are"  # fmt: skip


def series_of(
    rules: dict[str, object], sizes: tuple[int, ...], quick: bool, nodes: int = 1
) -> dict[str, dict[float, float]]:
    """Microseconds of MPI_Allreduce under MPICH by bytes, of two ranks that take turns: each with
    rules for hetccl, None without it. Raises MissingError where MPICH is not here."""
    if (reason := MPICH.missing()) is not None:
        raise MissingError(f"needs MPICH ({reason}): tools/setup --mpi")
    rounds, batches = (1, 5) if quick else (3, native.BATCHES)
    found = native.measure_rules(MPICH, rules, sizes, nodes, rounds, 240.0, batches)
    if failed := {name: why for name, why in found.items() if isinstance(why, str)}:
        raise RuntimeError(f"MPI_Allreduce was not measured: {failed}")
    return {
        name: {row["bytes"]: 1e6 * row["seconds"] for row in rows.values()}
        for name, rows in found.items()
        if not isinstance(rows, str)
    }


def found_of(series: dict[str, dict[float, float]], nodes: str, values: dict[str, float]) -> Found:
    where = f"two CPU ranks under MPICH, {nodes}, memory of the host"
    return Found(where, dict(values), series, ("bytes", "us"))


def measure_compositions(quick: bool) -> Found:
    """MPICH alone, hetccl's leaders (alpha), hetccl; two nodes that share this machine."""
    rules = {"MPICH": None, "leaders (alpha)": {"any": ALPHA}, "hetccl": {"any": DEVICE}}
    series = series_of(rules, SMALL, quick, nodes=2)
    least, most = min(SMALL), max(SMALL)
    values = {
        f"MPICH / hetccl, {binary_size(size)}": series["MPICH"][size] / series["hetccl"][size]
        for size in (least, most)
    }
    return found_of(series, "two emulated nodes over loopback", values)


def measure_hybrid(quick: bool) -> Found:
    rules = {"MPICH": None, "hetccl": {"any": DEVICE}, "hybrid": HYBRID}
    values, whole = {}, {}
    for nodes in (1, 2):
        series = series_of(rules, SMALL, quick, nodes)
        values[f"1 MiB, {nodes} node{'s' * (nodes > 1)}"] = (
            series["MPICH"][1 << 20] / series["hybrid"][1 << 20]
        )
        whole |= {f"{name}, {nodes}": by for name, by in series.items()}
    return found_of(whole, "one node, and two emulated ones over loopback", values)


def measure_parts(quick: bool) -> Found:
    sizes = tuple(4 << (4 * power) for power in range(6 if quick else 7))
    rules = {
        "hetccl": {"any": DEVICE},
        "4 streams": {"any": PARTS},
        "4 communicators": {"any": COMMUNICATORS},
    }
    series = series_of(rules, sizes, quick)
    values = {
        f"{name} / hetccl, {max(sizes) >> 20} MiB": series["hetccl"][max(sizes)]
        / series[name][max(sizes)]
        for name in ("4 streams", "4 communicators")
    }
    return found_of(series, "one node", values)


ENTRIES = (
    Entry(
        paper="002",
        piece="figure 4",
        claim=(
            "Below 8 KB (one node) and 32 KB (two) MPICH's compositions are faster than RCCL's "
            "all-reduce, above them RCCL is."
        ),
        unit="times as fast",
        paper_values={},
        measured=("MPICH, leaders and hetccl by rules of one file, through MPI_Allreduce."),
        limits=f"{GPUS}.",
        seconds=40,
        measure=measure_compositions,
        page="mpi",
    ),
    Entry(
        paper="002",
        piece="figure 6",
        claim=(
            "Rules by size make all-reduces of 1 MB 60.2 times as fast as MPICH's on one node, "
            "35.1 times on two."
        ),
        unit="times as fast",
        paper_values={"1 MiB, 1 node": 60.2, "1 MiB, 2 nodes": 35.1},
        measured="The paper's rules (8 KB, 32 KB), through MPI_Allreduce.",
        limits=f"{GPUS}.",
        seconds=60,
        measure=measure_hybrid,
        page="mpi",
    ),
    Entry(
        paper="002",
        piece="figure 7",
        claim=(
            "All-reduces in four parts, on four streams or by four communicators, are slower "
            "below 8 MB and no faster above."
        ),
        unit="times as fast",
        paper_values={"4 streams / hetccl, 64 MiB": 1.0, "4 communicators / hetccl, 64 MiB": 1.0},
        measured="The same parts of host memory, through MPI_Allreduce.",
        limits=f"{GPUS}.",
        seconds=60,
        measure=measure_parts,
        page="mpi",
    ),
)
