"""A plan on the terminal, and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from hetccl.balance.planner import Plan
from hetccl.units import counted, duration


def show(plan: Plan, console: Console | None = None) -> None:
    """Prints the share of each rank, with the reason for it."""
    console = console or Console()
    for line in explain(plan):
        console.print(line, highlight=False, soft_wrap=True)
    table = Table(box=None, header_style="dim", pad_edge=False)
    columns = ["rank", "device", "share", "micro-batches", "largest", "idle"]
    if is_measured(plan):
        columns.insert(5, "compute")
    for column in columns:
        table.add_column(column, justify="left" if column == "device" else "right")
    for rank, profile in enumerate(plan.profiles):
        seconds = plan.seconds(rank)
        sizes = plan.micro_batches(rank)
        ends = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[-1]} to {sizes[0]}"
        table.add_row(
            str(rank), profile.device or "?", str(plan.shares[rank]),
            f"{len(sizes)} of {ends}", "any" if profile.most is None else str(profile.most),
            *([duration(seconds)] if is_measured(plan) else []),
            f"{1 - seconds / plan.slowest:.1%}",
        )  # fmt: skip
    console.print(table)


def is_measured(plan: Plan) -> bool:
    """Returns whether the plan's times are seconds on every rank."""
    return all(profile.is_measured for profile in plan.profiles)


def explain(plan: Plan) -> Iterator[str]:
    """Yields sentences on the batch, the number of micro-batches, and what the plan gains."""
    unit = (plan.unit or "samples")[:-1]
    yield (
        f"A batch of {counted(plan.batch, unit)} on {counted(plan.size, 'rank')}, in "
        f"{plan.accumulation} micro-batch{'es' if plan.accumulation > 1 else ''} each. "
        + (
            f"The slowest rank computes for {duration(plan.slowest)}."
            if is_measured(plan)
            else "Shares follow speeds that are stated, not measured."
        )
    )
    full = [
        rank
        for rank, profile in enumerate(plan.profiles)
        if profile.most is not None and plan.micro_batches(rank)[0] == profile.most
    ]
    if full:
        ranks = ", ".join(map(str, full[:8])) + (" and others" if len(full) > 8 else "")
        noun = "rank" if len(full) == 1 else "ranks"
        yield f"Memory, or the largest size that was measured, limits the share of {noun} {ranks}."
    yield (
        f"Efficiency: {plan.efficiency:.1%} of what the ranks reach alone, before communication; "
        f"with equal shares {_efficiency_of_equal(plan):.1%}."
    )


def _efficiency_of_equal(plan: Plan) -> float:
    """A rank whose memory equal shares exceed would fail; its time is told all the same."""
    whole, more = divmod(plan.batch, plan.size)
    equal = [whole + (rank < more) for rank in range(plan.size)]
    even = Plan(plan.profiles, plan.batch, plan.accumulation, tuple(equal))
    return even.efficiency


def to_values(plan: Plan) -> dict[str, Any]:
    """Returns the plan as values for JSON, with seconds if they were measured."""
    return {
        "batch": plan.batch,
        "accumulation": plan.accumulation,
        "efficiency": plan.efficiency,
        "ranks": [
            {
                "device": profile.device,
                "share": plan.shares[rank],
                "micro_batches": plan.micro_batches(rank),
                "seconds": plan.seconds(rank) if is_measured(plan) else None,
            }
            for rank, profile in enumerate(plan.profiles)
        ],
    }
