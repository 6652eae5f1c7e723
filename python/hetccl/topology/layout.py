"""Topologies made without a cluster, to plan on a laptop: "A8B8", two vendors, NICs of 400G."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetccl.topology.cards import default_mbps

_LIBRARIES = {"host": "host", "cuda": "nccl", "hip": "rccl"}
_MAX_RANKS = 65_536


class LayoutError(ValueError):
    """A layout that says nothing or too much; the text says which part."""


@dataclass(frozen=True)
class Layout:
    """`groups` has a letter for each rank. A letter's ranks fill `hosts` hosts of `nics` cards.

    A card is next to one GPU, in their order, and equally near to all ranks on CPUs.
    """

    groups: str
    hosts: int = 1
    kinds: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # letter: (vendor, model)
    mbps: Mapping[str, int] = field(
        default_factory=dict
    )  # letter or "": a card's; see default_mbps
    nics: int | None = None  # None: one for each GPU; one that a host's CPU ranks share
    together: bool = False  # letters share hosts


def parse_groups(text: str) -> str:
    """ "AABB" as it is, "A2B2" spelt out."""
    if not re.fullmatch(r"([A-Za-z]\d*)+", text):
        raise LayoutError(f"{text!r} is no layout: write a letter for each rank, AABB or A8B8")
    runs = [(letter, int(times or 1)) for letter, times in re.findall(r"([A-Za-z])(\d*)", text)]
    if not 1 <= sum(times for _, times in runs) <= _MAX_RANKS:
        raise LayoutError(f"{text!r} has no rank, or more than {_MAX_RANKS}")
    return "".join(letter * times for letter, times in runs)


def parse_bandwidth(text: str) -> int:
    """Mbit/s of "400G", "2.5G" or "100M"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([MG])", text.strip(), re.IGNORECASE)
    if not match:
        raise LayoutError(f"{text!r} is no bandwidth: write 100M, 2.5G or 400G")
    return round(float(match[1]) * (1000 if match[2].upper() == "G" else 1))


def _lettered(texts: list[str], letters: str, option: str) -> dict[str, str]:
    """["A=x", "y"] as {"A": "x", "": "y"}."""
    found = {}
    for text in texts:
        letter, equals, value = text.rpartition("=")
        if equals and letter not in letters:
            raise LayoutError(f"{option} {text}: no rank of the layout is {letter!r}")
        found[letter] = value
    return found


def parse(
    groups: str, hosts: int = 1, kinds: list[str] | None = None, nics: list[str] | None = None,
    cards: int | None = None, together: bool = False,
) -> Layout:  # fmt: skip
    """From the command line's words: `kinds` "A=cuda:H100", `nics` "400G" or "B=25G"."""
    spelt = parse_groups(groups)
    vendors = {}
    for letter, text in _lettered(kinds or [], spelt, "--kind").items():
        vendor, _, model = text.partition(":")
        if not vendor:
            raise LayoutError("--kind takes VENDOR, VENDOR:MODEL or LETTER=VENDOR:MODEL")
        vendors[letter] = (vendor, model)
    speeds = _lettered(nics or [], spelt, "--nic")
    return Layout(
        spelt, hosts, vendors,
        {letter: parse_bandwidth(text) for letter, text in speeds.items()}, cards, together,
    )  # fmt: skip


def to_json(layout: Layout) -> str:
    """What the layout's ranks would say of themselves: a text for hetcclTopologyDescribe."""
    places = [letter if not layout.together else "" for letter in layout.groups]
    per_host = {place: -(-total // layout.hosts) for place, total in Counter(places).items()}
    taken: Counter[str] = Counter()
    ranks = []
    for rank, (letter, place) in enumerate(zip(layout.groups, places, strict=True)):
        host, slot = divmod(taken[place], per_host[place])
        taken[place] += 1
        vendor, model = layout.kinds.get(letter, layout.kinds.get("", ("host", "")))
        name = f"{place.lower() or 'node'}{host}"
        given = layout.mbps.get(letter, layout.mbps.get(""))
        mbps = default_mbps(vendor, model) if given is None else given
        cards = layout.nics or (1 if vendor == "host" else per_host[place])
        # A GPU uses the card next to it, or any from further away: the others need no mention.
        near = range(cards) if vendor == "host" else [slot] if slot < cards else []
        ranks.append(
            {
                "rank": rank,
                "host": name,
                "host_name": name,
                "vendor": vendor,
                "model": model,
                "architecture": model if vendor == "hip" else "",
                "library": _LIBRARIES.get(vendor, vendor),
                # Hosts are one cluster unless told apart; vendors are apart anyway.
                "label": letter if layout.together and vendor == "host" else "",
                "nics": [
                    {"name": f"nic{n}", "mbps": mbps, "distance": 0 if near else 1}
                    for n in near or [0]
                ],
            }
        )
    return json.dumps({"ranks": ranks})
