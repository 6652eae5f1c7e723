"""The figure of a result: the paper's values beside ours, and the lines that were measured."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from entry import Entry, Number
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from record import Record

OURS, PAPER = "#2f6fde", "#c9d1d9"
WIDE = 40  # of largest to smallest, from where the axis is logarithmic
# The same record gives the same bytes; texts stay texts.
STYLE = {"svg.hashsalt": "hetccl", "svg.fonttype": "none", "font.size": 9.0,
         "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip


def is_number(value: Number | str | None) -> bool:
    """Returns whether a value can be drawn."""
    return isinstance(value, int | float)


def draw_values(axes: Axes, entry: Entry, record: Record) -> None:
    """Draws horizontal bars, the first value above."""
    ours, noise = record.values(), record.noise()
    labels = [label for label in dict.fromkeys([*entry.paper_values, *ours])
              if is_number(ours.get(label, entry.paper_values.get(label)))]  # fmt: skip
    shift = 0.19 if entry.paper_values else 0.0
    sides = (("paper", entry.paper_values, PAPER, -shift), ("here", ours, OURS, shift))
    drawn = []
    for name, values, colour, shift in sides:
        known = {
            place: float(values[label]) for place, label in enumerate(labels) if label in values
        }
        if not known:
            continue
        half = [known[p] * noise.get(labels[p], 0) / 2 if name == "here" else 0.0 for p in known]
        axes.barh([place + shift for place in known], list(known.values()), 0.36, label=name,
                  color=colour, xerr=half if any(half) else None,
                  error_kw={"ecolor": "#59636e", "elinewidth": 1})  # fmt: skip
        for (place, value), error in zip(known.items(), half, strict=True):
            axes.annotate(f"{value:.3g}", (value + error, place + shift), xytext=(4, 0),
                          va="center", textcoords="offset points", fontsize=8)  # fmt: skip
            drawn.append(value + error)
    positive = [value for value in drawn if value > 0]
    if positive and max(positive) > WIDE * min(positive):
        axes.set_xscale("log")
        axes.set_xlim(min(positive) / 2, max(positive) * 4)
    else:
        axes.set_xlim(0, 1.18 * max([*drawn, 1e-12]))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(entry.unit)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.13), ncols=2, frameon=False)


def size_text(size: float, place: int | None = None) -> str:
    """Returns a size as text: "4K" for 4096."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.3g}{letter}"
    return f"{size:.3g}"


def draw_series(axes: Axes, record: Record) -> None:
    """Draws the lines of the first run; with logarithmic axes if bytes are compared."""
    found = record.runs[0]
    for name, line in found.series.items():
        few = len(line) <= 16
        axes.plot(list(line), list(line.values()), marker="." if few else None, label=name,
                  linewidth=1.2)  # fmt: skip
    axes.set(xlabel=found.axes[0], ylabel=found.axes[1])
    if found.axes[0] == "bytes":
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 300 * low else (1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8)


def has_figure(entry: Entry, record: Record) -> bool:
    """Returns False for tables of words."""
    return any(map(is_number, record.values().values())) or bool(record.runs[0].series)


def draw(entry: Entry, record: Record, path: Path) -> None:
    """Writes the figure. The path's ending says in which format."""
    has_series = bool(record.runs[0].series)
    n_bars = len({**entry.paper_values, **record.values()})
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5 if has_series else 6, max(2.6, 0.55 * n_bars + 1.1)),
                        layout="constrained")  # fmt: skip
        panels = figure.subplots(1, 2 if has_series else 1, squeeze=False)[0]
        title = f"Paper {entry.paper}, {entry.piece}: {record.runs[0].where}"
        figure.suptitle(fill(title, 130 if has_series else 80), fontsize=9)
        draw_values(panels[0], entry, record)
        if has_series:
            draw_series(panels[1], record)
        meta = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=meta, dpi=100)
