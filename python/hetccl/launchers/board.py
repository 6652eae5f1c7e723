"""The board of a job: its launcher's store, in which rank 0 writes values that all ranks read.

A process has one session with its launcher. Launchers that speak PMI-1 take no second one: after
the first has ended, the MPI of a program could not start. So a session that a program has begun
ends with the process, and is left to the program's MPI if that has used it since.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hetccl.launchers import mpi
from hetccl.launchers.placement import Placement, RendezvousError, Service
from hetccl.launchers.pmi import PmiBoard
from hetccl.launchers.pmix import PmixBoard

_MOST_BYTES = 500  # 1,000 digits: the longest value that PMI-1 takes is 1,023


class Board(Protocol):
    """A session with a launcher."""

    def share(self, key: str, value: str | None, timeout: float) -> str:
        """Returns rank 0's `value` on every rank; the others pass None. Collective."""

    def close(self) -> None:
        """Ends the session."""


@dataclass
class _Session:
    """This process's session. A forked child has none and can begin none, because the launcher
    would take it for its parent. Nor can a process in which a meeting has failed, because the other
    ranks are elsewhere then.
    """

    board: Board | None = None
    process: int = 0
    meetings: int = 0
    has_failed: bool = False

    def end(self) -> None:
        """Ends the session, unless a parent or the program's MPI goes on with it."""
        board, self.board = self.board, None
        if board is None or self.has_failed or self.process != os.getpid():
            return
        if isinstance(board, PmiBoard) and mpi.is_initialized():
            return
        with contextlib.suppress(RendezvousError):  # the launcher has ended, or another rank's end
            board.close()


_session = _Session()


def _choose(placement: Placement, timeout: float) -> Callable[[], Board]:
    """Begins a session with the best service that there is: the program's own MPI, PMIx, else
    PMI-1.
    """
    launcher = placement.launcher
    world = mpi.find_world()
    if world is not None and (world.rank, world.size) == (placement.rank, placement.size):
        return lambda: mpi.MpiBoard(world)
    if Service.PMIX in launcher.services and "PMIX_NAMESPACE" in os.environ:
        return lambda: PmixBoard(placement, timeout)
    if Service.PMI not in launcher.services or "PMI_FD" not in os.environ:
        raise RendezvousError(
            f"{launcher.name} has started rank {placement.rank} of {placement.size}, but offers "
            f"it neither PMIx nor PMI-1 (PMIX_NAMESPACE and PMI_FD are not set): {launcher.remedy},"
            " or set MASTER_ADDR and MASTER_PORT"
        )
    if mpi.is_initialized():
        raise RendezvousError(
            "MPI is initialised, and uses the descriptor PMI_FD, by which the ranks would meet: "
            "initialise it by mpi4py, which hetccl then uses, or broadcast hetccl.unique_id() by "
            "MPI"
        )
    return lambda: PmiBoard(placement, timeout)


def share(placement: Placement, data: bytes | None, timeout: float, *, keep: bool) -> bytes:
    """Returns rank 0's `data` (at most 500 bytes) on every rank; the others pass None.

    Collective, in the same order on all ranks. `timeout` is in seconds. `keep` leaves the session
    open, for the program's MPI and for later calls. Raises RendezvousError.
    """
    if data is not None and len(data) > _MOST_BYTES:
        raise ValueError(f"rank 0 shares {len(data)} bytes, and {_MOST_BYTES} is the most")
    if placement.size == 1 and data is not None:
        return data  # a launcher without a store may start one rank: srun --pty bash
    session = _session
    if session.process not in (0, os.getpid()):
        raise RendezvousError(
            "this process is a fork of one that has met the other ranks: it is no rank of its own"
        )
    if session.has_failed:
        raise RendezvousError("an earlier meeting of this process has failed: start the job again")
    begin = None if session.board else _choose(placement, timeout)
    session.process = os.getpid()
    try:
        got = _meet(session, begin, placement, data, timeout)
    except BaseException:
        session.has_failed = True
        raise
    if not keep:
        session.end()
    return got


def _meet(
    session: _Session, begin: Callable[[], Board] | None, placement: Placement,
    data: bytes | None, timeout: float,
) -> bytes:  # fmt: skip
    if begin is not None:
        session.board = begin()
        atexit.register(session.end)
    assert session.board is not None
    key = f"hetccl-{session.meetings}"
    session.meetings += 1
    text = session.board.share(key, None if data is None else data.hex(), timeout)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise RendezvousError(
            f"{placement.launcher.name}'s store has something else than rank 0 wrote to {key}: do "
            "all ranks run the same program?"
        ) from None
