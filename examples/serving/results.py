"""The columns of table 10 of HetCCL's paper, and more, from the times of requests."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

COLUMNS = [
    "transport", "TTFT mean ms", "TTFT median ms", "TTFT P99 ms", "TPOT ms", "output tokens/s",
    "total tokens/s", "KV MB", "KV GB/s", "prefill to decode ms", "equal tokens", "failed",
]  # fmt: skip


@dataclasses.dataclass
class Result:
    """One request, as its client saw it. `due` and `at`, of each token, are seconds of one clock;
    `times` are the workers' (router.py). `error` is "" or the reason why it failed."""

    due: float
    n_prompt: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    at: list[float] = dataclasses.field(default_factory=list)
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = "it has no end"

    @property
    def first_ms(self) -> float:
        """Time to the first token, from the time at which the request was due."""
        return 1000 * (self.at[0] - self.due)

    @property
    def each_ms(self) -> float | None:
        """Time per output token after the first, if there is one."""
        n_more = len(self.at) - 1
        return 1000 * (self.at[-1] - self.at[0]) / n_more if n_more else None

    @property
    def handover_ms(self) -> float | None:
        """Time from the end of the prefill to the first decode step, if the cache was moved."""
        if not {"prefilled", "decoding"} <= self.times.keys():
            return None
        return 1000 * (self.times["decoding"] - self.times["prefilled"])


@dataclasses.dataclass
class Run:
    """All requests of one transport. `kv_bytes` of caches were sent."""

    transport: str
    results: Sequence[Result]
    kv_bytes: int

    @property
    def good(self) -> list[Result]:
        """The requests that have all their tokens."""
        return [one for one in self.results if not one.error]

    def moving_seconds(self) -> float:
        """Returns for how long at least one cache was moving: between the first byte that was
        sent and the last that arrived."""
        spans = sorted(
            (one.times["sending"], one.times["arrived"])
            for one in self.good if {"sending", "arrived"} <= one.times.keys()
        )  # fmt: skip
        total, end = 0.0, -math.inf
        for first, last in spans:
            total += max(0.0, last - max(first, end))
            end = max(end, last)
        return total

    def row(self, wanted: Sequence[Sequence[int]] | None) -> list[str]:
        """Returns the cells of COLUMNS. `wanted`: the monolithic engine's tokens."""
        good = self.good
        n_equal = "not checked"
        if wanted is not None:
            pairs = zip(self.results, wanted, strict=True)
            n_equal = f"{sum(one.tokens == list(other) for one, other in pairs)}/{len(wanted)}"
        first = sorted(one.first_ms for one in good)
        span = max((one.at[-1] for one in good), default=0) - min(
            (one.due for one in good), default=0
        )
        n_output = sum(len(one.tokens) for one in good)
        n_total = n_output + sum(one.n_prompt for one in good)
        seconds = self.moving_seconds()
        return [
            self.transport,
            _mean(first),
            f"{statistics.median(first):.1f}" if first else "-",
            f"{first[math.ceil(0.99 * len(first)) - 1]:.1f}" if first else "-",
            _mean([ms for one in good if (ms := one.each_ms) is not None]),
            f"{n_output / span:.1f}" if span else "-",
            f"{n_total / span:.1f}" if span else "-",
            f"{self.kv_bytes / 1e6:.1f}",
            f"{self.kv_bytes / 1e9 / seconds:.3f}" if seconds else "-",
            _mean([ms for one in good if (ms := one.handover_ms) is not None]),
            n_equal,
            str(len(self.results) - len(good)),
        ]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.1f}" if values else "-"


def table(runs: Sequence[Run], wanted: Sequence[Sequence[int]] | None) -> str:
    """Returns a Markdown table, a row per run."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(run.row(wanted) for run in runs)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(runs: Sequence[Run], path: str) -> None:
    """Draws a page of plots to `path`. Raises ModuleNotFoundError without matplotlib."""
    from matplotlib.figure import Figure

    page = Figure(figsize=(11, 8), layout="constrained")
    panels = page.subplots(2, 2).flat
    titles = ["time to first token, ms", "time per output token, ms", "prefill to decode, ms"]
    for axes, title, name in zip(
        panels, titles, ("first_ms", "each_ms", "handover_ms"), strict=False
    ):
        for run in runs:
            values = sorted(ms for one in run.good if (ms := getattr(one, name)) is not None)
            shares = [(i + 1) / len(values) for i in range(len(values))]
            axes.step(values, shares, where="post", label=run.transport)
        axes.set(xlabel=title, ylabel="share of requests", xlim=(0, None), ylim=(0, 1))
    axes = page.axes[3]
    for run in runs:
        times = sorted(at for one in run.good for at in one.at)
        start = min((one.due for one in run.good), default=0)
        axes.plot([at - start for at in times], range(1, len(times) + 1), label=run.transport)
    axes.set(xlabel="seconds", ylabel="output tokens")
    axes.legend()
    page.savefig(path)
