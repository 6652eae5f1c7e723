"""A topology as a picture: hosts one below the other, and at their right the links between
clusters.
"""

from __future__ import annotations

from itertools import pairwise

from hetccl.drawing import Drawing, colour_of, text_width
from hetccl.topology.graph import Cluster, Line, Rank, Topology
from hetccl.units import bandwidth, counted

_MARGIN = 16.0
_WIDTH = 430.0  # of a host
_CHIP, _CHIP_GAP = 34.0, 6.0  # of a rank
_PER_ROW = 10
_MOST_CHIPS = 40  # of one cluster on one host
_HEAD, _PART_HEAD, _GAP = 32.0, 28.0, 12.0


def _chip_title(cluster: Cluster, rank: Rank) -> str:
    cards = cluster.cards[rank.rank]
    nics = ", ".join(f"{nic.name} {bandwidth(nic.mbps)}" for nic in cards) or "no NIC"
    share = cluster.share_of(rank.rank)
    role = f"border rank: carries {share} of its cluster's traffic" if share else "inner rank"
    return f"rank {rank.rank}: {rank.model or rank.vendor}; {role}; {nics}"


class _Picture:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.drawing = Drawing()
        self.y = _MARGIN
        self.ports: dict[int, list[float]] = {}  # cluster: heights at which wires leave it

    def host(self, host: str, name: str) -> None:
        parts = self.topology.parts(host)
        heights = [self._part_height(len(ranks)) for _, ranks in parts]
        total = _HEAD + sum(heights) + _GAP * len(parts)
        self.drawing.box(_MARGIN, self.y, _WIDTH, total, title=f"host {name}")
        self.drawing.text(_MARGIN + 14, self.y + 21, f"host {name}", look="title")
        top = self.y + _HEAD
        for (cluster, ranks), height in zip(parts, heights, strict=True):
            self._part(cluster, ranks, top, height)
            top += height + _GAP
        self.y += total + _GAP

    @staticmethod
    def _part_height(ranks: int) -> float:
        rows = -(-min(ranks, _MOST_CHIPS) // _PER_ROW)
        more = 18.0 if ranks > _MOST_CHIPS else 0.0
        return _PART_HEAD + rows * (_CHIP + _CHIP_GAP) + more + 6

    def _part(self, cluster: Cluster, ranks: list[Rank], top: float, height: float) -> None:
        colour = colour_of(cluster.number)
        left, width = _MARGIN + 10, _WIDTH - 20
        self.drawing.box(left, top, width, height, colour=colour)
        self.drawing.text(left + 12, top + 19, f"cluster {cluster.number}", look="title")
        facts = f"{cluster.vendor}  {ranks[0].model or ranks[0].architecture}".strip()
        if cluster.label:
            facts += f"  label {cluster.label}"
        room = int((width - 110) / 7)
        short = facts if len(facts) <= room else facts[: room - 1] + "…"
        self.drawing.text(
            left + width - 12, top + 19, short, look="muted", anchor="end", title=facts
        )
        for place, rank in enumerate(ranks[:_MOST_CHIPS]):
            row, column = divmod(place, _PER_ROW)
            x = left + 12 + column * (_CHIP + _CHIP_GAP)
            self._chip(cluster, rank, x, top + _PART_HEAD + row * (_CHIP + _CHIP_GAP), colour)
        if len(ranks) > _MOST_CHIPS:
            text = f"and {counted(len(ranks) - _MOST_CHIPS, 'rank')} more"
            self.drawing.text(left + 12, top + height - 10, text, look="muted")
        if any(rank.rank in cluster.shares for rank in ranks):
            self.ports.setdefault(cluster.number, []).append(top + height / 2)

    def _chip(self, cluster: Cluster, rank: Rank, x: float, y: float, colour: str) -> None:
        border = rank.rank in cluster.shares
        self.drawing.box(x, y, _CHIP, _CHIP, colour=colour, opacity=1.0 if border else 0.0,
                         radius=7, title=_chip_title(cluster, rank))  # fmt: skip
        look = "on-colour" if border else "muted"
        self.drawing.text(x + _CHIP / 2, y + _CHIP / 2 + 4.5, str(rank.rank), look=look,
                          anchor="middle")  # fmt: skip

    def lines(self) -> None:
        """One vertical wire for each line, labelled, fastest next to the hosts."""
        x = _MARGIN + _WIDTH + 30.0
        for line in self.topology.lines():
            label = text_width(line.text, 12) + 16
            self._line(line, x + label / 2, label)
            x += label + 18

    def _line(self, line: Line, x: float, label: float) -> None:
        heights = sorted(y for cluster in line.clusters for y in self.ports.get(cluster, []))
        title = f"clusters {', '.join(map(str, line.clusters))}: {line.text}"
        for y in heights:
            self.drawing.path(f"M{_MARGIN + _WIDTH - 10:g} {y:g} H{x:g}", title=title)
            self.drawing.dot(x, y)
        self.drawing.path(f"M{x:g} {heights[0]:g} V{heights[-1]:g}", title=title)
        # In the widest gap, so that it hides no junction.
        below, above = max(pairwise(heights), key=lambda gap: gap[1] - gap[0])
        middle = (below + above) / 2
        self.drawing.box(x - label / 2, middle - 13, label, 26, radius=13, title=title)
        self.drawing.text(x, middle + 4, line.text, look="muted", anchor="middle")

    def legend(self) -> None:
        self.y += 4
        self.drawing.box(_MARGIN, self.y, 14, 14, colour="var(--muted)", opacity=1, radius=4)
        means = "border rank: sends and receives for its cluster"
        self.drawing.text(_MARGIN + 20, self.y + 12, means, look="muted")
        if len(self.topology.lines()) > 1:
            self.drawing.text(_MARGIN, self.y + 34,
                              "two clusters use the leftmost line that reaches both",
                              look="muted")  # fmt: skip


def draw(topology: Topology) -> str:
    """The picture, an SVG document."""
    picture = _Picture(topology)
    for host, name in topology.hosts.items():
        picture.host(host, name)
    picture.lines()
    picture.legend()
    sizes = ((len(topology.ranks), "rank"), (len(topology.hosts), "host"))
    described = f"{', '.join(counted(*size) for size in sizes)}, {len(topology.clusters)} clusters"
    return picture.drawing.to_svg(_MARGIN, described)
