"""Chooses the device of each rank of a command."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetccl import _lib
from hetccl.launchers.placement import Placement
from hetccl.topology.layout import unknown_vendor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

AUTO = "auto"
_LOOKING = 60  # seconds
# With these a launcher has given a task its own GPU, which is number 0 to the task.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
            "GPU_DEVICE_ORDINAL")  # fmt: skip

Devices = Annotated[
    str,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="auto: a GPU for each rank, by its local rank, where there are GPUs; cpu; or a device "
        "for each rank of a host: cuda:0,cuda:1,cpu.",
    ),
]


class LookingError(RuntimeError):
    """The machine's devices cannot be found out; the text says why."""


def find() -> dict[str, Any]:
    """The facts of `hetccl info` that concern this machine. This process must not fork later: it
    may have loaded a GPU's driver."""
    return {"version": ".".join(map(str, _lib.version())), **json.loads(_lib.info())}


def _send_facts(sender: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # ranks give the same warnings
    try:
        sender.send((True, find()))
    except Exception as error:
        sender.send((False, f"{type(error).__name__}: {error}"))


def look(environment: dict[str, str] | None = None, patience: float = 0) -> dict[str, Any]:
    """The same from a process of its own, so that this one may fork. `environment` is added to
    this process's own; `patience`: seconds that it may take, where that is more than a minute.
    Raises LookingError."""
    patience = max(_LOOKING, patience)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_send_facts, args=(sender, environment or {})
    )
    child.start()
    sender.close()
    try:
        if not receiver.poll(patience):
            raise LookingError(f"hetccl info did not answer within {patience:g} s")
        fine, found = receiver.recv()
    except EOFError:
        child.join()
        raise LookingError(f"hetccl info ended with status {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
    if not fine:
        raise LookingError(f"hetccl info failed: {found}")
    answer: dict[str, Any] = found
    return answer


def gpus(found: dict[str, Any]) -> list[str]:
    """The devices that can be used besides the host, as hetccl names them."""
    return [one["device"] for one in found["devices"] if one["available"] and "device" in one]


def library_paths(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """By name: an adaptor's device and a library may have one name, and files of their own."""
    paths: dict[str, list[str]] = {}
    for one in found["libraries"]:
        known = paths.setdefault(one["name"], [])
        if "path" in one and one["path"] not in known:
            known.append(one["path"])
    return {name: known for name, known in paths.items() if known}


def check(devices: list[str], found: dict[str, Any]) -> None:
    """Raises typer.BadParameter for a device that no vendor of `hetccl info` can have."""
    own = {"host", "cuda", "hip"}
    known = own | {one["vendor"] for one in found["devices"]}
    for device in devices:
        vendor, colon, index = device.partition(":")
        if vendor not in known:
            why = unknown_vendor(vendor, sorted(known - own))
            raise typer.BadParameter(f"--devices {device}: {why}")
        if colon and (vendor == "host" or not index.isdecimal()):
            example = "host" if vendor == "host" else f"{vendor}:0"
            raise typer.BadParameter(f"--devices {device}: write {example}")


def parse(text: str) -> list[str] | None:
    """The devices of a list, "cpu" by its other name, "host"; None for "auto"."""
    if text == AUTO:
        return None
    return ["host" if name == "cpu" else name for name in text.split(",")]


def of_ranks(text: str, ranks: int | None, found: dict[str, Any], usual: int) -> list[str]:
    """A device for each rank that a command starts here: `ranks` of them, or one for each device,
    or `usual` where there is nothing but the host. Raises typer.BadParameter."""
    listed = parse(text)
    if listed is None:
        present = gpus(found)
        number = ranks or (max(2, len(present)) if present else usual)
        return [*present[:number], *["host"] * (number - len(present))]
    check(listed, found)
    if len(listed) == 1 and listed[0] == "host":
        return listed * (ranks or usual)
    if ranks is not None and ranks != len(listed):
        raise typer.BadParameter(
            f"--devices names {len(listed)} devices and --ranks {ranks}: name one for each rank"
        )
    return listed


def of_rank(text: str, place: Placement, found: dict[str, Any]) -> str:
    """The device of a rank that a launcher has started. Raises typer.BadParameter."""
    listed = parse(text)
    if listed == ["host"]:
        return "host"
    if place.local_rank is None:
        if listed is None and not gpus(found):
            return "host"
        raise typer.BadParameter(
            f"--devices {text}: {place.launcher.name} does not say which of its host's ranks rank "
            f"{place.rank} is, so it has no device: start the job by torchrun, mpirun or srun, or "
            "give --devices cpu"
        )
    if listed is None:
        present = gpus(found)
        if len(present) == 1 and any(os.environ.get(name) for name in _VISIBLE):
            return present[0]
        return present[place.local_rank] if place.local_rank < len(present) else "host"
    check(listed, found)
    if place.local_rank >= len(listed):
        raise typer.BadParameter(
            f"--devices names {len(listed)} devices, and rank {place.rank} is number "
            f"{place.local_rank} of its host, counted from 0: name one for each rank of a host"
        )
    return listed[place.local_rank]


def of_job(
    text: str, place: Placement | None, ranks: int | None, usual: int
) -> tuple[dict[str, Any], list[str]]:
    """Returns what this machine has, and the device of the rank that a launcher has started, if
    there is a `place`, else one of each rank that the command starts. Raises LookingError and
    typer.BadParameter."""
    if place is not None:
        found = find()
        return found, [of_rank(text, place, found)]
    found = look()
    return found, of_ranks(text, ranks, found, usual)
