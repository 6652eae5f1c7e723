"""One rank of a self test. It writes each result at once, so that the results of a rank that dies
are known.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from hetccl._lib import DataType, HetcclError, Result
from hetccl.bench.operations import CASES, Case
from hetccl.bench.options import Options
from hetccl.communicator import Communicator
from hetccl.devices.errors import DeviceError
from hetccl.devices.memory import Memory, memory_of
from hetccl.launchers.placement import RendezvousError
from hetccl.processes import Attendance
from hetccl.rendezvous import exchange
from hetccl.selftest import emulator, rdma
from hetccl.selftest.trials import PRE_MUL_SUM, Trial, trials
from hetccl.selftest.values import FACTOR, WHOLE_FACTOR, Values

_TIMEOUT = 30.0  # seconds of a call, and of meeting
_SPEED_SIZES = (4 << 10, 1 << 20, 64 << 20)
_TELLING = 1 << 20  # bytes, from which on a call's time grows with them
_LONGEST = 10.0  # seconds of a call whose speed is measured
_SILENCE = 30.0  # seconds, after which a rank tells where it is
_FAILURES = (HetcclError, RendezvousError, DeviceError, OSError, ValueError)
_SPEED_OPERATIONS = ("all_reduce", "all_gather")


@dataclass(frozen=True)
class Job:
    """Options and facts of a self test that every rank knows. `layouts` has the ranks' labels by
    name, `libraries` the paths of those that were found.
    """

    devices: list[str]
    layouts: dict[str, list[str]]
    quick: bool = False
    libraries: dict[str, list[str]] = field(default_factory=dict)
    emulator: str = ""  # as the user says
    rdma: bool = False  # between all ranks


class Notes:
    """A line of JSON for each thing that a rank has seen."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def add(self, **facts: Any) -> None:
        """Adds a line, which outlives the process."""
        self._file.write(json.dumps(facts) + "\n")
        self._file.flush()


def make_case(comm: Communicator, trial: Trial, number: int) -> Case:
    """The buffers and the call of a trial. Roots take turns."""
    options = Options(
        operation=trial.collective, dtype=trial.dtype, redop=trial.op or "sum",
        root=number % comm.size,
    )  # fmt: skip
    case = CASES[trial.collective](comm, options, trial.size(comm.size), trial.in_place)
    case.pattern = Values(case.dtype, trial.op, comm.size)
    case.fill()
    return case


def call(comm: Communicator, case: Case, trial: Trial) -> None:
    """Makes the call, with an operator of its own where the trial has one."""
    if trial.op != PRE_MUL_SUM:
        case.call(None)
        return
    factor = FACTOR if "float" in trial.dtype else WHOLE_FACTOR
    with comm.pre_mul_sum(factor, trial.dtype) as operator:
        case.redop = operator
        case.call(None)


def attempt(comm: Communicator, memory: Memory, trial: Trial, number: int) -> dict[str, Any]:
    """A trial's outcome on this rank: ok, wrong or absent; and the digest of what it received."""
    case = make_case(comm, trial, number)
    sent = bytes(case.send)
    try:
        encoding = case.find_encoding()
        with memory.lend(case):
            call(comm, case, trial)
        comm.check()  # of a GPU, whose calls return at once
    except HetcclError as error:
        if error.result != Result.UNSUPPORTED:
            raise
        return {"outcome": "absent", "detail": str(error)}
    got = bytes(case.recv)
    facts = {"bits": hashlib.blake2b(got, digest_size=8).hexdigest()}
    if encoding:
        facts["encoding"] = encoding
    wrong = case.wrong(got)
    if wrong:
        total = len(got) // case.dtype.bytes
        beyond = f", beyond the bound of {encoding}" if encoding else ""
        return {"outcome": "wrong", **facts, "detail": f"{wrong} of {total} are wrong{beyond}"}
    if not trial.in_place and bytes(case.send) != sent:
        return {"outcome": "wrong", **facts, "detail": "the call changed what it sends"}
    return {"outcome": "ok", **facts}


