"""The degrees of a sharding: over how many ranks, and over which, each part of the state is spread.

Source: Xu et al., "Scaling Large Language Model Training on Frontier with Low-Bandwidth
Partitioning", section V and table IV; the dependency rule is that of AMSP (arXiv 2311.00257).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LEVELS = ("pair", "host", "cluster", "all")

Degree = int | str


class ShardingError(ValueError):
    """Degrees, encodings or modules do not allow sharding; the text names argument and reason."""


@dataclasses.dataclass(frozen=True)
class Sharding:
    """How far each part of the state is sharded, and how it is encoded. Degrees are numbers of
    ranks, or levels.

    `weights`, `gradients` and `optimizer_states` are the degrees of the three parts of a model's
    state. `secondary` is that of a second partition of the weights, from which all gathers but the
    first after each update are made (None or 0: there is none). `weight_wire` is the encoding of
    gathered weights and of the secondary partition, `gradient_wire` that of reduced gradients,
    `update_wire` that of what an optimizer step changed in the weights ("": exact).
    """

    weights: Degree
    gradients: Degree
    optimizer_states: Degree
    secondary: Degree | None = None
    weight_wire: str = ""
    gradient_wire: str = ""
    update_wire: str = ""


PRESETS: Mapping[str, Sharding] = {
    "zero1": Sharding(1, 1, "all"),
    "zero2": Sharding(1, "all", "all"),
    "zero3": Sharding("all", "all", "all"),
    "zero++": Sharding("all", "all", "all", "host", "int8", "int4"),
    "mics": Sharding("host", "host", "host"),
    "exact": Sharding("pair", "host", "all"),
    "three-level": Sharding("pair", "host", "all", None, "int8", "int4"),
}


@dataclasses.dataclass(frozen=True)
class Tree:
    """The ranks in the order in which neighbours are closest, and how many share each level.

    `order[p]` is the rank at position p. `hosts` and `clusters` are the numbers of ranks of each
    host and cluster, in the same order.
    """

    order: tuple[int, ...]
    hosts: tuple[int, ...]
    clusters: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.order)

    def degree_of(self, level: str) -> int:
        """The largest number of ranks that divides each group of the level: in pairs 2, or 1 where
        a host has an odd number of ranks."""
        if level == "all":
            return self.size
        groups = self.clusters if level == "cluster" else self.hosts
        return math.gcd(2 if level == "pair" else 0, *groups)

    def find_degree(self, argument: str, degree: Degree) -> int:
        """Returns `degree` as a number of ranks. Raises ShardingError, which names `argument`."""
        if isinstance(degree, str):
            if degree not in LEVELS:
                raise ShardingError(
                    f"{argument}={degree!r} is no level: give {', '.join(LEVELS)}, or a number"
                )
            return self.degree_of(degree)
        if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
            raise ShardingError(f"{argument}={degree!r} is no number of ranks: give 1 or more")
        return degree


def tree_of(topology: Mapping[str, Any]) -> Tree:
    """The tree of a topology (the JSON of hetcclCommGetTopology)."""
    ranks: Sequence[Mapping[str, Any]] = topology["ranks"]
    cluster_of = {
        rank: number
        for number, cluster in enumerate(topology["clusters"])
        for rank in cluster["ranks"]
    }
    place = {int(rank["rank"]): (cluster_of[rank["rank"]], str(rank["host"])) for rank in ranks}
    by_cluster = len(set(place.values())) > len({number for number, _ in place.values()})
    first_of: dict[str, int] = {}
    for rank, (_, host) in sorted(place.items()):
        first_of.setdefault(host, rank)

    def key(rank: int) -> tuple[Any, ...]:
        cluster, host = place[rank]
        first = first_of[host]
        return (cluster, first, rank) if by_cluster else (first, cluster, rank)

    order = tuple(sorted(place, key=key))

    def runs(which: int) -> tuple[int, ...]:
        groups = itertools.groupby(order, key=lambda rank: place[rank][which])
        return tuple(len(list(group)) for _, group in groups)

    return Tree(order, hosts=runs(1), clusters=runs(0))


@dataclasses.dataclass(frozen=True)
class Degrees:
    """The numbers of ranks of a Sharding on a Tree: weights divides gradients divides optimizer
    states divides the number of ranks. `secondary` is 0 where there is none."""

    size: int
    weights: int
    gradients: int
    optimizer_states: int
    secondary: int = 0


RULE = (
    "weights must divide gradients, gradients must divide optimizer_states, and optimizer_states "
    "must divide the number of ranks, so that a rank keeps gradients only for weights that it "
    "keeps, and optimizer states only for gradients that it keeps"
)


def find_degrees(sharding: Sharding, tree: Tree) -> Degrees:
    """Returns the degrees of `sharding` on `tree`. Raises ShardingError with the broken rule."""
    names = ("weights", "gradients", "optimizer_states")
    found = [tree.find_degree(name, getattr(sharding, name)) for name in names]
    chain = [*zip(names, found, strict=True), ("the number of ranks", tree.size)]
    for (small_name, small), (large_name, large) in itertools.pairwise(chain):
        if large % small:
            raise ShardingError(
                f"{small_name}={small} does not divide {large_name}={large}; {RULE}"
            )
    secondary = 0
    if sharding.secondary:
        secondary = tree.find_degree("secondary", sharding.secondary)
        if tree.size % secondary:
            raise ShardingError(
                f"secondary={secondary} does not divide the number of ranks, {tree.size}"
            )
        if found[0] == 1:
            raise ShardingError(
                f"secondary={secondary} has no use with weights=1: no weights are gathered"
            )
    weights, gradients, states = found
    return Degrees(tree.size, weights, gradients, states, secondary)


@dataclasses.dataclass(frozen=True)
class Peers:
    """The ranks with which a rank shares each step, in ascending order.

    Gradients go through `weights` (each rank keeps one part of a unit's gradients), `gradients`
    (a part of that part) and `optimizer_states` (a part of that), then through `replicas`, which
    have the same parts. Updated weights return through `optimizer_states` and `gradients`. A rank
    keeps the part whose number is its index in the group, as collectives of torch have it.
    """

    weights: tuple[int, ...]
    gradients: tuple[int, ...]
    optimizer_states: tuple[int, ...]
    replicas: tuple[int, ...]
    secondary: tuple[int, ...]


def find_place(rank: int, degrees: Degrees, tree: Tree) -> Peers:
    """The place of `rank` among groups of neighbours."""
    parts: dict[int, tuple[int, ...]] = dict.fromkeys(tree.order, ())

    def blocks(degree: int) -> Iterator[list[int]]:
        return (sorted(tree.order[start : start + degree]) for start in range(0, tree.size, degree))

    def step(degree: int) -> tuple[int, ...]:
        """Splits the parts of each block further; the ranks that had the same part as `rank`."""
        group: tuple[int, ...] = ()
        for block in blocks(degree):
            sharers: dict[tuple[int, ...], list[int]] = {}
            for member in block:
                sharers.setdefault(parts[member], []).append(member)
            for members in sharers.values():
                group = tuple(members) if rank in members else group
                for index, member in enumerate(members):
                    parts[member] = (*parts[member], index)
        return group

    return Peers(
        weights=step(degrees.weights),
        gradients=step(degrees.gradients),
        optimizer_states=step(degrees.optimizer_states),
        replicas=step(degrees.size),
        secondary=next((tuple(block) for block in blocks(degrees.secondary) if rank in block), ())
        if degrees.secondary
        else (),
    )
