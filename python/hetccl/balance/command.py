"""``hetccl balance``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hetccl.balance.planner import Plan, divide_by_speeds, plan
from hetccl.balance.profiles import BalanceError
from hetccl.parallel.models import ParallelError
from hetccl.topology.command import files_are_arguments, read_or_make
from hetccl.topology.options import (
    Cards,
    Hosts,
    Kind,
    LayoutText,
    Nic,
    Speed,
    Together,
    TopologyFile,
    parse_speeds,
    topology_of,
)

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="A plan that Plan.save of hetccl.balance, or --save, has written."
    ),
]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, help="Samples of all ranks. Else the plan's.")
]
Accumulation = Annotated[
    int | None,
    typer.Option("--accumulation", min=1, help="Micro-batches of a rank. Else the fastest number."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, not the table.")]


Save = Annotated[
    Path | None,
    typer.Option("--save", help="Write the plan here: hetccl.balance.Plan.load begins with it."),
]


def balance(
    file: File = None,
    topology: TopologyFile = None,
    layout: LayoutText = None,
    hosts: Hosts = None,
    kind: Kind = None,
    nic: Nic = None,
    nics: Cards = None,
    together: Together = False,
    batch: Batch = None,
    accumulation: Accumulation = None,
    speed: Speed = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Explain the shares of a balanced job, or divide another batch by its profiles.

    With a topology instead of a plan, divide a batch by the speeds of its devices, before anything
    is measured.
    """
    from hetccl.balance import text

    made = topology_of(layout, hosts, kind, nic, nics, together)
    try:
        if file is None:
            if topology is None and made is None:
                raise typer.BadParameter(
                    "give the FILE of a plan, --topology FILE or --layout, such as --layout A4B4"
                )
            if batch is None:
                raise typer.BadParameter("a topology has no batch: give --batch, such as 256")
            complete = json.loads(read_or_make(topology, made))
            found = _divide(complete, speed, batch, accumulation)
        else:
            found = _read(file, topology is not None or made is not None or bool(speed))
            if batch is not None or accumulation is not None:
                found = plan(found.profiles, batch or found.batch, accumulation)
    except (BalanceError, ParallelError) as error:
        raise typer.BadParameter(str(error)) from None
    if save is not None:
        with files_are_arguments():
            found.save(save)
    if as_json:
        print(json.dumps(text.to_values(found)))
    else:
        text.show(found)


def _read(file: Path, has_topology: bool) -> Plan:
    if has_topology:
        raise typer.BadParameter(
            "give a plan, which has its ranks' profiles, or --topology, --layout and --speed"
        )
    try:
        return Plan.load(file)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None


def _divide(
    complete: dict[str, Any], speed: list[str] | None, batch: int, accumulation: int | None
) -> Plan:
    """Divides a batch by the speeds of a topology's devices: the makers', or those of --speed."""
    from hetccl.parallel.sites import read_site

    site = read_site(complete, parse_speeds(speed, len(complete["clusters"])))
    return divide_by_speeds(site.speeds, batch, accumulation, devices=site.devices)
