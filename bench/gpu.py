"""hetccl beside NCCL and Gloo through torch.distributed, on this machine's NVIDIA GPUs.

    python bench/gpu.py                   all layouts
    python bench/gpu.py --only tcp mixed  some of them
    python bench/gpu.py --devices cpu     ranks of the host instead: to check this script

A layout's contenders are alive at the same time and take turns, collective by collective and size
by size, a measurement each; medians of the rounds are shown. Fails when a process fails or hangs or
a value is wrong, not when hetccl is slow. Needs torch and the hetccl package, nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "gpu_worker.py"
COLLECTIVES = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")
SIZES = ("4K", "64K", "1M", "16M", "64M", "256M")
WARM_UPS = 2
LONGEST = 0.15  # seconds of calls in a row: there are fewer of what is slow
ANSWER_SECONDS = 20.0
END_SECONDS = 10.0
GRACE_SECONDS = 3.0  # for what other ranks say of one that failed
LEAD_SECONDS = 0.003  # from a command to the moment when all ranks start
PROBE_BYTES = 256 << 20
PROBE_ROUNDS = 5
COPIES = 5
STREAMS = (1, 4)
ROUND_TRIPS = 2000

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
# What tells layouts apart is not taken from the environment.
OWN = {"HETCCL_CLUSTER", "HETCCL_SHM", "NCCL_HOSTID", *NCCL_SHARED_MEMORY, *NCCL_SOCKETS}

Answer = dict[str, Any]
Cell = tuple[str, int]  # a collective and its bytes


class ContenderError(Exception):
    """A contender cannot go on."""


@dataclass(frozen=True)
class Job:
    """A set of processes that share a role: a device each, and each one's environment."""

    role: str
    devices: tuple[str, ...]
    env: tuple[dict[str, str], ...]


def job(
    role: str,
    devices: Sequence[str],
    env: dict[str, str] | None = None,
    label: str = "",
    labels: str = "",
) -> Job:
    """With `env` for all, and the variable `label` set to each one's letter of `labels`."""
    own = [{label: letter} for letter in labels] if label else [{}] * len(devices)
    return Job(role, tuple(devices), tuple({**(env or {}), **mine} for mine in own))


@dataclass(frozen=True)
class Layout:
    """Jobs that are compared with each other: hetccl's first, then its peers'."""

    name: str
    title: str
    jobs: tuple[Job, ...]
    probe: Job | None = None
    labels: str = ""


def layouts_of_gpus(count: int) -> list[Layout]:
    """What is measured with so many GPUs."""
    gpus = [f"cuda:{i}" for i in range(count)]
    mixed = [*gpus[:2], "cpu", "cpu"]
    return [
        Layout("one", "one cluster", (job("hetccl", gpus), job("nccl", gpus))),
        *two_clusters(gpus if count > 1 else gpus * 2),
        Layout("mixed", "GPUs and ranks of the host", (job("hetccl", mixed), job("gloo", mixed))),
    ]


def two_clusters(devices: Sequence[str]) -> list[Layout]:
    """A half of the devices in each: by shared memory, and by TCP."""
    labels = halves(len(devices))
    shared = [job("hetccl", devices, None, "HETCCL_CLUSTER", labels)]
    sockets = [job("hetccl", devices, {"HETCCL_SHM": "0"}, "HETCCL_CLUSTER", labels)]
    copies = None
    if "cpu" in devices:
        shared.append(job("gloo", devices))
    else:
        copies = job("copies", devices)
        if len(set(devices)) == len(devices):  # NCCL does not take a GPU twice
            shared.append(job("nccl", devices, NCCL_SHARED_MEMORY))
            sockets.append(job("nccl", devices, NCCL_SOCKETS, "NCCL_HOSTID", labels))
    sockets.append(job("gloo", devices))
    loopback = job("loopback", ("cpu", "cpu"))
    return [
        Layout("shm", "two clusters, shared memory", tuple(shared), copies, labels),
        Layout("tcp", "two clusters, TCP", tuple(sockets), loopback, labels),
    ]


