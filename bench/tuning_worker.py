"""One rank of bench/tuning.py: tunes each key online, then sweeps its space as the truth."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetccl.communicator import Communicator
from hetccl.rendezvous import exchange

Setting = dict[str, Any]
WARM, BLOCK = 3, 5  # calls
BURST = 256 << 10  # bytes that the emulated link lets pass at once after a pause
MOST_CALLS = 3000  # of a key, until its search must be over


class Lockstep:
    """Decisions of rank 0 that all ranks follow, and times of the slowest rank."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def agree(self, value: int) -> int:
        """Rank 0's number on all ranks."""
        data = bytearray(struct.pack("=q", value))
        self.comm.broadcast(data, root=0, dtype="int64")
        return int(struct.unpack("=q", data)[0])

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' times."""
        data = bytearray(struct.pack("=d", seconds))
        self.comm.all_reduce(data, op="max", dtype="float64")
        return float(struct.unpack("=d", data)[0])


def call_of(comm: Communicator, collective: str, size: int) -> tuple[Callable[[], None], int]:
    """The call with a whole buffer of `size` bytes, and the count that tuning_space takes."""
    block = size // 4 // comm.size
    whole = bytearray(4 * block * comm.size)
    part = bytearray(4 * block)
    if collective == "all_reduce":
        return lambda: comm.all_reduce(whole, dtype="float32"), len(whole) // 4
    if collective == "broadcast":
        return lambda: comm.broadcast(whole, root=0, dtype="float32"), len(whole) // 4
    if collective == "all_gather":
        return lambda: comm.all_gather(part, whole, dtype="float32"), block
    if collective == "reduce_scatter":
        return lambda: comm.reduce_scatter(whole, part, dtype="float32"), block
    other = bytearray(len(whole))
    return lambda: comm.all_to_all(whole, other, dtype="float32"), block


