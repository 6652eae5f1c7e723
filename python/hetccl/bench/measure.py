"""One rank's part of a benchmark."""

from __future__ import annotations

import json
import os
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from hetccl._lib import NCCL_OPS, DataType, RedOp, plan
from hetccl._streams import Stream
from hetccl.bench.operations import CASES, Case
from hetccl.bench.options import Options
from hetccl.bench.regression import Fit, fit
from hetccl.communicator import Communicator
from hetccl.devices.memory import HostMemory, Memory, lent

_LONG = 32 << 10  # bytes: takes time on a link
_BURST = 1 << 20  # bytes: more than token buckets let pass at once


@dataclass(frozen=True)
class Timing:
    """One size, in or out of place. Seconds are the slowest rank's mean; bandwidths in GB/s."""

    seconds: float
    algbw: float
    busbw: float
    wrong: int | None  # elements, over all ranks; None: not checked


@dataclass(frozen=True)
class Row:
    """One line of the table; `count` is the call's, `size` bytes of the whole buffer."""

    dtype: str
    redop: str  # "none" where nothing is reduced
    size: int
    count: int
    out_of_place: Timing
    in_place: Timing | None  # None: the operation has no such form
    # Seconds of one call by itself: as the cost model says, and the slowest rank's median.
    predicted: float | None = None
    alone: float | None = None
    encoding: str = ""  # of the call between clusters
    largest_error: float = 0.0  # up to which values of an encoded call are right


@dataclass
class Report:
    """The results of one benchmark."""

    options: Options
    ranks: int
    clusters: int
    rows: list[Row] = field(default_factory=list)
    cross_bytes: int = 0  # sent between clusters by all ranks, everything included
    least_cross_bytes: int = 0  # 0: in one cluster, and of messages, which have one way to go
    wire: str = ""  # the setting that asks for an encoding, "HETCCL_WIRE=int8"
    fit: Fit | None = None  # of the times out of place, where --regress asks for it

    @property
    def timings(self) -> list[Timing]:
        """Those of all rows, in and out of place."""
        return [t for row in self.rows for t in (row.out_of_place, row.in_place) if t is not None]

    @property
    def wrong(self) -> int:
        """Elements that were wrong, in all."""
        return sum(timing.wrong or 0 for timing in self.timings)

    @property
    def mean_busbw(self) -> float:
        """The mean over all rows, in and out of place, as nccl-tests prints it."""
        return sum(timing.busbw for timing in self.timings) / max(1, len(self.timings))

    def to_dict(self) -> dict[str, Any]:
        """Returns the values for --json."""
        return {**asdict(self), "wrong": self.wrong, "mean_busbw": self.mean_busbw}


def _agree(comm: Communicator, memory: Memory, value: float, op: str) -> float:
    shared = array("d", [value])
    with lent(memory, shared) as buffer:
        comm.all_reduce(buffer, op=op, dtype="float64")
    return shared[0]


def _wire(operation: str) -> str:
    """Returns the setting that asks for an encoding of these calls, with its value; "" if none
    does.
    """
    name = "HETCCL_WIRE_GATHER" if operation == "all_gather" else "HETCCL_WIRE"
    return f"{name}={os.environ[name]}" if os.environ.get(name) else ""


def _measure(case: Case, memory: Memory, stream: Stream | None) -> Timing:
    comm, options = case.comm, case.options

    def run(times: int) -> None:
        for _ in range(times):
            case.call(stream)
            if options.blocking:
                memory.synchronize()
        if stream:
            stream.synchronize()
        memory.synchronize()
        comm.check()

    case.find_encoding()
    case.fill()
    with memory.lend(case):
        run(options.warmups)
        comm.barrier()
        memory.synchronize()
        start = time.perf_counter()
        run(options.iterations)
        mean = (time.perf_counter() - start) / options.iterations
    wrong = None
    if options.check:
        case.fill()
        with memory.lend(case):
            run(1)
        got = case.recv if isinstance(case.recv, bytearray) else bytearray(case.recv)
        wrong = int(_agree(comm, memory, case.wrong(got), "sum"))
    seconds = _agree(comm, memory, mean, "max")
    algbw = case.size / seconds / 1e9
    return Timing(seconds, algbw, algbw * case.bus_factor(comm.size), wrong)


