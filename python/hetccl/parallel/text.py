"""Compared strategies on the terminal, and as values for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetccl.parallel.planner import Plan, Row
from hetccl.parallel.pricing import Price
from hetccl.units import binary_size, counted, duration, ranges

_FEW = 12  # rows that are shown unless all are asked for
_LEFT = ("[T, D, P]", "across", "layers", "schedule", "fits", "ranks", "cluster")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column in _LEFT else "right",
                         no_wrap=column != "layers")  # fmt: skip
    return table


def _fits(fits: bool | None) -> Text:
    if fits is None:
        return Text("?")
    return Text("yes", "green") if fits else Text("NO", "bold red")


def _facts(plan: Plan) -> Iterator[str]:
    model, site = plan.model, plan.site
    yield (
        f"{model.name}: {model.parameters / 1e9:.3g}B parameters in "
        f"{counted(model.layers, 'layer')}, sequences of {model.sequence:,} tokens, "
        f"batches of {plan.batch:,}" + (", activations computed again" if model.recompute else "")
    )
    for number, ranks in enumerate(site.clusters):
        speeds = {site.speeds[rank] for rank in ranks}
        told = f"{min(speeds) / 1e12:.3g}" + (f" to {max(speeds) / 1e12:.3g}" if len(speeds) > 1
                                              else "")  # fmt: skip
        memory = min((site.memory[rank] or 0) for rank in ranks)
        yield (
            f"cluster {number}: {counted(len(ranks), 'rank')}, "
            f"{counted(len({site.hosts[rank] for rank in ranks}), 'host')}, {told} TFLOP/s and "
            f"{binary_size(memory) if memory else 'unknown memory'} each"
        )


def _strategies(plan: Plan, rows: tuple[Row, ...]) -> Table:
    table = _table("Strategies, the fastest first", "[T, D, P]", "across", "layers", "schedule",
                   "m", "step", "tokens/s", "idle", "fits")  # fmt: skip
    for row in rows:
        price, strategy = row.price, row.price.strategy
        tokens = strategy.batch * plan.model.sequence / price.seconds
        table.add_row(
            strategy.degrees, row.across or "-", _layers(price), strategy.schedule,
            str(strategy.micro_batches), duration(price.seconds), f"{tokens:,.0f}",
            f"{price.times.bubble:.1%}", _fits(price.fits),
        )  # fmt: skip
    table.padding = (0, 1, 0, 0)
    return table


def _choose(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Returns the first few rows, and the first row of each kind of traffic across clusters."""
    first = {row.across: row for row in reversed(rows)}.values()
    return tuple(row for number, row in enumerate(rows) if number < _FEW or row in first)


def _layers(price: Price) -> str:
    return ", ".join("+".join(str(end - first) for first, end in stage.layers)
                     for stage in price.strategy.stages)  # fmt: skip


def _stages(plan: Plan, price: Price) -> Table:
    table = _table(f"Stages of {price.strategy.degrees}", "stage", "cluster", "ranks", "layers",
                   "rows", "forward", "back", "send", "reduce", "idle", "memory")  # fmt: skip
    whole = max(price.times.ends)
    for position, stage in enumerate(price.strategy.stages):
        clusters = sorted({plan.site.cluster_of[rank] for rank in stage.ranks})
        last = position == len(price.strategy.stages) - 1
        rows = sorted(set(stage.rows))
        table.add_row(
            str(position), ranges(clusters), ranges(sorted(stage.ranks)),
            "+".join(str(end - first) for first, end in stage.layers),
            str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}",
            duration(sum(price.costs.forward[position])),
            duration(sum(price.costs.backward[position])),
            "-" if last else duration(price.messages[position]),
            duration(price.reduces[position]) if price.reduces[position] else "-",
            f"{1 - price.times.busy[position] / whole:.1%}",
            binary_size(round(price.memory[position].needs)),
        )  # fmt: skip
    table.padding = (0, 1, 0, 0)
    return table


def explain(plan: Plan, price: Price) -> Iterator[str]:
    """Yields sentences on why the best strategy is the best."""
    strategy, costs = price.strategy, price.costs
    positions = range(len(strategy.stages))
    busy = [costs.busy(position) for position in positions]
    slowest = busy.index(max(busy))
    yield (
        f"Stage {slowest} is the slowest: it computes for {duration(busy[slowest])} in each of "
        f"{strategy.micro_batches} micro-batches. The fastest computes for {duration(min(busy))}."
    )
    even = [strategy.layers // len(positions)] * len(positions)
    if len(positions) > 1 and [stage.count for stage in strategy.stages] != even:
        yield "Layers follow speed and memory, less what the embedding and the head take."
    widths = {stage.width for stage in strategy.stages}
    if len(widths) > 1:
        yield "Stages of unlike width hand rows on to those replicas that have them next."
    if price.messages:
        longest = max(price.messages)
        yield (
            f"Activations of a micro-batch travel for up to {duration(longest)} between stages. "
            f"Reducing gradients takes up to {duration(max(price.reduces))}, once a step."
        )


def show(plan: Plan, show_all: bool = False, console: Console | None = None) -> None:
    """Prints the compared strategies, and the stages of the best."""
    console = console or Console()
    for line in _facts(plan):
        console.print(line, highlight=False, soft_wrap=True)
    console.print()
    rows = plan.rows if show_all else _choose(plan.rows)
    console.print(_strategies(plan, rows))
    console.print(
        f"Shown: {len(rows)} of {counted(plan.considered, 'arrangement')}; across: what crosses "
        "clusters; m: micro-batches of a step.",
        style="dim", highlight=False, soft_wrap=True,
    )  # fmt: skip
    console.print()
    if plan.best is None:
        console.print(Text.assemble(("no best strategy", "bold yellow"), f": {plan.reason}"),
                      soft_wrap=True)  # fmt: skip
        return
    console.print(_stages(plan, plan.best))
    console.print()
    for line in explain(plan, plan.best):
        console.print(line, highlight=False, soft_wrap=True)


def _price_values(price: Price) -> dict[str, Any]:
    return {
        "degrees": price.strategy.degrees,
        "seconds": price.seconds,
        "bubble": price.times.bubble,
        "fits": price.fits,
        "strategy": price.strategy.to_values(),
        "stages": [
            {
                "forward": sum(price.costs.forward[position]),
                "backward": sum(price.costs.backward[position]),
                "reduce": price.reduces[position],
                "message": price.messages[position] if position < len(price.messages) else None,
                "ends": price.times.ends[position],
                "busy": price.times.busy[position],
                "memory": {**dataclasses.asdict(memory), "needs": memory.needs},
            }
            for position, memory in enumerate(price.memory)
        ],
    }


def to_values(plan: Plan) -> dict[str, Any]:
    """The plan as JSON has it: seconds, bytes, FLOP/s."""
    return {
        "model": dataclasses.asdict(plan.model),
        "site": dataclasses.asdict(plan.site),
        "batch": plan.batch,
        "considered": plan.considered,
        "rows": [{"across": row.across, **_price_values(row.price)} for row in plan.rows],
        "best": None if plan.best is None else _price_values(plan.best),
        "reason": plan.reason,
    }