def timed(call: Callable[[], None]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def warm_ups(size: int) -> int:
    """Calls before those that count: they leave nothing of what the link lets pass at once."""
    return max(WARM, 2 * BURST // size)


def repeat(call: Callable[[], None]) -> None:
    """A block of calls."""
    for _ in range(BLOCK):
        call()


def tune(lockstep: Lockstep, call: Callable[[], None], key: Setting) -> tuple[int, Setting | None]:
    """Calls until the key's search is over: how many, and the setting found; None: the default."""
    comm = lockstep.comm
    for calls in range(1, MOST_CALLS + 1):
        call()
        if calls % 8 or not lockstep.agree(is_settled(comm, key)):
            continue
        return calls, found(comm, key)
    return MOST_CALLS, found(comm, key)


def is_settled(comm: Communicator, key: Setting) -> bool:
    """On rank 0: whether the key's search is over."""
    return any(one["key"] == key and one["state"] == "settled" for one in keys_of(comm))


def found(comm: Communicator, key: Setting) -> Setting | None:
    """On rank 0: the key's setting; None where the default stands, and on other ranks."""
    return next((one.get("setting") for one in keys_of(comm) if one["key"] == key), None)


def keys_of(comm: Communicator) -> list[Setting]:
    """What rank 0's search says of each key."""
    keys: list[Setting] = comm.tuning().get("keys", [])
    return keys


def thinned(values: list[int], start: int, points: int) -> list[int]:
    """At most so many values, evenly spread, the start among them."""
    if len(values) <= points:
        return values
    chosen = {values[round(i * (len(values) - 1) / (points - 1))] for i in range(points)}
    return sorted(chosen | {start})


def grid(space: Setting, points: int) -> list[Setting]:
    """The settings to sweep, the default first."""
    settings = [space["subspaces"][0]["start"]]
    for subspace in space["subspaces"]:
        axes = {
            name: thinned(values, subspace["start"].get(name, 0), points)
            for name, values in subspace["axes"].items()
        }
        for values in itertools.product(*axes.values()):
            setting = {**subspace["start"], **dict(zip(axes, values, strict=True))}
            if setting not in settings:
                settings.append(setting)
    return settings


def compare(
    lockstep: Lockstep,
    call: Callable[[], None],
    key: Setting,
    settings: list[Setting],
    *,
    n: int,
    warm: int,
) -> list[float]:
    """Each setting's median time, in `n` rounds of all settings one after the other.

    Calls follow each other without a pause, as while tuning: what a shaped link lets pass after a
    pause would flatter them.
    """
    times: list[list[float]] = [[] for _ in settings]
    for _ in range(n):
        for setting, mine in zip(settings, times, strict=True):
            lockstep.comm.set_tuning(key, setting)
            for _ in range(warm):
                call()
            block = timed(lambda: repeat(call))
            mine.append(lockstep.slowest(block / BLOCK))
    return [statistics.median(mine) for mine in times]


def measure(comm: Communicator, collective: str, size: int, points: int) -> Setting:
    """One key: tuned, then swept, then the default, the tuned and the best beside each other."""
    lockstep = Lockstep(comm)
    call, count = call_of(comm, collective, size)
    space = comm.tuning_space(collective, count)
    key = space["key"]
    begin = time.perf_counter()
    calls, tuned = tune(lockstep, call, key)
    seconds = time.perf_counter() - begin
    tried = [one.get("tried", []) for one in keys_of(comm) if one["key"] == key]
    settings = grid(space, points)
    default = settings[0]
    text = json.dumps(tuned or default).encode()
    length = lockstep.agree(len(text))
    shared = bytearray(text[:length].ljust(length))
    comm.broadcast(shared, root=0, dtype="uint8")
    tuned = json.loads(bytes(shared))
    assert tuned is not None
    warm = warm_ups(size)
    once = lockstep.slowest(timed(call)) * (warm + BLOCK)
    swept = compare(lockstep, call, key, settings, n=max(2, min(9, int(0.1 / once))), warm=warm)
    order = sorted(range(len(settings)), key=lambda i: swept[i])
    finals = [default, tuned, *(settings[i] for i in order[:2])]
    unlike = [one for i, one in enumerate(finals) if one not in finals[:i]]
    rounds = max(3, min(21, int(1 / once)))
    seconds_of = compare(lockstep, call, key, unlike, n=rounds, warm=warm)
    default_s, tuned_s, *best = (seconds_of[unlike.index(one)] for one in finals)
    return {
        "collective": collective,
        "size": size,
        "calls": calls,
        "seconds": seconds,
        "points": len(settings),
        "default": default_s,
        "tuned": tuned_s,
        "best": min(*best, default_s, tuned_s),
        "setting": tuned,
        "best_setting": settings[order[0]],
        "tried": tried,
    }


def follow(comm: Communicator, size: int, seconds: float) -> list[tuple[float, float]]:
    """All-reduces for so long: when each began, and how long it took."""
    lockstep = Lockstep(comm)
    call, _ = call_of(comm, "all_reduce", size)
    times = []
    begin = time.perf_counter()
    while not lockstep.agree(time.perf_counter() - begin > seconds):
        for _ in range(8):
            at = time.time()
            times.append((at, timed(call)))
    return times


def main() -> int:
    """Rank 0 prints JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--collectives", nargs="+", required=True)
    parser.add_argument("--sizes", nargs="+", type=int, required=True)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--follow", type=float, help="only calls, for so many seconds")
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = exchange(rank, Path(os.environ["MEETING"]), 60)
    with Communicator(meeting.uid, rank, size) as comm:
        if options.follow:
            times = follow(comm, options.sizes[0], options.follow)
            result: Any = {"times": times, "tuning": comm.tuning()}
        else:
            result = [
                measure(comm, collective, bytes_, options.points)
                for bytes_ in options.sizes
                for collective in options.collectives
            ]
    if rank == 0:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
