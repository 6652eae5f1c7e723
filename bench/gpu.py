"""hetccl beside NCCL and Gloo through torch.distributed, on this machine's NVIDIA GPUs; and by its
C API ("hetccl-c"), without torch's part of a call.

    python bench/gpu.py                   all layouts
    python bench/gpu.py --only tcp mixed  some of them
    python bench/gpu.py --devices cpu     ranks of the host instead: to check this script

A layout's contenders are alive at the same time and take turns, collective by collective and size
by size, a measurement each; medians of the rounds are shown. Fails when a process fails or hangs or
a value is wrong, not when hetccl is slow. Needs torch and the hetccl package, nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_contender import (
    NCCL_SHARED_MEMORY,
    NCCL_SOCKETS,
    Answer,
    Contender,
    ContenderError,
    Job,
    halves,
    job,
    print_table,
    ratio,
    refuse_without_settings,
    slowest,
    text,
)

WORKER = Path(__file__).parent / "gpu_worker.py"
COLLECTIVES = (
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "broadcast",
    "all_to_all_single",
    "send_recv",
)
SIZES = ("4K", "64K", "1M", "16M", "64M", "256M")
WARM_UPS = 2
LONGEST = 0.1  # seconds of calls in a row: there are fewer of what is slow
PROBE_BYTES = 256 << 20
PROBE_ROUNDS = 5
COPIES = 5
NO_PIPELINE = {"HETCCL_DEPTH": "1"}  # a slice begins when the one before has almost ended
STREAMS = (1, 4)
ROUND_TRIPS = 2000
Cell = tuple[str, int]  # a collective and its bytes


@dataclass(frozen=True)
class Layout:
    """Jobs that are compared with each other: hetccl's first, then its peers'."""

    name: str
    title: str
    jobs: tuple[Job, ...]
    probe: Job | None = None
    labels: str = ""


def layouts_of_gpus(count: int) -> list[Layout]:
    """Returns the layouts to measure on so many GPUs."""
    gpus = [f"cuda:{i}" for i in range(count)]
    mixed = [*gpus[:2], "cpu", "cpu"]
    return [
        Layout(
            "one",
            "one cluster",
            tuple(job(r, gpus) for r in ("hetccl", "nccl", "hetccl-c", "nccl-c")),
        ),
        *two_clusters(gpus if count > 1 else gpus * 2),
        Layout("mixed", "GPUs and ranks of the host", (job("hetccl", mixed), job("gloo", mixed))),
    ]


def two_clusters(devices: Sequence[str]) -> list[Layout]:
    """Returns two layouts with half of the devices in each cluster: over shared memory, and over
    TCP.
    """
    labels = halves(len(devices))
    ours = ("hetccl", "hetccl-c")
    shared = [job(role, devices, None, "HETCCL_CLUSTER", labels) for role in ours]
    shared.append(job("hetccl-c", devices, NO_PIPELINE, "HETCCL_CLUSTER", labels, "one-at-a-time"))
    sockets = [job(role, devices, {"HETCCL_SHM": "0"}, "HETCCL_CLUSTER", labels) for role in ours]
    copies = None
    if "cpu" in devices:
        shared.append(job("gloo", devices))
    else:
        copies = job("copies", devices)
        if len(set(devices)) == len(devices):  # NCCL does not take a GPU twice
            shared += [job(role, devices, NCCL_SHARED_MEMORY) for role in ("nccl", "nccl-c")]
            sockets.append(job("nccl", devices, NCCL_SOCKETS, "NCCL_HOSTID", labels))
    sockets.append(job("gloo", devices))
    loopback = job("loopback", ("cpu", "cpu"))
    return [
        Layout("shm", "two clusters, shared memory", tuple(shared), copies, labels),
        Layout("tcp", "two clusters, TCP", tuple(sockets), loopback, labels),
    ]


@dataclass
class Measuring(Contender):
    """A contender and its measurements."""

    cells: dict[Cell, list[Answer]] = field(default_factory=dict)

    def offers(self, collective: str) -> bool:
        """Returns whether the contender can run the collective: messages need two ranks, and Gloo
        cannot send a GPU's memory.
        """
        if collective != "send_recv":
            return True
        devices = self.job.devices
        return len(devices) > 1 and (self.job.role != "gloo" or set(devices) == {"cpu"})

    def measure(self, cell: Cell, times: int, each: bool) -> Answer:
        """Measures once. Returns the slowest rank's seconds, and all ranks' CPU seconds in sum."""
        collective, size = cell
        got = self.ask_at_once(
            do="measure", collective=collective, bytes=size, times=times, each=each
        )
        return {**slowest(got), "cpu": sum(answer["cpu"] for answer in got), "times": times}

    def check(self, cell: Cell) -> None:
        """Raises ContenderError if a rank gets a wrong value."""
        collective, size = cell
        got = self.ask(do="check", collective=collective, bytes=size)
        wrong = [rank for rank, answer in enumerate(got) if not answer["right"]]
        if wrong:
            raise ContenderError(f"{collective} of {text_of(size)}: WRONG VALUES on ranks {wrong}")

    def median(self, cell: Cell, key: str) -> float | None:
        """Returns the median over all rounds; None if the cell was not measured to the end."""
        rounds = self.cells.get(cell, [])
        return statistics.median(answer[key] for answer in rounds) if rounds else None


def calls(size: int, seconds: float) -> int:
    """Returns how many calls in a row make one measurement, if one call takes `seconds`."""
    wanted = 500 if size <= 64 << 10 else 200 if size <= 1 << 20 else 5
    return max(1, min(wanted, int(LONGEST / max(seconds, 1e-9))))


def measure_cell(contenders: Sequence[Measuring], cell: Cell, repeats: int, each: bool) -> None:
    """Checks and measures a collective in rounds, in which the contenders take turns."""
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


def measure_probe(probe: Measuring) -> Answer:
    """Returns the median GB/s each way of copies, or of TCP streams with a round trip's
    microseconds.
    """

    def median(do: str, **arguments: Any) -> float:
        worst: list[float] = []
        for _ in range(1 + PROBE_ROUNDS):
            worst.append(slowest(probe.ask_at_once(do=do, **arguments))["seconds"])
        return statistics.median(worst[1:])

    if probe.job.role == "copies":
        return {"copies": PROBE_BYTES / median("measure", times=COPIES) / 1e9}
    result: Answer = {
        f"streams_{n}": PROBE_BYTES / median("measure", streams=n, bytes=PROBE_BYTES) / 1e9
        for n in STREAMS
    }
    return {**result, "round_trip_us": 1e6 * median("round_trip", times=ROUND_TRIPS)}


def limits(labels: str, duplex: float) -> dict[str, float]:
    """Returns, by collective, the highest possible GB/s of the buffer, if each GPU carries its
    share of the bytes that must cross, at `duplex` GB/s each way.

    In an all-reduce the whole buffer crosses both ways; in an all-gather or reduce-scatter each
    half's part, divided among a half's GPUs. In an all-to-all each GPU sends the blocks of the
    other half. If each rank sends a message to the next, one message crosses each way.
    """
    few, many = sorted((labels.count("A"), labels.count("B")))
    part = duplex * len(labels) * few / many
    return {
        "all_reduce": duplex * few,
        "all_gather_into_tensor": part,
        "reduce_scatter_tensor": part,
        "all_to_all_single": duplex * len(labels) / many,
        "send_recv": duplex,
    }


@dataclass
class Measured:
    """A layout's results."""

    layout: Layout
    contenders: list[Measuring]
    sizes: list[int]
    probed: Answer = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    def speed_rows(self) -> Iterable[list[str]]:
        """Yields a row for each collective and size: every contender's speed, the peers' times over
        hetccl's, and the limit's time over hetccl's.
        """
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
        """Yields a row for each collective at one size: other numbers of every contender."""
        for collective in COLLECTIVES:
            found = [c.median((collective, size), k) for k in keys for c in self.contenders]
            if any(number is not None for number in found):
                yield [collective, *(text(n if n is None else factor * n) for n in found)]

    def show(self) -> None:
        """Prints the tables."""
        roles = [contender.job.name for contender in self.contenders]
        of = [f"/{role}" for role in roles[1:]]
        print(f"\n{self.layout.title}: the other's time over hetccl's is /OTHER, more is better")
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
        """Yields the probes' results as lines."""
        if self.limits:
            yield (
                "limit: all GPUs at once copy to and from pinned memory at "
                f"{text(self.probed['copies'])} GB/s each way; so at most "
                f"{text(self.limits['all_reduce'])} GB/s of an all-reduce, "
                f"{text(self.limits['all_gather_into_tensor'])} of an all-gather or "
                f"reduce-scatter, {text(self.limits['all_to_all_single'])} of an all-to-all, "
                f"{text(self.limits['send_recv'])} of messages"
            )
        elif self.probed:
            rates = [f"{n}: {text(self.probed[f'streams_{n}'])}" for n in STREAMS]
            yield (
                f"plain TCP over loopback, GB/s each way at once, by streams: {', '.join(rates)}; "
                f"a byte's polled round trip {text(self.probed['round_trip_us'])} us"
            )

    def document(self) -> Answer:
        """Returns all rounds, for --json."""
        ran = {}
        for contender in self.contenders:
            cells = [
                {"collective": collective, "bytes": size, "rounds": rounds}
                for (collective, size), rounds in contender.cells.items()
            ]
            facts = {"failure": contender.failure, **contender.facts}
            ran[contender.job.name] = {**facts, "devices": contender.job.devices, "cells": cells}
        return {"layout": self.layout.title, "probed": self.probed, "contenders": ran}


