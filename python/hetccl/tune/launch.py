"""Starts the ranks of a sweep, as one rank of a launcher or as forked processes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from hetccl._lib import HetcclError
from hetccl.communicator import Communicator
from hetccl.devices import choice
from hetccl.devices.errors import DeviceError
from hetccl.devices.memory import Memory, memory_of
from hetccl.launchers.placement import RendezvousError, find_job
from hetccl.processes import fork_ranks
from hetccl.rendezvous import exchange
from hetccl.tune import findings, knowledge
from hetccl.tune.findings import Finding
from hetccl.tune.lockstep import Rank
from hetccl.tune.options import Options
from hetccl.tune.records import Records, RecordsError
from hetccl.tune.sweep import Sweep, SweepError, Work, list_work

INTERRUPTED = 130  # a process's status, as shells have it
DEFAULT_LABELS = ("A", "A", "B", "B")  # of forked ranks


def _find_work(comm: Communicator, options: Options) -> tuple[list[Work], SweepError | None]:
    """The work, or why there is none: the same on all ranks, which leave in good order."""
    try:
        return list_work(comm, options), None
    except SweepError as error:
        return [], error


def _lead(comm: Communicator, options: Options, works: list[Work], memory: Memory) -> list[Finding]:
    """Rank 0's part while the others follow."""
    with Records(options.output) as records:
        return Sweep(comm, options, records, memory).run(works)


def _conclude(options: Options, found: list[Finding], tuning: dict[str, Any]) -> None:
    """Shows and keeps the results, on rank 0."""
    findings.show(found)
    print(f"measured: {options.output}; a page about it: hetccl tune --report {options.output}")
    if options.save:
        print(knowledge.save(found, tuning), flush=True)


def run_rank(options: Options, rank: int, size: int, device: str) -> int:
    """One rank, start to end: 0, or 1 when it failed."""
    # Nothing but the sweep changes a setting.
    os.environ["HETCCL_TUNE"] = "frozen"
    label = options.labels[rank] if options.labels else None
    try:
        meeting = exchange(rank, options.rendezvous, options.timeout)
        with Communicator(meeting.uid, rank, size, device=device, cluster=label) as comm:
            options.met()
            if options.rendezvous and rank == 0:  # all have come: nobody will read it again
                options.rendezvous.unlink(missing_ok=True)
            works, refusal = _find_work(comm, options)
            tuning, found = comm.tuning(), []
            memory = memory_of(device, options.libraries)
            memory.reserve(max(options.sizes))
            if works and rank == 0:
                found = _lead(comm, options, works, memory)
            elif works:
                Rank(comm, options.dtype, memory).follow()
        if refusal is not None:
            raise refusal
        if rank == 0:
            _conclude(options, found, tuning)
    except SweepError as error:
        if rank == 0:
            print(f"hetccl tune: {error}", file=sys.stderr, flush=True)
        return 1
    except (
        HetcclError, RendezvousError, RecordsError, DeviceError, knowledge.KnowledgeError, OSError,
        ValueError,
    ) as error:  # fmt: skip
        print(f"hetccl tune: rank {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def run(options: Options) -> int:
    """As a launcher's rank where one has set the environment, else a forked one for each label."""
    place = find_job()
    labels = options.labels or (DEFAULT_LABELS if place is None else ())
    if place is not None and labels and len(labels) != place.size:
        raise SweepError(
            f"--layout has {len(labels)} ranks, and the launcher started {place.size}: "
            "write a letter for each rank"
        )
    found, devices = choice.of_job(options.devices, place, len(labels), usual=len(labels))
    options = replace(options, labels=labels, libraries=choice.library_paths(found))
    if place is not None:
        return run_rank(options, place.rank, place.size, devices[0])
    return fork_ranks(
        lambda rank, meeting, met: run_rank(
            replace(options, rendezvous=meeting, met=met), rank, len(labels), devices[rank]
        ),
        len(labels),
        "tune",
    )  # fmt: skip
