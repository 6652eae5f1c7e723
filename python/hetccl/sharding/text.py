"""A sharding plan on the terminal, and as values for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetccl.sharding.costs import PHASES, Costs, Phase
from hetccl.sharding.degrees import LEVELS, Sharding
from hetccl.sharding.planner import Scheme, ShardingPlan
from hetccl.units import binary_size, counted, duration, size

_LEFT = ("scheme", "W/G/O", "phase", "collective", "level", "fits")


def parameters(count: int) -> str:
    """ "20B", "345M": three digits."""
    value = float(count)
    for unit in ("", "K", "M", "B"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:,.3g}T" if value < 1000 else f"{value:,.0f}T"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in columns:
        left = column in _LEFT
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    return table


def _degrees(costs: Costs) -> str:
    """ "2/8/384", with the secondary degree "384/384/384, 8"."""
    degrees = costs.degrees
    chain = f"{degrees.weights}/{degrees.gradients}/{degrees.optimizer_states}"
    return f"{chain}, {degrees.secondary}" if degrees.secondary else chain


def _possible(plan: ShardingPlan) -> list[tuple[Scheme, Costs]]:
    schemes = [*plan.schemes, *([plan.best] if plan.best else [])]
    return [(scheme, scheme.costs) for scheme in schemes if scheme.costs is not None]


def _facts(plan: ShardingPlan) -> Table:
    training, tree = plan.training, plan.tree
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "model",
        f"{parameters(training.parameters)} parameters of {training.type_bytes} bytes, "
        f"{training.optimizer_states} float32 states each; micro-batches: "
        f"{training.micro_batches}",
    )
    table.add_row(
        "ranks",
        f"{counted(tree.size, 'rank')}, {counted(len(plan.host_names), 'host')}, "
        f"{counted(len(tree.clusters), 'cluster')}",
    )
    rates = [f"{level} {size(plan.bandwidths[level])}/s" for level in LEVELS
             if level in plan.bandwidths]  # fmt: skip
    table.add_row("bandwidth", ", ".join(rates) or "unknown: give --bandwidth")
    memory = "unknown: give --memory"
    if plan.memory is not None:
        memory = f"{binary_size(plan.memory)} ({size(plan.memory)}) a rank"
    table.add_row("memory", memory)
    return table


def _memory(plan: ShardingPlan) -> Table:
    known = plan.memory is not None
    columns = ("scheme", "W/G/O", "weights", "second", "grads", "states", "peak")
    table = _table("Memory of a rank", *columns, *(("largest", "fits") if known else ()))
    for scheme, costs in _possible(plan):
        memory = costs.memory
        parts = (memory.weights, memory.secondary, memory.gradients, memory.optimizer_states,
                 memory.peak)  # fmt: skip
        cells: list[Text | str] = [scheme.name, _degrees(costs)]
        cells += [size(part) if part else "-" for part in parts]
        if known:
            cells.append(parameters(scheme.largest_model or 0))
            fits = plan.fits(scheme)
            cells.append(Text("yes" if fits else "NO", "green" if fits else "bold red"))
        table.add_row(*cells)
    table.padding = (0, 1, 0, 0)  # eighty columns hold it
    return table


def _notes_on_memory(plan: ShardingPlan) -> str:
    known = "largest: the most parameters that fit, without activations."
    unknown = "best: the fastest, whether it fits or not; --memory finds one that fits."
    return (
        "W/G/O: degrees of weights, gradients, optimizer states; then that of the\n"
        "second partition of the weights. peak: with float32 gradients, if they are\n"
        "larger: the optimizer reads those.\n" + (known if plan.memory is not None else unknown)
    )


def _levels(phases: list[Phase]) -> Text:
    """The bytes, and below them the widest level."""
    if not phases:
        return Text("-")
    widest = max((phase.reach.level for phase in phases), key=LEVELS.index)
    return Text.assemble(size(sum(phase.volume for phase in phases)), "\n", (widest, "dim"))


def _traffic(plan: ShardingPlan) -> Table:
    table = _table("Bytes that a rank sends in a step, and how far", "scheme", *PHASES, "a host",
                   "time")  # fmt: skip
    for scheme, costs in _possible(plan):
        cells = [_levels(costs.of_phase(phase)) for phase in PHASES]
        leaving = max(costs.leaving, default=0.0)
        time = "" if costs.seconds is None else duration(costs.seconds)
        table.add_row(scheme.name, *cells, size(leaving) if leaving else "-", time)
    return table


_NOTES_ON_TRAFFIC = (
    "a host: bytes that leave the host that sends most.\n"
    "time: of all collectives one after another; computation hides a part of it."
)


def _steps(scheme: Scheme, costs: Costs, plan: ShardingPlan) -> Table:
    columns = ("phase", "collective", "calls", "ranks", "level", "a rank", "a host", "time")
    table = _table(f"Steps of {scheme.name}", *columns)
    for phase in costs.phases:
        leaving = max(phase.leaving)
        seconds = phase.seconds(plan.bandwidths, plan.inside)
        table.add_row(
            phase.phase, phase.collective, str(phase.calls), str(phase.reach.ranks),
            phase.reach.level, size(phase.volume), size(leaving) if leaving else "-",
            "" if seconds is None else duration(seconds),
        )  # fmt: skip
    return table


def call_of(sharding: Sharding) -> str:
    """Returns the Python call that makes it, without arguments that have their defaults."""
    fields = dataclasses.fields(Sharding)
    given = {field.name: getattr(sharding, field.name) for field in fields}
    words = [f"{name}={value!r}" for name, value in given.items() if value not in (None, "")]
    return f"Sharding({', '.join(words)})"


def show(plan: ShardingPlan, console: Console | None = None) -> None:
    """Facts, memory, traffic, the steps of the best degrees; then what is impossible, and why."""
    console = console or Console()
    for table, notes in (
        (_facts(plan), ""),
        (_memory(plan), _notes_on_memory(plan)),
        (_traffic(plan), _NOTES_ON_TRAFFIC),
    ):
        console.print(table)
        if notes:
            console.print(Text(notes, "dim"))
        console.print()
    for scheme in plan.schemes:
        if scheme.costs is None:
            console.print(Text.assemble((scheme.name, "bold"), f" is impossible: {scheme.reason}"))
            console.print()
    if plan.best is None or plan.best.costs is None:
        console.print(Text.assemble(("no best degrees", "bold yellow"), f": {plan.reason}"))
        return
    console.print(_steps(plan.best, plan.best.costs, plan))
    console.print()
    console.print(Text(call_of(plan.best.sharding)), soft_wrap=True)


def _phase_values(phase: Phase, plan: ShardingPlan) -> dict[str, Any]:
    return {
        "phase": phase.phase,
        "collective": phase.collective,
        "calls": phase.calls,
        "ranks": phase.reach.ranks,
        "level": phase.reach.level,
        "rank_bytes": round(phase.volume),
        "host_bytes": round(max(phase.leaving)),
        "seconds": phase.seconds(plan.bandwidths, plan.inside),
    }


def _scheme_values(scheme: Scheme, plan: ShardingPlan) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": scheme.name,
        "sharding": dataclasses.asdict(scheme.sharding),
        "reason": scheme.reason,
    }
    costs = scheme.costs
    if costs is None:
        return values
    memory = {name: round(part) for name, part in dataclasses.asdict(costs.memory).items()}
    leaving = costs.leaving or (0.0,) * len(plan.host_names)
    hosts = zip(plan.host_names, leaving, strict=True)
    return {
        **values,
        "degrees": dataclasses.asdict(costs.degrees),
        "memory": {**memory, "peak": round(costs.memory.peak)},
        "fits": plan.fits(scheme),
        "largest_model": scheme.largest_model,
        "phases": [_phase_values(phase, plan) for phase in costs.phases],
        "hosts": [{"host": name, "leaving_bytes": round(count)} for name, count in hosts],
        "seconds": costs.seconds,
    }


def to_values(plan: ShardingPlan) -> dict[str, Any]:
    """The plan as JSON has it: bytes and seconds of a step, bandwidths in bytes/s."""
    return {
        "training": dataclasses.asdict(plan.training),
        "ranks": plan.tree.size,
        "hosts": len(plan.host_names),
        "clusters": len(plan.tree.clusters),
        "memory": plan.memory,
        "bandwidths": dict(plan.bandwidths),
        "schemes": [_scheme_values(scheme, plan) for scheme in plan.schemes],
        "best": _scheme_values(plan.best, plan) if plan.best else None,
        "reason": plan.reason,
    }
