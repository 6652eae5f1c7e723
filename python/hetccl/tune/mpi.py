"""``hetccl tune --mpi``: measures MPI collectives by the MPI and by hetccl, and writes rules.

Runs in each rank of an MPI's launcher. The measuring itself is in libhetccl_mpi.so.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hetccl.mpi import LIBRARY, default_rules

COLLECTIVES = (
    "allreduce",
    "reduce",
    "bcast",
    "allgather",
    "reduce_scatter",
    "reduce_scatter_block",
    "alltoall",
    "gather",
    "scatter",
)
_OPEN_MPI = ("libmpi.so.40",)
_OTHERS = ("libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1")
_GAIN = 0.97  # of the MPI's time: hetccl serves a call that takes less


class TuneError(Exception):
    """The measurement is impossible; the text tells people why."""


@dataclass(frozen=True)
class Wanted:
    """The measurements to make."""

    collectives: Sequence[str]
    sizes: Sequence[int]
    gpu: bool
    seconds: float


def load_mpi() -> ctypes.CDLL:
    """Loads the MPI whose launcher started this process. Raises TuneError."""
    ours = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID")
    if not any(name in os.environ for name in ours):
        raise TuneError("start it with an MPI's launcher: mpirun -n 4 hetccl tune --mpi rules.json")
    failures = []
    for name in _OPEN_MPI if "OMPI_COMM_WORLD_RANK" in os.environ else _OTHERS:
        try:
            return ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError as error:
            failures.append(str(error))
    raise TuneError(
        "the MPI's library is not found; put its folder into LD_LIBRARY_PATH: "
        + "; ".join(failures)
    )


def measure(wanted: Wanted, gpu: int) -> dict[str, Any]:
    """The times of one kind of memory. Collective over all ranks. Raises TuneError."""
    call = ctypes.CDLL(str(LIBRARY)).hetcclMpiMeasure
    options = {"collectives": list(wanted.collectives), "bytes": list(wanted.sizes), "gpu": gpu,
               "seconds": wanted.seconds}  # fmt: skip
    answer = ctypes.c_char_p()
    failed = call(json.dumps(options).encode(), ctypes.byref(answer))
    said = (answer.value or b"").decode()
    if failed:
        raise TuneError(said)
    measured: dict[str, Any] = json.loads(said)
    return measured


def _fastest(us: dict[str, float]) -> str:
    best = min(us, key=lambda name: us[name])
    return best if us[best] < _GAIN * us["mpi"] else "mpi"


def _leaf(algorithm: str) -> dict[str, Any]:
    name, *parameters = algorithm.split()
    kind = "composition" if name == "alpha" else "algorithm"
    return {f"{kind}={name}": {parameter: {} for parameter in parameters}}


def _branch(
    points: list[dict[str, Any]], collective: str, leaf: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """By size, the leaf of the collective's fastest algorithm."""
    rows = sorted((p for p in points if p["collective"] == collective), key=lambda p: p["bytes"])
    chosen = [(point["bytes"], leaf(_fastest(point["us"]))) for point in rows]
    branch: dict[str, Any] = {}
    for (size, one), (_, following) in pairwise(chosen):
        if following != one:
            branch[f"avg_msg_size<={size}"] = one
    branch["avg_msg_size=any"] = chosen[-1][1]
    return branch


def rules_of(points: list[dict[str, Any]], others: dict[str, Any]) -> dict[str, Any]:
    """Returns the tree of a tuning file: the fastest algorithm of each collective, by size.
    `others` are the rules of collectives that were not measured.
    """
    tree: dict[str, Any] = {}
    for collective in dict.fromkeys(point["collective"] for point in points):
        tree[f"collective={collective}"] = {"comm_type=intra": _branch(points, collective, _leaf)}
    tree["any"] = others
    return tree


def whole_file(measured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Rules for communicators on one node, or on several, of host and of device memory; for what
    was not measured hetccl's own."""
    first = measured["host"]
    own = default_rules()
    device = measured["device"]["points"] if "device" in measured else []
    here = {"buffer=device": rules_of(device, own), "any": rules_of(first["points"], own)}
    one_node, several = (here, own) if first["nodes"] == 1 else (own, here)
    return {"comm_size=node_comm_size": one_node, "any": several}


def read_mpich(path: Path) -> dict[str, Any]:
    """A tuning file of MPICH's that has rules for all-reduces. Raises TuneError, or OSError."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TuneError(f"{path}: is no JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("collective=allreduce"), dict):
        raise TuneError(
            f"{path}: has no collective=allreduce: MPICH takes whole files alone, such as "
            "coll_selection.json of its source"
        )
    return tree


def mpich_rules(base: dict[str, Any], points: list[dict[str, Any]]) -> dict[str, Any]:
    """MPICH's file with its ccl where hetccl served an all-reduce faster: it has no other."""
    before = base["collective=allreduce"]

    def leaf(algorithm: str) -> dict[str, Any]:
        within: dict[str, Any] = before.get("comm_type=intra", before)
        ccl: dict[str, Any] = {"algorithm=MPIR_Allreduce_intra_ccl": {"ccl=auto": {}}}
        return ccl if algorithm.startswith("device") else within

    branch: dict[str, Any] = {"comm_type=intra": _branch(points, "allreduce", leaf)}
    if "comm_type=intra" not in before:
        branch["comm_type=inter"] = before
    elif "comm_type=inter" in before:
        branch["comm_type=inter"] = before["comm_type=inter"]
    return {**base, "collective=allreduce": branch}


def show(measured: dict[str, dict[str, Any]]) -> None:
    """Prints the times as a table."""
    from rich.console import Console
    from rich.table import Table

    from hetccl.units import binary_size

    for memory, result in measured.items():
        table = Table(
            title=f"{result['ranks']} ranks on {result['nodes']} node(s), {memory} memory, us",
            title_justify="left",
        )
        names = list(dict.fromkeys(name for p in result["points"] for name in p["us"]))
        for heading in ("collective", "bytes", *names, "chosen"):
            table.add_column(heading, justify="left" if heading == "collective" else "right")
        for point in result["points"]:
            times = [f"{point['us'][n]:.1f}" if n in point["us"] else "" for n in names]
            table.add_row(point["collective"], binary_size(point["bytes"]), *times,
                          _fastest(point["us"]))  # fmt: skip
        Console().print(table)


def run(output: Path, wanted: Wanted, mpich: dict[str, Any] | None = None) -> None:
    """Measures, and on rank 0 writes the rules; with MPICH's tree also those for MPICH itself.
    Raises TuneError, or OSError for a file."""
    if mpich and "allreduce" not in wanted.collectives:
        raise TuneError("MPICH's ccl has all-reduces alone: measure --collective allreduce")
    library = load_mpi()
    measured = {"host": measure(wanted, -1)}
    if wanted.gpu:
        local = next((os.environ[name] for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
                      if name in os.environ), "0")  # fmt: skip
        measured["device"] = measure(wanted, int(local))
    library.PMPI_Finalize()
    if measured["host"]["rank"] == 0:
        show(measured)
        output.write_text(json.dumps(whole_file(measured), indent=2) + "\n")
        print(f"rules: {output}; for jobs with HETCCL_MPI_FILE={output}")
        if mpich:
            memory, result = list(measured.items())[-1]
            path = output.with_suffix(".mpich.json")
            path.write_text(json.dumps(mpich_rules(mpich, result["points"]), indent=2) + "\n")
            suffix = "_GPU" if memory == "device" else ""
            setting = f"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE{suffix}"
            print(f"rules of MPICH: {path}; for jobs with {setting}={path}")
