"""``hetccl tune --mpi``: measures MPI collectives by the MPI and by hetccl, and writes rules.

Runs in each rank of an MPI's launcher. The measuring itself is in libhetccl_mpi.so.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hetccl.mpi import LIBRARY

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
    """What stands in the way, for people."""


@dataclass(frozen=True)
class Wanted:
    """What is measured."""

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


def rules_of(points: list[dict[str, Any]], others: str = "mpi") -> dict[str, Any]:
    """The tree of a tuning file: of each collective the fastest algorithm, by size. `others` serves
    collectives that were not measured."""
    tree: dict[str, Any] = {}
    for collective in dict.fromkeys(point["collective"] for point in points):
        rows = sorted(
            (p for p in points if p["collective"] == collective), key=lambda p: p["bytes"]
        )
        chosen = [(point["bytes"], _fastest(point["us"])) for point in rows]
        branch: dict[str, Any] = {}
        for (size, algorithm), following in pairwise(chosen):
            if following[1] != algorithm:
                branch[f"avg_msg_size<={size}"] = _leaf(algorithm)
        branch["avg_msg_size=any"] = _leaf(chosen[-1][1])
        tree[f"collective={collective}"] = {"comm_type=intra": branch}
    tree["any"] = {f"algorithm={others}": {}}
    return tree


def whole_file(measured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Rules for communicators of such a shape, of host and of device memory."""
    first = measured["host"]
    where = "comm_size=node_comm_size" if first["nodes"] == 1 else "comm_hierarchy=parent"
    memories = {
        f"buffer={memory}": rules_of(result["points"], "device" if memory == "device" else "mpi")
        for memory, result in measured.items()
    }
    unmeasured: dict[str, Any] = {
        "buffer=device": {"algorithm=device": {}},
        "any": {"algorithm=mpi": {}},
    }
    return {where: {**memories, **unmeasured, **memories}, "any": unmeasured}


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


def run(output: Path, wanted: Wanted) -> None:
    """Measures, and on rank 0 writes the rules. Raises TuneError, or OSError for the file."""
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