def halves(count: int) -> str:
    """A label for each rank: A in the first half, B in the second."""
    return "A" * (count // 2) + "B" * (count - count // 2)


PORTS = itertools.count(29500)


def free_port() -> int:
    """One that nobody has, and that no other call returns."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError


@dataclass
class Contender:
    """A job's processes, a pipe to and from each, and what they measured."""

    layout: str
    job: Job
    failure: str = ""
    cells: dict[Cell, list[Answer]] = field(default_factory=dict)
    facts: Answer = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Who it is, in messages."""
        return f"{self.layout}: {self.job.role}"

    def start(self, most_bytes: int) -> None:
        """Starts the processes; each answers once when it is ready."""
        kept = {name: value for name, value in os.environ.items() if name not in OWN}
        port, size = str(free_port()), str(len(self.job.devices))
        for rank, (device, own) in enumerate(zip(self.job.devices, self.job.env, strict=True)):
            argv = [sys.executable, str(WORKER), "--role", self.job.role, "--device", device]
            argv += ["--bytes", str(most_bytes)]
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

    def measure(self, cell: Cell, times: int, each: bool) -> Answer:
        """One measurement: the slowest rank's seconds, and all ranks' CPU."""
        at = time.monotonic() + LEAD_SECONDS
        collective, size = cell
        got = self.ask(
            do="measure", collective=collective, bytes=size, times=times, at=at, each=each
        )
        worst = {key: max(answer[key] for answer in got) for key in got[0]}
        return {**worst, "cpu": sum(answer["cpu"] for answer in got), "times": times}

    def check(self, cell: Cell) -> None:
        """Raises ContenderError where a rank gets a wrong value."""
        collective, size = cell
        got = self.ask(do="check", collective=collective, bytes=size)
        wrong = [rank for rank, answer in enumerate(got) if not answer["right"]]
        if wrong:
            raise ContenderError(f"{collective} of {text_of(size)}: WRONG VALUES on ranks {wrong}")

    def median(self, cell: Cell, key: str) -> float | None:
        """Of all rounds, where it was measured to the end."""
        rounds = self.cells.get(cell, [])
        return statistics.median(answer[key] for answer in rounds) if rounds else None


def calls(size: int, seconds: float) -> int:
    """How many in a row make a measurement, where one takes so long."""
    wanted = 50 if size <= 64 << 10 else 20 if size <= 1 << 20 else 5
    return max(1, min(wanted, int(LONGEST / max(seconds, 1e-9))))


def measure_cell(contenders: Sequence[Contender], cell: Cell, repeats: int, each: bool) -> None:
    """Checks and measures a collective, one contender after the other, round after round."""
    rounds: dict[str, list[Answer]] = {contender.name: [] for contender in contenders}
    times = {contender.name: 1 for contender in contenders}
    for contender in contenders:
        contender.attempt(contender.check, cell)
    for number in range(WARM_UPS + repeats):
        shift = number % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            got = contender.attempt(contender.measure, cell, times[contender.name], each)
            if got is not None and number < WARM_UPS:
                times[contender.name] = calls(cell[1], got["seconds"])
            elif got is not None:
                rounds[contender.name].append(got)
    for contender in contenders:
        if not contender.failure:
            contender.cells[cell] = rounds[contender.name]


def measure_probe(probe: Contender) -> Answer:
    """Median GB/s each way of copies, or of TCP streams and a round trip's microseconds."""

    def median(do: str, **arguments: Any) -> float:
        worst: list[float] = []
        for _ in range(1 + PROBE_ROUNDS):
            at = time.monotonic() + LEAD_SECONDS
            worst.append(max(a["seconds"] for a in probe.ask(do=do, at=at, **arguments)))
        return statistics.median(worst[1:])

    if probe.job.role == "copies":
        return {"copies": PROBE_BYTES / median("measure", times=COPIES) / 1e9}
    result: Answer = {
        f"streams_{n}": PROBE_BYTES / median("measure", streams=n, bytes=PROBE_BYTES) / 1e9
        for n in STREAMS
    }
    return {**result, "round_trip_us": 1e6 * median("round_trip", times=ROUND_TRIPS)}


def limits(labels: str, duplex: float) -> dict[str, float]:
    """GB/s of the buffer where each GPU carries its share of what must cross, `duplex` each way.

    Of an all-reduce the whole buffer crosses both ways, of the other two each half's part, all of
    it divided among a half's GPUs.
    """
    few, many = sorted((labels.count("A"), labels.count("B")))
    part = duplex * len(labels) * few / many
    return {
        "all_reduce": duplex * few,
        "all_gather_into_tensor": part,
        "reduce_scatter_tensor": part,
    }


@dataclass
class Measured:
    """A layout's results."""

    layout: Layout
    contenders: list[Contender]
    sizes: list[int]
    probed: Answer = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    def speed_rows(self) -> Iterable[list[str]]:
        """Of each collective and size: everybody's, as a multiple of peers', of the limit."""
        for collective, size in itertools.product(COLLECTIVES, self.sizes):
            cell = (collective, size)
            seconds = [contender.median(cell, "seconds") for contender in self.contenders]
            if not any(seconds):
                continue
            small = size <= 64 << 10
            row = [collective, text_of(size), "us" if small else "GB/s"]
            row += [text(s and (1e6 * s if small else size / s / 1e9)) for s in seconds]
            row += [text(ratio(other, seconds[0])) for other in seconds[1:]]
            if self.limits:
                most = self.limits.get(collective)
                row.append(text(ratio(most and size / most / 1e9, seconds[0])))
            yield row

    def detail_rows(self, size: int, keys: Sequence[str], factor: float) -> Iterable[list[str]]:
        """Of each collective at one size: other numbers of everybody."""
        for collective in COLLECTIVES:
            found = [c.median((collective, size), k) for k in keys for c in self.contenders]
            if any(number is not None for number in found):
                yield [collective, *(text(n if n is None else factor * n) for n in found)]

    def show(self) -> None:
        """Prints the tables."""
        roles = [contender.job.role for contender in self.contenders]
        of = [f"/{role}" for role in roles[1:]]
        print(f"\n{self.layout.title}: the peer's time over hetccl's is /PEER, more is better")
        for line in self.probe_lines():
            print(line)
        of += ["/limit"] if self.limits else []
        print_table(["collective", "size", "unit", *roles, *of], self.speed_rows(), 3)
        small, large = self.sizes[0], self.sizes[-1]
        print(f"{text_of(small)}, us: each call synchronised (alone); until calls return (host)")
        heads = [f"{role} {what}" for what in ("alone", "host") for role in roles]
        print_table(["collective", *heads], self.detail_rows(small, ("alone", "host"), 1e6), 1)
        print(f"{text_of(large)}, CPU seconds of all ranks per GB, without waiting in synchronize")
        rows = self.detail_rows(large, ("cpu",), 1e9 / large)
        print_table(["collective", *roles], rows, 1)
        sys.stdout.flush()

    def probe_lines(self) -> Iterable[str]:
        """What the probes found."""
        if self.limits:
            yield (
                "limit: all GPUs at once copy to and from pinned memory at "
                f"{text(self.probed['copies'])} GB/s each way; so at most "
                f"{text(self.limits['all_reduce'])} GB/s of an all-reduce, "
                f"{text(self.limits['all_gather_into_tensor'])} of an all-gather or reduce-scatter"
            )
        elif self.probed:
            rates = [f"{n}: {text(self.probed[f'streams_{n}'])}" for n in STREAMS]
            yield (
                f"plain TCP over loopback, GB/s each way at once, by streams: {', '.join(rates)}; "
                f"a byte's polled round trip {text(self.probed['round_trip_us'])} us"
            )

    def document(self) -> Answer:
        """For --json: all rounds."""
        ran = {}
        for contender in self.contenders:
            cells = [
                {"collective": collective, "bytes": size, "rounds": rounds}
                for (collective, size), rounds in contender.cells.items()
            ]
            facts = {"failure": contender.failure, **contender.facts}
            ran[contender.job.role] = {**facts, "devices": contender.job.devices, "cells": cells}
        return {"layout": self.layout.title, "probed": self.probed, "contenders": ran}


def ratio(theirs: float | None, ours: float | None) -> float | None:
    """Where both were measured."""
    return theirs / ours if theirs and ours else None


def text(number: float | None) -> str:
    """A cell: three digits or more."""
    if number is None:
        return "-"
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


def text_of(size: int) -> str:
    """4096 is "4 KiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def size_of(said: str) -> int:
    """ "4K" is 4096."""
    units = {"K": 10, "M": 20, "G": 30}
    size = int(said.rstrip("KMG")) << units.get(said[-1:], 0)
    if size < 4096:
        raise ValueError
    return size


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


def measure_layout(layout: Layout, started: Sequence[Contender], options: Any) -> Measured:
    """All cells, smallest buffers first, until the layout's time is up."""
    measured = Measured(layout, [c for c in started if c.job in layout.jobs], options.bytes)
    deadline = time.monotonic() + options.timeout
    for probe in (contender for contender in started if contender.job is layout.probe):
        measured.probed = probe.attempt(measure_probe, probe) or {}
        probe.end()
    if "copies" in measured.probed:
        measured.limits = limits(layout.labels, measured.probed["copies"])
    for size, collective in itertools.product(options.bytes, COLLECTIVES):
        alive = [contender for contender in measured.contenders if not contender.failure]
        if not alive:
            break
        if time.monotonic() > deadline:
            print(f"{layout.title}: {options.timeout:.0f} s are over: rows from {collective} of "
                  f"{text_of(size)} on are missing")  # fmt: skip
            break
        measure_cell(alive, (collective, size), options.repeats, size == options.bytes[0])
    for contender in measured.contenders:
        contender.end()
    return measured


def start_all(contenders: Sequence[Contender], options: argparse.Namespace) -> None:
    """All layouts' processes at once, since to load torch takes long; they sleep until asked."""
    begun = time.monotonic()
    for contender in contenders:
        probe = contender.job.role in ("copies", "loopback")
        contender.start(PROBE_BYTES if probe else options.bytes[-1])
    for contender in contenders:
        left = max(1.0, begun + options.timeout - time.monotonic())
        answers = contender.attempt(contender.answers, "start", left)
        contender.facts = answers[0] if answers else {}
    facts = max((contender.facts for contender in contenders), key=len)
    print(*(f"{name} {value}," for name, value in facts.items()), f"{os.cpu_count()} cores;",
          f"all started in {time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip


def run(layouts: Sequence[Layout], options: argparse.Namespace) -> int:
    """Measures and shows one layout after the other; how many contenders failed."""
    begun = time.monotonic()
    made = [
        [Contender(layout.title, job) for job in (*layout.jobs, layout.probe) if job]
        for layout in layouts
    ]
    everybody = list(itertools.chain(*made))
    documents = []
    try:
        start_all(everybody, options)
        for layout, contenders in zip(layouts, made, strict=True):
            measured = measure_layout(layout, contenders, options)
            measured.show()
            documents.append(measured.document())
            if options.json:
                options.json.write_text(json.dumps(documents, indent=1) + "\n")
    finally:
        for contender in everybody:
            contender.kill()
    failed = [contender.name for contender in everybody if contender.failure]
    print(f"\nMedians of {options.repeats} rounds after {WARM_UPS} warm-ups, the slowest rank's; "
          f"values checked; {time.monotonic() - begun:.0f} s in all")  # fmt: skip
    for name in failed:
        print(f"FAILED  {name}: see above")
    return len(failed)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=size_of, nargs="+", default=[size_of(s) for s in SIZES],
                        help="of the larger buffer, 4K at least")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=7, help="rounds, after 2 warm-ups")
    parser.add_argument("--only", nargs="+", choices=("one", "shm", "tcp", "mixed"))
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a layout")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all rounds here")
    parser.add_argument("--devices", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, default=2, help="with --devices cpu")
    options = parser.parse_args()
    options.bytes = sorted(set(options.bytes))
    if options.repeats < 1 or options.ranks < 2:
        parser.error("there is at least 1 repeat, and there are at least 2 ranks")
    return options


def refuse_without_settings() -> None:
    """NVLink multicast can take the GPUs of a shared host out of service."""
    for name, value in SAFETY.items():
        if os.environ.get(name) != value:
            sys.exit(f"gpu.py: refuses to start without {name}={value} in the environment")


def count_gpus() -> int:
    """How many this machine has; leaves where there is none."""
    refuse_without_settings()
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("gpu.py: NO GPU HERE (as torch sees it), nothing is measured; see --devices cpu")
    if count == 1:
        print("ONE GPU: two clusters share it, and NCCL is no peer there")
    return count


def main() -> int:
    """Runs what was asked for; 1 where something failed."""
    options = arguments()
    if options.devices == "cpu":
        layouts = two_clusters(["cpu"] * options.ranks)
    else:
        layouts = layouts_of_gpus(count_gpus())
    chosen = [layout for layout in layouts if not options.only or layout.name in options.only]
    if not chosen:
        sys.exit("gpu.py: --only names no layout that these devices allow")
    return int(run(chosen, options) > 0)


if __name__ == "__main__":
    sys.exit(main())
