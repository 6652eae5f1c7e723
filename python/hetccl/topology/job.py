"""The topology of ranks that run: those of a launcher, or one for each device of this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hetccl._lib import HetcclError, unique_id
from hetccl.communicator import Communicator
from hetccl.launchers.placement import RendezvousError
from hetccl.processes import Attendance, run_processes
from hetccl.rendezvous import exchange

_TIMEOUT = 60.0  # seconds for the ranks to find each other


class JobError(RuntimeError):
    """The ranks have agreed on no topology; the text says why."""


def describe_rank(
    rank: int, size: int, device: str, rendezvous: Path | None,
    met: Callable[[], None] = lambda: None,
) -> str:  # fmt: skip
    """The topology that the ranks of a job agree on, as JSON; calls `met` once they have met.
    Collective. Raises RendezvousError and HetcclError."""
    meeting = exchange(rank, rendezvous, _TIMEOUT) if size > 1 else None
    uid = meeting.uid if meeting else unique_id()
    with Communicator(uid, rank, size, device=device) as comm:
        met()
        if rendezvous and rank == 0:  # all have come: nobody will read it again
            rendezvous.unlink(missing_ok=True)
        return json.dumps(comm.topology(), indent=1)


def describe_machine(devices: Sequence[str]) -> str:
    """The topology of a rank for each of this machine's devices. Raises JobError,
    HetcclError."""
    if len(devices) == 1:
        return describe_rank(0, 1, devices[0], None)
    with tempfile.TemporaryDirectory(prefix="hetccl-topo-") as name:
        folder = Path(name)

        def say(rank: int, attendance: Attendance) -> int:
            answer = folder / f"answer-{rank}"
            try:
                told = describe_rank(
                    rank, len(devices), devices[rank], folder / "id", lambda: attendance.end(rank)
                )
            except (HetcclError, RendezvousError, OSError) as error:
                answer.write_text(f"rank {rank}: {error}", encoding="utf-8")
                return 1
            answer.write_text(told, encoding="utf-8")
            return 0

        endings = run_processes(say, len(devices))
        for rank, ending in enumerate(endings):
            answer = folder / f"answer-{rank}"
            if ending.problem and not ending.killed:
                said = answer.read_text(encoding="utf-8") if answer.exists() else ending.problem
                raise JobError(said)
        return (folder / "answer-0").read_text(encoding="utf-8")
