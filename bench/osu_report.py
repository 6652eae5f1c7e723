"""Tables and pictures of bench/osu.py's results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_contender import ratio, text
from report import Sheet

from hetccl.units import binary_size, counted


@dataclass(frozen=True)
class Panel:
    """One plot of a figure: microseconds by series and bytes, or why a series has none."""

    figure: int
    nodes: int
    collective: str
    times: dict[str, dict[int, float] | str]
    base: str = ""  # the series over which the last one's speed-up is shown

    @property
    def title(self) -> str:
        """The title, with the figure's number."""
        return f"Figure {self.figure}: {self.collective}, {counted(self.nodes, 'node')}"

    def measured(self) -> dict[str, dict[int, float]]:
        """The series with times."""
        return {name: got for name, got in self.times.items() if isinstance(got, dict)}

    def failures(self) -> str:
        """A line for each series without times."""
        return "\n".join(f"{name} was not measured: {why}"
                         for name, why in self.times.items() if isinstance(why, str))  # fmt: skip

    def speedups(self) -> dict[int, float]:
        """Returns the last series' speed over the base's, by bytes; empty if there is no base."""
        series = self.measured()
        last = series.get(list(self.times)[-1], {})
        found = {size: ratio(us, last.get(size)) for size, us in series.get(self.base, {}).items()}
        return {size: times for size, times in found.items() if times is not None}

    def sheet(self) -> Sheet:
        """Returns the panel as a table."""
        series, speedups = self.measured(), self.speedups()
        sizes = sorted({size for got in series.values() for size in got})
        columns = ("bytes", *(f"{name}, us" for name in series))
        rows = [(binary_size(size), *(text(got.get(size)) for got in series.values()))
                for size in sizes]  # fmt: skip
        if self.base:
            columns = (*columns, f"{list(self.times)[-1]} is faster by")
            rows = [(*row, text(speedups.get(size))) for row, size in zip(rows, sizes, strict=True)]
        return Sheet(self.title, columns, rows)

    def document(self) -> dict[str, Any]:
        """Returns the panel as JSON."""
        return {"figure": self.figure, "nodes": self.nodes, "collective": self.collective,
                "us": self.times, "speedup": self.speedups()}  # fmt: skip


def draw(folder: Path, panels: list[Panel]) -> None:
    """Draws a picture for each figure and collective, with a plot for each number of nodes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for figure, collective in dict.fromkeys((one.figure, one.collective) for one in panels):
        here = [one for one in panels if (one.figure, one.collective) == (figure, collective)]
        picture, rows = pyplot.subplots(
            1, len(here), figsize=(5.5 * len(here), 4), squeeze=False, layout="constrained"
        )
        for panel, axes in zip(here, rows[0], strict=True):
            for name, got in panel.measured().items():
                axes.plot(list(got), list(got.values()), marker=".", label=name)
            axes.set(title=panel.title, xlabel="bytes", ylabel="latency, us", yscale="log")
            axes.set_xscale("log", base=2)
            if speedups := panel.speedups():
                beside = axes.twinx()
                beside.plot(list(speedups), list(speedups.values()), color="#54a24b", linestyle=":")
                beside.set_ylabel(f"{list(panel.times)[-1]}: speed-up over {panel.base} (dotted)")
            axes.legend()
        picture.savefig(folder / f"figure{figure}-{collective}.png", dpi=110)
        pyplot.close(picture)
