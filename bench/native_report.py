"""Tables of bench/native.py's results, and the model of the limits of two hosts' processors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from mpis import MPIS
from native import STREAMS
from report import Sheet, goal

GOAL_OF_BEST = {8: 2.0, 64 << 10: 1.1, 1 << 20: 1.1, 16 << 20: 0.75}  # with 2 ranks; with 8: 1
GOAL_OF_TCP = 0.9
GOAL_OF_BUDGET = 0.85
GOAL_LAUNCH = 0.15e-6
MIB = 1 << 20


@dataclass(frozen=True)
class Work:
    """The work of one collective over 2 hosts x 2 ranks, of all ranks together, in buffers."""

    copied: float
    reduced: float
    sent: float


# With a buffer of N: what another rank of the host gets is copied into shared memory and out of it,
# or reduced out of it; what comes from the other host lies in place, or is reduced; and what a rank
# keeps for itself is copied where it is not in place.
WORK = {
    # Half of each rank's N goes to the other rank and is reduced there; a quarter each is reduced
    # with what the other host sends; half goes back.
    "all_reduce": Work(copied=2 + 4, reduced=2 + 1, sent=2),
    # A quarter is the rank's own; one goes to the other rank; so does the one that came.
    "all_gather": Work(copied=1 + 2 + 2, reduced=0, sent=1),
    "reduce_scatter": Work(copied=2, reduced=2 + 1, sent=1),
    "all_to_all": Work(copied=1 + 2, reduced=0, sent=2),
    # On both hosts all of N goes to the other rank.
    "broadcast": Work(copied=2 + 2, reduced=0, sent=1),
}


MODEL = """\
The budget is what the machine's cores need together, with nothing else to do: *copied* bytes over
the rate of memcpy, *reduced* bytes (of results, each of two sources) over the rate of a loop that
adds, *sent* bytes over that of plain TCP, both ways at once. The rates are those of all cores at
once, probed on buffers larger than the caches, the sockets' between the same two hosts. *Copied*,
*reduced* and *sent* are multiples of the buffer, of all ranks together: what another rank of the
host gets is copied into shared memory and out of it, or reduced out of it; what comes from the
other host is received in place, or reduced; what a rank keeps is copied where that is not in
place."""


def budget(work: Work, size: float, rates: dict[str, float]) -> float:
    """Returns the seconds that all cores of the machine need for that work, with nothing else to
    do.
    """
    return (
        work.copied * size / rates["copy"]
        + work.reduced * size / rates["reduce"]
        + work.sent * size / rates["tcp"]
    )


def rates_of(link: dict[str, Any], cores: int) -> dict[str, float]:
    """Returns bytes per second of the whole machine: copied, reduced (of results), and sent (both
    ways added).
    """
    memory, tcp = link["memory"], link["tcp both ways"]["tcp"]
    rates = {name: cores * row["bytes"] / row["seconds"] for name, row in memory.items()}
    return {**rates, "tcp": tcp["bytes"] / tcp["seconds"]}


def _size(size: int) -> str:
    return next((f"{size // unit} {name}" for unit, name in ((MIB, "MiB"), (1 << 10, "KiB"))
                 if size >= unit), f"{size} B")  # fmt: skip


def mpi_sheet(by_ranks: dict[str, Any]) -> Sheet:
    """All-reduces against every MPI."""
    names = [mpi.name for mpi in MPIS]
    rows = []
    for ranks, results in by_ranks.items():
        for key, ours in results["hetccl"].items():
            theirs = [r[key]["seconds"] if isinstance(r := results[n], dict) else None
                      for n in names]  # fmt: skip
            best = min((seconds for seconds in theirs if seconds is not None), default=None)
            ratio = ours["seconds"] / best if best else None
            most = GOAL_OF_BEST[int(key)] if ranks == "2" else 1.0
            rows.append(
                (
                    ranks,
                    _size(int(key)),
                    f"{1e6 * ours['seconds']:.2f}",
                    *("-" if seconds is None else f"{1e6 * seconds:.2f}" for seconds in theirs),
                    "-" if ratio is None else goal(f"{ratio:.2f}", ratio <= most),
                    f"{most:g}",
                )
            )
    columns = ("ranks", "bytes", "hetccl us", *(f"{name} us" for name in names), "of the best",
               "goal at most")  # fmt: skip
    title = "All-reduce of float32 on one host, C API"
    return Sheet(title, columns, rows, absent(by_ranks))


def absent(by_ranks: dict[str, Any]) -> str:
    """A line for each MPI that could not be measured."""
    lines = {f"{name} was not measured: {why}" for results in by_ranks.values()
             for name, why in results.items() if isinstance(why, str)}  # fmt: skip
    return "\n".join(sorted(lines))


def message_sheet(link: dict[str, Any]) -> Sheet:
    """Messages against plain sockets."""
    ours = link["messages"]["send_recv"]
    rate = ours["bytes"] / ours["seconds"]
    rows = [("hetccl, send and receive", f"{rate / 1e9:.2f}", "", "")]
    for name, key in ((f"plain TCP, {STREAMS} streams", "tcp"),
                      ("plain TCP, 1 stream", "tcp of 1 stream")):  # fmt: skip
        row = link[key]["tcp"]
        theirs = row["bytes"] / row["seconds"]
        ratio = rate / theirs
        rows.append((name, f"{theirs / 1e9:.2f}", goal(f"{ratio:.2f}", ratio >= GOAL_OF_TCP),
                     f"{GOAL_OF_TCP}"))  # fmt: skip
    title = f"{_size(int(ours['bytes']))} between two hosts, link not shaped, one way"
    return Sheet(title, ("what", "GB/s", "hetccl / it", "goal at least"), rows)


def budget_sheet(link: dict[str, Any], cores: int) -> Sheet:
    """Collectives against the limits of the processors."""
    rates = rates_of(link, cores)
    rows = []
    for name, work in WORK.items():
        ours = link["collectives"][name]
        allowed = budget(work, ours["bytes"], rates)
        ratio = allowed / ours["seconds"]
        rows.append(
            (
                name,
                f"{1e3 * ours['seconds']:.1f}",
                f"{work.copied:g}",
                f"{work.reduced:g}",
                f"{work.sent:g}",
                f"{1e3 * allowed:.1f}",
                goal(f"{ratio:.2f}", ratio >= GOAL_OF_BUDGET),
            )
        )
    columns = ("collective", "hetccl ms", "copied", "reduced", "sent", "budget ms",
               "budget / hetccl")  # fmt: skip
    size = _size(int(link["collectives"]["all_reduce"]["bytes"]))
    title = f"{size}, 2 hosts x 2 ranks, link not shaped, {cores} cores"
    probed = ", ".join(f"{name} {rate / 1e9:.1f}" for name, rate in rates.items())
    return Sheet(title, columns, rows, f"{MODEL}\nMeasured in the same run, GB/s: {probed}.")


def launch_sheet(launch: dict[str, Any]) -> Sheet:
    """The cost of a launch."""
    row = launch["hetccl"]["launch"]
    cost = goal(f"{1e6 * row['seconds']:.2f}", row["seconds"] <= GOAL_LAUNCH)
    rows = [("host", cost, f"{1e6 * row['p99_seconds']:.2f}",
             goal(f"{row['allocations']:g}", row["allocations"] == 0))]  # fmt: skip
    return Sheet("Launching an all-reduce of 8 B on a stream, back to back",
                 ("device", "us a call", "p99 us", "allocations"), rows)  # fmt: skip


def sheets(parts: dict[str, dict[str, Any]]) -> list[Sheet]:
    """All tables."""
    cores = os.cpu_count() or 1
    tables = {
        "MPI": lambda part: [mpi_sheet(part)],
        "link": lambda part: [message_sheet(part), budget_sheet(part, cores)],
        "launch": lambda part: [launch_sheet(part)],
    }
    return [sheet for name, part in parts.items() for sheet in tables[name](part)]
