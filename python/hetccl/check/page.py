"""The page of a check."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hetccl import pages
from hetccl.check import graph, text
from hetccl.check.findings import Finding
from hetccl.check.graph import Hosts
from hetccl.units import bandwidth, binary_size, duration, ranges

Ends = tuple[int, int]  # of a link: places of the map
MOST_PLACES = 64  # of a heat map; of more, those with the slowest links
_MOST_NUMBERS = 24  # with more places a cell shows its number in its title alone


@dataclass(frozen=True)
class Cell:
    """One place of a heat map. `heat` is from 0, the worst, to 1, the best; -1 is no value."""

    label: str
    title: str
    heat: float


@dataclass(frozen=True)
class HeatMap:
    """Rows are sources, columns targets."""

    title: str
    places: list[str]
    rows: list[list[Cell]]
    has_numbers: bool
    left_out: int


def _heat(ratio: float) -> float:
    """Returns how good a link is, from 1 (as fast as the best link of its kind) to 0 (a tenth of
    that or less), for its colour.
    """
    return round(min(1.0, max(0.0, 1 + math.log10(max(ratio, 1e-9)))), 2)


def _three_digits(value: float) -> str:
    """Returns a number with three digits, such as "0.0397", "12.3", "1270"."""
    return f"{float(f'{value:.3g}'):g}"


def _places(document: dict[str, Any], hosts: Hosts) -> tuple[list[str], Callable[[int], int]]:
    """Names of the map's rows, and which is a rank's: ranks where every pair was measured."""
    if document["every_pair"]:
        return [hosts.rank(rank) for rank in range(len(document["ranks"]))], lambda rank: rank
    return [hosts.name(number) for number in hosts.numbers], hosts.of


def _draw(
    title: str, names: list[str], cells: dict[Ends, Cell], shown: list[int]
) -> HeatMap:  # fmt: skip
    empty = Cell("", "", -1.0)
    rows = [[cells.get((source, target), empty) for target in shown] for source in shown]
    places = [names[place] for place in shown]
    return HeatMap(title, places, rows, len(shown) <= _MOST_NUMBERS, len(names) - len(shown))


def _keep_slowest(heats: dict[Ends, float]) -> list[int]:
    """Returns the places of a map, ascending; those of the slowest links if there are too many."""
    of_place: dict[int, list[float]] = {}
    for ends, heat in heats.items():
        for place in ends:
            of_place.setdefault(place, []).append(heat)
    slowest = sorted(of_place, key=lambda place: sum(of_place[place]) / len(of_place[place]))
    return sorted(slowest[:MOST_PLACES])


def heat_maps(document: dict[str, Any]) -> list[HeatMap]:
    """Returns maps of bandwidth and latency of all measured links; none if there are no links."""
    hosts, every = Hosts(document), graph.links(document)
    if not every:
        return []
    names, place_of = _places(document, hosts)
    beside = graph.ratios(every)
    rates: dict[Ends, Cell] = {}
    times: dict[Ends, Cell] = {}
    for link in sorted(every, key=lambda one: -one.mbps):  # of several the slowest stays
        ends = place_of(link.source), place_of(link.target)
        name = f"{names[ends[0]]} to {names[ends[1]]}"
        of = f" of {bandwidth(link.expected)}" if link.expected else ""
        rate, latency = beside[link.source, link.target]
        text_of_rate = f"{name}: {graph.speed_text(link.mbps)}{of}"
        rates[ends] = Cell(_three_digits(link.mbps / 1000), text_of_rate, _heat(rate))
        text_of_time = f"{name}: {duration(link.seconds)}"
        times[ends] = Cell(_three_digits(link.seconds * 1e6), text_of_time, _heat(latency))
    shown = _keep_slowest({ends: cell.heat for ends, cell in rates.items()})
    return [
        _draw("Bandwidth in Gbit/s, from the row to the column", names, rates, shown),
        _draw("Latency of 8 bytes, one way, in us", names, times, shown),
    ]


def _host_rows(document: dict[str, Any]) -> list[dict[str, str]]:
    hosts = Hosts(document)
    rows = []
    for rank, one in hosts.first_ranks():
        number = hosts.of(rank)
        devices = dict.fromkeys(document["ranks"][r]["device"] for r in hosts.ranks_of(number))
        cards = ", ".join(
            f"{card['name']} {graph.speed_text(card['mbps']) if card['mbps'] else '?'} MTU "
            f"{card['mtu']}"
            for card in one["interfaces"]
        )
        limits = [f"files {one['nofile']}" if one["nofile"] >= 0 else "files unlimited"]
        limits.append(
            f"memlock {binary_size(one['memlock'])}" if one["memlock"] >= 0 else "memlock unlimited"
        )
        rows.append({
            "host": hosts.name(number), "ranks": ranges(hosts.ranks_of(number)),
            "devices": ", ".join(devices), "hetccl": one["version"], "cards": cards,
            "transports": ", ".join(one["transports"]), "limits": ", ".join(limits),
            "system": f"Linux {one['kernel']}, Python {one['python']}"
            + (f", torch {one['torch']}" if one["torch"] else ""),
        })  # fmt: skip
    return rows


def render(document: dict[str, Any], found: Sequence[Finding]) -> str:
    """The page."""
    return pages.render(
        "check", "check/page.html", heading="hetccl check", verdict=text.verdict(found),
        subtitle=text.subtitle(document), findings=found, maps=heat_maps(document),
        collectives=text.collectives(document), hosts=_host_rows(document),
    )  # fmt: skip
