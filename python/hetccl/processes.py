"""The ranks of a command as processes of this machine, where no launcher starts them."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

_GRACE = 10.0  # seconds in which the other ranks of a failed one may say what they saw


@dataclass(frozen=True)
class Ending:
    """How a rank's process ended."""

    status: int  # as subprocess has it: negative for a signal
    killed: bool = False  # by us, since it did not end in time

    @property
    def problem(self) -> str:
        """In words; empty where there is none."""
        if self.killed:
            return "did not end in time, and was killed"
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"exited with status {self.status}" if self.status else ""


def _wait(workers: list[ForkProcess], seconds: float) -> None:
    """Until all have ended, one has failed and the others had their grace, or time is up."""
    deadline, failed = time.monotonic() + seconds, False
    while any(worker.is_alive() for worker in workers) and time.monotonic() <= deadline:
        if not failed and any(worker.exitcode for worker in workers):
            failed, deadline = True, min(deadline, time.monotonic() + _GRACE)
        time.sleep(0.02)


def run_processes(
    body: Callable[[int], int], ranks: int, seconds: float = float("inf")
) -> list[Ending]:
    """Forks `ranks` processes that call `body(rank)`, which returns the process's status.

    None outlives this call, which takes little longer than `seconds`.
    """
    context = multiprocessing.get_context("fork")  # before anything has loaded the library
    workers = [context.Process(target=lambda r=r: sys.exit(body(r))) for r in range(ranks)]
    killed = [False] * ranks
    try:
        for worker in workers:
            worker.start()
        _wait(workers, seconds)
    finally:
        for rank, worker in enumerate(workers):
            if worker.pid is None:  # there was no process for it
                continue
            if worker.is_alive():
                killed[rank] = True
                worker.kill()
            worker.join()
    return [Ending(w.exitcode or 0, k) for w, k in zip(workers, killed, strict=True)]


def fork_ranks(body: Callable[[int, Path], int], ranks: int, command: str) -> int:
    """Forks `ranks` processes that call `body(rank, rendezvous)`: 0, or 1 when one has failed.

    `body` returns its process's status; `rendezvous` is a path for `rendezvous.exchange`.
    """
    with tempfile.TemporaryDirectory(prefix=f"hetccl-{command}-") as folder:
        meeting = Path(folder, "id")
        endings = run_processes(lambda rank: body(rank, meeting), ranks)
    failed = [f"{rank} ({one.status})" for rank, one in enumerate(endings) if one.status]
    if failed:
        print(f"hetccl {command}: ranks that failed (status): {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
