"""The hosts and links of a check, and which links are slow."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hetccl.units import bandwidth, counted, duration, ranges

# A link is slow below these parts: of the best link of its kind between hosts; of the median link
# inside hosts, where cores are shared.
_SLOW, _SLOW_INSIDE = 0.5, 0.33
_SHORT = 0.5  # of what a card should carry
_LATE, _LATE_BY = 5.0, 1e-3  # times the median latency, and seconds more
_MOST = 8  # links that are named one by one
_MOST_REPEATED = 12  # pairs


class Hosts:
    """The names of hosts and ranks, and the host of each rank."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._ranks: list[dict[str, Any] | None] = document["ranks"]
        self._members: list[list[int]] = document["hosts"]
        self._of = {rank: number for number, ranks in enumerate(self._members) for rank in ranks}
        names = [(self._ranks[ranks[0]] or {}).get("name", "?") for ranks in self._members]
        twice = Counter(names)
        self._names = [
            name if twice[name] == 1 else f"{name} ({self._address(number)})"
            for number, name in enumerate(names)
        ]

    @property
    def numbers(self) -> range:
        """All hosts."""
        return range(len(self._members))

    def _address(self, number: int) -> str:
        first = self._ranks[self._members[number][0]] or {}
        return str(next(iter(first.get("addresses", ())), f"host {number}"))

    def of(self, rank: int) -> int:
        """Returns a rank's host; -1 if the rank has not joined."""
        return self._of.get(rank, -1)

    def name(self, number: int) -> str:
        """Returns a host's name for people, with an address if another host has the same name."""
        return self._names[number]

    def ranks_of(self, number: int) -> list[int]:
        """The ranks of a host."""
        return self._members[number]

    def rank(self, rank: int) -> str:
        """Returns a rank's name for people, such as "rank 3 on alpha"."""
        host = self.of(rank)
        return f"rank {rank} on {self._names[host]}" if host >= 0 else f"rank {rank}"

    def several(self, ranks: Sequence[int]) -> str:
        """Returns a name for several ranks, such as "ranks 2-3 on beta"."""
        numbers = sorted({self.of(rank) for rank in ranks} - {-1})
        where = ", ".join(self.name(number) for number in numbers[:_MOST])
        more = f" and {len(numbers) - _MOST} more hosts" if len(numbers) > _MOST else ""
        on = f" on {where}{more}" if where else ""
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}{on}"

    def present(self, host: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Ranks that have come, and their facts; those of one host alone."""
        for rank, one in enumerate(self._ranks):
            if one is not None and host in (None, self.of(rank)):
                yield rank, one

    def first_ranks(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Returns the first rank of each host."""
        for ranks in self._members:
            one = self._ranks[ranks[0]]
            if one is not None:
                yield ranks[0], one


@dataclass(frozen=True)
class Link:
    """A link from one rank to another. `expected` is the rate that the slower side's card should
    carry, in Mbit/s; 0 if unknown. Links inside a host have no expectation.
    """

    source: int
    target: int
    mbps: float
    seconds: float  # of a message of 8 bytes
    inside: bool
    expected: int
    kind: tuple[Any, ...]  # links that should be alike


def _cards(topology: dict[str, Any]) -> dict[int, tuple[int, str]]:
    """Returns, by rank, the Mbit/s and the name of its fastest card."""
    found: dict[int, tuple[int, str]] = {}
    for cluster in topology["clusters"]:
        for rank, names in zip(cluster["ranks"], cluster["cards"], strict=True):
            cards = [nic for nic in topology["ranks"][rank]["nics"] if nic["name"] in names]
            found[rank] = max(((nic["mbps"], nic["name"]) for nic in cards), default=(0, ""))
    return found


def links(document: dict[str, Any]) -> list[Link]:
    """The measured links, one for each direction."""
    topology = document["topology"]
    if not topology:
        return []
    host_of = Hosts(document).of
    cards, vendors = _cards(topology), [one["vendor"] for one in topology["ranks"]]
    found = []
    for rank, result in enumerate(document["results"]):
        for one in (result or {}).get("links", ()):
            peer = one["peer"]
            inside = host_of(rank) == host_of(peer)
            expected = 0 if inside else min(cards[rank][0], cards[peer][0])
            kind = (inside, expected, tuple(sorted((vendors[rank], vendors[peer]))))
            found.append(
                Link(rank, peer, one["rate"] * 8 / 1e6, one["seconds"], inside, expected, kind)
            )
    return found


def find_slow(
    every: Sequence[Link], hosts: Hosts, slow_ranks: set[int]
) -> Iterator[tuple[str, str]]:
    """Returns the slow links, each with a remedy. Leaves out links of ranks that are slow
    themselves.
    """
    for alike in _by_kind(link for link in every if not slow_ranks & {link.source, link.target}):
        best = max(link.mbps for link in alike)
        yield from _find_slow_links(alike, best, hosts)
        yield from _slower_than_others(_slow(alike), alike, best, hosts)
        yield from _name_late(
            _late(alike), statistics.median(link.seconds for link in alike), hosts
        )


def ratios(every: Sequence[Link]) -> dict[tuple[int, int], tuple[float, float]]:
    """By source and target: bandwidth and latency, beside the best of links like it: 1 is best."""
    found = {}
    for alike in _by_kind(every):
        fastest = max(link.mbps for link in alike)
        shortest = min(link.seconds for link in alike)
        for link in alike:
            found[link.source, link.target] = link.mbps / fastest, shortest / link.seconds
    return found


def suspects(document: dict[str, Any]) -> list[tuple[int, int]]:
    """Pairs of ranks whose links seem slow, the slowest first: a few."""
    found: dict[tuple[int, int], float] = {}
    for alike in _by_kind(links(document)):
        best = max(link.mbps for link in alike)
        for link in (*_slow(alike), *_late(alike)):
            pair = min(link.source, link.target), max(link.source, link.target)
            found[pair] = min(found.get(pair, 1.0), link.mbps / best)
    return sorted(found, key=lambda pair: found[pair])[:_MOST_REPEATED]


def _by_kind(every: Iterable[Link]) -> Iterable[list[Link]]:
    kinds: dict[tuple[Any, ...], list[Link]] = {}
    for link in every:
        kinds.setdefault(link.kind, []).append(link)
    return kinds.values()


def _slow(alike: Sequence[Link]) -> list[Link]:
    rates = [link.mbps for link in alike]
    least = _SLOW_INSIDE * statistics.median(rates) if alike[0].inside else _SLOW * max(rates)
    return [link for link in alike if link.mbps < least]


def _late(alike: Sequence[Link]) -> list[Link]:
    usual = statistics.median(link.seconds for link in alike)
    return [link for link in alike if link.seconds > _LATE * usual + _LATE_BY]


def _find_slow_links(alike: Sequence[Link], best: float, hosts: Hosts) -> Iterator[tuple[str, str]]:
    expected = alike[0].expected
    if expected and best < _SHORT * expected:
        names = sorted({hosts.name(hosts.of(link.source)) for link in alike})
        where = f"{names[0]} and {names[1]}" if len(names) == 2 else f"{len(names)} hosts"
        yield (
            f"between {where}: at most {speed_text(best)}, {best / expected:.0%} of the "
            f"{bandwidth(expected)} that the cards should carry",
            "compare with iperf3 between two of the hosts; look at the port's speed (ethtool), "
            "cable, MTU; where a driver states a wrong rate, set HETCCL_CARD_MBPS",
        )


def _slower_than_others(
    slow: list[Link], alike: Sequence[Link], best: float, hosts: Hosts
) -> Iterator[tuple[str, str]]:
    if slow and not slow[0].inside:
        for number, way in _slow_hosts(slow, alike, hosts):
            mine = {
                link for link in slow if number in (hosts.of(link.source), hosts.of(link.target))
            }
            if not mine:  # told of with the hosts before
                continue
            worst = min(link.mbps for link in mine)
            yield (
                f"{hosts.name(number)}: all links {way} are slow: {speed_text(worst)}, and up to "
                f"{speed_text(best)} elsewhere",
                "look at that host's card, cable, port and driver (ethtool, ip -s link), and for "
                "other traffic",
            )
            slow = [link for link in slow if link not in mine]
    for link in sorted(slow, key=lambda one: one.mbps)[:_MOST]:
        yield (
            f"from {hosts.rank(link.source)} to {hosts.rank(link.target)}: {speed_text(link.mbps)}"
            f", and up to {speed_text(best)} on links like it",
            "look for other programs on the host, and which cores and memory the ranks have"
            if link.inside else "look at the switches and routes between the two, and for other "
            "traffic",
        )  # fmt: skip
    if len(slow) > _MOST:
        yield f"{counted(len(slow) - _MOST, 'link')} more are slow", "the page shows them all"


def _slow_hosts(
    slow: Sequence[Link], alike: Sequence[Link], hosts: Hosts
) -> Iterator[tuple[int, str]]:
    """Hosts all of whose links one way, or both, are slow, where another host's are not."""
    bad = set(slow)
    for number in hosts.numbers:
        out = [link for link in alike if hosts.of(link.source) == number]
        into = [link for link in alike if hosts.of(link.target) == number]
        if len({hosts.of(link.target) for link in out}) < 2:
            continue
        ways = [all(link in bad for link in listed) for listed in (out, into)]
        if any(ways):
            yield number, "to and from it" if all(ways) else "from it" if ways[0] else "to it"


def _name_late(late: list[Link], usual: float, hosts: Hosts) -> Iterator[tuple[str, str]]:
    pairs = [link for link in late if link.source < link.target]
    for link in sorted(pairs, key=lambda one: -one.seconds)[:1]:
        others = f", and {counted(len(pairs) - 1, 'other link')}" if len(pairs) > 1 else ""
        yield (
            f"between {hosts.rank(link.source)} and {hosts.rank(link.target)}{others}: a short "
            f"message takes {duration(link.seconds)}, and {duration(usual)} on most links like it",
            "look for busy cores, power saving of the processor or card, and the route",
        )


def speed_text(mbps: float) -> str:
    """Mbit/s in three digits."""
    return bandwidth(max(1, int(float(f"{mbps:.3g}"))))
