"""The parts of a target's cache that each of several sources sends."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from hetccl.kv.description import Description, check_joinable
from hetccl.kv.errors import KvError


@dataclasses.dataclass(frozen=True)
class Share:
    """Heads [first, last) of a layer, by the model's numbers, that one source sends."""

    layer: int
    first: int
    last: int


def overlap(source: Description, target: Description) -> tuple[Share, ...]:
    """Returns the layers and heads that both ends hold."""
    first, last = max(source.heads[0], target.heads[0]), min(source.heads[1], target.heads[1])
    held = {layer.number for layer in source.layers}
    common = [layer.number for layer in target.layers if layer.number in held]
    return tuple(Share(number, first, last) for number in common) if first < last else ()


def divide(sources: Sequence[Description], target: Description) -> list[tuple[Share, ...]]:
    """Returns the shares of each source, by its index.

    Pure. Together they cover each layer and head of the target exactly once, for any
    tensor-parallel and pipeline-parallel degrees at both ends. Where several sources hold a head,
    layers go round among them, beginning at the target's rank, so that replicas and targets share
    the load: a replica's share differs by at most one layer from another's. Raises KvError if ends
    cannot be joined, and where no source holds a layer or head.
    """
    for source in sources:
        check_joinable(source, target)
    numbers = [{layer.number for layer in source.layers} for source in sources]
    shares: list[list[Share]] = [[] for _ in sources]
    turns: dict[tuple[int, ...], int] = {}  # of each set of replicas
    for layer in sorted(target.layers, key=lambda one: one.number):
        holders = [index for index, held in enumerate(numbers) if layer.number in held]
        edges = {*target.heads}
        for index in holders:
            edges |= {edge for edge in sources[index].heads if _within(edge, target)}
        cuts = sorted(edges)
        for first, last in itertools.pairwise(cuts):
            replicas = tuple(
                index for index in holders
                if sources[index].heads[0] <= first and last <= sources[index].heads[1]
            )  # fmt: skip
            if not replicas:
                raise KvError(
                    f"no source holds heads {first} to {last - 1} of layer {layer.number}, which "
                    f"{target.name} holds: the sources are {[one.name for one in sources]}"
                )
            turn = turns.setdefault(replicas, target.rank)
            _add(shares[replicas[turn % len(replicas)]], Share(layer.number, first, last))
            turns[replicas] += 1
    return [tuple(share) for share in shares]


def readers(sources: Sequence[Description], targets: Sequence[Description]) -> list[int]:
    """Returns the number of targets that read from each source, by its index: a sender's
    `receivers`. Raises KvError as `divide` does."""
    counts = [0] * len(sources)
    for target in targets:
        for index, shares in enumerate(divide(sources, target)):
            counts[index] += bool(shares)
    return counts


def _within(edge: int, target: Description) -> bool:
    return target.heads[0] < edge < target.heads[1]


def _add(shares: list[Share], one: Share) -> None:
    """Appends a share, joined with its neighbour of the same layer."""
    if shares and shares[-1].layer == one.layer and shares[-1].last == one.first:
        one = Share(one.layer, shares.pop().first, one.last)
    shares.append(one)
