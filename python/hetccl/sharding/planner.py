"""Plans a sharding: prices each preset on a topology, and finds the degrees that cost least."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hetccl import _lib
from hetccl.sharding.costs import (
    OPTIMIZERS,
    TYPES,
    Costs,
    Training,
    find_costs,
    find_memory,
)
from hetccl.sharding.degrees import (
    LEVELS,
    PRESETS,
    Sharding,
    ShardingError,
    Tree,
    find_degrees,
    tree_of,
)
from hetccl.sharding.devices import find_bandwidths, find_device_memory
from hetccl.sharding.reach import Reaches
from hetccl.sharding.wires import check_wire
from hetccl.units import size

if TYPE_CHECKING:
    from torch import nn


MOST = 10**18  # parameters, bytes and the like: floats hold all costs of so many
_FASTEST = 1e18  # bytes/s


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A named sharding. `costs` is None where the tree does not allow it; `reason` says why.

    `largest_model` is the number of parameters that fit the memory of a rank, None where that is
    unknown.
    """

    name: str
    sharding: Sharding
    costs: Costs | None
    reason: str = ""
    largest_model: int | None = None


@dataclasses.dataclass(frozen=True)
class ShardingPlan:
    """The result of `plan`.

    `memory` is bytes of a rank, None if unknown; `bandwidths` are bytes/s by level. `schemes` are
    the presets, in their order. `best` has the degrees whose collectives take the least time in a
    step among those that fit; None where `reason` says why there are none. `host_names` are in
    the order of `Costs.leaving`. `inside` is the level at which a host's ranks share what arrives.
    """

    training: Training
    tree: Tree
    host_names: tuple[str, ...]
    memory: int | None
    bandwidths: Mapping[str, float]
    schemes: tuple[Scheme, ...]
    best: Scheme | None
    reason: str = ""
    inside: str = "host"

    def fits(self, scheme: Scheme) -> bool | None:
        """Whether the model's state fits; None where the memory is unknown, or no costs are."""
        if self.memory is None or scheme.costs is None:
            return None
        return scheme.costs.memory.peak <= self.memory


def count_parameters(model: int | nn.Module) -> int:
    """The number of a module's parameters, shared ones once; it may be on the meta device."""
    if isinstance(model, int) and not isinstance(model, bool):
        count = model
    elif hasattr(model, "parameters"):
        count = sum(parameter.numel() for parameter in model.parameters())
    else:
        raise ShardingError(f"model={model!r} is no number of parameters, and no module")
    if count > MOST:
        raise ShardingError(f"model has more than {MOST:.0e} parameters")
    if count < 1:
        raise ShardingError(f"model has {count} parameters: give one with 1 or more")
    return count


