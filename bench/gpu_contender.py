"""Processes that take turns at the same work: hetccl's and its peers', a job of ranks each.

Each rank is a worker that reads commands from its parent, one line of JSON each, and answers each
with one line. A job that fails or hangs is ended, and the others go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetccl.hosts import free_port

ANSWER_SECONDS = 60.0
END_SECONDS = 60.0
LEAD_SECONDS = 0.003  # from a command to the moment when all ranks start
GRACE_SECONDS = 3.0  # for what other ranks say of one that failed

SAFETY = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
EVERYBODY = {
    "MASTER_ADDR": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HETCCL_SOCKET_IFNAME": "=lo",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
NCCL_SHARED_MEMORY = {"NCCL_P2P_DISABLE": "1"}
NCCL_SOCKETS = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",  # NVLink between hosts
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_NTHREADS": "4",
    "NCCL_NSOCKS_PERTHREAD": "4",
}
# Variables that tell layouts apart are not taken from the environment.
OWN = {"HETCCL_CLUSTER", "HETCCL_SHM", "NCCL_HOSTID", *NCCL_SHARED_MEMORY, *NCCL_SOCKETS}
Answer = dict[str, Any]


class ContenderError(Exception):
    """A contender cannot go on."""


@dataclass(frozen=True)
class Job:
    """Processes that share a role, each with its device and its environment."""

    role: str
    devices: tuple[str, ...]
    env: tuple[dict[str, str], ...]
    name: str  # in tables


def job(
    role: str,
    devices: Sequence[str],
    env: dict[str, str] | None = None,
    label: str = "",
    labels: str = "",
    name: str = "",
) -> Job:
    """Makes a job with the environment `env` for all ranks, and with the variable `label` set to
    each rank's letter of `labels`. The default name is the role; jobs of one role need different
    names.
    """
    own = [{label: letter} for letter in labels] if label else [{}] * len(devices)
    return Job(role, tuple(devices), tuple({**(env or {}), **mine} for mine in own), name or role)


def halves(count: int) -> str:
    """A label for each rank: A in the first half, B in the second."""
    return "A" * (count // 2) + "B" * (count - count // 2)


@dataclass
class Contender:
    """A job's processes, the pipes to and from each, and their results."""

    layout: str
    job: Job
    failure: str = ""
    facts: Answer = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.layout}: {self.job.name}"

    def start(self, worker: Path, *arguments: str) -> None:
        """Starts the processes; each answers once when it is ready."""
        kept = {name: value for name, value in os.environ.items() if name not in OWN}
        port, size = str(free_port()), str(len(self.job.devices))
        for rank, (device, own) in enumerate(zip(self.job.devices, self.job.env, strict=True)):
            argv = [sys.executable, str(worker), "--role", self.job.role, "--device", device]
            argv += arguments
            env = {"MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": size}
            env["LOCAL_RANK"] = env["RANK"]
            env = {**kept, **EVERYBODY, **env, **own}
            log = tempfile.TemporaryFile("w+")  # noqa: SIM115
            pipe = subprocess.PIPE
            self.processes.append(
                subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=log, text=True)
            )
            self.logs.append(log)

    def ask(self, seconds: float = ANSWER_SECONDS, **command: Any) -> list[Answer]:
        """Sends a command to each process, and returns their answers. Raises ContenderError."""
        line = json.dumps(command) + "\n"
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has died: its answer is the pipe's end
                process.stdin.write(line)
                process.stdin.flush()
        return self.answers(command["do"], seconds)

    def ask_at_once(self, seconds: float = ANSWER_SECONDS, **command: Any) -> list[Answer]:
        """Like `ask`, with a moment at which all processes begin."""
        return self.ask(seconds, at=time.monotonic() + LEAD_SECONDS, **command)

    def answers(self, what: str, seconds: float) -> list[Answer]:
        """Returns one answer of each process, all within so many seconds. Raises ContenderError."""
        deadline = time.monotonic() + seconds
        pending: dict[Any, int] = {each.stdout: rank for rank, each in enumerate(self.processes)}
        got: dict[int, Answer] = {}
        errors: list[str] = []
        while pending and (left := deadline - time.monotonic()) > 0:
            for pipe in select.select(list(pending), [], [], left)[0]:
                rank = pending.pop(pipe)
                line = pipe.readline()
                got[rank] = json.loads(line) if line else {"error": f"died.\n{self.log(rank)}"}
                if "error" in got[rank]:
                    errors.append(f"rank {rank}: {got[rank]['error'].strip()}")
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        late = "while another failed" if errors else f"within {seconds:.0f} s"
        errors += [f"rank {rank}: no answer {late}" for rank in pending.values()]
        if errors:
            raise ContenderError("\n  ".join([f"{what}:", *errors]))
        return [answer for _, answer in sorted(got.items())]

    def log(self, rank: int) -> str:
        """Returns the end of a process's output."""
        self.logs[rank].seek(0)
        return "".join(self.logs[rank].readlines()[-15:])

    def fail(self, why: str) -> None:
        """Prints the reason, and ends the contender."""
        self.failure = why
        print(f"FAILED  {self.name}: {why}", flush=True)
        self.kill()

    def attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of `step`; None if it fails, or if the contender has failed before."""
        if self.failure:
            return None
        try:
            return step(*arguments)
        except ContenderError as error:
            self.fail(str(error))
            return None

    def end(self) -> None:
        """Asks the processes to leave in order, then kills those that are left."""

        def leave() -> None:
            self.ask(END_SECONDS, do="end")
            deadline = time.monotonic() + END_SECONDS
            for rank, process in enumerate(self.processes):
                try:
                    status = process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise ContenderError(f"end: rank {rank} does not exit") from None
                if status != 0:
                    raise ContenderError(f"end: rank {rank} exits with {status}\n{self.log(rank)}")

        self.attempt(leave)
        self.kill()

    def kill(self) -> None:
        """Kills the processes that still run."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                print(f"{self.name}: process {process.pid} cannot be killed", flush=True)


def slowest(answers: Sequence[Answer]) -> Answer:
    """Returns the largest value of each number over the ranks."""
    return {key: max(answer[key] for answer in answers) for key in answers[0]}


def ratio(theirs: float | None, ours: float | None) -> float | None:
    """Returns theirs / ours; None unless both were measured."""
    return theirs / ours if theirs and ours else None


def text(number: float | None) -> str:
    """Returns a number as a table's cell, with three digits or more."""
    if number is None:
        return "-"
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> None:
    """Prints columns of equal width; the first `words` columns are aligned to the left."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if index < words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def refuse_without_settings() -> None:
    """Exits unless NVLink multicast is off: it can put the GPUs of a shared host out of use."""
    program = Path(sys.argv[0]).name
    for name, value in SAFETY.items():
        if os.environ.get(name) != value:
            sys.exit(f"{program}: refuses to start without {name}={value} in the environment")
