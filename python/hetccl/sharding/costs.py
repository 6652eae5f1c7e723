"""The costs of a sharding: memory of a rank, and the bytes of each phase of a step.

Source: Xu et al., "Scaling Large Language Model Training on Frontier with Low-Bandwidth
Partitioning", section V: memory as tables V and VI, volumes as tables VII and VIII, which count
elements of 2 bytes where this counts bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from hetccl.sharding.degrees import Degrees, Sharding
from hetccl.sharding.reach import Reach, Reaches
from hetccl.sharding.wires import SCALE_BITS, wire_bytes

PHASES = ("forward", "backward", "gradients", "boundary", "update")
TYPES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
# States in float32 of each parameter, besides the master copy of the parameter.
OPTIMIZERS: Mapping[str, int] = {"adamw": 2, "momentum": 1, "sgd": 0}


@dataclasses.dataclass(frozen=True)
class Training:
    """The training: all that costs depend on besides the sharding and the tree.

    `type_bytes` is the size of an element of weights and gradients, `optimizer_states` the number
    of float32 states of each parameter (AdamW has 2). `scale_bits` is what a block of an encoding
    carries besides its codes: the paper counts none.
    """

    parameters: int
    type_bytes: int = 2
    optimizer_states: int = 2
    micro_batches: int = 1
    scale_bits: int = SCALE_BITS


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of model state on a rank (tables V and VI; K of section III.B).

    `weights` includes no gathered blocks, `secondary` is the second partition of the weights, as
    encoded. `gradients` are kept in the model's type while micro-batches accumulate.
    `optimizer_states` includes the float32 master weights. `float32_gradients`, which the
    optimizer reads, exist from the boundary to the update.
    """

    weights: float
    secondary: float
    gradients: float
    optimizer_states: float
    float32_gradients: float

    @property
    def kept(self) -> float:
        """The four parts that the paper counts."""
        return self.weights + self.secondary + self.gradients + self.optimizer_states

    @property
    def peak(self) -> float:
        """An upper bound: at the boundary gradients become float32 ones block by block."""
        larger = max(self.gradients, self.float32_gradients)
        return self.weights + self.secondary + larger + self.optimizer_states


def find_memory(training: Training, sharding: Sharding, degrees: Degrees) -> Memory:
    """The memory of a rank. Activations, gathered blocks and buffers come on top."""
    size, element = training.parameters, training.type_bytes
    secondary = 0.0
    if degrees.secondary:
        wire = wire_bytes("weight_wire", sharding.weight_wire, element, training.scale_bits)
        secondary = size * wire / degrees.secondary
    return Memory(
        weights=size * element / degrees.weights,
        secondary=secondary,
        gradients=size * element / degrees.gradients,
        optimizer_states=4 * size * (1 + training.optimizer_states) / degrees.optimizer_states,
        float32_gradients=4 * size / degrees.optimizer_states,
    )


@dataclasses.dataclass(frozen=True)
class Phase:
    """One collective of a step. All groups of `reach` make it at the same time, `calls` times.

    `phase` is one of PHASES, `collective` is all_gather, reduce_scatter or all_reduce. `payload`
    is the bytes of the whole buffer, encoded, that one group gathers or reduces in one call; the
    calls for single blocks of the model are counted as one.
    """

    phase: str
    collective: str
    calls: int
    payload: float
    reach: Reach

    @property
    def volume(self) -> float:
        """Bytes that a rank sends in a step: payload * (d - 1)/d, and twice for all_reduce."""
        ways = 2 if self.collective == "all_reduce" else 1
        return self.calls * self.payload * ways * (self.reach.ranks - 1) / self.reach.ranks

    @property
    def leaving(self) -> tuple[float, ...]:
        """Bytes that leave each host in a step."""
        each = self.reach.leaving[self.collective]
        return tuple(self.calls * self.payload * times for times in each)

    def seconds(self, bandwidths: Mapping[str, float], inside: str) -> float | None:
        """The time of all calls of a step; None where a bandwidth is unknown.

        `bandwidths` are bytes/s by level: of a rank where groups stay inside a host, of a host
        where they leave it. What arrives at a host is spread there at the bandwidth of level
        `inside`, meanwhile: the slower of both counts.
        """
        outer, inner = bandwidths.get(self.reach.level), bandwidths.get(inside)
        busiest = self.calls * self.payload * self.reach.busiest[self.collective]
        if not busiest:
            return self.volume / outer if outer else None
        return max(busiest / outer, self.volume / inner) if outer and inner else None