def _check_count(argument: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise ShardingError(f"{argument}={count!r} is no whole number")
    if not 1 <= count <= MOST:
        said = f"={count}" if abs(count) <= MOST else ""
        raise ShardingError(f"{argument}{said}: give 1 or more, up to {MOST:.0e}")


def _check_rate(level: str, rate: object) -> None:
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not 0 < rate <= _FASTEST:  # type: ignore[operator]
        raise ShardingError(f"bandwidths: {level}={rate!r} is no number of bytes/s")


def _chosen(argument: str, name: str, table: Mapping[str, int]) -> int:
    if name not in table:
        raise ShardingError(f"{argument}={name!r} is unknown: give one of {', '.join(table)}")
    return table[name]


def plan(
    model: int | nn.Module, topology: Mapping[str, Any] | Tree, *, memory: int | None = None,
    micro_batches: int = 1, dtype: str = "bfloat16", optimizer: str = "adamw",
    bandwidths: Mapping[str, float] | None = None,
    weight_wire: str = "", gradient_wire: str = "", update_wire: str = "",
) -> ShardingPlan:  # fmt: skip
    """Finds what every preset costs for `model` on `topology`, and the degrees that cost least.

    A pure function: it starts nothing, and needs torch only to count a module's parameters.
    `model` is a number of parameters or a module, `topology` the content of a topology file, what
    `Communicator.topology` returns, or a Tree. `memory` is bytes of a rank, by default that of the
    smallest device, where its kind is known. `dtype` is the type of weights and gradients
    (bfloat16, float16, float32), `optimizer` is adamw, momentum or sgd. `bandwidths` are bytes/s,
    each way, by level: of a rank to the others on its host, of a host to other hosts; levels left
    out have that of the devices and network cards of the topology. The wires are the encodings
    with which the best degrees are searched, by default none; presets have their own.

    Raises ShardingError for arguments that mean nothing, HetcclError for a wrong topology.
    """
    _check_count("micro_batches", micro_batches)
    if memory is not None:
        _check_count("memory", memory)
    for level, rate in (bandwidths or {}).items():
        if level not in LEVELS:
            raise ShardingError(f"bandwidths: {level!r} is no level: give {', '.join(LEVELS)}")
        _check_rate(level, rate)
    training = Training(
        count_parameters(model),
        _chosen("dtype", dtype, TYPES),
        _chosen("optimizer", optimizer, OPTIMIZERS),
        micro_batches,
    )
    place = _read(topology, memory)
    rates = {**place.bandwidths, **(bandwidths or {})}
    wires = Sharding(1, 1, 1, None, weight_wire, gradient_wire, update_wire)
    for wire in ("weight_wire", "gradient_wire", "update_wire"):
        check_wire(wire, getattr(wires, wire))
    schemes = tuple(
        _make_scheme(name, sharding, training, place, rates) for name, sharding in PRESETS.items()
    )
    best, reason = _find_best(wires, training, place, rates)
    return ShardingPlan(
        training, place.reaches.tree, place.host_names, place.memory, rates, schemes, best, reason,
        place.reaches.inside,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Place:
    """The facts that a topology gives: reaches on its tree, hosts' names, bandwidths, memory of a
    rank.
    """

    reaches: Reaches
    host_names: tuple[str, ...]
    bandwidths: Mapping[str, float]
    memory: int | None


def _read(topology: Mapping[str, Any] | Tree, memory: int | None) -> _Place:
    if isinstance(topology, Tree):
        numbered = tuple(f"host {number}" for number in range(len(topology.hosts)))
        return _Place(Reaches(topology), numbered, {}, memory)
    try:
        described = dict(topology)
        if "clusters" not in described:  # made by hand: the library knows the rest
            described = json.loads(_lib.topology(json.dumps(described)))
        return _find_place(described, memory)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _lib.HetcclError(
            _lib.Result.INVALID_ARGUMENT,
            f"topology: {type(error).__name__}: {error}: it is no topology, or a part of it is "
            "missing; give the content of a file of hetccl topo --save, or Communicator.topology",
        ) from None


def _find_place(described: Mapping[str, Any], memory: int | None) -> _Place:
    tree = tree_of(described)
    ranks = {rank["rank"]: rank for rank in described["ranks"]}
    in_clusters = sorted(rank for one in described["clusters"] for rank in one["ranks"])
    if not ranks or not sorted(ranks) == in_clusters == list(range(len(described["ranks"]))):
        raise ValueError("ranks must be 0, 1, 2 and so on, each in one cluster")
    in_order = [ranks[rank] for rank in tree.order]
    names = {rank["host"]: str(rank.get("host_name") or rank["host"]) for rank in in_order}
    numbers = {host: number for number, host in enumerate(names)}
    reaches = Reaches(tree, [numbers[rank["host"]] for rank in in_order])
    bandwidths = find_bandwidths(described, reaches.clusters_in_hosts)
    for level, rate in bandwidths.items():
        _check_rate(level, rate)
    found = find_device_memory(in_order) if memory is None else memory
    return _Place(reaches, tuple(names.values()), bandwidths, found)


def _make_scheme(
    name: str, sharding: Sharding, training: Training, place: _Place, rates: Mapping[str, float]
) -> Scheme:
    try:
        degrees = find_degrees(sharding, place.reaches.tree)
    except ShardingError as error:
        return Scheme(name, sharding, None, str(error))
    costs = find_costs(training, sharding, degrees, place.reaches, rates)
    largest = None
    if place.memory is not None:
        largest = int(place.memory / (costs.memory.peak / training.parameters))
    return Scheme(name, sharding, costs, "", largest)


def _shardings(wires: Sharding, ranks: int) -> Iterator[Sharding]:
    """Yields every sharding that find_degrees allows on a tree of so many ranks."""
    divisors = [number for number in range(1, ranks + 1) if ranks % number == 0]
    for states in divisors:
        for gradients in (number for number in divisors if states % number == 0):
            for weights in (number for number in divisors if gradients % number == 0):
                for secondary in (None, *divisors) if weights > 1 else (None,):
                    yield dataclasses.replace(
                        wires, weights=weights, gradients=gradients, optimizer_states=states,
                        secondary=secondary,
                    )  # fmt: skip


def _find_best(
    wires: Sharding, training: Training, place: _Place, rates: Mapping[str, float]
) -> tuple[Scheme | None, str]:
    """The scheme "best", or why there is none. Of schemes as fast the smallest is the best."""
    best: tuple[tuple[float, float], Sharding] | None = None
    least = float("inf")
    missing: set[str] = set()
    tree = place.reaches.tree
    for sharding in _shardings(wires, tree.size):
        degrees = find_degrees(sharding, tree)
        peak = find_memory(training, sharding, degrees).peak
        least = min(least, peak)
        if place.memory is not None and peak > place.memory:
            continue
        costs = find_costs(training, sharding, degrees, place.reaches, rates)
        if costs.seconds is None:
            missing |= {phase.reach.level for phase in costs.phases} - set(rates)
            continue
        key = (float(f"{costs.seconds:.9g}"), peak)
        if best is None or key < best[0]:
            best = (key, sharding)
    if missing:
        levels = ", ".join(level for level in LEVELS if level in missing)
        return None, f"the bandwidth of these levels is unknown, so give bandwidths=: {levels}"
    if best is None:
        has = size(place.memory or 0)
        return None, f"the smallest take {size(least)} of a rank's memory, which has {has}"
    return _make_scheme("best", best[1], training, place, rates), ""
