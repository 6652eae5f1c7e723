"""A topology on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hetccl.drawing import colour_of
from hetccl.topology.graph import Cluster, Rank, Topology
from hetccl.units import bandwidth, counted, ranges

_PAIRS = 15  # links that are listed one by one; more are listed by line
_ROWS = 16  # of one cluster on one host


def _cards(cluster: Cluster, rank: Rank) -> str:
    return ", ".join(f"{nic.name} {bandwidth(nic.mbps)}" for nic in cluster.cards[rank.rank])


def _facts(cluster: Cluster, rank: Rank) -> tuple[str, str, str]:
    model = rank.model or rank.architecture
    return model, cluster.share_of(rank.rank), _cards(cluster, rank)


def _rows(cluster: Cluster, ranks: list[Rank]) -> Iterator[tuple[str, ...]]:
    """Ranks that are alike and neighbours in one row."""
    for facts, alike in groupby(ranks, key=lambda rank: _facts(cluster, rank)):
        yield ranges([rank.rank for rank in alike]), *facts


def _part(cluster: Cluster, ranks: list[Rank], show_all: bool) -> RenderableType:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("rank", "model", "carries", "by card"):
        table.add_column(column)
    rows = list(_rows(cluster, ranks))
    for row in rows if show_all else rows[:_ROWS]:
        numbers, model, share, cards = map(Text, row)
        table.add_row(numbers, model, share or Text("-", style="dim"), cards)
    if len(rows) > _ROWS and not show_all:
        return Group(table, Text(f"and {len(rows) - _ROWS} rows more: --all", style="dim"))
    return table


def _heading(cluster: Cluster, first: Rank) -> Text:
    library = f"{first.library} {first.library_version}".strip()
    facts = [cluster.vendor, *([f"library {library}"] if library != cluster.vendor else [])]
    if cluster.label:
        facts.append(f'label "{cluster.label}"')
    name = Text(f"cluster {cluster.number}", style=f"bold {colour_of(cluster.number)}")
    return Text.assemble(name, "  ", ", ".join(facts))


def _links(topology: Topology) -> Table:
    table = Table(title="Between clusters", title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in ("clusters", "by", "bandwidth"):
        table.add_column(column)
    if len(topology.links) <= _PAIRS:
        for link in topology.links:
            speed = "" if link.kind == "shm" else bandwidth(link.mbps)
            table.add_row(f"{link.a} - {link.b}", link.kind, speed)
        return table
    for line in topology.lines():
        speed = "" if line.kind == "shm" else bandwidth(line.mbps)
        table.add_row(f"any two of {ranges(line.clusters)}", line.kind, speed)
    table.caption = "two clusters use the first line that names both"
    return table


def show(topology: Topology, console: Console | None = None, show_all: bool = False) -> None:
    """Prints hosts with their clusters and ranks, then the links between clusters."""
    console = console or Console()
    hosts = topology.hosts
    sizes = (
        (len(topology.ranks), "rank"),
        (len(hosts), "host"),
        (len(topology.clusters), "cluster"),
    )
    console.print(Text(", ".join(counted(*size) for size in sizes), style="bold"))
    for host, name in hosts.items():
        tree = Tree(Text.assemble("host ", (name, "bold")), guide_style="dim")
        for cluster, ranks in topology.parts(host):
            branch = tree.add(_heading(cluster, ranks[0]))
            branch.add(_part(cluster, ranks, show_all))
        console.print(tree)
    if topology.links:
        console.print()
        console.print(_links(topology))
