"""``hetccl parallel``."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from hetccl.parallel.models import PRESETS, ParallelError, read_model
from hetccl.sharding.command import AsJson, Optimizer, parse_bandwidths, parse_memory
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
    by_cluster,
    parse_speeds,
    spread,
    topology_of,
)

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help=f"{', '.join(PRESETS)}; or a JSON file that describes one."
    ),
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Samples of a step.")]
Tensor = Annotated[
    int | None,
    typer.Option("--tensor", min=1, help="Ranks that share a layer. Else all are tried."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="N[,N]", help="Replicas of each stage, or of all: 8,16."),
]
PipelineOption = Annotated[
    int | None, typer.Option("--pipeline", min=1, help="Stages. Else all numbers are tried.")
]
Layers = Annotated[
    str | None, typer.Option("--layers", metavar="N,N", help="Layers of each stage: 26,10.")
]
Schedule = Annotated[
    Literal["1f1b", "interleaved", "zero-bubble"] | None,
    typer.Option("--schedule", metavar="NAME", help="1f1b, interleaved, zero-bubble. Else all."),
]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", min=1, help="Of a step. Else all numbers.")
]
Recompute = Annotated[
    bool, typer.Option("--recompute", help="Layers compute activations again, and keep none.")
]
MemoryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--memory", metavar="[CLUSTER=]SIZE", help="Of a rank: 1=64G. Else by kind of device."
    ),
]
Bandwidth = Annotated[
    list[str] | None,
    typer.Option(
        "--bandwidth",
        metavar="LEVEL=RATE",
        help="host, between: of a rank; cluster, all: of a host. 50GB/s, 400Gbit/s.",
    ),
]
Times = Annotated[
    Path | None,
    typer.Option(
        "--times",
        help="A file of `hetccl tune --output`: its all-reduces of all ranks are used as measured.",
    ),
]
ShowAll = Annotated[bool, typer.Option("--all", help="Print every row.")]
Save = Annotated[
    Path | None, typer.Option("--save", help="Write the best strategy here, for hetccl.parallel.")
]


def parse_counts(option: str, text: str | None) -> tuple[int, ...] | None:
    """Whole numbers of "26,10"."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,7}(,\d{1,7}){0,4095}", text):
        raise typer.BadParameter(f"{option} {text[:60]}: write whole numbers, such as 26,10")
    return tuple(map(int, text.split(",")))


def parallel(
    model: ModelName,
    topology: TopologyFile = None,
    layout: LayoutText = None,
    hosts: Hosts = None,
    kind: Kind = None,
    nic: Nic = None,
    nics: Cards = None,
    together: Together = False,
    batch: Batch = 256,
    tensor: Tensor = None,
    data: Data = None,
    pipeline: PipelineOption = None,
    layers: Layers = None,
    schedule: Schedule = None,
    micro_batches: MicroBatches = None,
    optimizer: Optimizer = "adamw",
    recompute: Recompute = False,
    speed: Speed = None,
    memory: MemoryOption = None,
    bandwidth: Bandwidth = None,
    times: Times = None,
    show_all: ShowAll = False,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Compare the [tensor, data, pipeline] strategies by which unlike ranks can train a model."""
    from hetccl.parallel import planner, sites, text

    widths, counts = parse_counts("--data", data), parse_counts("--layers", layers)
    complete = json.loads(read_or_make(topology, topology_of(layout, hosts, kind, nic, nics,
                                                             together)))  # fmt: skip
    clusters = len(complete["clusters"])
    sizes = {one: parse_memory(said) for one, said in by_cluster("--memory", memory).items()}
    try:
        described = dataclasses.replace(read_model(model), recompute=recompute)
        site = sites.read_site(
            complete, parse_speeds(speed, clusters), spread(sizes, clusters),
            parse_bandwidths(bandwidth or []),
        )  # fmt: skip
        if times is not None:
            with files_are_arguments():
                site = sites.read_times(times, site)
        made = planner.plan(
            described, site, batch, tensor=tensor, data=widths, pipeline=pipeline, layers=counts,
            schedule=schedule, micro_batches=micro_batches, optimizer=optimizer,
        )  # fmt: skip
    except ParallelError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print(json.dumps(text.to_values(made)))
    else:
        text.show(made, show_all)
    if made.best is None:
        raise typer.Exit(1)
    if save is not None:
        with files_are_arguments():
            made.best.strategy.save(save)
