"""Starts the ranks of a command as processes of this machine, if no launcher starts them."""

from __future__ import annotations

import mmap
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

# Seconds that the other ranks of one that has ended have to say what they saw. Ranks that have met
# are told of a loss, and end by themselves. Others would wait for a rank that cannot come.
_GRACE, _GRACE_BEFORE_MEETING = 10.0, 3.0


class Attendance:
    """Records which forked ranks have met the others. Ranks write it, their launcher reads it."""

    def __init__(self, ranks: int) -> None:
        self._met = mmap.mmap(-1, ranks)  # shared with children

    def begin(self, rank: int) -> None:
        """Notes that `rank` goes to meet the others, perhaps not for the first time."""
        self._met[rank] = 0

    def end(self, rank: int) -> None:
        """Notes that `rank` has met the others."""
        self._met[rank] = 1

    def has_met(self, rank: int) -> bool:
        """Whether `rank` has met the others."""
        return bool(self._met[rank])


@dataclass(frozen=True)
class Ending:
    """The way in which a rank's process ended."""

    status: int  # as subprocess has it: negative for a signal
    killed: bool = False  # by us, since it did not end in time

    @property
    def problem(self) -> str:
        """The failure in words; "" if there is none."""
        if self.killed:
            return "did not end in time, and was killed"
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"exited with status {self.status}" if self.status else ""


def _wait(workers: list[ForkProcess], attendance: Attendance, seconds: float) -> None:
    """Waits until all have ended, or one has failed and the others have had their grace, or time is
    up.
    """
    deadline = time.monotonic() + seconds
    seen: set[int] = set()  # ranks that have ended
    while any(worker.is_alive() for worker in workers) and time.monotonic() <= deadline:
        for rank, worker in enumerate(workers):
            if worker.exitcode is None or rank in seen:
                continue
            seen.add(rank)
            if not attendance.has_met(rank):
                deadline = min(deadline, time.monotonic() + _GRACE_BEFORE_MEETING)
            elif worker.exitcode:
                deadline = min(deadline, time.monotonic() + _GRACE)
        time.sleep(0.02)


def run_processes(
    body: Callable[[int, Attendance], int], ranks: int, seconds: float = float("inf")
) -> list[Ending]:
    """Forks `ranks` processes that call `body(rank, attendance)`. The body returns the process's
    status, and notes in `attendance` when it goes to meet the others and when it has met them.

    If a rank ends before the others have met it, or if one fails, the others are killed after a
    moment. No process outlives this call, which takes little longer than `seconds`. Processes
    ignore Ctrl-C, which ends this call, and them with it.
    """

    def run(rank: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(body(rank, attendance))

    context = multiprocessing.get_context("fork")  # before anything has loaded the library
    attendance = Attendance(ranks)
    workers = [context.Process(target=run, args=(rank,)) for rank in range(ranks)]
    killed = [False] * ranks
    try:
        for worker in workers:
            worker.start()
        _wait(workers, attendance, seconds)
    finally:
        started = [worker for worker in workers if worker.pid is not None]
        for rank, worker in enumerate(started):  # all at once: none tells of another's loss
            if worker.is_alive():
                killed[rank] = True
                worker.kill()
        for worker in started:
            worker.join()
    return [Ending(w.exitcode or 0, k) for w, k in zip(workers, killed, strict=True)]


def fork_ranks(
    body: Callable[[int, Path, Callable[[], None]], int], ranks: int, command: str
) -> int:
    """Forks `ranks` processes that call `body(rank, rendezvous, met)`. Returns 0, or 1 if one has
    failed.

    `body` returns its process's status; `rendezvous` is a path for `rendezvous.exchange`. It calls
    `met` once the rank has met the others.
    """
    with tempfile.TemporaryDirectory(prefix=f"hetccl-{command}-") as folder:
        meeting = Path(folder, "id")
        endings = run_processes(
            lambda rank, attendance: body(rank, meeting, lambda: attendance.end(rank)), ranks
        )
    failed = {rank: one for rank, one in enumerate(endings) if one.status}
    if not failed:
        return 0
    own = [f"{rank} ({one.status})" for rank, one in failed.items() if not one.killed]
    ended = [str(rank) for rank, one in failed.items() if one.killed]
    text = f"ranks that failed (status): {', '.join(own) or 'none'}"
    if ended:
        text += f"; ended because of that: {', '.join(ended)}"
    print(f"hetccl {command}: {text}", file=sys.stderr)
    return 1
