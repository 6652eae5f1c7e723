"""A check on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hetccl.check import graph
from hetccl.check.findings import ERROR, WARNING, Finding
from hetccl.units import binary_size, counted, duration

_STYLES = {ERROR: "bold red", WARNING: "bold yellow"}


def verdict(found: Sequence[Finding]) -> str:
    """One line."""
    numbers = Counter(one.severity for one in found)
    parts = [counted(numbers[kind], kind) for kind in (ERROR, WARNING) if numbers[kind]]
    return ", ".join(parts) if parts else "nothing is wrong"


def subtitle(document: dict[str, Any]) -> str:
    """Returns a line that names the parts of the check."""
    ranks, hosts = len(document["ranks"]), len(document["hosts"])
    sizes = f"{counted(ranks, 'rank')} on {counted(hosts, 'host')}"
    if document["stopped"]:
        return f"{sizes}; no communicator was made, since {document['stopped']}"
    links = graph.links(document)
    if not links:
        return sizes
    how = "every pair of ranks" if document["every_pair"] else "a pair of ranks for two hosts"
    return f"{sizes}; {counted(len(links) // 2, 'link')}: {how}"


def collectives(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Call, bytes, the slowest rank's time, bus bandwidth, wrong elements of all ranks."""
    calls: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
    for result in document["results"]:
        for one in (result or {}).get("collectives", ()):
            key = one["operation"], one["bytes"], one["in_place"]
            calls.setdefault(key, []).append(one)
    rows: list[tuple[str, ...]] = []
    for (operation, size, in_place), listed in calls.items():
        name = f"{operation}{', in place' if in_place else ''}"
        if any("absent" in one for one in listed):
            rows.append((name, binary_size(size), "cannot be done here", "", ""))
            continue
        seconds = max(one["seconds"] for one in listed)
        bus = size / seconds / 1e9 * listed[0]["bus_factor"] if seconds else 0.0
        wrong = sum(one["wrong"] for one in listed)
        rows.append((name, binary_size(size), duration(seconds), f"{bus:.3g} GB/s", str(wrong)))
    return rows


def _links(document: dict[str, Any]) -> list[str]:
    """A line for links inside hosts, and one for those between."""
    lines = []
    every = graph.links(document)
    for inside, name in ((True, "inside hosts"), (False, "between hosts")):
        mine = [link for link in every if link.inside == inside]
        if mine:
            slowest, fastest = min(one.mbps for one in mine), max(one.mbps for one in mine)
            times = [one.seconds for one in mine]
            lines.append(
                f"{counted(len(mine) // 2, 'link')} {name}: {graph.speed_text(slowest)} to "
                f"{graph.speed_text(fastest)}, {duration(min(times))} to {duration(max(times))}"
            )
    return lines


def show(
    document: dict[str, Any], found: Sequence[Finding], console: Console | None = None
) -> None:
    """Findings with their remedies, and the verdict."""
    console = console or Console()
    console.print(Text(subtitle(document)), soft_wrap=True)
    for line in _links(document):
        console.print(Text(line), soft_wrap=True)
    for one in found:
        style = _STYLES.get(one.severity, "bold")
        console.print(Text.assemble((one.severity, style), ": ", one.text), soft_wrap=True)
        console.print(Text(f"  remedy: {one.remedy}", style="dim"), soft_wrap=True)
    console.print(Text(f"hetccl check: {verdict(found)}", style="bold"), soft_wrap=True)
