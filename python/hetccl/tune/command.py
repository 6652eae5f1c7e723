"""``hetccl tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetccl.arguments import Datatype, Rendezvous, parse_call, parse_size
from hetccl.devices.choice import AUTO, Devices, LookingError
from hetccl.tune.options import COLLECTIVES, Options

_LEAST_BYTES = 64  # less is what ranks tell each other during a sweep
_MOST_SIZES = 256
_OUTPUT, _REPORT, _NCCL = Path("tune.jsonl"), Path("tune.html"), Path("nccl_tuner.conf")

Collectives = Annotated[
    list[str] | None,
    typer.Option(
        "--collective",
        metavar="NAME",
        help="all_reduce, all_gather, reduce_scatter, broadcast, all_to_all: all five; once for "
        "each. Or reduce, gather, scatter.",
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        metavar="FROM..TO",
        help="Bytes of the whole buffer, each 4 times the one before: 4K..64M, which is the "
        "default; or 4K,1M. With --mpi bytes of a block: 256..4M.",
    ),
]
Points = Annotated[
    int, typer.Option("--points", min=3, help="Values of each parameter to try, at most.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds",
        min=0,
        help="Measure so long, shared out among the keys; a later run goes on.",
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="AABB",
        help="A letter per rank, or A2B2: a cluster for each letter. Without a launcher: AABB.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Write here: measured points (tune.jsonl), the page (tune.html), or the export. "
        "Points that the file has are not measured again.",
    ),
]
Save = Annotated[
    bool,
    typer.Option(
        "--save/--no-save", help="Keep what was learnt in HETCCL_TUNE_FILE, for later jobs."
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="POINTS", help="Measure nothing: make a page of this file's points."
    ),
]
Export = Annotated[
    tuple[str, Path] | None,
    typer.Option(
        "--export",
        metavar="nccl FILE",
        help="Measure nothing: write what this HETCCL_TUNE_FILE has of plain NCCL's settings as a "
        "configuration of NCCL's example tuner.",
    ),
]
Mpi = Annotated[
    Path | None,
    typer.Option(
        "--mpi",
        metavar="RULES",
        help="In each rank of an MPI's launcher: measure MPI collectives by the MPI and by hetccl, "
        "and write the rules by which hetccl serves those where it is faster. --collective takes "
        "MPI's names: allreduce, bcast.",
    ),
]
Gpu = Annotated[
    bool, typer.Option("--gpu", help="With --mpi: measure device memory, too, a GPU for each rank.")
]
Mpich = Annotated[
    Path | None,
    typer.Option(
        "--mpich",
        metavar="FILE",
        help="With --mpi: MPICH's own tuning file. Write a copy beside RULES in which MPICH's ccl "
        "serves the all-reduces that hetccl served faster, for MPICH without hetccl.",
    ),
]


def _sizes(text: str) -> tuple[int, ...]:
    """Returns the bytes of "4K..64M" or "4K,1M"."""
    first, dots, last = text.partition("..")
    if dots:
        size, end = parse_size(first), parse_size(last)
        found = []
        while 0 < size <= end:
            found.append(size)
            size *= 4
    else:
        found = [parse_size(one) for one in text.split(",")]
    if not found or min(found) < _LEAST_BYTES or len(found) > _MOST_SIZES:
        raise typer.BadParameter(
            f"--sizes {text}: give sizes from {_LEAST_BYTES} bytes upward, such as 4K..64M or 4K,1M"
        )
    return tuple(found)


def _labels(layout: str | None) -> tuple[str, ...] | None:
    from hetccl.topology.layout import LayoutError, parse_groups

    if layout is None:
        return None
    try:
        labels = tuple(parse_groups(layout))
    except LayoutError as error:
        raise typer.BadParameter(f"--layout: {error}") from None
    if len(set(labels)) < 2:
        raise typer.BadParameter(
            f"--layout {layout}: one cluster leaves nothing to tune: write two letters, as in AABB"
        )
    return labels


def _collectives(names: list[str] | None) -> tuple[str, ...]:
    from hetccl.bench.operations import CASES

    known = [name for name, case in CASES.items() if case.has_plan]
    try:
        found = [parse_call(name, known) for name in names or COLLECTIVES]
    except typer.BadParameter as error:
        raise typer.BadParameter(f"--collective {error.message}") from None
    return tuple(dict.fromkeys(found))


def _make_report(points: Path, output: Path) -> None:
    from hetccl import files
    from hetccl.tune import records, report

    files.write_text(output, report.render(records.read(points), str(points)))
    print(f"report: {output}")


def _export(kind: str, points: Path, output: Path) -> None:
    from hetccl import files
    from hetccl.tune import nccl

    if kind != "nccl":
        raise typer.BadParameter(f"--export {kind}: it can be nccl alone")
    text, count = nccl.configuration(points.read_text(encoding="utf-8"))
    if count == 0:
        raise nccl.ExportError(
            f"{points} has no setting of NCCL's, so there is nothing to export: give the "
            "HETCCL_TUNE_FILE that hetccl's tuner plug-in for NCCL has written"
        )
    files.write_text(output, text)
    print(f"exported: {count} lines in {output}; use them with NCCL_TUNER_CONFIG_FILE={output}")


def _sweep(options: Options) -> int:
    from hetccl.launchers.placement import RendezvousError, find_job
    from hetccl.tune import launch, records
    from hetccl.tune.sweep import SweepError

    try:
        # Known before ranks start, where they start here; a launcher's others have no such file.
        if find_job() is None:
            records.Records(options.output).close()
        return launch.run(options)
    except KeyboardInterrupt:
        typer.echo(
            f"hetccl tune: stopped; the same command goes on from {options.output}", err=True
        )
        return launch.INTERRUPTED
    except (SweepError, RendezvousError, LookingError) as error:
        raise typer.BadParameter(str(error)) from None


def _tune_mpi(
    rules: Path,
    collective: list[str] | None,
    sizes: str,
    budget: float | None,
    gpu: bool,
    mpich: Path | None,
) -> None:
    from hetccl.tune import mpi

    for name in collective or ():
        if name not in mpi.COLLECTIVES:
            raise typer.BadParameter(
                f"--collective {name}: with --mpi it is none of {', '.join(mpi.COLLECTIVES)}"
            )
    names = tuple(collective or mpi.COLLECTIVES)
    wanted = _sizes(sizes)
    seconds = 0.1 if budget is None else budget / len(names) / len(wanted) / (1 + gpu)
    try:
        base = None if mpich is None else mpi.read_mpich(mpich)
        mpi.run(rules, mpi.Wanted(names, wanted, gpu, seconds), base)
    except mpi.TuneError as error:
        raise typer.BadParameter(f"--mpi: {error}") from None


def tune(
    collective: Collectives = None,
    sizes: Sizes = None,
    dtype: Datatype = "float32",
    points: Points = 5,
    budget_seconds: Budget = None,
    layout: Layout = None,
    output: Output = None,
    save: Save = True,
    rendezvous: Rendezvous = None,
    report: Report = None,
    export: Export = None,
    mpi: Mpi = None,
    gpu: Gpu = False,
    mpich: Mpich = None,
    devices: Devices = AUTO,
) -> None:
    """Measure the settings of collectives beside their defaults, and keep the best for later jobs.

    Starts its own ranks on this machine; under torchrun, mpirun or the like it is one rank, on the
    GPU of its local rank.
    """
    from hetccl.tune.nccl import ExportError
    from hetccl.tune.records import RecordsError

    if sum(one is not None for one in (report, export, mpi)) > 1:
        raise typer.BadParameter("give one of --report or --export or --mpi")
    if (gpu or mpich) and mpi is None:
        raise typer.BadParameter("--gpu and --mpich go with --mpi")
    try:
        if mpi is not None:
            _tune_mpi(mpi, collective, sizes or "256..4M", budget_seconds, gpu, mpich)
        elif report is not None:
            _make_report(report, output or _REPORT)
        elif export is not None:
            _export(*export, output or _NCCL)
        else:
            measured = _sizes(sizes or "4K..64M")
            options = Options(
                output or _OUTPUT, measured, _collectives(collective), dtype, points,
                budget_seconds, save, _labels(layout), rendezvous, devices=devices,
            )  # fmt: skip
            raise typer.Exit(_sweep(options))
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from None
    except (RecordsError, ExportError) as error:
        raise typer.BadParameter(str(error)) from None
