"""The sweep, on rank 0: which points are measured, in which order, and for how long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hetccl._lib import DataType
from hetccl.bench.operations import CASES
from hetccl.communicator import Communicator
from hetccl.devices.memory import Memory
from hetccl.tune import findings, grid
from hetccl.tune.findings import Finding
from hetccl.tune.grid import Setting
from hetccl.tune.lockstep import Rank, Refusal
from hetccl.tune.options import Options
from hetccl.tune.progress import Progress
from hetccl.tune.records import Point, Records
from hetccl.tune.trial import CONFIRMING_PAIRS, FIRST_PAIRS, HOPELESS, MORE_PAIRS, Trial
from hetccl.units import binary_size

_MOST_CONFIRMED = 3  # settings of a key


class SweepError(RuntimeError):
    """A sweep is impossible; the text tells the reason and the remedy."""


@dataclass(frozen=True)
class Work:
    """One key: the call that stands for it, and the settings to try, the default first."""

    collective: str
    bytes: int
    key: dict[str, Any]
    settings: list[Setting]
    encoding: str = ""  # of the call between clusters

    @property
    def default(self) -> Setting:
        """The cost model's choice."""
        return self.settings[0]


def list_work(comm: Communicator, options: Options) -> list[Work]:
    """The keys of the options' calls, each once, but for those of encoded calls, which no setting
    changes. Raises SweepError where nothing can be tuned."""
    found: dict[str, Work] = {}
    encoded: list[Work] = []
    for collective in options.collectives:
        for size in options.sizes:
            work = _work(comm, options, collective, size)
            if work.encoding:
                encoded.append(work)
            else:
                found.setdefault(grid.identity(work.key), work)
    if encoded and comm.rank == 0:
        print(_describe_encoded(encoded), file=sys.stderr, flush=True)
    if encoded and not found:
        raise SweepError(
            "all of these calls are encoded, and tuning leaves encoded calls alone: unset "
            "HETCCL_WIRE and HETCCL_WIRE_GATHER"
        )
    if all(len(work.settings) < 2 for work in found.values()):
        raise SweepError(
            "these calls have one setting each: all ranks are in one cluster whose library decides "
            "alone, or HETCCL_DETERMINISTIC=1 is set. To split the ranks, give --layout AABB"
        )
    return list(found.values())


def _describe_encoded(works: list[Work]) -> str:
    calls = (f"{work.collective} of {binary_size(work.bytes)} ({work.encoding})" for work in works)
    return f"hetccl tune: left out, since tuning leaves encoded calls alone: {', '.join(calls)}"


def _work(comm: Communicator, options: Options, collective: str, size: int) -> Work:
    blocks = comm.size if CASES[collective].in_blocks else 1
    count = size // DataType[options.dtype].bytes // blocks
    if count == 0:
        raise SweepError(
            f"--sizes: {size} bytes are less than an element of {options.dtype} for each of "
            f"{comm.size} ranks: give larger sizes"
        )
    space = comm.tuning_space(collective, count, options.dtype)
    settings = grid.settings(space, options.points)
    return Work(collective, size, space["key"], settings, space["encoding"])


class Sweep:
    """Measures the points that the file lacks. Rank 0 runs it; other ranks `Rank.follow`."""

    def __init__(
        self, comm: Communicator, options: Options, records: Records, memory: Memory
    ) -> None:
        self._comm, self._options, self._records = comm, options, records
        self._rank = Rank(comm, options.dtype, memory)
        self._done = {point.identity: point for point in records.found}
        tuning = comm.tuning()
        self._about: dict[str, Any] = {
            "dtype": options.dtype,
            "ranks": comm.size,
            "hosts": len({rank["host"] for rank in comm.topology()["ranks"]}),
            "place": tuning.get("place", ""),
            "summary": tuning.get("summary", ""),
        }

    def run(self, works: list[Work]) -> list[Finding]:
        """Measures all `works`, as list_work returns them. Returns a finding for each."""
        budget = self._options.budget_seconds
        end = time.monotonic() + (float("inf") if budget is None else budget)
        found: list[Finding] = []
        with Progress(sum(len(work.settings) for work in works)) as progress:
            for number, work in enumerate(works):
                progress.begin(work.key)
                # Time that a key leaves over goes to the keys after it.
                now = time.monotonic()
                share = now + max(0.0, end - now) / (len(works) - number)
                points = self._measure_key(work, share, progress)
                for finding in findings.find(points):
                    progress.end(finding)
                    found.append(finding)
        self._rank.end()
        return found

    def _measure_key(self, work: Work, end: float, progress: Progress) -> list[Point]:
        """The points of one key, from the file or measured now until `end`."""
        calls = 0  # in a sample; 0: the buffers are not there yet
        points: dict[tuple[str, str, str, str], Point] = {}

        def measure(setting: Setting, confirm: bool) -> None:
            nonlocal calls
            if calls == 0:
                calls = self._rank.prepare(work.collective, work.bytes, work.key, work.default)
            point = self._measure(work, setting, calls, confirm)
            self._records.add(point)
            points[point.identity] = point

        for setting in work.settings:
            known = self._done.get(self._make_point(work, setting).identity)
            if known is not None:
                points[known.identity] = known
            # The default and one setting at least, lest a small budget finds nothing at all.
            elif time.monotonic() < end or len(points) < 2:
                measure(setting, confirm=False)
            progress.advance()
        for _ in range(_MOST_CONFIRMED):
            seeming = findings.find_unconfirmed(list(points.values()))
            if seeming is None:
                break
            measure(seeming.setting, confirm=True)
        return list(points.values())

    def _make_point(self, work: Work, setting: Setting, **measured: Any) -> Point:
        empty = {"us": 0.0, "default_us": 0.0, "ratio": 0.0, "error": 0.0, "samples": 0}
        return Point(
            key=work.key, setting=setting, default=work.default, bytes=work.bytes,
            **{**empty, **self._about, **measured},
        )  # fmt: skip

    def _measure(self, work: Work, setting: Setting, calls: int, confirm: bool) -> Point:
        trial = Trial()
        for number, pairs in enumerate(_rounds(trial, confirm)):
            times = self._rank.measure(
                work.key, work.default, setting, calls=calls, pairs=pairs, warm=number == 0
            )
            if isinstance(times, Refusal):
                return self._make_point(work, setting, failed=times.text)
            trial.add(times)
        ratio, error = trial.compare()
        return self._make_point(
            work, setting, us=trial.us, default_us=trial.default_us, ratio=ratio,
            error=error, samples=trial.samples,
        )  # fmt: skip


def _rounds(trial: Trial, confirm: bool) -> Iterator[int]:
    """Yields how many pairs to measure next."""
    if confirm:
        yield CONFIRMING_PAIRS
        return
    yield FIRST_PAIRS
    if trial.compare()[0] < HOPELESS:
        yield MORE_PAIRS
