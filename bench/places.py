"""Where the ranks of a benchmark run: emulated hosts, or this machine's loopback."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hetccl.hosts import INTERFACE, EmulatedHosts

Start = Callable[[int, list[str], dict[str, str], Any], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Place:
    """How to start a rank on a host, and where rank 0 is."""

    start: Start
    address: str
    interface: str


@contextmanager
def place_of(hosts: int, rate: str | None) -> Iterator[Place]:
    """So many hosts; a single one needs no right to emulate it."""
    if hosts == 1 and EmulatedHosts.unavailable() is not None:

        def start(host: int, argv: list[str], env: dict[str, str], out: Any) -> Any:
            return subprocess.Popen(argv, env={**os.environ, **env}, stdout=out, text=True)

        yield Place(start, "127.0.0.1", "lo")
        return
    with EmulatedHosts(hosts, rate if hosts > 1 else None) as emulated:
        yield Place(
            lambda host, argv, env, out: emulated.popen(host, argv, env, stdout=out, text=True),
            emulated.address(0),
            INTERFACE,
        )


def finish(workers: list[subprocess.Popen[str]], what: str, timeout: float) -> None:
    """Waits for all; the first failure or the deadline ends them all."""
    deadline = time.monotonic() + timeout
    try:
        while any(worker.poll() is None for worker in workers):
            failed = [rank for rank, worker in enumerate(workers) if worker.returncode]
            if failed:
                raise SystemExit(f"bench: {what}: rank {failed[0]} failed; see above")
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {what}: not done within {timeout:.0f} s")
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"bench: {what}: a rank failed; see above")