def text_of(size: int) -> str:
    """Returns a size as text: "4 KiB" for 4096."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def size_of(said: str) -> int:
    """Returns the size that a text gives: 4096 for "4K"."""
    units = {"K": 10, "M": 20, "G": 30}
    size = int(said.rstrip("KMG")) << units.get(said[-1:], 0)
    if size < 4096:
        raise ValueError
    return size


def measure_layout(layout: Layout, started: Sequence[Measuring], options: Any) -> Measured:
    """Measures all cells of a layout, smallest buffers first, until its time is up."""
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
        alive = [contender for contender in alive if contender.offers(collective)]
        if not alive:
            continue
        if time.monotonic() > deadline:
            print(f"{layout.title}: {options.timeout:.0f} s are over: rows from {collective} of "
                  f"{text_of(size)} on are missing")  # fmt: skip
            break
        measure_cell(alive, (collective, size), options.repeats, size == options.bytes[0])
    for contender in measured.contenders:
        contender.end()
    return measured


def start_all(contenders: Sequence[Measuring], options: argparse.Namespace) -> None:
    """Starts the processes of all layouts at once, because loading torch takes long. They sleep
    until they get a command.
    """
    begun = time.monotonic()
    for contender in contenders:
        probe = contender.job.role in ("copies", "loopback")
        contender.start(WORKER, "--bytes", str(PROBE_BYTES if probe else options.bytes[-1]))
    for contender in contenders:
        left = max(1.0, begun + options.timeout - time.monotonic())
        answers = contender.attempt(contender.answers, "start", left)
        contender.facts = answers[0] if answers else {}
    facts = max((contender.facts for contender in contenders), key=len)
    print(*(f"{name} {value}," for name, value in facts.items()), f"{os.cpu_count()} cores;",
          f"all started in {time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip


def run(layouts: Sequence[Layout], options: argparse.Namespace) -> int:
    """Measures and shows one layout after the other. Returns how many contenders failed."""
    begun = time.monotonic()
    made = [
        [Measuring(layout.title, job) for job in (*layout.jobs, layout.probe) if job]
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
    """Parses the command line."""
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


def count_gpus() -> int:
    """Returns how many GPUs this machine has; exits if it has none."""
    refuse_without_settings()
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("gpu.py: NO GPU HERE (as torch sees it), nothing is measured; see --devices cpu")
    if count == 1:
        print("ONE GPU: two clusters share it, and NCCL is no peer there")
    return count


def main() -> int:
    """Measures what the command line names. Returns 1 if something failed."""
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
