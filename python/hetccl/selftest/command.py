"""``hetccl selftest``."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from hetccl import files, machine, origin
from hetccl.processes import run_processes
from hetccl.selftest import rank, rdma, report
from hetccl.selftest.rank import Job
from hetccl.topology.layout import unknown_vendor

_LOOKING = 60  # seconds

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


def look(environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """Returns the facts of `hetccl info`, which runs as a process of its own: a process that has
    loaded a driver must not fork. `environment` is added to this process's own."""
    limit = max(_LOOKING, seconds / 10)  # of the whole test
    done = subprocess.run(
        [sys.executable, "-m", "hetccl", "info", "--json"],
        env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=limit,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"hetccl info failed: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def choose_devices(found: dict[str, Any], by_rdma: bool = False) -> list[str]:
    """One for each GPU, and ranks of the host, so that there are two; with RDMA two in any case."""
    gpus = [one["device"] for one in found["devices"] if one["available"] and "device" in one]
    if by_rdma:
        return rdma.choose_devices(gpus)
    return gpus + ["host"] * (2 - len(gpus))


def check_devices(devices: list[str], found: dict[str, Any]) -> None:
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


def library_paths(found: dict[str, Any]) -> dict[str, list[str]]:
    """By name: an adaptor's device and a library may have one name, and files of their own."""
    paths: dict[str, list[str]] = {}
    for one in found["libraries"]:
        known = paths.setdefault(one["name"], [])
        if "path" in one and one["path"] not in known:
            known.append(one["path"])
    return {name: known for name, known in paths.items() if known}


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
        # What the user has named for jobs says nothing of the machine.
        found = look({"HETCCL_TRANSPORT": ""} if by_rdma else {}, deadline)
    except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"hetccl selftest: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if by_rdma and (reason := rdma.why_not(found)):
        print(f"hetccl selftest: there is no RDMA here: {reason}", file=sys.stderr)
        raise typer.Exit(1)
    chosen = devices.split(",") if devices else choose_devices(found, by_rdma)
    if len(chosen) < 2:
        raise typer.BadParameter("--devices: name two or more, as in host,host")
    check_devices(chosen, found)
    layouts = choose_layouts(chosen, by_rdma)
    job = Job(chosen, layouts, quick, library_paths(found), emulator, by_rdma)
    document = run(job, found, deadline)
    report.show(document)
    if report_file is not None:
        files.write_text(report_file, report.dump(document))
        print(f"report: {report_file}")
    raise typer.Exit(0 if document["result"]["ok"] else 1)
