"""``hetccl selftest``."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from hetccl import files, machine, origin
from hetccl.devices.choice import (
    AUTO,
    LookingError,
    check,
    gpus,
    library_paths,
    look,
    of_ranks,
    parse,
)
from hetccl.processes import run_processes
from hetccl.selftest import rank, rdma, report
from hetccl.selftest.rank import Job

ReportFile = Annotated[
    Path | None, typer.Option("--report", help="Write what was found here, as JSON.")
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="A device for each rank: host,host or hip:0,hip:1,host. Otherwise one for each GPU, "
        "and ranks of the host, so that there are two.",
    ),
]
Rdma = Annotated[
    bool,
    typer.Option(
        "--rdma",
        help="Every rank is a host of its own, and the others reach it by RDMA, through this "
        "machine's cards. Then the ranks are: one for each GPU, two for a lone one, and two of the "
        "host.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A few cases, in seconds. No evidence.")]
Emulator = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="What emulates this machine's devices. The report says it, and is no evidence of "
        "hardware.",
    ),
]
Deadline = Annotated[
    float, typer.Option("--deadline", min=1, help="Seconds after which ranks are killed.")
]


def choose_devices(found: dict[str, Any], by_rdma: bool = False) -> list[str]:
    """One for each GPU, and ranks of the host, so that there are two; with RDMA two in any case."""
    return rdma.choose_devices(gpus(found)) if by_rdma else of_ranks(AUTO, None, found, usual=2)


def choose_layouts(devices: list[str], by_rdma: bool = False) -> dict[str, list[str]]:
    """Labels: the clusters that hetccl finds, and a cluster for each rank.

    Two ranks of one GPU share no cluster, since the vendors' libraries refuse that. With RDMA ranks
    of the host share none, either: a layout in which no others could is left out.
    """
    seen = Counter[str]()
    found = []
    for device in devices:
        found.append(f"again-{seen[device]}" if device != "host" and seen[device] else "")
        seen[device] += 1
    split = {"split": [f"r{r}" for r in range(len(devices))]}
    if by_rdma and len({device for device in devices if device != "host"}) < 2:
        return split
    return {"found": found, **split}


def describe_machine(found: dict[str, Any]) -> dict[str, Any]:
    """Versions of all that was found; of the machine only what bears on the results."""
    keys = ("name", "available", "version", "path", "reason")
    libraries = [{key: one[key] for key in keys if key in one} for one in found["libraries"]]
    for one in libraries:
        if "path" in one:
            one["path"] = Path(one["path"]).name
    settings = found.get("settings", [])
    changed = {
        one["name"]: one["value"]
        for one in settings
        if str(one["value"]) != str(one["default"]) and one["type"] in ("flag", "integer", "choice")
    }
    return {
        "hetccl": {"version": found["version"], "commit": origin.commit()},
        "host": {**machine.facts(), "kernel": platform.release(), "machine": platform.machine()},
        "libraries": libraries,
        "transports": [one["name"] for one in found.get("transports", []) if one["available"]],
        "settings": changed,
    }


def run(job: Job, found: dict[str, Any], deadline: float) -> dict[str, Any]:
    """Starts the ranks, waits for them, and builds the report."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hetccl-selftest-") as name:
        folder = Path(name)
        endings = run_processes(
            lambda number, attendance: rank.run(job, number, folder, attendance),
            len(job.devices), deadline,
        )  # fmt: skip
        seconds = time.monotonic() - start
        machine_facts = {**describe_machine(found), "seconds": round(seconds, 1)}
        if job.rdma:
            machine_facts["rdma"] = rdma.describe(found)
        late = f"did not end in {deadline:g} s, and was killed: --deadline gives it longer"
        problems = [late if one.killed and seconds >= deadline else one.problem for one in endings]
        return report.build(job, folder, problems, machine_facts)


def selftest(
    report_file: ReportFile = None,
    devices: Devices = None,
    by_rdma: Rdma = False,
    quick: Quick = False,
    deadline: Deadline = 600,
    emulator: Emulator = "",
) -> None:
    """Test every collective on this machine's devices; write a report that you can send us.

    The ranks are processes of this machine. The report holds versions, devices, results and
    speeds, but no host name, address, user or folder.
    """
    try:
        # The transport that the user has named for jobs says nothing of the machine.
        found = look({"HETCCL_TRANSPORT": ""} if by_rdma else {}, deadline / 10)
    except LookingError as error:
        print(f"hetccl selftest: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if by_rdma and (reason := rdma.why_no_rdma(found)):
        print(f"hetccl selftest: there is no RDMA here: {reason}", file=sys.stderr)
        raise typer.Exit(1)
    chosen = parse(devices or AUTO) or choose_devices(found, by_rdma)
    if len(chosen) < 2:
        raise typer.BadParameter("--devices: name two or more, as in host,host")
    check(chosen, found)
    layouts = choose_layouts(chosen, by_rdma)
    job = Job(chosen, layouts, quick, library_paths(found), emulator, by_rdma)
    document = run(job, found, deadline)
    report.show(document)
    if report_file is not None:
        files.write_text(report_file, report.dump(document))
        print(f"report: {report_file}")
    raise typer.Exit(0 if document["result"]["ok"] else 1)
