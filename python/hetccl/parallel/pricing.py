"""The costs of a strategy on a site: seconds of a step, and bytes of memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from hetccl.balance import Profile
from hetccl.balance import plan as divide_batch
from hetccl.parallel.layers import Cost, split_layers
from hetccl.parallel.models import Model, ParallelError
from hetccl.parallel.schedules import (
    CHUNKS,
    Costs,
    Times,
    bound,
    most_in_flight,
    simulate,
)
from hetccl.parallel.sites import Flow, Group, Site
from hetccl.parallel.strategies import Stage, Strategy, find_routes
from hetccl.sharding.costs import OPTIMIZERS, Training, find_memory
from hetccl.sharding.degrees import Degrees, Sharding

Placed = list[list[tuple[int, int]]]  # first layer and end, by position and chunk
_PASSES = 3  # as long as which a forward and a whole backward pass take
_GATHERS = 2  # all-reduces of tensor parallelism in a layer's forward pass, and in its backward


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of a rank of a stage: `state` of weights, gradients and optimizer states, `kept` of the
    activations of all micro-batches in flight, `buffers` of arriving messages.
    """

    state: float
    kept: float
    buffers: float
    has: int | None

    @property
    def needs(self) -> float:
        """The sum of all parts."""
        return self.state + self.kept + self.buffers

    @property
    def part(self) -> float:
        """The needed bytes over the device's; 0 if these are unknown."""
        return self.needs / self.has if self.has else 0.0

    @property
    def fits(self) -> bool | None:
        """Whether it fits the device; None if the device's memory is unknown."""
        return None if self.has is None else self.needs <= self.has


@dataclasses.dataclass(frozen=True)
class Price:
    """A strategy's costs. `times` are the pipeline's, `reduces` each stage's reduction of
    gradients, `messages` the seconds of one micro-batch's activations after each stage but the
    last."""

    strategy: Strategy
    times: Times
    costs: Costs
    reduces: tuple[float, ...]
    messages: tuple[float, ...]
    memory: tuple[Memory, ...]

    @property
    def seconds(self) -> float:
        """Seconds of a step: pipeline and reduction of gradients, but no optimizer's update."""
        return max(end + more for end, more in zip(self.times.ends, self.reduces, strict=True))

    @property
    def fits(self) -> bool | None:
        """Whether every stage fits; None where one's memory is unknown, and none is too small."""
        each = [memory.fits for memory in self.memory]
        return False if False in each else None if None in each else True


@functools.lru_cache(maxsize=64)
def find_state_bytes(type_bytes: int, optimizer: str) -> float:
    """Bytes of weights, gradients and optimizer states for each parameter, unsharded."""
    training = Training(1, type_bytes, OPTIMIZERS[optimizer])
    return find_memory(training, Sharding(1, 1, 1), Degrees(1, 1, 1, 1)).peak