def find_phases(
    training: Training, sharding: Sharding, degrees: Degrees, reaches: Reaches
) -> tuple[Phase, ...]:
    """The collectives of a step in their order, without those of one rank."""
    found = _phases(training, sharding, degrees, reaches.find(degrees))
    return tuple(phase for phase in found if phase.calls and phase.reach.ranks > 1)


def _phases(
    training: Training, sharding: Sharding, degrees: Degrees, reach: Mapping[str, Reach]
) -> Iterator[Phase]:
    def payload(wire: str, parts: int) -> float:
        element = wire_bytes(
            wire, getattr(sharding, wire), training.type_bytes, training.scale_bits
        )
        return training.parameters * element / parts

    batches = training.micro_batches
    whole = payload("weight_wire", 1)
    if degrees.secondary:  # only the first gather after an update needs the primary partition
        yield Phase("forward", "all_gather", 1, whole, reach["weights"])
        yield Phase("forward", "all_gather", batches - 1, whole, reach["secondary"])
        yield Phase("backward", "all_gather", batches, whole, reach["secondary"])
    else:
        yield Phase("forward", "all_gather", batches, whole, reach["weights"])
        yield Phase("backward", "all_gather", batches, whole, reach["weights"])

    # Each step reduces the part that the step before left to a rank.
    for phase, calls, name, collective, parts in (
        ("gradients", batches, "weights", "reduce_scatter", 1),
        ("gradients", batches, "gradients", "reduce_scatter", degrees.weights),
        ("boundary", 1, "optimizer_states", "reduce_scatter", degrees.gradients),
        ("boundary", 1, "replicas", "all_reduce", degrees.optimizer_states),
    ):
        yield Phase(phase, collective, calls, payload("gradient_wire", parts), reach[name])
    for name, parts in (("optimizer_states", degrees.gradients), ("gradients", degrees.weights)):
        yield Phase("update", "all_gather", 1, payload("update_wire", parts), reach[name])


@dataclasses.dataclass(frozen=True)
class Costs:
    """Memory and traffic of one sharding on one tree. `seconds` is the time that the collectives
    of a step take one after another, None where a bandwidth is unknown."""

    degrees: Degrees
    memory: Memory
    phases: tuple[Phase, ...]
    seconds: float | None

    @property
    def leaving(self) -> tuple[float, ...]:
        """Bytes that leave each host in a step; empty where no phase communicates."""
        each = [phase.leaving for phase in self.phases]
        return tuple(map(sum, zip(*each, strict=True)))

    def of_phase(self, name: str) -> list[Phase]:
        """The collectives of one of PHASES."""
        return [phase for phase in self.phases if phase.phase == name]


def find_costs(
    training: Training, sharding: Sharding, degrees: Degrees, reaches: Reaches,
    bandwidths: Mapping[str, float],
) -> Costs:  # fmt: skip
    """Memory, phases and time; `bandwidths` as for Phase.seconds. Raises ShardingError for an
    encoding that does not exist."""
    phases = find_phases(training, sharding, degrees, reaches)
    times = [phase.seconds(bandwidths, reaches.inside) for phase in phases]
    known = [time for time in times if time is not None]
    return Costs(
        degrees,
        find_memory(training, sharding, degrees),
        phases,
        sum(known) if len(known) == len(times) else None,
    )
