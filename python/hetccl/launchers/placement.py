"""Which rank of which job this process is, as its launcher says in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class RendezvousError(RuntimeError):
    """The ranks cannot find each other; the text says why and what to do."""


class Service(Enum):
    """What a launcher offers for its ranks to meet."""

    STORE = "torch's store"
    PMI = "PMI"
    PMIX = "PMIx"


@dataclass(frozen=True)
class Launcher:
    """The variables by which one kind of launcher tells a process its place.

    Those of rank and size must be set, and `sign`, where others have the same ones.
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
    """The place of a process in its job. `local_rank` counts the ranks of its host, or in a
    heterogeneous Slurm job those of its component there; None where the launcher does not say.
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


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise RendezvousError(f"{name} must be a number, not {text[:40]!r}: a launcher sets it")
    return int(text)


def find_placement(environment: Mapping[str, str] = os.environ) -> Placement | None:
    """This process's place in the job of its launcher, or None where no launcher is known.

    Known are torchrun, mpirun of Open MPI and of MPICH's relatives, srun and flux run. Raises
    RendezvousError where a launcher's variables contradict each other.
    """
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
        return Placement(launcher, rank, size, local_rank)
    return None
