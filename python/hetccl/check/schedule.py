"""Decides which ranks measure their link together, and in which round.

No two pairs of a round share a rank or a host's uplink, so no measurement slows another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

EVERY_PAIR = 16  # ranks: of more, one pair of ranks stands for two hosts
Pair = tuple[int, int]


def tournament(size: int) -> Iterator[list[Pair]]:
    """Rounds of disjoint pairs of 0 to size - 1, in which each pair is once: the circle method."""
    seats = list(range(size + size % 2))
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        yield [(min(pair), max(pair)) for pair in facing if max(pair) < size]
        seats[1:] = [seats[-1], *seats[1:-1]]


def _within(members: Sequence[int], every_pair: bool) -> list[Pair]:
    """Pairs of one host: all of them, or each rank with the next."""
    if every_pair or len(members) < 3:
        return list(combinations(members, 2))
    return [*pairwise(members), (members[0], members[-1])]


def _between(one: Sequence[int], other: Sequence[int], turn: int, every_pair: bool) -> list[Pair]:
    """Pairs of two hosts: all, or one, whose ranks differ from turn to turn."""
    if every_pair:
        return [(a, b) for a in one for b in other]
    return [(one[turn % len(one)], other[turn % len(other)])]


def rounds(hosts: Sequence[Sequence[int]], every_pair: bool) -> Iterator[list[Pair]]:
    """The rounds. `hosts` has each host's ranks."""
    for turn, facing in enumerate(tournament(len(hosts))):
        pairs = [_between(hosts[a], hosts[b], turn, every_pair) for a, b in facing]
        for step in range(max((len(listed) for listed in pairs), default=0)):
            yield [listed[step] for listed in pairs if step < len(listed)]
    inside = [_within(members, every_pair) for members in hosts]
    for step in range(max((len(listed) for listed in inside), default=0)):
        yield [listed[step] for listed in inside if step < len(listed)]
