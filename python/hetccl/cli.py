"""The command ``hetccl``: info, check, selftest, topo, plan, shard, parallel, bench and others."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

import hetccl
from hetccl._lib import HetcclError
from hetccl.arguments import (
    TYPE_FLAGS,
    Rendezvous,
    or_all,
    parse_call,
    parse_op,
    parse_size,
    parse_type,
)
from hetccl.balance.command import balance
from hetccl.check.command import check
from hetccl.devices.choice import AUTO, Devices
from hetccl.launchers.placement import RendezvousError
from hetccl.parallel.command import parallel
from hetccl.plan.command import plan
from hetccl.selftest.command import selftest
from hetccl.sharding.command import shard
from hetccl.topology.command import topo
from hetccl.tune.command import tune

app = typer.Typer(
    name="hetccl",
    help="One communicator over unlike accelerators.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version() -> str:
    return ".".join(map(str, hetccl.version()))


def _print_version(wanted: bool) -> None:
    if wanted:
        print("hetccl", _version())
        raise typer.Exit


def _print_cmake_dir(wanted: bool) -> None:
    if wanted:
        print(hetccl.get_cmake_dir())
        raise typer.Exit


def _print_include(wanted: bool) -> None:
    if wanted:
        print(hetccl.get_include())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option(
            "--cmake-dir",
            callback=_print_cmake_dir,
            is_eager=True,
            help="Print the folder for CMake's -Dhetccl_DIR.",
        ),
    ] = False,
    include_dir: Annotated[
        bool,
        typer.Option(
            "--include-dir",
            callback=_print_include,
            is_eager=True,
            help="Print the folder for the compiler's -I.",
        ),
    ] = False,
) -> None:
    """One communicator over unlike accelerators."""


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
    settings: Annotated[
        bool,
        typer.Option("--settings", "--all", help="List all settings, also those at their default."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show all that is known, and why what is missing is."),
    ] = False,
    pid: Annotated[
        int | None, typer.Option("--pid", help="Tell which NCCL this process uses, nothing else.")
    ] = None,
) -> None:
    """Show hetccl's version, its PyTorch backend, what was found on this machine, and settings."""
    if pid is not None:
        return _show_nccl_of(pid)
    from hetccl import _lib, info_view, torch_backend, wheels

    wheels.load_nccl()
    found = {"version": _version(), "torch_backend": torch_backend.state()}
    document = {**found, **json.loads(_lib.info())}
    if as_json:
        print(json.dumps(document))
    else:
        info_view.show(document, all_settings=settings, verbose=verbose)
    return None


def _show_nccl_of(pid: int) -> None:
    from hetccl import nccl

    try:
        print(nccl.loaded_by(pid).describe())
    except OSError as error:
        print(f"hetccl info: process {pid}: {error.strerror}", file=sys.stderr)
        raise typer.Exit(1) from None


app.command()(check)
app.command()(selftest)
app.command()(topo)
app.command()(plan)
app.command()(shard)
app.command()(parallel)
app.command()(balance)


def _collective(name: str) -> str:
    """Checks a call's name. typer's own choices would break the names in the help."""
    from hetccl.bench.operations import CASES

    return parse_call(name, list(CASES))


Collective = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTIVE",
        callback=_collective,
        help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, "
        "scatter, or send_recv: to the next rank, from the one before.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        "-g",
        "--ngpus",
        min=1,
        max=512,
        help="Processes to start here; a launcher's task is one rank, with -g 1, too.",
    ),
]
Clusters = Annotated[int, typer.Option(min=1, help="Split the ranks into so many clusters.")]
Interleave = Annotated[bool, typer.Option("--interleave", help="Rank order ABAB, not AABB.")]
MinBytes = Annotated[
    int,
    typer.Option(
        "-b",
        "--minbytes",
        parser=parse_size,
        metavar="SIZE",
        help="Smallest message: 8, 64K, 32M, 1G.",
    ),
]
MaxBytes = Annotated[
    int,
    typer.Option("-e", "--maxbytes", parser=parse_size, metavar="SIZE", help="Largest message."),
]
StepBytes = Annotated[
    int,
    typer.Option(
        "-i", "--stepbytes", parser=parse_size, metavar="SIZE", help="From one size to the next."
    ),
]
Factor = Annotated[
    int, typer.Option("-f", "--stepfactor", min=0, help="Multiply sizes by it instead of adding.")
]
Iterations = Annotated[int, typer.Option("-n", "--iters", min=1, help="Timed calls for each size.")]
Warmups = Annotated[int, typer.Option("-w", "--warmup_iters", min=0, help="Calls before those.")]
Op = Annotated[
    str,
    typer.Option(
        "-o", "--op", parser=or_all(parse_op), metavar="OP", help="sum, prod, max, min, avg or all."
    ),
]
Types = Annotated[
    str,
    typer.Option(
        *TYPE_FLAGS, parser=or_all(parse_type), metavar="TYPE",
        help="float32, bfloat16, int8, ... or all.",
    ),
]  # fmt: skip
Root = Annotated[
    int, typer.Option("-r", "--root", min=0, help="Of a broadcast, reduce, gather or scatter.")
]
Check = Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Verify values.")]
Blocking = Annotated[
    int, typer.Option("-z", "--blocking", min=0, max=1, help="Wait for each collective.")
]

