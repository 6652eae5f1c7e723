"""Starts the ranks of a benchmark: by itself as forked processes, or as one rank of a launcher."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hetccl._lib import HetcclError
from hetccl.bench import measure, table
from hetccl.bench.options import Options
from hetccl.communicator import Communicator
from hetccl.devices import choice
from hetccl.devices.choice import AUTO, LookingError
from hetccl.devices.errors import DeviceError
from hetccl.devices.memory import memory_of
from hetccl.launchers.placement import RendezvousError, find_job
from hetccl.processes import fork_ranks
from hetccl.rendezvous import exchange


@dataclass(frozen=True)
class Job:
    """The ranks of a benchmark: their places and their start."""

    options: Options
    clusters: int = 1  # to split the ranks into, besides what the machine makes of them
    interleave: bool = False  # ABAB instead of AABB
    rendezvous: Path | None = None
    as_json: bool = False
    devices: str = AUTO  # as --devices has it
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)  # paths by name
    timeout: float = 60.0  # seconds for the ranks to find each other
    met: Callable[[], None] = lambda: None  # called by each rank once all have met


def cluster_labels(ranks: int, clusters: int, interleave: bool) -> list[str]:
    """Returns each rank's label: AABB, or interleaved ABAB; empty labels for one cluster."""
    if clusters <= 1:
        return [""] * ranks
    return [f"c{r % clusters if interleave else r * clusters // ranks}" for r in range(ranks)]


def run_rank(job: Job, rank: int, size: int, device: str) -> int:
    """Runs one rank from start to end. Returns 0, or 1 if it failed or received wrong values."""

    def show(text: str) -> None:
        if rank == 0 and not job.as_json:
            print(text, flush=True)

    encoding = ""

    def show_row(row: measure.Row) -> None:
        nonlocal encoding
        if row.encoding not in ("", encoding):
            encoding = row.encoding
            show(table.encoding(row))
        show(table.line(job.options, row))

    labels = cluster_labels(size, job.clusters, job.interleave)
    try:
        meeting = exchange(rank, job.rendezvous, job.timeout)
        with Communicator(
            meeting.uid, rank, size, device=device, cluster=labels[rank] or None
        ) as comm:
            job.met()
            if job.rendezvous and rank == 0:  # all have come: nobody will read it again
                job.rendezvous.unlink(missing_ok=True)
            show(table.header(job.options, comm.topology(), labels))
            memory = memory_of(device, job.libraries)
            report = measure.run(comm, job.options, show_row, memory)
    except (HetcclError, RendezvousError, DeviceError, OSError, ValueError) as error:
        print(f"hetccl bench: rank {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    show(table.footer(report))
    if rank == 0 and job.as_json:
        print(json.dumps(report.to_dict(), indent=1), flush=True)
    return 1 if report.wrong else 0


def run_forked(job: Job, devices: Sequence[str]) -> int:
    """Runs all ranks as processes of this one, each with its device."""
    return fork_ranks(
        lambda rank, meeting, met: run_rank(
            replace(job, rendezvous=meeting, met=met), rank, len(devices), devices[rank]
        ),
        len(devices),
        "bench",
    )  # fmt: skip


def run(job: Job, ranks: int | None) -> int:
    """As a launcher's rank where one has set the environment, also with `-g 1`, as scripts for
    nccl-tests have it; else `ranks` forked ones."""
    place = find_job() if ranks in (None, 1) else None
    try:
        found, devices = choice.of_job(job.devices, place, ranks, usual=4)
    except LookingError as error:
        print(f"hetccl bench: {error}", file=sys.stderr)
        return 1
    job = replace(job, libraries=choice.library_paths(found))
    if place is not None:
        return run_rank(job, place.rank, place.size, devices[0])
    return run_forked(job, devices)
