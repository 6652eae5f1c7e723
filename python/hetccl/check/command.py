"""``hetccl check``."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from hetccl.arguments import Rendezvous
from hetccl.devices.choice import AUTO, Devices

Ranks = Annotated[
    int | None, typer.Option("--ranks", min=2, max=512, help="Processes to start here.")
]
Page = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page here, in HTML.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: all that was found.")]
EveryPair = Annotated[
    bool,
    typer.Option(
        "--every-pair",
        help="Measure each pair of ranks, also of more than 16 ranks, where one pair stands for "
        "two hosts and neighbours for a host.",
    ),
]
Wait = Annotated[
    float, typer.Option("--wait", min=1, max=3600, help="Seconds for all ranks to come.")
]


def _conclude(document: dict[str, Any], page: Path | None, as_json: bool) -> int:
    """Shows the results on rank 0. Returns the exit status."""
    from hetccl import files
    from hetccl.check import findings, text
    from hetccl.check import page as pages

    found = findings.find(document)
    if page is not None:
        try:
            files.write_text(page, pages.render(document, found))
        except OSError as error:
            print(f"hetccl check: {page}: {error.strerror}", file=sys.stderr)
            return 1
    if as_json:
        print(json.dumps({**document, "findings": [asdict(one) for one in found]}))
    else:
        text.show(document, found)
        if page is not None:
            print(f"page: {page}")
    sys.stdout.flush()
    return findings.status(found)


def check(
    ranks: Ranks = None,
    devices: Devices = AUTO,
    page: Page = None,
    as_json: AsJson = False,
    every_pair: EveryPair = False,
    wait: Wait = 30.0,
    rendezvous: Rendezvous = None,
) -> None:
    """Check hosts, links and devices before a job runs, and say what to mend.

    Run it under the job's launcher, with the job's settings, or alone: then it starts a rank for
    each GPU of this machine, or four on CPUs. Exit status: 0, 3 with warnings, 1 with errors.
    """
    from hetccl._lib import HetcclError
    from hetccl.check import rank as ranked
    from hetccl.check.panel import PanelError
    from hetccl.devices import choice
    from hetccl.devices.errors import DeviceError
    from hetccl.launchers.placement import RendezvousError, find_job
    from hetccl.processes import run_processes

    def say(what: str) -> None:
        if not as_json:
            print(f"# {what}", flush=True)

    def one(job: ranked.Job, rank: int, size: int, device: str) -> int:
        try:
            document = ranked.run(job, rank, size, device)
        except (RendezvousError, PanelError, DeviceError, HetcclError, OSError) as error:
            return ranked.complain(rank, error)
        return 0 if document is None else _conclude(document, page, as_json)

    place = None if ranks else find_job()
    try:
        found, listed = choice.of_job(devices, place, ranks, usual=4)
    except choice.LookingError as error:
        print(f"hetccl check: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if place is not None:
        job = ranked.Job(rendezvous, wait, every_pair, found, say)
        raise typer.Exit(one(job, place.rank, place.size, listed[0]))
    with tempfile.TemporaryDirectory(prefix="hetccl-check-") as folder:
        job = ranked.Job(Path(folder, "id"), wait, every_pair, found, say)

        def start(rank: int, attendance: Any) -> int:
            attendance.end(rank)  # rank 0 says who is missing, and needs the time to
            return one(job, rank, len(listed), listed[rank])

        endings = run_processes(start, len(listed))
    if endings[0].killed or endings[0].status < 0:  # rank 0 could not say what was wrong
        for rank, ending in enumerate(endings):
            if ending.problem and (rank == 0 or not ending.killed):
                ranked.complain(rank, ending.problem)
        raise typer.Exit(1)
    raise typer.Exit(endings[0].status)
