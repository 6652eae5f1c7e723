"""A plan on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetccl.drawing import colour_of
from hetccl.plan.description import Description, RankPlan, name_of, regions_of
from hetccl.topology.graph import Topology
from hetccl.units import bandwidth, counted, duration, size

_ITEMS = 4  # shards or transfers of one step that are spelt out
_BARRIER_PROVES = "no rank passes before every rank has come, no deadlock"
_MESSAGE_PROVES = "every element once, no deadlock, no race"
_PROVES = (
    "every contribution once, the same bits on every rank, no deadlock, no race, "
    "in place and out of place"
)

_SPECIAL_PROVES = {"barrier": _BARRIER_PROVES, "send_recv": _MESSAGE_PROVES}


def verdict(plan: Description) -> Text:
    """The verifier's word."""
    said = plan["verifier"]
    if said["verdict"] == "correct":
        proves = _SPECIAL_PROVES.get(plan["collective"], _PROVES)
        return Text.assemble(("correct", "green"), f": {proves}")
    if said["verdict"] == "wrong":
        return Text.assemble(("WRONG", "bold red"), f": {said['reason']}; please report this")
    return Text.assemble(("not asked", "yellow"), f": {said['reason']}")


def _facts(plan: Description, topology: Topology) -> Table:
    slices = plan["slices"]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    shape = f"{counted(len(topology.ranks), 'rank')} in {counted(plan['clusters'], 'cluster')}"
    table.add_row("call", f"{plan.call}, {shape}")
    table.add_row("plan", f'"{plan["plan"]}" in {counted(plan["stages"], "stage")}')
    if plan["bytes"]:
        number = f"{slices['number']:,} of {size(slices['bytes'])}"
        table.add_row("slices", f"{number}; up to {slices['slots']} in flight")
    ratio = "" if plan.of_least is None else f", {plan.of_least:.3f} of the least possible"
    table.add_row("crossing", f"{size(plan['cross_bytes'])} between clusters{ratio}")
    table.add_row("verifier", verdict(plan))
    return table


