"""The report's charts: SVG by matplotlib, which the page's colours then paint.

An SVG of matplotlib needs no script and about 20 kB, where Vega or Plotly put megabytes of script
into the page. It is drawn in placeholder colours, which become CSS variables: so one picture suits
light and dark pages.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

Run = dict[str, Any]

_VARIABLES = {
    "#010101": "ink", "#020202": "muted", "#030303": "line",
    "#0a0a01": "hetccl", "#0a0a02": "gloo", "#0a0a03": "least",
}  # fmt: skip
_PAINT = {name: colour for colour, name in _VARIABLES.items()}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "path.simplify": False, "font.size": 10,
    "text.color": _PAINT["ink"], "axes.labelcolor": _PAINT["muted"],
    "xtick.color": _PAINT["muted"], "ytick.color": _PAINT["muted"],
    "axes.edgecolor": _PAINT["line"], "grid.color": _PAINT["line"], "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "xtick.major.size": 0, "ytick.major.size": 0, "legend.frameon": False,
}  # fmt: skip
_SMOOTHING = 0.9


def smooth(values: Sequence[float]) -> list[float]:
    """Returns the exponential mean, without the bias of its start."""
    smoothed, mean, weight = [], 0.0, 0.0
    for value in values:
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * value
        weight = _SMOOTHING * weight + (1 - _SMOOTHING)
        smoothed.append(mean / weight)
    return smoothed


def _to_svg(figure: Figure, name: str) -> str:
    """Returns the figure for pasting into a page, with ids of its own and the page's colours."""
    out = io.StringIO()
    FigureCanvasSVG(figure).print_svg(  # type: ignore[no-untyped-call,unused-ignore]
        out, metadata={"Date": None, "Creator": None}
    )
    markup = out.getvalue()
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", markup)
    for colour, variable in _VARIABLES.items():
        markup = markup.replace(colour, f"var(--{variable})")
    # The page decides the width; the height follows.
    return re.sub(r'(<svg [^>]*?)width="[^"]*"', rf'\1class="chart" id="{name}"', markup, count=1)


def name_of(run: Run) -> str:
    """Returns the backend's name as people write it."""
    backend: str = run["backend"]
    return "Gloo" if backend == "gloo" else backend


def _axes(height: float, width: float = 6.4) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    return figure, axes


def loss(runs: Sequence[Run]) -> str:
    """Draws the mean loss of all ranks by step: measured, faint, and smoothed."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "loss"}):
        figure, axes = _axes(3.3)
        for number, run in enumerate(runs):
            losses, backend = run["step_losses"], run["backend"]
            steps = range(1, len(losses) + 1)
            colour = _PAINT[backend]
            axes.plot(steps, losses, color=colour, alpha=0.22, linewidth=1, gid=f"{backend}-raw")
            axes.plot(steps, smooth(losses), color=colour, gid=backend, label=name_of(run),
                      linewidth=2.6 if number == 0 else 1.6,
                      linestyle="solid" if number == 0 else (0, (4, 3)))  # fmt: skip
        axes.set_xlabel("step")
        axes.set_ylabel("loss (nats a byte)")
        axes.grid(axis="y", linewidth=0.8)
        axes.margins(x=0.01)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
        return _to_svg(figure, "loss")


def step_time(runs: Sequence[Run]) -> str:
    """Draws each step's time on rank 0, with its median."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "time"}):
        figure, axes = _axes(3.3)
        highest = 0.0
        for run in runs:
            times, backend = [1e3 * value for value in run["step_times"]], run["backend"]
            median = 1e3 * run["step_seconds"]
            colour = _PAINT[backend]
            axes.plot(range(1, len(times) + 1), times, color=colour, linewidth=1.2, gid=backend,
                      label=f"{name_of(run)}: median {median:.0f} ms")  # fmt: skip
            axes.axhline(median, color=colour, linewidth=1, linestyle=(0, (2, 3)))
            highest = max(highest, 1.6 * median, *sorted(times)[: max(1, 95 * len(times) // 100)])
        axes.set_ylim(0, 1.15 * highest)  # the few slowest steps may leave the picture
        axes.set_xlabel("step")
        axes.set_ylabel("milliseconds a step")
        axes.grid(axis="y", linewidth=0.8)
        axes.margins(x=0.01)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
        return _to_svg(figure, "time")


def bars(rows: Sequence[tuple[str, str, float, str]]) -> str:
    """Draws horizontal bars of (label, colour's name, bytes, text at its end), the first on top."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "bytes"}):
        figure, axes = _axes(0.2 + 0.36 * len(rows), 10.8)
        places = [len(rows) - number for number in range(len(rows))]
        longest = max((count for _, _, count, _ in rows), default=1) or 1
        for place, (label, colour, count, text) in zip(places, rows, strict=True):
            gid = re.sub(r"\W+", "-", label)
            axes.barh(place, count, height=0.62, color=_PAINT[colour])[0].set_gid(gid)
            axes.text(count + longest * 0.015, place, text, va="center")
        axes.set_yticks(places, [label for label, _, _, _ in rows])
        axes.tick_params(axis="y", labelcolor=_PAINT["ink"])
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.set_xlim(0, 1.42 * longest)
        return _to_svg(figure, "bytes")
