"""Random collectives for minutes on processes that are killed, stopped and started again.

    python tests/soak/soak.py --minutes 30

Every episode makes new communicators over a random subset of the processes, in random clusters.
Some end in an abort, some in a rank killed or stopped: then every other rank must get an error that
names it, in time, and take part in the next episode. At the end no process may hold more memory,
descriptors, threads or shared-memory segments than in its first episodes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from rank import Census, Outcome, Part, serve

_CONTEXT = multiprocessing.get_context("spawn")
SETTINGS = {
    "HETCCL_LIVENESS_MS": "2000",
    "HETCCL_INIT_TIMEOUT_MS": "20000",
    "MALLOC_ARENA_MAX": "1",  # else what threads leave in their arenas looks like growth
}
# From an event to every rank's answer: collectives have 20 s, and the machine may be loaded.
PATIENCE_S = 60.0
_NO_COORDINATOR = (
    "nobody listens at",
    "the process that made the unique id",
    "who listens there is not this id's coordinator",
)
WARM_UP = 6  # episodes until a process holds all that it will keep
ALLOWED_KIB = 6 * 1024  # that the allocator may keep for itself


@dataclass
class Worker:
    """A process of the soak."""

    process: Any
    pipe: Connection
    history: list[Census] = field(default_factory=list)

    @classmethod
    def start(cls) -> Worker:
        """A new one."""
        mine, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return cls(process, mine)

    def answer(self, deadline: float) -> Any:
        """Returns the next message; TimeoutError with the process's number if none comes."""
        if not self.pipe.poll(max(0.0, deadline - time.monotonic())):
            raise TimeoutError(f"process {self.process.pid} has not answered in time")
        return self.pipe.recv()

    def end(self) -> None:
        """Ends it, running or stopped."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass
class Report:
    """Counts of the whole run, and what was wrong."""

    counts: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0  # answer to the loss of a rank that had joined
    grown: list[str] = field(default_factory=list)

    def grow(self, pid: int, history: list[Census]) -> None:
        """Notes what a process holds more of than it did in its first episodes."""
        kept = history[WARM_UP:]
        if len(kept) < 2 * WARM_UP:
            return
        self.counts["processes watched"] += 1
        first, last = kept[:WARM_UP], kept[-WARM_UP:]
        for name, allowed in vars(_ALLOWED).items():
            most = max(getattr(census, name) for census in first)
            least = min(getattr(census, name) for census in last)
            self.counts[f"most growth, {name}"] = max(
                self.counts[f"most growth, {name}"], least - most
            )
            if least - most > allowed:
                self.grown.append(
                    f"process {pid}: {name} from {most} to {least} in {len(kept)} episodes"
                )

    def show(self) -> int:
        """Prints all of it. Returns 1 if anything was wrong or has grown, else 0."""
        for name, count in sorted(self.counts.items()):
            print(f"{name:28} {count}")
        print(f"{'slowest answer to an event':28} {self.slowest:.1f} s")
        for line in self.wrong + self.grown:
            print(f"WRONG: {line}")
        return int(bool(self.wrong or self.grown))


_ALLOWED = Census(resident_kib=ALLOWED_KIB, descriptors=0, threads=0, segments=0)


def _parts(chosen: list[Worker], choices: random.Random, abort: bool) -> dict[int, list[Part]]:
    """Returns the task of each chosen process: one or two communicators over all of them."""
    parts: dict[int, list[Part]] = {index: [] for index in range(len(chosen))}
    for _ in range(choices.choice([1, 1, 2])):
        host = choices.randrange(len(chosen))
        chosen[host].pipe.send("id")
        uid = chosen[host].answer(time.monotonic() + PATIENCE_S)
        order = choices.sample(range(len(chosen)), len(chosen))
        seed, operations = choices.getrandbits(32), choices.randint(1, 40)
        aborter = choices.randrange(len(chosen)) if abort else -1
        for rank, index in enumerate(order):
            aborts_at = choices.randrange(operations) if rank == aborter else -1
            cluster = choices.choice("ab")
            parts[index].append(
                Part(uid, host, rank, len(chosen), cluster, seed, operations, aborts_at)
            )
    return parts


def _judge(
    report: Report, event: str, victim: int, parts: dict[int, list[Part]], index: int, got: Outcome
) -> None:
    report.wrong += got.wrong
    report.counts["collectives"] += got.operations
    for part, victims, error in zip(
        parts[index], parts.get(victim, parts[index]), got.errors, strict=True
    ):
        if not error:
            continue
        report.counts["errors seen"] += 1
        if event == "none":
            report.wrong.append(f"rank {part.rank} without cause: {error}")
        elif event in ("kill", "stop") and not _names(error, part, victims, victim):
            report.wrong.append(f"rank {part.rank} does not name rank {victims.rank}: {error}")


def _names(error: str, part: Part, victims: Part, victim: int) -> bool:
    # Before it has joined, the host of the unique id is nobody's rank.
    unknown = part.host == victim and any(text in error for text in _NO_COORDINATOR)
    return unknown or f"rank {victims.rank}" in error


def _is_prompt(outcomes: list[Outcome]) -> bool:
    """Whether the victim was known: who is lost before it joins is missed at the init timeout."""
    return not any(
        "never came" in error or "cannot join" in error for o in outcomes for error in o.errors
    )


def episode(workers: list[Worker], choices: random.Random, report: Report) -> None:
    """One episode; killed and stopped workers are replaced."""
    indices = sorted(choices.sample(range(len(workers)), choices.randint(2, len(workers))))
    chosen = [workers[i] for i in indices]
    event = choices.choices(["none", "abort", "kill", "stop"], [6, 1, 2, 1])[0]
    parts = _parts(chosen, choices, event == "abort")
    victim = choices.randrange(len(chosen)) if event in ("kill", "stop") else -1
    for index, worker in enumerate(chosen):
        worker.pipe.send(parts[index])
    if victim >= 0:
        time.sleep(choices.expovariate(1 / 0.1))
        sign = signal.SIGKILL if event == "kill" else signal.SIGSTOP
        os.kill(chosen[victim].process.pid, sign)
    started = time.monotonic()
    outcomes = []
    try:
        for index, worker in enumerate(chosen):
            if index == victim:
                continue
            outcome = worker.answer(started + PATIENCE_S)
            worker.history.append(outcome.census)
            outcomes.append(outcome)
            _judge(report, event, victim, parts, index, outcome)
    except TimeoutError as error:
        report.wrong.append(f"after {event}: {error}")
    if victim >= 0:
        if _is_prompt(outcomes):
            report.slowest = max(report.slowest, time.monotonic() - started)
        else:
            report.counts["victims that never came"] += 1
        report.grow(chosen[victim].process.pid, chosen[victim].history)
        chosen[victim].end()
        workers[indices[victim]] = Worker.start()
    report.counts["episodes"] += 1
    report.counts[f"event {event}"] += 1


def soak(seconds: float, n_workers: int, seed: int, show: bool = False) -> Report:
    """Runs episodes for `seconds`, or until something is wrong; leaves no process behind."""
    os.environ.update(SETTINGS)
    choices, report = random.Random(seed), Report()
    shared = Path("/dev/shm")
    files = set(shared.iterdir()) if shared.is_dir() else set()
    workers = [Worker.start() for _ in range(n_workers)]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and not report.wrong:
            episode(workers, choices, report)
            if show:
                print(f"\r{report.counts['episodes']} episodes", end="", flush=True)
        for worker in workers:
            report.grow(worker.process.pid, worker.history)
    finally:
        for worker in workers:
            worker.end()
    left = [f for f in (set(shared.iterdir()) if files else set()) - files if "hetccl" in f.name]
    report.wrong += [f"left behind: {file}" for file in left]
    return report


def main() -> int:
    """The command line; 1 when anything was wrong or has grown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"soak: {options.minutes:g} minutes, seed {options.seed}")
    report = soak(options.minutes * 60, options.processes, options.seed, show=sys.stdout.isatty())
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
