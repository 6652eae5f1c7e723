"""Processes that take turns at the same work: hetccl's and its peers', a job of ranks each.

Each rank is a worker that does what its parent asks, one line of JSON after the other, and answers
with one. What fails or hangs is ended, and the others go on.
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
    """A set of processes that share a role: a device each, and each one's environment."""

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
    """With `env` for all, and the variable `label` set to each one's letter of `labels`. It is
    called after its role, where no `name` tells it from others of that role."""
    own = [{label: letter} for letter in labels] if label else [{}] * len(devices)
    return Job(role, tuple(devices), tuple({**(env or {}), **mine} for mine in own), name or role)


def halves(count: int) -> str:
    """A label for each rank: A in the first half, B in the second."""
    return "A" * (count // 2) + "B" * (count - count // 2)


@dataclass
class Contender:
    """A job's processes, a pipe to and from each, and what they measured."""

    layout: str
    job: Job
    failure: str = ""
    facts: Answer = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Who it is, in messages."""
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
        """What each process answers to a command. Raises ContenderError."""
        line = json.dumps(command) + "\n"
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has died: its answer is the pipe's end
                process.stdin.write(line)
                process.stdin.flush()
        return self.answers(command["do"], seconds)

    def ask_at_once(self, seconds: float = ANSWER_SECONDS, **command: Any) -> list[Answer]:
        """The same of what all begin at one moment."""
        return self.ask(seconds, at=time.monotonic() + LEAD_SECONDS, **command)

    def answers(self, what: str, seconds: float) -> list[Answer]:
        """One answer of each process, all within so many seconds. Raises ContenderError."""
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
        """The end of what a process has printed."""
        self.logs[rank].seek(0)
        return "".join(self.logs[rank].readlines()[-15:])

    def fail(self, why: str) -> None:
        """Says so, once, and ends it."""
        self.failure = why
        print(f"FAILED  {self.name}: {why}", flush=True)
        self.kill()

    def attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """What `step` returns; None where it, or something before it, failed."""
        if self.failure:
            return None
        try:
            return step(*arguments)
        except ContenderError as error:
            self.fail(str(error))
            return None

    def end(self) -> None:
        """Has the processes leave in order; they are gone afterwards in any case."""

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
        """Ends what still runs."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                print(f"{self.name}: process {process.pid} cannot be killed", flush=True)


def slowest(answers: Sequence[Answer]) -> Answer:
    """Of each number the rank's that has most."""
    return {key: max(answer[key] for answer in answers) for key in answers[0]}


def ratio(theirs: float | None, ours: float | None) -> float | None:
    """Where both were measured."""
    return theirs / ours if theirs and ours else None


def text(number: float | None) -> str:
    """A cell: three digits or more."""
    if number is None:
        return "-"
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> None:
    """Columns of equal width, the first `words` of them to the left."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if index < words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def refuse_without_settings() -> None:
    """NVLink multicast can take the GPUs of a shared host out of service."""
    program = Path(sys.argv[0]).name
    for name, value in SAFETY.items():
        if os.environ.get(name) != value:
            sys.exit(f"{program}: refuses to start without {name}={value} in the environment")
