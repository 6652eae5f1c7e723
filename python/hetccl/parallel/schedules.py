"""Orders of a pipeline's passes, as torch.distributed.pipelining has them, and how long they take.

`1f1b` is Schedule1F1B (one stage at each position of the pipeline), `interleaved`
ScheduleInterleaved1F1B (two at each), `zero-bubble` ScheduleInterleavedZeroBubble with one stage
(ZB1P of Qi et al., "Zero Bubble Pipeline Parallelism"), whose backward passes are cut into that of
inputs, which others wait for, and that of weights, which fill bubbles.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from hetccl.parallel.models import ParallelError

SCHEDULES = ("1f1b", "interleaved", "zero-bubble")
CHUNKS = {"1f1b": 1, "interleaved": 2, "zero-bubble": 1}  # stages at each position


class Pass(NamedTuple):
    """`kind` is F, B (backward), I (of inputs) or W (of weights)."""

    kind: str
    chunk: int
    batch: int


def refuse(schedule: str, positions: int, batches: int) -> str:
    """Returns why torch's schedule cannot run that many micro-batches; "" if it can."""
    if schedule not in SCHEDULES:
        return f"there is no schedule {schedule!r}: give {', '.join(SCHEDULES)}"
    if schedule == "1f1b" and batches < positions:
        return f"1f1b takes at least a micro-batch for each of {positions} stages, not {batches}"
    if schedule == "interleaved" and positions < 2:
        return "interleaved takes a pipeline of at least 2 positions"
    if schedule != "1f1b" and batches % max(1, batches // positions):
        return (
            f"{schedule} takes a number of micro-batches that {batches // positions} rounds of "
            f"about {positions} divide evenly, not {batches}"
        )
    return ""


@functools.lru_cache(maxsize=4096)
def order(schedule: str, position: int, positions: int, batches: int) -> tuple[Pass, ...]:
    """The passes of one position, in torch's order. Raises ParallelError where there is none."""
    if reason := refuse(schedule, positions, batches):
        raise ParallelError(f"schedule: {reason}")
    chunks = CHUNKS[schedule]
    after = positions - 1 - position
    if schedule == "1f1b":
        # As many micro-batches in flight as stages from here; one goes back before one goes on.
        return _weave(min(batches, after + 1), batches, 1, batches, True, None)
    per_round = batches // max(1, batches // positions)
    hops = 1 if schedule == "zero-bubble" else 2
    warmups = min((chunks - 1) * per_round + hops * after, chunks * batches)
    delay = position if schedule == "zero-bubble" else None
    return _weave(warmups, batches, chunks, per_round, False, delay)


def _weave(
    warmups: int, batches: int, chunks: int, per_round: int, back_first: bool, delay: int | None
) -> tuple[Pass, ...]:
    """Forward passes up to `warmups`, then forward and backward in turns, then backward.

    With a `delay` each backward pass is cut in two, and that of weights follows so many later.
    """

    def numbered(last_first: bool) -> list[tuple[int, int]]:
        seen = [0] * chunks
        found = []
        for step in range(chunks * batches):
            chunk = (step // per_round) % chunks
            chunk = chunks - 1 - chunk if last_first else chunk
            found.append((chunk, seen[chunk]))
            seen[chunk] += 1
        return found

    forwards, backwards = numbered(False), numbered(True)
    kind = "B" if delay is None else "I"
    passes = [Pass("F", *one) for one in forwards[:warmups]]
    weights = 0
    for done, back in enumerate(backwards):
        following = forwards[warmups + done : warmups + done + 1]
        pair = [Pass("F", *one) for one in following]
        passes += [Pass(kind, *back), *pair] if back_first else [*pair, Pass(kind, *back)]
        if delay is not None and done >= delay:
            passes.append(Pass("W", *backwards[weights]))
            weights += 1
    if delay is not None:
        passes += [Pass("W", *one) for one in backwards[weights:]]
    return tuple(passes)


@functools.lru_cache(maxsize=4096)
def most_in_flight(schedule: str, position: int, positions: int, batches: int) -> int:
    """The most passes of one chunk whose activations a position keeps at the same time."""
    kept = most = 0
    ends = "W" if schedule == "zero-bubble" else "B"
    for one in order(schedule, position, positions, batches):
        kept += (one.kind == "F") - (one.kind == ends)
        most = max(most, kept)
    return most


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of one micro-batch, by position and chunk: `forward`, and `backward` in whole.

    `ahead[p][c]` is a message's from position p, chunk c to the stage after it, `back` that of its
    gradient, from that stage to position p.
    """

    forward: Sequence[Sequence[float]]
    backward: Sequence[Sequence[float]]
    ahead: Sequence[Sequence[float]]
    back: Sequence[Sequence[float]]

    def seconds(self, position: int, one: Pass) -> float:
        """How long a pass computes."""
        if one.kind == "F":
            return self.forward[position][one.chunk]
        whole = self.backward[position][one.chunk]
        return whole if one.kind == "B" else whole / 2

    def busy(self, position: int) -> float:
        """How long a position computes for one micro-batch."""
        return sum(self.forward[position]) + sum(self.backward[position])


@dataclasses.dataclass(frozen=True)
class Times:
    """`ends` has the time at which each position has made its last pass, `busy` the time that it
    computed.
    """

    ends: tuple[float, ...]
    busy: tuple[float, ...]

    @property
    def bubble(self) -> float:
        """The part of the pipeline's time in which positions wait, over all positions."""
        return 1 - sum(self.busy) / (len(self.ends) * max(self.ends))


def bound(costs: Costs, batches: int) -> float:
    """Returns a lower bound of any schedule's time."""
    best = begin = 0.0
    for position in range(len(costs.forward)):
        best = max(best, begin + batches * costs.busy(position))
        begin += costs.forward[position][0]
    return best


class _Pipeline:
    """Replays the passes: each position makes its passes in order, each as soon as its inputs are
    there.
    """

    def __init__(self, schedule: str, costs: Costs, batches: int) -> None:
        self.costs = costs
        self.positions = len(costs.forward)
        self.chunks = CHUNKS[schedule]
        # Schedule1F1B waits for a message to be sent before it makes a pass of the other kind.
        self.waits = schedule == "1f1b"
        self.orders = [
            order(schedule, position, self.positions, batches) for position in range(self.positions)
        ]
        self.arrived: dict[tuple[str, int, int], float] = {}  # by kind, stage and micro-batch
        self.line: dict[tuple[int, int], float] = defaultdict(float)  # when a link is free
        self.free = [0.0] * self.positions
        self.busy = [0.0] * self.positions

    def run(self) -> Times:
        next_pass = [0] * self.positions
        left = sum(map(len, self.orders))
        while left:
            before = left
            for position, passes in enumerate(self.orders):
                while next_pass[position] < len(passes) and self._make(position, next_pass):
                    next_pass[position] += 1
                    left -= 1
            if left == before:
                raise AssertionError("a schedule's passes wait for each other")
        return Times(tuple(self.free), tuple(self.busy))

    def _make(self, position: int, next_pass: list[int]) -> bool:
        """Makes the position's next pass, if all that it needs is there."""
        passes = self.orders[position]
        one = passes[next_pass[position]]
        stage = one.chunk * self.positions + position
        last = self.chunks * self.positions - 1
        needs = None
        if one.kind == "F" and stage > 0:
            needs = ("F", stage, one.batch)
        elif one.kind in "BI" and stage < last:
            needs = ("B", stage, one.batch)
        if needs is not None and needs not in self.arrived:
            return False
        begin = max(self.free[position], self.arrived.get(needs, 0.0) if needs else 0.0)
        taken = self.costs.seconds(position, one)
        end = begin + taken
        self.busy[position] += taken
        sent = end
        if one.kind == "F" and stage < last:
            sent = self._send("F", stage + 1, one, end, self.costs.ahead[position][one.chunk])
        elif one.kind in "BI" and stage > 0:
            before = (position - 1) % self.positions
            chunk = one.chunk if position else one.chunk - 1
            sent = self._send("B", stage - 1, one, end, self.costs.back[before][chunk])
        following = passes[next_pass[position] + 1 : next_pass[position] + 2]
        turns = bool(following) and following[0].kind != one.kind
        self.free[position] = sent if self.waits and turns else end
        return True

    def _send(self, kind: str, to: int, one: Pass, end: float, seconds: float) -> float:
        position = to % self.positions
        sender = (position - 1 if kind == "F" else position + 1) % self.positions
        if sender == position:  # a pipeline of one position
            self.arrived[kind, to, one.batch] = end
            return end
        begin = max(end, self.line[sender, position])
        self.line[sender, position] = begin + seconds
        self.arrived[kind, to, one.batch] = begin + seconds
        return begin + seconds


def simulate(schedule: str, costs: Costs, batches: int) -> Times:
    """Returns when each position of a pipeline has done `batches` micro-batches. Pure."""
    return _Pipeline(schedule, costs, batches).run()
