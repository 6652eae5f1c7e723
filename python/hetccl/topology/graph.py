"""The topology's JSON as values, and properties that its views derive from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hetccl.units import bandwidth


@dataclass(frozen=True)
class Nic:
    """A network card, as one rank sees it."""

    name: str
    mbps: int = 0  # 0: unknown
    distance: int = 0


@dataclass(frozen=True)
class Rank:
    """The description that one rank gives of itself."""

    rank: int
    host: str
    host_name: str
    vendor: str
    model: str
    architecture: str
    library: str
    library_version: str
    label: str
    nics: tuple[Nic, ...]


@dataclass(frozen=True)
class Cluster:
    """Ranks that one vendor's library joins. By rank: `shares`, each border rank's part, and the
    `cards` by which it sends and receives, fastest first."""

    number: int
    vendor: str
    label: str
    ranks: tuple[int, ...]
    shares: dict[int, int]
    cards: dict[int, tuple[Nic, ...]]

    def share_of(self, rank: int) -> str:
        """ "1/4", or "" where the rank carries nothing to other clusters."""
        if rank not in self.shares:
            return ""
        return f"{self.shares[rank]}/{sum(self.shares.values())}"


@dataclass(frozen=True)
class Link:
    """The link between two clusters."""

    a: int
    b: int
    kind: str
    mbps: int

    @property
    def text(self) -> str:
        """ "tcp 10 Gbit/s"."""
        return link_text(self.kind, self.mbps)


@dataclass(frozen=True)
class Line:
    """Clusters of which any two are joined alike; they use the first line that they share."""

    kind: str
    mbps: int
    clusters: tuple[int, ...]

    @property
    def text(self) -> str:
        """ "tcp 10 Gbit/s"."""
        return link_text(self.kind, self.mbps)


@dataclass(frozen=True)
class Topology:
    """The graph that all ranks agree on."""

    ranks: tuple[Rank, ...]
    clusters: tuple[Cluster, ...]
    links: tuple[Link, ...]

    @property
    def hosts(self) -> dict[str, str]:
        """Each host's identity and a short name, unlike the others', in order of first rank."""
        names = {rank.host: rank.host_name or rank.host for rank in self.ranks}
        twice = Counter(names.values())
        numbers: Counter[str] = Counter()
        for host, name in names.items():
            if twice[name] > 1:
                numbers[name] += 1
                names[host] = f"{name} ({numbers[name]})"
        return names

    def parts(self, host: str) -> list[tuple[Cluster, list[Rank]]]:
        """The clusters that have ranks on `host`, with those ranks."""
        found = []
        for cluster in self.clusters:
            here = [self.ranks[rank] for rank in cluster.ranks if self.ranks[rank].host == host]
            if here:
                found.append((cluster, here))
        return found

    def lines(self) -> list[Line]:
        """The links, fastest first, drawn together where all pairs of some clusters are alike.

        A link's bandwidth is the slower side's, so the clusters that reach each other at a speed
        or faster include all that a faster line joins: at most one line for each cluster.
        """
        slowest: dict[tuple[str, int], list[Link]] = {}
        for link in self.links:
            slowest.setdefault((link.kind, link.mbps), []).append(link)
        fastest_first = sorted(slowest, key=lambda kind: (kind[0] != "shm", kind[0], -kind[1]))
        return [
            Line(kind, mbps, group)
            for kind, mbps in fastest_first
            for group in _joined(slowest[kind, mbps])
        ]


def _joined(links: Iterable[Link]) -> list[tuple[int, ...]]:
    """The connected groups of clusters, ascending."""
    group_of: dict[int, set[int]] = {}
    for link in links:
        merged = group_of.get(link.a, {link.a}) | group_of.get(link.b, {link.b})
        for cluster in merged:
            group_of[cluster] = merged
    return sorted({tuple(sorted(group)) for group in group_of.values()})


def link_text(kind: str, mbps: int) -> str:
    """Returns a link for people: "tcp 10 Gbit/s". The speed of shared memory is unknown."""
    return kind if kind == "shm" else f"{kind} {bandwidth(mbps)}"


def _card(rank: Rank, name: str) -> Nic:
    """Returns a card's row. If the card has several addresses, the fastest counts."""
    return max((nic for nic in rank.nics if nic.name == name), key=lambda nic: nic.mbps)


def parse(text: str) -> Topology:
    """Reads the result of hetcclTopologyDescribe or hetcclCommGetTopology, which is complete."""
    raw: dict[str, Any] = json.loads(text)
    ranks = tuple(
        Rank(
            nics=tuple(Nic(nic["name"], nic["mbps"], nic["distance"]) for nic in rank["nics"]),
            **{key: rank[key] for key in Rank.__dataclass_fields__ if key != "nics"},
        )
        for rank in raw["ranks"]
    )
    clusters = tuple(
        Cluster(
            number, cluster["vendor"], cluster["label"], tuple(cluster["ranks"]),
            {
                cluster["ranks"][position]: share
                for position, share in zip(cluster["border"], cluster["shares"], strict=True)
            },
            {
                rank: tuple(_card(ranks[rank], name) for name in names)
                for rank, names in zip(cluster["ranks"], cluster["cards"], strict=True)
            },
        )
        for number, cluster in enumerate(raw["clusters"])
    )  # fmt: skip
    links = tuple(Link(link["a"], link["b"], link["kind"], link["mbps"]) for link in raw["links"])
    return Topology(ranks, clusters, links)
