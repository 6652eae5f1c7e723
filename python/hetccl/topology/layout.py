"""Topologies made without a cluster, to plan on a laptop: "A8B8", two vendors, NICs of 400G."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetccl import _lib
from hetccl.topology.cards import default_mbps, known_models, vendor_of

_LIBRARIES = {"cuda": "nccl", "hip": "rccl", "host": "host"}
_GPUS = {"cuda", "hip"}
_MAX_RANKS = 65_536
# Memory for collectives that the first communicator of a process shares with others of its host: a
# third of the budget (src/comm/window_budget.cc), less a fifth for messages
# (src/lower/target.cc).
_WINDOW_BYTES = (96 << 20) // 3 // 5 * 4


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

    @property
    def without_kind(self) -> str:
        """The letters that are hosts since only others were given a kind."""
        if not self.kinds or "" in self.kinds:
            return ""
        return "".join(sorted(set(self.groups) - set(self.kinds)))


def parse_groups(text: str) -> str:
    """Returns the groups spelt out: "AABB" for "A2B2"."""
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
    """Returns {"A": "x", "": "y"} for ["A=x", "y"]."""
    found = {}
    for text in texts:
        letter, equals, value = text.rpartition("=")
        if equals and letter not in letters:
            raise LayoutError(f"{option} {text}: no rank of the layout is {letter!r}")
        found[letter] = value
    return found


def adaptor_vendors() -> list[str]:
    """The devices of the adaptors that HETCCL_ADAPTORS names."""
    if not os.environ.get("HETCCL_ADAPTORS"):
        return []
    devices = json.loads(_lib.info())["devices"]
    return sorted({one["vendor"] for one in devices} - set(_LIBRARIES))


def unknown_vendor(vendor: str, others: list[str]) -> str:
    """Returns the error text for a vendor that is neither hetccl's own nor one of `others`, which
    adaptors provide.
    """
    known = ", ".join([*_LIBRARIES, *others])
    text = f"there is no vendor {vendor!r}: give {known}, or a device of an adaptor"
    text += " that HETCCL_ADAPTORS names (hetccl info lists them)"
    maker = vendor_of(vendor)
    return f"{text}; a model follows its vendor: {maker}:{vendor}" if maker else text


def _parse_kind(text: str) -> tuple[str, str]:
    """Returns the vendor and the model of "cuda:H100" or "cuda". Raises LayoutError if one is not
    known.
    """
    vendor, colon, model = text.partition(":")
    if not vendor:
        raise LayoutError("--kind takes VENDOR, VENDOR:MODEL or LETTER=VENDOR:MODEL")
    if vendor not in _LIBRARIES:
        others = adaptor_vendors()
        if vendor not in others:
            raise LayoutError(f"--kind {text}: {unknown_vendor(vendor, others)}")
        return vendor, model
    if colon and vendor_of(model) != vendor:
        known = known_models(vendor)
        raise LayoutError(
            f"--kind {text}: {vendor} has no model {model!r} that is known: give "
            + (f"{known}; or {vendor} alone, for another" if known else f"{vendor} alone")
        )
    return vendor, model


def parse(
    groups: str, hosts: int = 1, kinds: list[str] | None = None, nics: list[str] | None = None,
    cards: int | None = None, together: bool = False,
) -> Layout:  # fmt: skip
    """From the command line's words: `kinds` "A=cuda:H100", `nics` "400G" or "B=25G"."""
    spelt = parse_groups(groups)
    given = _lettered(kinds or [], spelt, "--kind")
    vendors = {letter: _parse_kind(text) for letter, text in given.items()}
    speeds = _lettered(nics or [], spelt, "--nic")
    return Layout(
        spelt, hosts, vendors,
        {letter: parse_bandwidth(text) for letter, text in speeds.items()}, cards, together,
    )  # fmt: skip


def to_json(layout: Layout) -> str:
    """Returns the descriptions that the layout's ranks would give of themselves, as a text for
    hetcclTopologyDescribe.
    """
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
                "host_access": vendor not in _GPUS,
                "window_bytes": _WINDOW_BYTES,
                # Hosts are one cluster unless told apart; vendors are apart anyway.
                "label": letter if layout.together and vendor == "host" else "",
                "nics": [
                    {"name": f"nic{n}", "mbps": mbps, "distance": 0 if near else 1}
                    for n in near or [0]
                ],
            }
        )
    return json.dumps({"ranks": ranks})
