"""One process of the soak: runs episodes that its parent sends, and counts what it holds.

An episode is one or more communicators at once, each in a thread of its own, with the same random
collectives on every rank; every value is checked.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import hetccl

_TYPES = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "float64": np.float64}
_COUNTS = (0, 1, 7, 1000, 4096, 65_537, 300_000)


@dataclass(frozen=True)
class Part:
    """One communicator of an episode, as this rank takes part in it."""

    uid: bytes
    host: int  # which of the episode's processes made `uid`
    rank: int
    size: int
    cluster: str
    seed: int
    operations: int
    aborts_at: int = -1  # this rank aborts before its operation of this number


@dataclass
class Census:
    """Resources that a process holds between episodes, when nothing of hetccl is open."""

    resident_kib: int
    descriptors: int
    threads: int
    segments: int

    @classmethod
    def take(cls) -> Census:
        """Measures this process."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for itself is no growth
        return cls.of("self")

    @classmethod
    def of(cls, pid: int | str) -> Census:
        """Reads the figures of a process."""
        place = Path("/proc", str(pid))
        status = (place / "status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return cls(
            resident_kib=int(fields["VmRSS"].split()[0]),
            descriptors=len(list((place / "fd").iterdir())),
            threads=int(fields["Threads"]),
            segments=(place / "maps").read_text().count("/memfd:"),
        )


@dataclass
class Outcome:
    """How an episode went: an error for each communicator, "" where there was none."""

    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    operations: int = 0
    seconds: float = 0.0
    census: Census | None = None


def serve(pipe: Connection) -> None:
    """Answers the parent until it closes the pipe: "id" with a unique id, parts with an Outcome."""
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            os._exit(0)
        pipe.send(hetccl.unique_id() if request == "id" else _episode(request))


def _episode(parts: list[Part]) -> Outcome:
    outcome = Outcome(errors=[""] * len(parts))
    start = time.monotonic()
    threads = [
        threading.Thread(target=_take_part, args=(outcome, index, part))
        for index, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome.seconds = time.monotonic() - start
    outcome.census = Census.take()
    return outcome


def _take_part(outcome: Outcome, index: int, part: Part) -> None:
    try:
        with hetccl.Communicator(
            part.uid, part.rank, part.size, cluster=part.cluster, timeout=20
        ) as comm:
            _collectives(outcome, comm, part)
    except hetccl.HetcclError as error:
        outcome.errors[index] = str(error)
    except Exception as error:
        outcome.wrong.append(f"rank {part.rank}: {type(error).__name__}: {error}")


def _collectives(outcome: Outcome, comm: hetccl.Communicator, part: Part) -> None:
    choices = random.Random(part.seed)  # the same on every rank
    stream = hetccl.Stream() if choices.random() < 0.5 else None
    try:
        for number in range(part.operations):
            if number == part.aborts_at:
                comm.abort()
                return
            _one(outcome, comm, part, choices, number, stream)
            outcome.operations += 1
    finally:
        if stream is not None:
            stream.close()


def _one(
    outcome: Outcome,
    comm: hetccl.Communicator,
    part: Part,
    choices: random.Random,
    number: int,
    stream: hetccl.Stream | None,
) -> None:
    """One random collective; small integers, so that sums are exact in every type."""
    kind = choices.choice(
        [
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "broadcast",
            "reduce",
            "barrier",
            "gather",
            "scatter",
            "all_to_all",
            "ring",
        ]
    )
    dtype, count = _TYPES[choices.choice(list(_TYPES))], choices.choice(_COUNTS)
    root = choices.randrange(part.size)
    size = part.size

    def values(rank: int, n: int) -> np.ndarray:
        return ((np.arange(n) + 3 * rank + number) % 11).astype(dtype)

    if kind == "all_reduce":
        got = values(part.rank, count)
        want = sum((values(rank, count) for rank in range(size)), np.zeros(count, dtype))
        comm.all_reduce(got, stream=stream)
    elif kind == "reduce_scatter":
        got = np.empty(count, dtype)
        whole = sum((values(r, count * size) for r in range(size)), np.zeros(count * size, dtype))
        want = whole[part.rank * count : (part.rank + 1) * count]
        comm.reduce_scatter(values(part.rank, count * size), got, stream=stream)
    elif kind == "all_gather":
        got = np.empty(count * size, dtype)
        want = np.concatenate([values(rank, count) for rank in range(size)])
        comm.all_gather(values(part.rank, count), got, stream=stream)
    elif kind == "broadcast":
        got, want = values(part.rank, count), values(root, count)
        comm.broadcast(got, root=root, stream=stream)
    elif kind == "reduce":
        got = want = np.zeros(count, dtype)
        if part.rank == root:
            want = sum((values(rank, count) for rank in range(size)), want)
        comm.reduce(values(part.rank, count), got, root=root, stream=stream)
    elif kind == "gather":
        want = np.concatenate([values(rank, count) for rank in range(size)])
        got = np.empty(count * size, dtype) if part.rank == root else want
        comm.gather(values(part.rank, count), got, root=root, stream=stream)
    elif kind == "scatter":
        whole = values(root, count * size)
        got, want = np.empty(count, dtype), whole[part.rank * count : (part.rank + 1) * count]
        comm.scatter(whole, got, root=root, stream=stream)
    elif kind == "all_to_all":
        lengths = [[choices.choice(_COUNTS) for _ in range(size)] for _ in range(size)]
        sends, recvs = lengths[part.rank], [row[part.rank] for row in lengths]
        begins = [sum(row[: part.rank]) for row in lengths]
        want = np.concatenate(
            [values(r, sum(lengths[r]))[begins[r] : begins[r] + recvs[r]] for r in range(size)]
        )
        got = np.empty(sum(recvs), dtype)
        sent = values(part.rank, sum(sends))
        comm.all_to_all(sent, got, stream=stream, send_counts=sends, recv_counts=recvs)
    elif kind == "ring":
        before, after = (part.rank - 1) % size, (part.rank + 1) % size
        got, want = np.empty(count, dtype), values(before, count)
        with hetccl.group():
            comm.send(values(part.rank, count), after, stream=stream)
            comm.recv(got, before, stream=stream)
    else:
        got = want = np.zeros(0)
        comm.barrier(stream=stream)
    if stream is not None:
        stream.synchronize(timeout=30)
        comm.check()
    if not np.array_equal(got, want):
        outcome.wrong.append(f"rank {part.rank} of {size}: {kind} #{number} of {count} {dtype}")
