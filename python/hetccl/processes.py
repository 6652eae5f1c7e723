"""The ranks of a command as processes of this machine, where no launcher starts them."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_GRACE = 10.0  # seconds in which the other ranks of a failed one may say what they saw


def fork_ranks(body: Callable[[int, Path], int], ranks: int, command: str) -> int:
    """Forks `ranks` processes that call `body(rank, rendezvous)`: 0, or 1 when one has failed.

    `body` returns its process's status; `rendezvous` is a path for `rendezvous.exchange`.
    """
    with tempfile.TemporaryDirectory(prefix=f"hetccl-{command}-") as folder:
        meeting = Path(folder, "id")
        context = multiprocessing.get_context("fork")  # before anything has loaded the library
        workers = [
            context.Process(target=lambda r=r: sys.exit(body(r, meeting))) for r in range(ranks)
        ]
        for worker in workers:
            worker.start()
        deadline = float("inf")
        try:
            while any(worker.is_alive() for worker in workers):
                if deadline == float("inf") and any(worker.exitcode for worker in workers):
                    deadline = time.monotonic() + _GRACE
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        finally:
            for worker in workers:
                if worker.is_alive():
                    worker.kill()
                worker.join()
    failed = [
        f"{rank} ({worker.exitcode})" for rank, worker in enumerate(workers) if worker.exitcode
    ]
    if failed:
        print(f"hetccl {command}: ranks that failed (status): {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
