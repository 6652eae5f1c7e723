"""``hetccl mpi-lib`` and ``hetccl mpi-info``: the library that MPI programs preload."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hetccl.units import binary_size, counted

LIBRARY = Path(__file__).parent / "lib" / "libhetccl_mpi.so"
_MAKERS = {"MPICH": "mpich", "Intel MPI": "intel", "Open MPI": "openmpi"}  # as rules name them


@dataclass(frozen=True)
class Launcher:
    """The MPI whose launcher is in PATH."""

    path: str
    name: str
    version: str

    def preload(self, library: Path) -> str:
        """How its ranks are given the library."""
        if self.name == "Open MPI":
            return f"{self.path} -x LD_PRELOAD={library} ..."
        return f"{self.path} -genv LD_PRELOAD {library} ..."


def find_launcher() -> Launcher | None:
    """Returns the name that mpiexec or mpirun in PATH gives itself; None if there is none."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return None
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Launcher(path, "unknown", "")
    text = said.stdout + said.stderr
    for name, pattern in (
        ("Open MPI", r"Open MPI\)? *v?([0-9][0-9.]*)"),
        ("Intel MPI", r"Intel\(R\) MPI Library.*?Version *([0-9][0-9.]*)"),
        ("MPICH", r"HYDRA build details:.*?Version: *([0-9][0-9.]*)"),
    ):
        if found := re.search(pattern, text, re.DOTALL):
            return Launcher(path, name, found[1])
    return Launcher(path, "unknown", "")


def default_rules() -> dict[str, Any]:
    """hetccl's own rules, which count where nothing else is set."""
    call = ctypes.CDLL(str(LIBRARY)).hetcclMpiDefaultRules
    call.restype = ctypes.c_char_p
    rules: dict[str, Any] = json.loads(call())
    return rules


def describe_rules(
    launcher: Launcher | None, ranks: int, nodes: int
) -> tuple[str, list[dict[str, Any]]]:
    """Returns the sources of the rules, and the rules for a communicator.

    Raises ValueError that names what is wrong with a file or a setting.
    """
    describe = ctypes.CDLL(str(LIBRARY)).hetcclMpiDescribeRules
    answer = ctypes.c_char_p()
    maker = _MAKERS.get(launcher.name if launcher else "", "other").encode()
    failed = describe(maker, ranks, nodes, ctypes.byref(answer))
    said = (answer.value or b"").decode()
    if failed:
        raise ValueError(said)
    described = json.loads(said)
    return described["source"], described["collectives"]


def _server(algorithm: str) -> str:
    """Returns who serves calls by an algorithm of the rules: "device, 4 streams" is "hetccl, 4
    streams".
    """
    name, comma, options = algorithm.partition(",")
    known = {"device": "hetccl", "alpha": "MPI, by leaders"}
    return known.get(name, "MPI") + comma + options


def _words(decisions: list[dict[str, Any]]) -> str:
    return "; ".join(
        _server(row["algorithm"])
        if row["from_bytes"] == 1
        else f"from {binary_size(row['from_bytes'])} {_server(row['algorithm'])}"
        for row in decisions
    )


def show(ranks: int, nodes: int) -> None:
    """Prints all of it. Raises as `describe_rules`."""
    console = Console(soft_wrap=True)
    console.print(f"library   {LIBRARY}")
    launcher = find_launcher()
    if launcher is None:
        console.print("MPI       none in PATH")
    else:
        console.print(f"MPI       {launcher.name} {launcher.version}, {launcher.path}")
        console.print(f"preload   {launcher.preload(LIBRARY)}")
    source, collectives = describe_rules(launcher, ranks, nodes)
    console.print(f"rules     {source}")
    console.print()
    title = f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"
    table = Table(title=title, title_justify="left")
    for heading in ("collective", "host memory", "device memory"):
        table.add_column(heading)
    for row in collectives:
        table.add_row(row["collective"], _words(row["host"]), _words(row["device"]))
    console.print(table)
