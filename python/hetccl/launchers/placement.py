"""Reads the launcher's environment: this process's job, and its rank there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class RendezvousError(RuntimeError):
    """The ranks cannot find each other; the text tells the reason and the remedy."""


class Service(Enum):
    """The service of a launcher by which its ranks can meet."""

    STORE = "torch's store"
    PMI = "PMI"
    PMIX = "PMIx"


@dataclass(frozen=True)
class Launcher:
    """The variables by which one kind of launcher tells a process its place.

    Those of rank and size must be set; so must `sign`, if other launchers set the same variables.
    """

    name: str
    rank: str
    size: str
    local_rank: str | None
    services: tuple[Service, ...]
    remedy: str
    sign: str | None = None


@dataclass(frozen=True)
class Placement:
    """A process's place in its job. `local_rank` counts the ranks of its host, or in a
    heterogeneous Slurm job those of its component there; None if the launcher does not tell.
    """

    launcher: Launcher
    rank: int
    size: int
    local_rank: int | None


_SLURM = "start the job with srun --mpi=pmi2 or --mpi=pmix (srun --mpi=list shows what there is)"

# The innermost launcher comes first: torchrun and mpirun may themselves run under srun or flux,
# whose variables their ranks then inherit.
LAUNCHERS = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", (Service.STORE,),
             "set MASTER_ADDR and MASTER_PORT, as torchrun does"),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", (Service.PMIX,), "start the job with mpirun"),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", (Service.PMI,),
             "start the job with mpiexec.hydra", sign="MPI_LOCALRANKID"),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
             (Service.PMIX, Service.PMI), _SLURM),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID",
             (Service.PMIX, Service.PMI), "start the job with flux run, without -o pmi=off"),
    Launcher("PMI", "PMI_RANK", "PMI_SIZE", None, (Service.PMI,),
             "start the job with a launcher that sets PMI_FD"),
)  # fmt: skip

# RANK and WORLD_SIZE may be left over; with one of these, or with a place to meet, they are meant.
_BY_TORCHRUN = ("LOCAL_RANK", "TORCHELASTIC_RUN_ID")
_PLACE = ("MASTER_ADDR", "MASTER_PORT")


def _is_meant(environment: Mapping[str, str]) -> bool:
    signs = any(name in environment for name in _BY_TORCHRUN)
    return signs or all(name in environment for name in _PLACE)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise RendezvousError(f"{name} must be a number, not {text[:40]!r}: a launcher sets it")
    return int(text)


def find_placement(environment: Mapping[str, str] = os.environ) -> Placement | None:
    """Returns this process's place in the job of its launcher, or None if no launcher is known.

    Known are torchrun, mpirun of Open MPI and of MPICH's relatives, srun and flux run. Raises
    RendezvousError if a launcher's variables contradict each other.
    """
    found = _placements(environment)
    first = next(found, None)
    if first is None:
        return None
    if first.launcher is LAUNCHERS[0] and not _is_meant(environment):
        for other in found:  # one task is a shell perhaps, in which somebody has set RANK
            if other.size > 1 and (other.rank, other.size) != (first.rank, first.size):
                raise RendezvousError(
                    f"{_words(first)}, but {_words(other)}: unset the wrong ones; torchrun sets "
                    f"{' and '.join(_BY_TORCHRUN)}, too"
                )
    return first


def find_job(environment: Mapping[str, str] = os.environ) -> Placement | None:
    """Returns the place of a command in its launcher's job, or None if the command starts ranks
    itself: without a launcher, and as the only task of a step of Slurm, such as a shell (`srun
    --pty bash`).
    """
    found = find_placement(environment)
    if found is not None and found.launcher.name == "Slurm" and found.size == 1:
        return None
    return found


def _words(place: Placement) -> str:
    launcher = place.launcher
    return f"this is {launcher.rank}={place.rank} of {launcher.size}={place.size}"


def _placements(environment: Mapping[str, str]) -> Iterator[Placement]:
    """Returns the place by each launcher whose variables are set, the innermost launcher first."""
    for launcher in LAUNCHERS:
        needed = (launcher.rank, launcher.size, launcher.sign or launcher.rank)
        if not all(name in environment for name in needed):
            continue
        rank, size = _number(environment, launcher.rank), _number(environment, launcher.size)
        if rank >= size:
            raise RendezvousError(
                f"{launcher.rank}={rank} is no rank of {launcher.size}={size}: a launcher sets them"
            )
        local = launcher.local_rank
        local_rank = _number(environment, local) if local and local in environment else None
        yield Placement(launcher, rank, size, local_rank)