@functools.lru_cache(maxsize=4096)
def share_rows(profiles: tuple[Profile, ...], rows: int) -> tuple[int, ...]:
    """Rows of a micro-batch for each replica, at least one, so that the slowest is done first."""
    if len(set(profiles)) == 1 and rows % len(profiles) == 0:
        return (rows // len(profiles),) * len(profiles)
    return divide_batch(profiles, rows, 1).shares


def profile_replica(model: Model, site: Site, ranks: Sequence[int]) -> Profile:
    """The seconds of a layer's forward and backward pass, which the ranks share, by samples."""
    if not site.profiles:
        speed = len(ranks) * min(site.speeds[rank] for rank in ranks)
        return Profile(((1, _PASSES * model.layer_flops / speed),))
    each = [site.profiles[rank] for rank in ranks]
    sizes = sorted({size for one in each for size, _ in one.seconds})
    slowest = [(size, max(one.time(size) for one in each) / len(ranks)) for size in sizes]
    return Profile(tuple(slowest))


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """Ranks by position of a pipeline, those of a replica side by side; `tensor` ranks each."""

    stages: tuple[tuple[int, ...], ...]
    tensor: int

    @property
    def widths(self) -> list[int]:
        """The replicas of each stage."""
        return [len(ranks) // self.tensor for ranks in self.stages]


class Pricer:
    """Prices one arrangement with one number of micro-batches; its layers are divided anew for
    each schedule."""

    def __init__(
        self, model: Model, site: Site, arrangement: Arrangement, batch: int, micro_batches: int,
        optimizer: str = "adamw", rows: Sequence[tuple[int, ...]] | None = None,
    ) -> None:  # fmt: skip
        self._model = model
        self._site = site
        self._arrangement = arrangement
        self._batch = batch
        self._micro_batches = micro_batches
        self._state = find_state_bytes(model.type_bytes, optimizer)
        tensor = arrangement.tensor
        self._replicas = [
            [ranks[first : first + tensor] for first in range(0, len(ranks), tensor)]
            for ranks in arrangement.stages
        ]
        profiles = [
            tuple(profile_replica(model, site, replica) for replica in stage)
            for stage in self._replicas
        ]
        micro_batch = batch // micro_batches
        self._rows = rows or [share_rows(of_stage, micro_batch) for of_stage in profiles]
        # Seconds of a micro-batch for each FLOP of a sample.
        self._pace = [
            max(one.time(count) for count, one in zip(rows, of_stage, strict=True))
            / (_PASSES * model.layer_flops)
            for rows, of_stage in zip(self._rows, profiles, strict=True)
        ]
        self._gather = [self._gather_seconds(position) for position in range(len(profiles))]

    def _gather_seconds(self, position: int) -> float:
        """Seconds of one all-reduce of tensor parallelism, which all replicas make at once."""
        if self._arrangement.tensor == 1:
            return 0.0
        groups = [
            Group(tuple(replica), rows * self._model.boundary)
            for replica, rows in zip(self._replicas[position], self._rows[position], strict=True)
        ]
        return self._site.reduce_seconds(groups)

    def _backward(self, schedule: str) -> float:
        """Returns the cost of a backward pass in forward passes."""
        split = self._model.split_backward if schedule == "zero-bubble" else 1
        return self._model.backward * split

    def split(self, schedule: str, within_memory: bool = True) -> Placed | None:
        """Returns the layers of each position's chunks; None if no division fits the memory.

        Raises ParallelError if the model has too few layers.
        """
        chunks, positions = CHUNKS[schedule], len(self._arrangement.stages)
        model = self._model
        passes = 1 + self._backward(schedule)
        costs = [
            Cost(
                passes * model.layer_flops * pace + 2 * _GATHERS * gather,
                passes * model.embedding_flops * pace,
                passes * model.head_flops * pace,
            )
            for pace, gather in zip(self._pace, self._gather, strict=True)
        ] * chunks  # fmt: skip

        def fits(stage: int, first: int, end: int) -> bool:
            memory = self._memory(stage % positions, [(first, end)], schedule)
            return memory.has is None or memory.needs <= memory.has / chunks

        counts = split_layers(model.layers, costs, fits if within_memory else None)
        if counts is None:
            return None
        return self.place(counts, schedule)

    def place(self, counts: Sequence[int], schedule: str) -> Placed:
        """Layers by position and chunk, of their numbers by torch's stage."""
        positions = len(self._arrangement.stages)
        placed: Placed = [[] for _ in range(positions)]
        first = 0
        for stage, count in enumerate(counts):
            placed[stage % positions].append((first, first + count))
            first += count
        return placed

    def _memory(self, position: int, parts: Sequence[tuple[int, int]], schedule: str) -> Memory:
        tensor, model = self._arrangement.tensor, self._model
        parameters = sum(model.parameters_of(*part) for part in parts) / tensor
        state = parameters * self._state
        rows = max(self._rows[position])
        flight = most_in_flight(
            schedule, position, len(self._arrangement.stages), self._micro_batches
        )
        kept = max(model.activations_of(*part, tensor) for part in parts) * rows * flight
        # torch keeps a buffer for each micro-batch, and for its gradient.
        received = sum((first > 0) + (end < model.layers) for first, end in parts)
        buffers = received * rows * model.boundary * self._micro_batches
        sizes = [self._site.memory[rank] for rank in self._arrangement.stages[position]]
        known = [size for size in sizes if size is not None]
        return Memory(state, kept, buffers, min(known) if len(known) == len(sizes) else None)

    def _costs(self, schedule: str, placed: Placed, messages: Sequence[float]) -> Costs:
        def seconds(position: int, part: tuple[int, int], times: float) -> float:
            gathers = _GATHERS * (part[1] - part[0]) * self._gather[position]
            return times * self._model.flops_of(*part) * self._pace[position] + gathers

        forward = [[seconds(p, part, 1) for part in parts] for p, parts in enumerate(placed)]
        backward = [[seconds(p, part, self._backward(schedule)) for part in parts]
                    for p, parts in enumerate(placed)]  # fmt: skip
        sent = [[messages[p]] * len(parts) for p, parts in enumerate(placed)]
        return Costs(forward, backward, sent, sent)

    def _messages(self) -> list[float]:
        """Seconds from each position to the next, and from the last to the first."""
        stages = self._arrangement.stages
        tensor = self._arrangement.tensor
        found = []
        for position in range(len(stages)):
            after = (position + 1) % len(stages)
            flows = [
                Flow(
                    self._replicas[position][route.source][index],
                    self._replicas[after][route.target][index],
                    (route.end - route.begin) * self._model.boundary,
                )
                for route in find_routes(self._rows[position], self._rows[after])
                for index in range(tensor)
            ]
            found.append(self._site.send_seconds(flows))
        return found

    def _reduces(self, placed: Placed) -> list[float]:
        """Each stage's reduction, beside those of stages that share a host with it."""
        tensor, model = self._arrangement.tensor, self._model
        groups, hosts = [], []
        for ranks, parts in zip(self._arrangement.stages, placed, strict=True):
            size = sum(model.parameters_of(*part) for part in parts) / tensor * model.type_bytes
            groups.append([Group(tuple(ranks[index::tensor]), size) for index in range(tensor)])
            hosts.append({self._site.hosts[rank] for rank in ranks})
        return [
            self._site.reduce_seconds(
                group for other, theirs in enumerate(groups) if own & hosts[other]
                for group in theirs
            ) if any(len(group.ranks) > 1 for group in groups[position]) else 0.0
            for position, own in enumerate(hosts)
        ]  # fmt: skip

    def memory(self, schedule: str, placed: Placed) -> tuple[Memory, ...]:
        """The bytes that a rank of each stage needs."""
        return tuple(
            self._memory(position, parts, schedule) for position, parts in enumerate(placed)
        )

    def least(self, schedule: str, placed: Placed) -> float:
        """Returns a lower bound of a step's seconds, without simulating the step."""
        costs = self._costs(schedule, placed, [0.0] * len(placed))
        busy = [self._micro_batches * costs.busy(position) for position in range(len(placed))]
        reduces = self._reduces(placed)
        paired = [one + more for one, more in zip(busy, reduces, strict=True)]
        return max(bound(costs, self._micro_batches), *paired)

    def price(self, schedule: str, placed: Placed) -> Price:
        """Simulates a step. Raises ParallelError for layers or a schedule that do not fit."""
        stages = tuple(
            Stage(tuple(ranks), tuple(parts), rows)
            for ranks, parts, rows in zip(self._arrangement.stages, placed, self._rows, strict=True)
        )
        strategy = Strategy(
            self._model.layers, self._arrangement.tensor, stages, schedule, self._batch,
            self._micro_batches,
        )  # fmt: skip
        messages = self._messages()
        costs = self._costs(schedule, placed, messages)
        times = simulate(schedule, costs, self._micro_batches)
        return Price(
            strategy, times, costs, tuple(self._reduces(placed)), tuple(messages[:-1]),
            self.memory(schedule, placed),
        )  # fmt: skip


def price_strategy(model: Model, site: Site, strategy: Strategy, optimizer: str = "adamw") -> Price:
    """Prices a given strategy. Raises ParallelError if it does not fit the model or the site."""
    if strategy.layers != model.layers:
        raise ParallelError(
            f"the strategy is for {strategy.layers} layers, and {model.name} has {model.layers}"
        )
    if strategy.size != site.size:
        raise ParallelError(
            f"the strategy is for {strategy.size} ranks, and the topology has {site.size}"
        )
    arrangement = Arrangement(tuple(stage.ranks for stage in strategy.stages), strategy.tensor)
    pricer = Pricer(
        model, site, arrangement, strategy.batch, strategy.micro_batches, optimizer,
        [stage.rows for stage in strategy.stages],
    )  # fmt: skip
    return pricer.price(strategy.schedule, [list(stage.layers) for stage in strategy.stages])
