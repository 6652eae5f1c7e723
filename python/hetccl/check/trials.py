"""The trials that each rank of a check runs in the job's communicator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hetccl._lib import HetcclError, Result, encoded_bytes
from hetccl.bench.operations import CASES
from hetccl.bench.options import Options
from hetccl.check import links, schedule
from hetccl.communicator import Communicator
from hetccl.devices.memory import Memory, lent
from hetccl.units import counted

_ODD = 1031  # elements: a prime, so that no rank, thread or vector has a whole part of it
_LARGE = 1 << 20  # bytes
_WINDOW, _WINDOWS = 0.1, 3  # seconds of own work, and how often
_WORK = 1 << 20  # elements of one piece of work
_ENCODING = "int8"


def measure_speed(comm: Communicator, memory: Memory) -> float | None:
    """Returns the bytes per second that this rank's device encodes, the best of a few tries; None
    if the device cannot encode. All ranks measure at the same time, and none communicates.
    """
    plain, codes = bytearray(4 * _WORK), bytearray(encoded_bytes(_WORK, _ENCODING))
    best = 0.0
    with lent(memory, plain) as source, lent(memory.another(), codes) as target:
        can = True
        try:
            comm.encode(source, target, _ENCODING, "float32")
        except HetcclError as error:
            if error.result != Result.UNSUPPORTED:
                raise
            can = False
        for _ in range(_WINDOWS):
            comm.barrier()
            memory.synchronize()
            start, calls = time.perf_counter(), 0
            while can and time.perf_counter() - start < _WINDOW:
                comm.encode(source, target, _ENCODING, "float32")
                memory.synchronize()
                calls += 1
            best = max(best, calls * len(plain) / (time.perf_counter() - start))
    return best if can else None


def _run_case(
    comm: Communicator, memory: Memory, operation: str, size: int, in_place: bool
) -> dict[str, Any]:
    case = CASES[operation](comm, Options(operation), size, in_place)
    case.find_encoding()
    seconds = 0.0
    for _ in range(2):  # the first call connects ranks
        case.fill()
        with memory.lend(case):
            comm.barrier()
            memory.synchronize()
            start = time.perf_counter()
            case.call(None)
            memory.synchronize()
            seconds = time.perf_counter() - start
        comm.check()
    wrong = case.wrong(bytes(case.recv))
    return {"operation": operation, "bytes": case.size, "in_place": in_place, "seconds": seconds,
            "wrong": wrong, "bus_factor": case.bus_factor(comm.size)}  # fmt: skip


def sizes(operation: str, ranks: int) -> tuple[int, int]:
    """Bytes of the whole buffer: an odd number of elements; about 1 MiB, or one for each rank."""
    blocks = ranks if CASES[operation].in_blocks else 1
    return 4 * _ODD * blocks, max(_LARGE // 4 // blocks, 1) * 4 * blocks


def _better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns the better of two measurements of a link, with the wrong bytes of the worse one."""
    return {
        "peer": one["peer"],
        "wrong": max(one["wrong"], other["wrong"]),
        "seconds": min(one["seconds"], other["seconds"]),
        "rate": max(one["rate"], other["rate"]),
    }


class Trials:
    """All trials, in the order in which every rank runs them. `result` holds the results so far."""

    def __init__(
        self, comm: Communicator, make_memory: Callable[[], Memory], say: Callable[[str], None]
    ) -> None:
        self._comm, self._make_memory, self._say = comm, make_memory, say
        self.at = ""  # what is being done
        self.result: dict[str, Any] = {"speed": None, "collectives": [], "links": []}

    def run(self, rounds: list[list[schedule.Pair]]) -> None:
        """Runs all trials. Raises DeviceError, and the errors of calls."""
        self.at = "the device's memory"
        self._memory = self._make_memory()
        self.at = "the work of each rank alone"
        self._say(self.at)
        self.result["speed"] = measure_speed(self._comm, self._memory)
        self._say(f"{len(CASES)} kinds of calls, values checked")
        for operation in CASES:
            self._run_collective(operation)
        self._run_pairs(rounds)

    def _run_collective(self, operation: str) -> None:
        for size in sizes(operation, self._comm.size):
            for in_place in (False, True)[: 1 + CASES[operation].has_in_place]:
                self.at = f"{operation} of {size} bytes{' in place' if in_place else ''}"
                try:
                    done = _run_case(self._comm, self._memory, operation, size, in_place)
                except HetcclError as error:
                    if error.result != Result.UNSUPPORTED:
                        raise
                    done = {"operation": operation, "bytes": size, "in_place": in_place,
                            "absent": str(error)}  # fmt: skip
                self.result["collectives"].append(done)

    def repeat(self, pairs: Sequence[schedule.Pair]) -> None:
        """Measures some pairs once more, one after the other, and keeps the better of both."""
        before, self.result["links"] = self.result["links"], []
        try:
            self._run_pairs([[pair] for pair in pairs])
        finally:
            again = {one["peer"]: one for one in self.result["links"]}
            self.result["links"] = [_better(one, again.get(one["peer"], one)) for one in before]

    def _run_pairs(self, rounds: list[list[schedule.Pair]]) -> None:
        mine = self._comm.rank
        if not rounds:
            return
        self._say(
            f"{counted(sum(map(len, rounds)), 'pair')} of ranks in {counted(len(rounds), 'round')}"
        )
        with links.prober(self._comm, self._memory) as prober:
            for pairs in rounds:
                self.at = "messages between pairs of ranks"
                self._comm.barrier()
                self._memory.synchronize()
                for pair in pairs:
                    if mine in pair:
                        peer = sum(pair) - mine
                        self.at = f"messages between ranks {mine} and {peer}"
                        self.result["links"].append(prober.measure(peer))