def _candidates(plan: Description) -> Table:
    table = Table(title="Plans to choose from", title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in ("plan", "hops", "slices of", "depth", "predicted", ""):
        table.add_column(column, justify="left" if column in ("plan", "") else "right")
    for one in plan["candidates"]:
        table.add_row(
            one["plan"], str(one["hops"]), size(one["slice_bytes"]), str(one["depth"]),
            duration(one["predicted_us"] * 1e-6), "chosen" if one["chosen"] else "",
        )  # fmt: skip
    table.caption = "predicted: the time between clusters alone"
    table.caption_justify = "left"
    return table


def _traffic(plan: Description, topology: Topology) -> Table:
    links = {(link.a, link.b): link for link in topology.links}
    table = Table(title="Between clusters", title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in ("from", "to", "bytes", "of all", "messages a slice", "by", "link's time"):
        table.add_column(column, justify="left" if column in ("from", "to", "by") else "right")
    total = plan["cross_bytes"] or 1
    for pair in plan["traffic"]:
        link = links.get((min(pair["from"], pair["to"]), max(pair["from"], pair["to"])))
        table.add_row(
            str(pair["from"]), str(pair["to"]), size(pair["bytes"]),
            f"{pair['bytes'] / total:.0%}", str(pair["messages"]), link.text if link else "",
            duration(pair["bytes"] * 8e-6 / link.mbps) if link and link.mbps else "",
        )  # fmt: skip
    return table


def _cards(plan: Description, topology: Topology) -> Table:
    """Returns the load of each host's cards."""
    table = Table(title="Cards of the hosts", title_justify="left", title_style="bold", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for column in ("host", "card", "rate", "sends", "of the host", "card's time"):
        table.add_column(column, justify="left" if column in ("host", "card") else "right")
    names = topology.hosts
    for card in plan["cards"]:
        total = sum(one["bytes"] for one in plan["cards"] if one["host"] == card["host"]) or 1
        table.add_row(
            Text(names[card["host"]]), Text(card["card"]), bandwidth(card["mbps"]),
            size(card["bytes"]), f"{card['bytes'] / total:.0%}",
            duration(card["bytes"] * 8e-6 / card["mbps"]) if card["mbps"] else "",
        )  # fmt: skip
    table.caption = "without what a vendor's library sends inside its cluster"
    table.caption_justify = "left"
    return table


def _steps(plan: RankPlan, topology: Topology) -> Table:
    share = topology.clusters[plan.cluster].share_of(plan.rank)
    role = f", carries {share} of its cluster's traffic" if share else ""
    title = Text.assemble(
        (f"rank {plan.rank}", "bold"), "  ",
        (f"cluster {plan.cluster}", colour_of(plan.cluster)), role,
    )  # fmt: skip
    table = Table(title=title, title_justify="left", title_style="", box=None, header_style="dim",
                  pad_edge=False)  # fmt: skip
    for column in ("stage", "step", "does", "on", "after steps"):
        table.add_column(column, justify="right" if column in ("stage", "step") else "left")
    for number, step in enumerate(plan.steps):
        regions = regions_of(step)
        for kind in ("shards", "transfers"):
            items = step.get(kind, [])
            if len(items) > _ITEMS:
                regions = f"{regions_of({kind: items[:_ITEMS]})}; {len(items) - _ITEMS} more"
        after = ", ".join(map(str, step.get("deps", [])))
        table.add_row(str(step["stage"]), str(number), name_of(step), Text(regions), after)
    return table


def _code(plan: RankPlan) -> Table:
    assert plan.code is not None
    buffers = f"{counted(plan.code['slots'], 'slot')}, buffers {plan.code['buffers']}"
    title = Text.assemble((f"rank {plan.rank}", "bold"), f"  instructions; {buffers}")
    table = Table(title=title, title_justify="left", title_style="", box=None, header_style="dim",
                  pad_edge=False)  # fmt: skip
    for column in ("section", "queue", "time", "instruction", "on"):
        table.add_column(column, justify="right" if column == "time" else "left")
    for one in plan.code["code"]:
        time = f"+{one['lag']}" if one["section"] == "body" else ""
        table.add_row(one["section"], one["queue"], time, one["op"], Text(_operands(one)))
    return table


def _operands(instruction: dict[str, Any]) -> str:
    """Returns the instruction's waits, and the operands that it reads and writes."""
    if "sync" in instruction:
        back = instruction.get("slices_before", 0)
        return str(instruction["sync"]) + (f", {counted(back, 'slice')} before" if back else "")
    if "message" in instruction:
        return f"message {instruction['message']}"
    done = f", then {instruction['done']}" if "done" in instruction else ""
    return regions_of(instruction) + done


def _mutants(plan: Description) -> Table:
    said = plan["mutants"]
    table = Table.grid(padding=(0, 2))
    share = said["rejected"] / max(1, said["made"])
    table.add_row("mutants", f"{said['made']:,} made, {said['rejected']:,} rejected ({share:.1%})")
    for survivor in said["survivors"]:
        table.add_row("survives", survivor)
    return table


def show(
    plan: Description, topology: Topology, console: Console | None = None, *, explain: bool = False
) -> None:
    """The call, what crosses between clusters, the verifier's word; then each rank's steps.

    With `explain` also the plans that were not taken, and which card of a host carries what.
    """
    console = console or Console()
    console.print(_facts(plan, topology))
    if explain and plan["candidates"]:
        console.print()
        console.print(_candidates(plan))
    if plan["traffic"]:
        console.print()
        console.print(_traffic(plan, topology))
    if explain and any(card["bytes"] for card in plan["cards"]):
        console.print()
        console.print(_cards(plan, topology))
    for rank in plan.ranks:
        console.print()
        console.print(_steps(rank, topology))
        if rank.code is not None:
            console.print()
            console.print(_code(rank))
    if "mutants" in plan.raw:
        console.print()
        console.print(_mutants(plan))
