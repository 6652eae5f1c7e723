"""The report's pictures: time along one parameter, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hetccl.drawing import Drawing, colour_of, text_width
from hetccl.tune.findings import Finding, time_text
from hetccl.tune.landscape import Line
from hetccl.tune.records import Point
from hetccl.tune.words import setting_text, value_text

_WIDTH, _HEIGHT = 300.0, 120.0  # of the plot
_LEFT, _TOP = 76.0, 40.0


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of the vertical axis, which spans at least a tenth of the time."""
    low, high = min(values), max(values)
    room = max(high - low, 0.1 * high) * 0.1
    return max(0.0, low - room), max(high, low + 0.1 * high) + room


def _ticks(labels: Sequence[str], step: float) -> list[int]:
    """Returns the labels that have room beside each other, always with the first and the last."""
    each = max(1, math.ceil((max(map(text_width, labels)) + 8) / max(step, 1)))
    chosen = list(range(0, len(labels), each))
    if len(labels) - 1 - chosen[-1] < each and len(chosen) > 1:
        chosen.pop()
    return sorted({*chosen, len(labels) - 1})


class _Chart:
    """One picture: values of a parameter from left to right at even distances."""

    def __init__(self, finding: Finding, lines: Sequence[Line]) -> None:
        self._finding = finding
        self._lines = lines
        self._parameter = lines[0].parameter
        points = [point for line in lines for point in line.points]
        self._values = sorted({point.setting[self._parameter] for point in points})
        times = [self._us(point) for point in points]
        self._low, self._high = _scale([*times, finding.default_us])
        self._drawing = Drawing()

    def _us(self, point: Point) -> float:
        """Returns a point's time, as its ratio to one common default: a load that slows both leaves
        the ratio.
        """
        return point.ratio * self._finding.default_us

    def _x(self, value: int) -> float:
        last = max(1, len(self._values) - 1)
        return _LEFT + _WIDTH * self._values.index(value) / last

    def _y(self, us: float) -> float:
        return _TOP + _HEIGHT * (self._high - us) / (self._high - self._low)

    def _axes(self) -> None:
        drawing, bottom = self._drawing, _TOP + _HEIGHT
        drawing.path(f"M{_LEFT} {bottom} H{_LEFT + _WIDTH}", look="thin")
        for us in (self._low, (self._low + self._high) / 2, self._high):
            y = self._y(us)
            drawing.path(f"M{_LEFT} {y:.1f} H{_LEFT + _WIDTH}", look="thin")
            drawing.text(_LEFT - 10, y + 4, time_text(us), look="muted", anchor="end")
        labels = [value_text(self._parameter, value) for value in self._values]
        for i in _ticks(labels, _WIDTH / max(1, len(labels) - 1)):
            x = self._x(self._values[i])
            drawing.text(x, bottom + 18, labels[i], look="muted", anchor="middle")
        drawing.reserve(_LEFT + _WIDTH + 30, bottom + 26)

    def _line(self, number: int, line: Line) -> None:
        drawing, colour = self._drawing, colour_of(number)
        places = [
            (self._x(point.setting[self._parameter]), self._y(self._us(point)))
            for point in line.points
        ]
        drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places), colour=colour)
        for point, (x, y) in zip(line.points, places, strict=True):
            drawing.dot(
                x, y, 3, colour=colour,
                title=f"{setting_text(point.setting)}: {time_text(self._us(point))}",
            )  # fmt: skip

    def draw(self) -> str:
        """The document."""
        drawing = self._drawing
        default_y = self._y(self._finding.default_us)
        self._axes()
        drawing.path(f"M{_LEFT} {default_y:.1f} h{_WIDTH}", look="wire dashed")
        for number, line in enumerate(self._lines):
            self._line(number, line)
        x = 4.0
        drawing.text(x, 20, self._parameter, look="title")
        x += text_width(self._parameter) + 20
        for number, line in enumerate(self._lines):
            name = line.points[0].setting["algorithm"]
            drawing.dot(x, 16, 4, colour=colour_of(number))
            drawing.text(x + 10, 20, name, look="muted")
            x += text_width(name) + 26
        return drawing.to_svg(margin=4, described=f"time along {self._parameter}")


def along(finding: Finding, lines: Sequence[Line]) -> str:
    """Draws time against one parameter's values: a line for each algorithm, and the default,
    dashed.
    """
    return _Chart(finding, lines).draw()