Predict = Annotated[
    bool,
    typer.Option(
        "--predict",
        help="Add what one call by itself should take, as predicted at init, and what it takes.",
    ),
]


Regress = Annotated[
    bool,
    typer.Option(
        "--regress",
        help="Fit time = latency + size / bandwidth to the sizes out of place, and say its R2.",
    ),
]


@app.command()
def bench(
    operation: Collective = "all_reduce",
    ranks: Ranks = None,
    clusters: Clusters = 1,
    interleave: Interleave = False,
    min_bytes: MinBytes = 32 << 20,
    max_bytes: MaxBytes = 32 << 20,
    step_bytes: StepBytes = 1 << 20,
    factor: Factor = 0,
    iterations: Iterations = 20,
    warmups: Warmups = 1,
    redop: Op = "sum",
    dtype: Types = "float32",
    root: Root = 0,
    check: Check = 1,
    blocking: Blocking = 0,
    rendezvous: Rendezvous = None,
    predict: Predict = False,
    regress: Regress = False,
    devices: Devices = AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not the table.")] = False,
) -> None:
    """Measure a collective, or messages, with nccl-tests' flags and columns.

    Starts its own ranks on this machine, one for each GPU, or four on CPUs; under torchrun, mpirun
    or the like it is one rank, on the GPU of its local rank.
    """
    from hetccl.bench import launch
    from hetccl.bench.operations import CASES
    from hetccl.bench.options import Options

    if not 1 <= min_bytes <= max_bytes or step_bytes < 1:
        raise typer.BadParameter(
            f"from {min_bytes} (-b) to {max_bytes} (-e) bytes there is nothing to measure: give "
            "both -b and -e"
        )
    if predict and not CASES[operation].has_plan:
        raise typer.BadParameter(f"--predict: {operation} is no collective, and has no prediction")
    if regress and "all" in (dtype, redop):
        raise typer.BadParameter("--regress takes one type (-d) and one operator (-o), not all")
    measured = Options(
        operation=operation, min_bytes=min_bytes, max_bytes=max_bytes, step_bytes=step_bytes,
        factor=factor, redop=redop, dtype=dtype, root=root, iterations=iterations,
        warmups=warmups, check=bool(check), blocking=bool(blocking), predict=predict,
        regress=regress,
    )  # fmt: skip
    job = launch.Job(measured, clusters, interleave, rendezvous, as_json, devices=devices)
    raise typer.Exit(launch.run(job, ranks))


app.command()(tune)


@app.command(context_settings={"ignore_unknown_options": True})
def tuned(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="A launcher and its program.")
    ],
) -> None:
    """Run a plain NCCL or RCCL program, and tune its collectives while it runs.

    hetccl tuned -- torchrun --nproc-per-node 8 train.py
    """
    from hetccl import tuned as plugin

    try:
        raise typer.Exit(plugin.run(command))
    except OSError as error:
        print(f"hetccl tuned: {error}", file=sys.stderr)
        raise typer.Exit(127) from None


@app.command(name="mpi-lib")
def mpi_lib() -> None:
    """Print the path of the library that MPI programs preload, whichever MPI they use.

    mpirun -x LD_PRELOAD=$(hetccl mpi-lib) -n 4 program
    """
    from hetccl.mpi import LIBRARY

    print(LIBRARY)


@app.command(name="nccl-lib")
def nccl_lib(
    stand_in: Annotated[
        bool,
        typer.Option(
            "--stand-in",
            help="The folder with libnccl.so.2 and librccl.so.1, for LD_LIBRARY_PATH.",
        ),
    ] = False,
) -> None:
    """Print the path of the library that NCCL and RCCL programs preload.

    LD_PRELOAD=$(hetccl nccl-lib) torchrun --nproc-per-node 8 train.py
    """
    from hetccl.nccl import LIBRARY, STAND_INS

    print(STAND_INS if stand_in else LIBRARY)


@app.command(name="mpi-info")
def mpi_info(
    ranks: Annotated[int, typer.Option("--ranks", min=2, help="Of the communicator.")] = 4,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="On which they are.")] = 1,
) -> None:
    """Show the MPI in PATH, how its programs are given hetccl, and which calls hetccl serves."""
    from hetccl import mpi

    try:
        mpi.show(ranks, nodes)
    except (OSError, ValueError) as error:
        print(f"hetccl mpi-info: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def demo(context: typer.Context) -> None:
    """Train a small GPT across two unlike clusters, then compare with Gloo."""
    try:
        from hetccl.demo import main as run_demo
    except ImportError as error:
        print(f"hetccl demo: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    raise typer.Exit(run_demo(context.args))


def main() -> None:
    """The console script."""
    try:
        app()
    except SystemExit as end:
        # typer makes an exit of Ctrl-C, and says nothing.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            print("hetccl: interrupted", file=sys.stderr)
        raise
    except (HetcclError, RendezvousError) as error:
        print(f"hetccl: {error}", file=sys.stderr)
        sys.exit(1)
