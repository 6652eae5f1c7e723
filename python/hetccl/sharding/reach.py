"""The reach of a sharding's groups: their level, and the bytes that leave each host."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from hetccl.sharding.degrees import LEVELS, Degrees, Tree


@dataclasses.dataclass(frozen=True)
class Reach:
    """All groups that make one step at the same time: the same number of ranks in each.

    `level` is the smallest of pair, host, cluster and all that contains each group. `gathers` and
    `reduces` have one number for each host: how many times the whole buffer of a group leaves the
    host, summed over the groups, when every group makes an all-gather or a reduce-scatter. A host
    of k ranks of a group of d over h hosts sends k/d of a gathered buffer to h - 1 hosts, and its
    part of a sum of (d - k)/d of the buffer to the hosts that own it: hetccl adds up before it
    sends, and a gather crosses to each host once.
    """

    ranks: int
    level: str
    gathers: tuple[float, ...]
    reduces: tuple[float, ...]

    @functools.cached_property
    def leaving(self) -> Mapping[str, tuple[float, ...]]:
        """By collective and host, how many times a group's buffer leaves the host."""
        both = tuple(map(sum, zip(self.gathers, self.reduces, strict=True)))
        return {
            "all_gather": self.gathers, "reduce_scatter": self.reduces, "all_reduce": both,
        }  # fmt: skip

    @functools.cached_property
    def busiest(self) -> Mapping[str, float]:
        """That of the host that sends most, by collective; 0 where nothing leaves a host."""
        return {collective: max(times) for collective, times in self.leaving.items()}


def _runs(lengths: Sequence[int]) -> list[int]:
    """The number of the run at each position: [2, 1] is [0, 0, 1]."""
    return [number for number, length in enumerate(lengths) for _ in range(length)]


class Reaches:
    """The reach of every step on one tree. Pure; keeps what it has computed.

    `hosts` is the number of the host at each position of the tree's order; without it, the tree
    says. They differ where two clusters share hosts and each spans several.
    """

    def __init__(self, tree: Tree, hosts: Sequence[int] | None = None) -> None:
        self.tree = tree
        self._hosts = list(hosts) if hosts is not None else _runs(tree.hosts)
        self._host_runs = _runs(tree.hosts)
        self._cluster_runs = _runs(tree.clusters)
        starts = [0, *itertools.accumulate(tree.hosts)]
        self._pairs: list[object] = [None] * tree.size
        if not any(ranks % 2 for ranks in tree.hosts):
            self._pairs = [
                (host, (position - starts[host]) // 2)
                for position, host in enumerate(self._host_runs)
            ]
        places = set(zip(self._cluster_runs, self._host_runs, strict=True))
        # Clusters inside hosts, such as one CPU cluster beside one of GPUs on each host.
        self.clusters_in_hosts = len(places) == len(tree.clusters) > len(tree.hosts)
        self.levels: tuple[str, ...] = (
            ("pair", "cluster", "host", "all") if self.clusters_in_hosts else LEVELS
        )
        self._ascending = list(tree.order) == sorted(tree.order)
        self._found: dict[tuple[int, ...], tuple[Reach, list[int]]] = {}

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return max(self._hosts) + 1

    @property
    def inside(self) -> str:
        """The level at which the ranks of a host share what arrives from other hosts."""
        return "cluster" if self.clusters_in_hosts else "host"

    def find(self, degrees: Degrees) -> dict[str, Reach]:
        """The reach of each group of a Peers, by the name of its field."""
        chain = (degrees.weights, degrees.gradients, degrees.optimizer_states, degrees.size)
        names = ("weights", "gradients", "optimizer_states", "replicas")
        found = {name: self._step(chain[: end + 1])[0] for end, name in enumerate(names)}
        if degrees.secondary:
            found["secondary"] = self._step((degrees.secondary,))[0]
        return found

    def _step(self, chain: tuple[int, ...]) -> tuple[Reach, list[int]]:
        """The groups of the last degree of `chain`, and which part each position has after it.

        Groups are those of find_place: in each block of `chain[-1]` neighbours, the ranks that
        had the same part after the steps before.
        """
        if self._ascending:
            chain = chain[-2:]  # then the part is the position in the block, whatever came before
        if chain not in self._found:
            inner, before = 1, [0] * self.tree.size
            if len(chain) > 1:
                inner, before = chain[-2], self._step(chain[:-1])[1]
            self._found[chain] = self._split(inner, chain[-1], before)
        return self._found[chain]

    def _split(self, inner: int, outer: int, before: list[int]) -> tuple[Reach, list[int]]:
        after = [0] * self.tree.size
        level, gathers, reduces = 0, [0.0] * self.hosts, [0.0] * self.hosts
        for start in range(0, self.tree.size, outer):
            groups: list[list[int]] = [[] for _ in range(inner)]
            block: Sequence[int] = range(start, start + outer)
            if not self._ascending:
                block = sorted(block, key=self.tree.order.__getitem__)
            for position in block:
                group = groups[before[position]]
                after[position] = before[position] + inner * len(group)
                group.append(position)
            for group in groups if outer > inner else ():
                level = max(level, self.levels.index(self._level_of(group)))
                self._count(group, gathers, reduces)
        reach = Reach(outer // inner, self.levels[level], tuple(gathers), tuple(reduces))
        return reach, after

    def _level_of(self, group: Sequence[int]) -> str:
        def shared(numbers: Sequence[object]) -> bool:
            return len(set(map(numbers.__getitem__, group))) == 1

        one_host, one_cluster = shared(self._host_runs), shared(self._cluster_runs)
        if one_host and one_cluster:
            if self._pairs[0] is not None and len(group) <= 2 and shared(self._pairs):
                return "pair"
            return self.inside
        return "host" if one_host else "cluster" if one_cluster else "all"

    def _count(self, group: Sequence[int], gathers: list[float], reduces: list[float]) -> None:
        here = Counter(map(self._hosts.__getitem__, group))
        if len(here) < 2:
            return
        for host, ranks in here.items():
            gathers[host] += ranks / len(group) * (len(here) - 1)
            reduces[host] += (len(group) - ranks) / len(group)
