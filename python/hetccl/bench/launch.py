"""Starts the ranks of a benchmark: by itself as forked processes, or as one rank of a launcher."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hetccl._lib import HetcclError
from hetccl.bench import measure, table
from hetccl.bench.options import Options
from hetccl.communicator import Communicator
from hetccl.launchers.placement import RendezvousError, find_job
from hetccl.processes import fork_ranks
from hetccl.rendezvous import exchange


@dataclass(frozen=True)
class Job:
    """Where and how a benchmark runs."""

    options: Options
    clusters: int = 1  # to split the ranks into, besides what the machine makes of them
    interleave: bool = False  # ABAB instead of AABB
    rendezvous: Path | None = None
    as_json: bool = False
    timeout: float = 60.0  # seconds for the ranks to find each other
    met: Callable[[], None] = lambda: None  # called by each rank once all have met


def cluster_labels(ranks: int, clusters: int, interleave: bool) -> list[str]:
    """Each rank's label: AABB, or interleaved ABAB; empty ones for one cluster."""
    if clusters <= 1:
        return [""] * ranks
    return [f"c{r % clusters if interleave else r * clusters // ranks}" for r in range(ranks)]


def run_rank(job: Job, rank: int, size: int) -> int:
    """One rank, start to end: 0, or 1 when it failed or received wrong values."""

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
        with Communicator(meeting.uid, rank, size, cluster=labels[rank] or None) as comm:
            job.met()
            if job.rendezvous and rank == 0:  # all have come: nobody will read it again
                job.rendezvous.unlink(missing_ok=True)
            show(table.header(job.options, size, labels))
            report = measure.run(comm, job.options, show_row)
    except (HetcclError, RendezvousError, OSError, ValueError) as error:
        print(f"hetccl bench: rank {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    show(table.footer(report))
    if rank == 0 and job.as_json:
        print(json.dumps(report.to_dict(), indent=1), flush=True)
    return 1 if report.wrong else 0


def run_forked(job: Job, ranks: int) -> int:
    """All ranks, as processes of this one."""
    return fork_ranks(
        lambda rank, meeting, met: run_rank(
            replace(job, rendezvous=meeting, met=met), rank, ranks
        ),
        ranks,
        "bench",
    )  # fmt: skip


def run(job: Job, ranks: int | None) -> int:
    """As a launcher's rank where one has set the environment, else `ranks` forked ones."""
    found = find_job()
    if found is not None and ranks is None:
        return run_rank(job, found.rank, found.size)
    return run_forked(job, ranks or 4)
