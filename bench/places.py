"""The places of a benchmark's ranks: emulated hosts, or this machine's loopback."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hetccl.hosts import EmulatedHosts

Start = Callable[[int, list[str], dict[str, str], Any], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Place:
    """How to start a rank on a host, and where rank 0 is."""

    start: Start
    address: str
    interface: str  # or several, with commas between them
    card_mbps: str = ""  # HETCCL_CARD_MBPS


@contextmanager
def place_of(hosts: int, rate: str | Sequence[str] | None) -> Iterator[Place]:
    """Yields a place of so many hosts, with a card of each rate. A single host needs no right to
    emulate it.
    """
    if hosts == 1 and EmulatedHosts.unavailable() is not None:

        def start(host: int, argv: list[str], env: dict[str, str], out: Any) -> Any:
            return subprocess.Popen(argv, env={**os.environ, **env}, stdout=out, text=True)

        yield Place(start, "127.0.0.1", "lo")
        return
    with EmulatedHosts(hosts, rate if hosts > 1 else None) as emulated:
        yield Place(
            lambda host, argv, env, out: emulated.popen(host, argv, env, stdout=out, text=True),
            emulated.address(0),
            ",".join(emulated.interface(rail) for rail in range(emulated.rails)),
            emulated.card_mbps(),
        )


def run_ranks(
    place: Place,
    argvs: Sequence[list[str]],
    hosts: Sequence[int],
    env: Mapping[str, str],
    timeout: float,
    what: str,
) -> str:
    """Starts a rank on each of `hosts`, with its own command. Returns rank 0's output."""
    with tempfile.TemporaryFile("w+") as out:
        workers = []
        for rank, (host, argv) in enumerate(zip(hosts, argvs, strict=True)):
            mine = {
                **env,
                "RANK": str(rank),
                "WORLD_SIZE": str(len(hosts)),
                "LOCAL_RANK": str(list(hosts[:rank]).count(host)),
                "HETCCL_SOCKET_IFNAME": f"={place.interface}",
            }
            workers.append(place.start(host, argv, mine, out if rank == 0 else None))
        finish(workers, what, timeout)
        out.seek(0)
        return out.read()


def finish(workers: list[subprocess.Popen[str]], what: str, timeout: float) -> None:
    """Waits for all processes. The first failure, or the deadline, ends them all."""
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
