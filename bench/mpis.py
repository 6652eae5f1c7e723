"""The MPIs that `make bench` compares with, each from its wheel in a prefix of its own.

tools/setup --mpi installs them (bench/mpi.txt pins them). One that is missing is left out, by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PREFIXES = Path(__file__).parent.parent / ".venv/mpi"


def run_job(argv: list[str], env: Mapping[str, str], timeout: float) -> tuple[int | None, str]:
    """Runs a launcher. Returns its exit status, None if the job did not end in time, and its
    output.
    """
    launcher = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = launcher.communicate(timeout=timeout)
    except BaseException as stopped:  # late, or this process is interrupted
        launcher.terminate()  # a launcher that is killed leaves its ranks behind
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
        if not isinstance(stopped, subprocess.TimeoutExpired):
            raise
        return None, ""
    return launcher.returncode, said


@dataclass(frozen=True)
class Mpi:
    """One MPI: its wheel, the header that its programs take, and its launcher."""

    name: str
    package: str
    header_of: str
    library: str
    launcher: tuple[str, ...]
    binding: tuple[str, ...] = ()  # each rank to a core of its own, where it is not the default
    crowding: tuple[str, ...] = ()  # what it takes to start more ranks than cores
    environment: dict[str, str] = field(default_factory=dict)
    crowded: dict[str, str] = field(default_factory=dict)  # with more ranks than cores

    @property
    def prefix(self) -> Path:
        """The folder in which its wheel is installed."""
        return PREFIXES / self.package

    def missing(self) -> str | None:
        """Returns the reason why it cannot be measured, or None."""
        needed = (
            self.prefix / "lib" / self.library,
            self.prefix / "bin" / self.launcher[0],
            PREFIXES / self.header_of / "include/mpi.h",
        )
        absent = [str(path) for path in needed if not path.exists()]
        return f"no {absent[0]}" if absent else None

    def compiling(self) -> list[str]:
        """Returns the compiler's options to build for it."""
        lib = self.prefix / "lib"
        return [f"-I{PREFIXES / self.header_of}/include", f"-L{lib}", f"-l:{self.library}",
                f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]  # fmt: skip

    def argv(self, ranks: int, program: list[str]) -> list[str]:
        """Returns the command that starts so many ranks here."""
        crowd = ranks > (os.cpu_count() or 1)
        binding = self.crowding if crowd else self.binding
        return [str(self.prefix / "bin" / self.launcher[0]), *self.launcher[1:], *binding,
                "-n", str(ranks), *program]  # fmt: skip

    def env(self, ranks: int) -> dict[str, str]:
        """Returns the variables that its programs need."""
        crowded = self.crowded if ranks > (os.cpu_count() or 1) else {}
        given = {**self.environment, **crowded}
        return {name: value.format(prefix=self.prefix) for name, value in given.items()}


MPIS = (
    Mpi(
        name="Intel MPI",
        package="impi-rt",
        header_of="mpich",  # its ABI is MPICH's
        library="libmpi.so.12",
        launcher=("mpiexec.hydra",),
        environment={"I_MPI_ROOT": "{prefix}", "I_MPI_FABRICS": "shm"},
        crowded={"I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "3"},
    ),
    Mpi(
        name="MPICH",
        package="mpich",
        header_of="mpich",
        library="libmpi.so.12",
        launcher=("mpiexec.hydra",),
        binding=("-bind-to", "core"),
    ),
    Mpi(
        name="Open MPI",
        package="openmpi",
        header_of="openmpi",
        library="libmpi.so.40",
        launcher=("mpiexec", "--allow-run-as-root"),
        binding=("--bind-to", "core"),
        crowding=("--oversubscribe",),
        environment={
            "OPAL_PREFIX": "{prefix}",
            "PRTE_PREFIX": "{prefix}",
            "PMIX_PREFIX": "{prefix}",
        },
        crowded={"OMPI_MCA_mpi_yield_when_idle": "1"},
    ),
)
