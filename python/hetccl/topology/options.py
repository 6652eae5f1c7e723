"""The command line's options that give or make a topology, or give values to its clusters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

import typer

TopologyFile = Annotated[
    Path | None,
    typer.Option(
        "--topology", help="A file of `hetccl topo --save`, or made by hand; or give --layout."
    ),
]
LayoutText = Annotated[
    str | None,
    typer.Option("--layout", metavar="AABB", help="Make a topology: a letter per rank, or A2B2."),
]
Hosts = Annotated[
    int | None, typer.Option("--hosts", min=1, help="--layout: hosts of each letter. Else 1.")
]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="[A=]VENDOR[:MODEL]",
        help="--layout: A=cuda:H100, hip, host, or an adaptor's device. Else host.",
    ),
]
Nic = Annotated[
    list[str] | None,
    typer.Option(
        "--nic",
        metavar="[A=]SPEED",
        help="--layout: of a card: 400G, A=25G. Else by kind: 400G for an H100, 10G for a host.",
    ),
]
Cards = Annotated[
    int | None,
    typer.Option("--nics", min=1, max=64, help="--layout: cards of a host. Else one a GPU."),
]
Together = Annotated[
    bool, typer.Option("--together", help="--layout: all letters on the same hosts.")
]
Speed = Annotated[
    list[str] | None,
    typer.Option(
        "--speed",
        metavar="[CLUSTER=]RATE",
        help="FLOP/s that a rank reaches: 0=120T. Else 40 % of the maker's, by kind of device.",
    ),
]

_Given = TypeVar("_Given")
_SPEEDS = {"G": 1e9, "T": 1e12, "P": 1e15}


def topology_of(
    layout: str | None, hosts: int | None, kind: list[str] | None, nic: list[str] | None,
    nics: int | None, together: bool,
) -> str | None:  # fmt: skip
    """The complete topology that the options describe; None without --layout.

    Raises typer.BadParameter where they do not fit together.
    """
    if layout is None:
        given = {"--hosts": hosts, "--kind": kind, "--nic": nic, "--nics": nics,
                 "--together": together or None}  # fmt: skip
        if alone := [option for option, value in given.items() if value is not None]:
            raise typer.BadParameter(f"{alone[0]} describes a layout: give --layout, such as A4B4")
        return None
    from hetccl import _lib
    from hetccl.topology import layout as layouts

    try:
        made = layouts.parse(layout, hosts or 1, kind, nic, nics, together)
    except layouts.LayoutError as error:
        raise typer.BadParameter(str(error)) from None
    if made.without_kind:
        letters = " and ".join(made.without_kind)
        typer.echo(f"{letters}: hosts (CPUs), since no --kind names a device", err=True)
    return _lib.topology(layouts.to_json(made))


def parse_speeds(texts: list[str] | None, clusters: int) -> dict[int, float]:
    """FLOP/s by number of the cluster, of --speed."""
    speeds = {one: _parse_speed(said) for one, said in by_cluster("--speed", texts).items()}
    return spread(speeds, clusters)


def by_cluster(option: str, texts: list[str] | None) -> dict[int | None, str]:
    """Returns {0: "x", None: "y"} for ["0=x", "y"]."""
    found: dict[int | None, str] = {}
    for text in texts or []:
        cluster, equals, value = text.rpartition("=")
        if equals and not re.fullmatch(r"\d{1,5}", cluster):
            raise typer.BadParameter(
                f"{option} {text}: {cluster!r} is no number of a cluster (hetccl topo shows them)"
            )
        found[int(cluster) if equals else None] = value
    return found


def _parse_speed(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([GTP])", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise typer.BadParameter(f"--speed {text}: write FLOP/s, such as 120T or 1.5P")
    return float(match[1]) * _SPEEDS[match[2].upper()]


def spread(given: dict[int | None, _Given], clusters: int) -> dict[int, _Given]:
    """Gives clusters without a value of their own the one that was given for all."""
    everywhere = {} if None not in given else dict.fromkeys(range(clusters), given[None])
    return {**everywhere, **{one: value for one, value in given.items() if one is not None}}