def _measure_alone(case: Case, memory: Memory) -> float:
    """Returns the seconds of a call that no other call follows: the median over calls of the
    slowest rank's time.

    Calls run one by one, so that none hides behind another. The median is used because there are
    few calls, and because shaped links let a burst pass after a pause.
    """
    comm, options = case.comm, case.options
    case.fill()
    times = array("d", bytes(8 * options.iterations))
    between = memory.another()
    with memory.lend(case), lent(between, bytearray(_BURST)) as traffic:
        for n in range(options.warmups + options.iterations):
            if case.size >= _LONG:
                comm.all_reduce(traffic, dtype="uint8")
            comm.barrier()
            memory.synchronize()
            start = time.perf_counter()
            case.call(None)
            memory.synchronize()
            if n >= options.warmups:
                times[n - options.warmups] = time.perf_counter() - start
    with lent(between, times) as shared:
        comm.all_reduce(shared, op="max", dtype="float64")
    return statistics.median(times)


def predict(graph: str, tuning: str, case: Case) -> float:
    """Returns the seconds that the cost model predicts for a call, with all that tuning has learnt
    so far.
    """
    options = case.options
    redop = RedOp[options.redop] if case.reduces else RedOp.sum
    text = plan(
        graph, options.operation, count=case.count, dtype=case.dtype, op=redop, root=options.root,
        rank=0, tuning=tuning,
    )  # fmt: skip
    chosen = next(one for one in json.loads(text)["candidates"] if one["chosen"])
    return float(chosen["predicted_us"]) / 1e6


def _row(comm: Communicator, memory: Memory, stream: Stream | None, options: Options, size: int,
         graph: str) -> Row:  # fmt: skip
    """Measures one size; collective."""
    kind = CASES[options.operation]
    case = kind(comm, options, size, in_place=False)
    out_of_place, in_place = _measure(case, memory, stream), None
    if kind.has_in_place:
        case = kind(comm, options, size, in_place=True)
        in_place = _measure(case, memory, stream)
    predicted = alone = None
    if options.predict:
        predicted = predict(graph, json.dumps(comm.tuning()), case)
        alone = _measure_alone(case, memory)
    encoding = case.find_encoding()
    error = case.largest_error() if encoding else 0.0
    redop = options.redop if kind.reduces else "none"
    return Row(
        options.dtype, redop, case.size, case.count, out_of_place, in_place, predicted, alone,
        encoding, error,
    )  # fmt: skip


def run(
    comm: Communicator,
    options: Options,
    on_row: Callable[[Row], None],
    memory: Memory | None = None,
) -> Report:
    """Measures every type, operator and size; collective. `on_row` is called as rows come, on every
    rank. `memory` is that of this rank's device; None: the host's."""
    topology = comm.topology()
    graph = json.dumps(topology)
    report = Report(options, comm.size, len(topology.get("clusters", [])))
    report.wire = _wire(options.operation)
    memory = memory or HostMemory()
    memory.reserve(options.max_bytes)
    on_host = isinstance(memory, HostMemory)
    stream = Stream() if on_host and not options.blocking else None
    try:
        redops = NCCL_OPS if CASES[options.operation].reduces else ("sum",)
        for one in options.each(redops, tuple(DataType.__members__)):
            for size in one.sizes():
                report.rows.append(_row(comm, memory, stream, one, size, graph))
                on_row(report.rows[-1])
        stats = comm.stats()
        report.cross_bytes = int(_agree(comm, memory, stats.cross_bytes_sent, "sum"))
        if CASES[options.operation].has_plan:  # of messages, each rank's least counts its own alone
            report.least_cross_bytes = stats.least_cross_bytes
    finally:
        if stream:
            stream.close()
    if options.regress:
        report.fit = fit([(row.size, row.out_of_place.seconds) for row in report.rows])
    return report
