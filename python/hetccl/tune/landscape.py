"""Counts the valleys of lines through the measured points along one parameter.

Coordinate descent ends in the valley where it starts. One valley on each line is what it relies on:
paper 004, rule II.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hetccl.tune.findings import Finding
from hetccl.tune.grid import Setting, identity
from hetccl.tune.records import Point

_LEAST_RISE = math.log(1.02)  # what is less is taken for noise, whatever the errors say
_ERRORS = 2.0


@dataclass(frozen=True)
class Line:
    """Points that differ in one parameter alone, ascending."""

    parameter: str
    points: tuple[Point, ...]

    @property
    def valleys(self) -> int:
        """Local minima that rises beyond the noise keep apart."""
        return count_valleys(
            [(math.log(point.ratio), point.error) for point in self.points]
        )  # fmt: skip


def count_valleys(values: Sequence[tuple[float, float]]) -> int:
    """Counts the valleys of a line of (value, standard error): one, and one more for each rise that
    a fall follows.

    A rise or fall counts from 2 % upward (values are logarithms) and two standard errors.
    """

    def above(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] - b[0] > max(_LEAST_RISE, _ERRORS * math.hypot(a[1], b[1]))

    count, falling, extreme = 1, True, values[0]
    for value in values[1:]:
        if above(value, extreme) if falling else above(extreme, value):
            falling = not falling
            count += falling
            extreme = value
        elif (value[0] < extreme[0]) == falling:
            extreme = value
    return count


def parameters_of(points: Iterable[Point]) -> list[str]:
    """The parameters of which the points have several values."""
    values: dict[str, set[object]] = {}
    for point in points:
        for name, value in point.setting.items():
            if isinstance(value, int):
                values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]


def _without(setting: Setting, parameter: str) -> str:
    return identity({name: value for name, value in setting.items() if name != parameter})


def lines(points: Iterable[Point], parameter: str) -> list[Line]:
    """Every line of two points or more along a parameter."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        if not point.failed and isinstance(point.setting.get(parameter), int):
            groups.setdefault(_without(point.setting, parameter), []).append(point)
    ordered = (sorted(group, key=lambda p: p.setting[parameter]) for group in groups.values())
    return [Line(parameter, tuple(group)) for group in ordered if len(group) > 1]


def lines_at_best(finding: Finding, parameter: str) -> list[Line]:
    """For each algorithm, the line through its fastest point: the others are at their best."""
    by_algorithm: dict[str, list[Point]] = {}
    for point in finding.points:
        if not point.failed:
            by_algorithm.setdefault(point.setting["algorithm"], []).append(point)
    found = []
    for points in by_algorithm.values():
        best = min(points, key=lambda p: p.ratio)
        through = [
            line for line in lines(points, parameter) if any(p is best for p in line.points)
        ]  # fmt: skip
        found += through
    return found


@dataclass(frozen=True)
class Evidence:
    """The lines along one parameter, over all keys: those of three points or more, by their number
    of valleys.
    """

    parameter: str
    single: int
    several: int

    @property
    def text(self) -> str:
        """In words."""
        total = self.single + self.several
        if total == 0:
            return "No line has three points, so nothing can be said."
        if self.several == 0:
            return f"One valley on every line ({total}): unimodal, as far as it was measured."
        share = self.several / total
        return (
            f"One valley on {self.single} lines of {total}; {self.several} ({share:.0%}) have "
            "several: coordinate descent may end in the wrong one there."
        )


def evidence(found: Iterable[Finding]) -> Iterator[Evidence]:
    """For each parameter, in the order in which the keys have them."""
    counts: dict[str, list[int]] = {}
    for finding in found:
        for parameter in parameters_of(finding.points):
            count = counts.setdefault(parameter, [0, 0])
            for line in lines(finding.points, parameter):
                if len(line.points) > 2:
                    count[line.valleys > 1] += 1
    return (Evidence(name, *count) for name, count in counts.items())
