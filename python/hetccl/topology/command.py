"""``hetccl topo``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hetccl import files
from hetccl.arguments import Rendezvous
from hetccl.devices.choice import AUTO, Devices
from hetccl.topology.options import (
    Cards,
    Hosts,
    Kind,
    LayoutText,
    Nic,
    Together,
    topology_of,
)

File = Annotated[
    Path | None,
    typer.Argument(help="A topology in JSON; without it, the launcher's ranks or this machine."),
]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the picture here.")]
Save = Annotated[Path | None, typer.Option(help="Write the topology here, as JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, not the tables.")]
ShowAll = Annotated[bool, typer.Option("--all", help="Print every row.")]


@contextmanager
def files_are_arguments() -> Iterator[None]:
    """Files that cannot be read or written are the user's to mend: no traceback."""
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"a topology is text in UTF-8: {error}") from None


def read(file: Path) -> str:
    """Returns the complete topology of a file that describes ranks. Raises HetcclError with the
    reason.
    """
    from hetccl import _lib

    with files_are_arguments():
        return _lib.topology(file.read_text(encoding="utf-8"))


def read_or_make(file: Path | None, made: str | None) -> str:
    """The complete topology of a file, or `made` by --layout: exactly one of them is given."""
    if (made is None) == (file is None):
        raise typer.BadParameter("give either --topology FILE or --layout, such as --layout A4B4")
    if made is not None:
        return made
    assert file is not None
    return read(file)


def _of_job(rendezvous: Path | None, devices: str) -> tuple[str, int]:
    """The topology that the ranks of the launcher agree on, or this machine's; and the rank."""
    from hetccl.devices import choice
    from hetccl.devices.choice import LookingError
    from hetccl.launchers.placement import RendezvousError, find_placement
    from hetccl.topology.job import JobError, describe_machine, describe_rank

    try:
        place = find_placement()
        if place is not None and place.size == 1:
            place = None
        _, listed = choice.of_job(devices, place, None, usual=1)
        if place is None:
            return describe_machine(listed), 0
        return describe_rank(place.rank, place.size, listed[0], rendezvous), place.rank
    except (RendezvousError, LookingError, JobError) as error:
        raise typer.BadParameter(str(error)) from None


def topo(
    file: File = None,
    svg: Svg = None,
    save: Save = None,
    as_json: AsJson = False,
    show_all: ShowAll = False,
    layout: LayoutText = None,
    hosts: Hosts = None,
    kind: Kind = None,
    nic: Nic = None,
    nics: Cards = None,
    together: Together = False,
    rendezvous: Rendezvous = None,
    devices: Devices = AUTO,
) -> None:
    """Show hosts, clusters, ranks and links: of a file, a layout, a launcher's ranks, this machine.

    Under torchrun, mpirun or the like, its ranks meet, each on the GPU of its local rank, and rank
    0 shows what they agree on. --save writes what `hetccl plan`, `shard` and `balance` read.
    """
    from hetccl.topology import graph
    from hetccl.topology import svg as pictures
    from hetccl.topology import text as tables

    if file is not None and layout is not None:
        raise typer.BadParameter("give a file or --layout, not both")
    rank = 0
    complete = topology_of(layout, hosts, kind, nic, nics, together)
    if file is not None:
        complete = read(file)
    elif complete is None:
        complete, rank = _of_job(rendezvous, devices)
    if rank != 0:
        return
    topology = graph.parse(complete)
    with files_are_arguments():
        if save is not None:
            files.write_text(save, complete + "\n")
        if svg is not None:
            files.write_text(svg, pictures.draw(topology))
    if as_json:
        print(complete)
    else:
        tables.show(topology, show_all=show_all)
