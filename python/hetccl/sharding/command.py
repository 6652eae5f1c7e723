"""``hetccl shard``."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hetccl.arguments import parse_size
from hetccl.sharding.planner import MOST
from hetccl.topology.command import read_or_make
from hetccl.topology.options import (
    Cards,
    Hosts,
    Kind,
    LayoutText,
    Nic,
    Together,
    TopologyFile,
    topology_of,
)

if TYPE_CHECKING:
    from torch import nn


def parse_memory(text: str) -> int:
    """Bytes of a device: so few that a unit must be missing are an error."""
    size = parse_size(text)
    if size < 1 << 20:
        raise typer.BadParameter(f"{text!r} is {size} bytes: give a unit, such as {text}G")
    return size


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Parameters: 345M, 20B, 6.7e9; or MODULE:CALLABLE, which makes a module.",
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory",
        parser=parse_memory,
        metavar="SIZE",
        help="Of a rank, for model state: 40G. Else that of the device, where its kind is known.",
    ),
]
MicroBatches = Annotated[int, typer.Option("--micro-batches", min=1, help="Of a step.")]
Type = Annotated[
    Literal["bfloat16", "float16", "float32"],
    typer.Option(
        "--type", metavar="TYPE", help="Of weights and gradients: bfloat16, float16, float32."
    ),
]
Optimizer = Annotated[
    Literal["adamw", "momentum", "sgd"],
    typer.Option("--optimizer", metavar="NAME", help="adamw, momentum (SGD with it) or sgd."),
]
Bandwidth = Annotated[
    list[str] | None,
    typer.Option(
        "--bandwidth",
        metavar="LEVEL=RATE",
        help="pair, host: of a rank; cluster, all: of a host. 200GB/s, 400Gbit/s. "
        "Else by kind of device and card.",
    ),
]
WeightWire = Annotated[
    str,
    typer.Option("--weight-wire", metavar="WIRE", help="Of the best degrees: int8. Else exact."),
]
GradientWire = Annotated[
    str,
    typer.Option("--gradient-wire", metavar="WIRE", help="Of the best degrees: int4. Else exact."),
]
UpdateWire = Annotated[
    str,
    typer.Option("--update-wire", metavar="WIRE", help="Of the best degrees: int8. Else exact."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, not the tables.")]

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_RATES = {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8}


def parse_model(text: str) -> int | nn.Module:
    """A number of parameters, or the module that "MODULE:CALLABLE" makes on the meta device."""
    if ":" in text:
        return _make_module(text)
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\+?\d{1,2})?)([KMBT]?)", text, re.IGNORECASE)
    if not match:
        raise typer.BadParameter(
            f"{text!r} is no model: give a number of parameters, such as 345M, 20B or 6.7e9, or "
            "MODULE:CALLABLE"
        )
    parameters = float(match[1]) * _UNITS[match[2].upper()]
    if parameters > MOST:
        raise typer.BadParameter(f"{text[:20]!r} is too large a model: at most {MOST:.0e}")
    count = round(parameters)
    if count < 1:
        raise typer.BadParameter(f"{text!r} has no parameter")
    return count


def _make_module(text: str) -> nn.Module:
    try:
        import torch
    except ImportError:
        raise typer.BadParameter(
            f"{text}: making a module takes PyTorch: install it, or give a number of parameters"
        ) from None
    name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: object = importlib.import_module(name)
        for part in attribute.split("."):
            made = getattr(made, part)
        if not callable(made):
            raise typer.BadParameter(f"{text}: {attribute} cannot be called")
        with torch.device("meta"):
            module = made()
    except typer.BadParameter:
        raise
    except Exception as error:  # whatever a user's code raises
        raise typer.BadParameter(f"{text}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    if not isinstance(module, torch.nn.Module):
        raise typer.BadParameter(f"{text} made a {type(module).__name__}, and no torch.nn.Module")
    return module


def parse_bandwidths(texts: list[str]) -> dict[str, float]:
    """Bytes/s by level, of "host=50GB/s" and the like."""
    found = {}
    units = {unit.lower(): factor for unit, factor in _RATES.items()}
    for text in texts:
        level, _, rate = text.partition("=")
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MGT]B/s|[MG]bit/s)", rate, re.IGNORECASE)
        if not match:
            raise typer.BadParameter(
                f"--bandwidth {text}: write LEVEL=RATE, such as host=50GB/s or all=400Gbit/s"
            )
        found[level] = float(match[1]) * units[match[2].lower()]
    return found


def shard(
    model: Model,
    topology: TopologyFile = None,
    layout: LayoutText = None,
    hosts: Hosts = None,
    kind: Kind = None,
    nic: Nic = None,
    nics: Cards = None,
    together: Together = False,
    memory: MemoryOption = None,
    micro_batches: MicroBatches = 1,
    dtype: Type = "bfloat16",
    optimizer: Optimizer = "adamw",
    bandwidth: Bandwidth = None,
    weight_wire: WeightWire = "",
    gradient_wire: GradientWire = "",
    update_wire: UpdateWire = "",
    as_json: AsJson = False,
) -> None:
    """Show what sharding a model costs on a topology: memory, bytes, time, the best degrees."""
    from hetccl.sharding import ShardingError, plan, text

    complete = read_or_make(topology, topology_of(layout, hosts, kind, nic, nics, together))
    try:
        made = plan(
            parse_model(model), json.loads(complete), memory=memory, micro_batches=micro_batches,
            dtype=dtype, optimizer=optimizer, bandwidths=parse_bandwidths(bandwidth or []),
            weight_wire=weight_wire, gradient_wire=gradient_wire, update_wire=update_wire,
        )  # fmt: skip
    except ShardingError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print(json.dumps(text.to_values(made)))
    else:
        text.show(made)
