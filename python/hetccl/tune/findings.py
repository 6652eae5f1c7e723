"""Derives a finding for each key from the measured points, and the table at the end of a sweep."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetccl.tune.grid import identity
from hetccl.tune.records import Point
from hetccl.tune.trial import CONFIRMING_PAIRS
from hetccl.tune.words import change_text, size_of

GAIN = 0.02  # a setting must take so much less of the time to replace the default


@dataclass(frozen=True)
class Finding:
    """One key of one place: its points, the default's among them, and the fastest."""

    points: tuple[Point, ...]
    best: Point

    @property
    def key(self) -> dict[str, Any]:
        """The key of every point."""
        return self.best.key

    @property
    def default_us(self) -> float:
        """The default's time: the median over all points, beside which it was measured."""
        return statistics.median(p.default_us for p in self.points if not p.failed)

    @property
    def gain(self) -> float:
        """The speed of the best setting as a multiple of the default's."""
        return 1.0 if is_default(self.best) else 1 / self.best.ratio

    @property
    def best_us(self) -> float:
        """The best's time, had it been measured beside that default."""
        return self.default_us / self.gain


def is_default(point: Point) -> bool:
    """Whether it is the default beside itself."""
    return identity(point.setting) == identity(point.default)


def find_unconfirmed(points: list[Point]) -> Point | None:
    """The point that seems to be the best and was measured too briefly to be sure.

    The least of many noisy ratios is too small, so it is measured once more before it counts.
    """
    faster = [p for p in points if not (p.failed or is_default(p)) and p.ratio < 1 - GAIN]
    first = min(faster, key=lambda p: p.ratio, default=None)
    return first if first is not None and first.samples < CONFIRMING_PAIRS else None


def _best(points: list[Point]) -> Point | None:
    """The fastest that was confirmed, else the default."""
    sure = [
        p
        for p in points
        if not (p.failed or is_default(p)) and p.samples >= CONFIRMING_PAIRS and p.ratio < 1 - GAIN
    ]
    defaults = [p for p in points if is_default(p) and not p.failed]
    return min(sure, key=lambda p: p.ratio, default=defaults[0] if defaults else None)


def find(points: list[Point]) -> list[Finding]:
    """A finding for each key of each place, in the order of their first points.

    A key whose default was not measured is left out.
    """
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.place, identity(point.key), identity(point.default)), []).append(
            point
        )
    found = ((tuple(group), _best(group)) for group in groups.values())
    return [Finding(group, best) for group, best in found if best is not None]


def time_text(us: float) -> str:
    """Returns a time for people: "12.3 us", "4.56 ms"."""
    return f"{us:.3g} us" if us < 999.5 else f"{us / 1e3:.3g} ms"


def table_of(findings: list[Finding]) -> Table:
    """The best beside the default, by key."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("collective", "at most", "points", "default", "best", "gain"):
        table.add_column(name, justify="left" if name == "collective" else "right", no_wrap=True)
    table.add_column("best setting", overflow="fold")
    for finding in findings:
        best, gain = finding.best, finding.gain
        cells = (
            finding.key["collective"], size_of(finding.key), str(len(finding.points)),
            time_text(finding.default_us), time_text(finding.best_us), f"{gain:.2f}x",
            change_text(best.setting, best.default),
        )  # fmt: skip
        table.add_row(*(Text(cell) for cell in cells), style="bold" if gain > 1 else None)
    return table


def show(findings: list[Finding], console: Console | None = None) -> None:
    """Prints the table."""
    (console or Console()).print(table_of(findings))