def measure(comm: Communicator, memory: Memory, operation: str, size: int) -> float:
    """Seconds of a call, the mean of several in a row."""
    options = Options(operation=operation, dtype=DataType.float32.name)
    case = CASES[operation](comm, options, size, in_place=False)
    times = max(5, min(200, (16 << 20) // size))
    with memory.lend(case):
        for _ in range(2):
            case.call(None)
        memory.synchronize()
        comm.barrier()
        start = time.perf_counter()
        for _ in range(times):
            case.call(None)
        memory.synchronize()
        return (time.perf_counter() - start) / times


def agree(comm: Communicator, memory: Memory, seconds: float) -> float:
    """The slowest rank's `seconds`, the same on all ranks."""
    options = Options(operation="all_gather", dtype=DataType.float64.name)
    case = CASES["all_gather"](comm, options, 8 * comm.size, in_place=False)
    case.send[:] = struct.pack("=d", seconds)
    with memory.lend(case):
        case.call(None)
    return max(float(one) for one in struct.unpack(f"={comm.size}d", bytes(case.recv)))


def print_once(comm: Communicator, text: str) -> None:
    """Says something while the ranks run, once."""
    if comm.rank == 0:
        print(f"hetccl selftest: {text}", file=sys.stderr, flush=True)


def measure_all(comm: Communicator, memory: Memory, job: Job, layout: str, notes: Notes) -> None:
    """The speeds. What would take too long, as a smaller size tells, is left out on all ranks."""
    for operation in _SPEED_OPERATIONS:
        rate = 0.0  # seconds of a byte, once they are known
        for size in _SPEED_SIZES[: 1 if job.quick else None]:
            facts: dict[str, Any]
            try:
                if rate * size > _LONGEST:
                    slow = f"a call would take some {rate * size:.0f} s"
                    print_once(comm, f"{operation} of {size} bytes is not measured: {slow}")
                    facts = {"absent": slow}
                else:
                    seconds = measure(comm, memory, operation, size)
                    rate = agree(comm, memory, seconds) / size if size >= _TELLING else rate
                    facts = {"seconds": seconds}
            except HetcclError as error:
                if error.result != Result.UNSUPPORTED:
                    raise
                facts = {"absent": str(error)}
            notes.add(layout=layout, speed=operation, bytes=size, **facts)


def describe(comm: Communicator) -> dict[str, Any]:
    """The clusters, and what each rank is; nothing that names the host."""
    graph = comm.topology()
    keys = ("vendor", "model", "architecture", "library", "library_version", "kernels")
    return {
        "clusters": [{"vendor": c["vendor"], "ranks": c["ranks"]} for c in graph["clusters"]],
        "links": sorted({link["kind"] for link in graph["links"]}),
        "reached": comm.dump()["transports"],
        "rdma_library": rdma.find_library(),
        "rank": {
            **{key: graph["ranks"][comm.rank].get(key) for key in keys},
            "emulator": emulator.find(),  # by now the device's libraries are loaded
        },
    }


def run_layout(comm: Communicator, memory: Memory, job: Job, layout: str, notes: Notes) -> None:
    """All trials and speeds of one communicator."""
    start = told = time.monotonic()
    notes.add(layout=layout, **describe(comm))
    memory.synchronize()
    every = list(trials(comm.size, job.quick))
    for number, trial in enumerate(every):
        if time.monotonic() > told + _SILENCE:
            told = time.monotonic()
            print_once(
                comm, f"layout {layout}: case {number} of {len(every)}, after {told - start:.0f} s"
            )
        notes.add(layout=layout, trial=number)  # what a rank that dies was at
        notes.add(layout=layout, trial=number, **attempt(comm, memory, trial, number))
    measure_all(comm, memory, job, layout, notes)
    notes.add(layout=layout, took=round(time.monotonic() - start, 1))


def join(job: Job, rank: int, layout: str, folder: Path, notes: Notes) -> Communicator | None:
    """Returns the communicator of a layout; None if it cannot be made, as others perhaps can."""
    meeting = exchange(rank, folder / f"id-{layout}", _TIMEOUT)
    try:
        return Communicator(
            meeting.uid, rank, len(job.devices), device=job.devices[rank],
            cluster=job.layouts[layout][rank] or None, timeout=_TIMEOUT, init_timeout=2 * _TIMEOUT,
        )  # fmt: skip
    except HetcclError as error:
        notes.add(failed=f"layout {layout}: {error}")
        return None


def run(job: Job, rank: int, folder: Path, attendance: Attendance) -> int:
    """One rank, start to end: 0, or 1 when it could not finish. `folder` is the ranks' own."""
    device, made = job.devices[rank], True
    if job.rdma:
        os.environ.update(rdma.settings(rank))
    with (folder / f"rank-{rank}.jsonl").open("w", encoding="utf-8") as file:
        notes = Notes(file)
        try:
            for layout in job.layouts:
                attendance.begin(rank)
                comm = join(job, rank, layout, folder, notes)
                made = made and comm is not None
                if comm is not None:
                    attendance.end(rank)
                    with comm:
                        run_layout(comm, memory_of(device, job.libraries), job, layout, notes)
        except _FAILURES as error:
            notes.add(failed=str(error))
            return 1
        if made:
            notes.add(finished=True)
    return 0 if made else 1
