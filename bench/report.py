"""The report of `make bench`: numbers as ratios to the link's limit, the least, and Gloo."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import hetccl.machine

COLLECTIVES = (
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "broadcast",
    "all_to_all_single",
)
GOAL_BYTES = (0.99, 1.02)
GOAL_TIMES_BELOW_GLOO = 20.0
GOAL_IDLE_CPU = 0.01


@dataclass(frozen=True)
class Scene:
    """The hosts of the ranks: `host_of_rank` names each rank's host."""

    name: str
    host_of_rank: tuple[int, ...]

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(set(self.host_of_rank))

    @property
    def ranks_of_hosts(self) -> list[int]:
        """The number of ranks on each host."""
        return [self.host_of_rank.count(host) for host in sorted(set(self.host_of_rank))]


EMULATED_SCENES = (
    Scene("AABB", (0, 0, 1, 1)),
    Scene("ABAB", (0, 1, 0, 1)),
    Scene("ABBAB", (0, 1, 1, 0, 1)),
    Scene("AABC", (0, 0, 1, 2)),
)


def goal_of_limit(scene: Scene) -> float:
    """Returns the goal for the ratio to the limit: for two equal hosts, for two unequal ones, or
    for three.
    """
    if scene.hosts > 2:
        return 0.90
    return 0.95 if len(set(scene.ranks_of_hosts)) == 1 else 0.93


def goal_of_small(scene: Scene) -> float:
    """Returns the goal for the seconds of a 4 KiB all-reduce over the link: for two equal hosts, or
    for others.
    """
    return 0.3e-3 if scene.hosts == 2 and len(set(scene.ranks_of_hosts)) == 1 else 0.6e-3


def least_on_a_link(collective: str, ranks_of_hosts: list[int]) -> float:
    """Returns the least that the busiest host must send or receive, in buffers.

    All hosts together send 2(C-1) buffers in an all-reduce, and C-1 in an all-gather,
    reduce-scatter or broadcast, so one host sends at least the mean. A host receives what it lacks:
    the shards of all other ranks, or the root's buffer. A reduce-scatter is an all-gather
    backwards.
    """
    hosts, ranks = len(ranks_of_hosts), sum(ranks_of_hosts)
    if collective == "all_reduce":
        return 2 * (hosts - 1) / hosts
    if collective == "broadcast":
        return 1.0
    if collective == "all_to_all_single":
        return max(own * (ranks - own) / ranks for own in ranks_of_hosts)
    return max((hosts - 1) / hosts, *((ranks - own) / ranks for own in ranks_of_hosts))


def least_on_all_links(collective: str, ranks_of_hosts: list[int]) -> float:
    """Returns the least that all hosts together must send, in buffers."""
    others, ranks = len(ranks_of_hosts) - 1, sum(ranks_of_hosts)
    if collective == "all_to_all_single":
        return sum(own * (ranks - own) / ranks for own in ranks_of_hosts)
    return float(2 * others if collective == "all_reduce" else others)


@dataclass(frozen=True)
class Measured:
    """A scene's results: the JSON of each round, by backend."""

    scene: Scene
    runs: dict[str, list[dict[str, Any]]]
    link_rate: float  # bytes a second

    def large(self, backend: str, collective: str, key: str) -> float:
        """A number of a large collective: the median over the rounds."""
        return statistics.median(run["large"][collective][key] for run in self.runs[backend])

    def small(self, backend: str, key: str) -> float:
        """A number of the 4 KiB all-reduce: the median over the rounds."""
        return statistics.median(run["small"][key] for run in self.runs[backend])

    def idle(self, backend: str) -> float:
        """Share of one core that an idle rank uses: the worst round."""
        return float(
            max(run["idle_cpu_seconds"] / run["idle_seconds"] for run in self.runs[backend])
        )

    def of_limit(self, backend: str, collective: str) -> float:
        """The time that the link alone would take, over the time taken."""
        least = least_on_a_link(collective, self.scene.ranks_of_hosts)
        size = self.large(backend, collective, "bytes") * least
        return size / self.link_rate / self.large(backend, collective, "seconds")

    def of_least(self, backend: str, collective: str) -> float:
        """Bytes that the kernel counted on the links, over the least possible."""
        least = least_on_all_links(collective, self.scene.ranks_of_hosts)
        sent = self.large(backend, collective, "link_bytes")
        return sent / (least * self.large(backend, collective, "bytes"))


@dataclass(frozen=True)
class Sheet:
    """A table, for the terminal or a page."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def to_rich(self) -> Table:
        """Returns the table for the terminal. Numbers that miss their goal are yellow."""
        table = Table(title=self.title, title_justify="left", title_style="bold")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < 2 else "right")
        for row in self.rows:
            table.add_row(*(f"[yellow]{cell}[/]" if cell.endswith("!") else cell for cell in row))
        return table

    def to_markdown(self) -> str:
        """Returns the table for a page."""
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"## {self.title}\n\n" + (f"{self.note}\n\n" if self.note else "") + table


def goal(text: str, met: bool) -> str:
    """Returns a cell, marked if it misses its goal."""
    return text if met else f"{text} !"


def large_sheet(measured: list[Measured]) -> Sheet:
    """The large collectives over the link."""
    rows = []
    for scene in (m for m in measured if m.scene.hosts > 1):
        for name in COLLECTIVES:
            ours, least = scene.of_limit("hetccl", name), scene.of_least("hetccl", name)
            rows.append(
                (
                    scene.scene.name,
                    name,
                    f"{1e3 * scene.large('hetccl', name, 'seconds'):.0f}",
                    goal(f"{ours:.2f}", ours >= goal_of_limit(scene.scene)),
                    goal(f"{least:.3f}", GOAL_BYTES[0] <= least <= GOAL_BYTES[1]),
                    f"{1e3 * scene.large('gloo', name, 'seconds'):.0f}",
                    f"{scene.of_limit('gloo', name):.2f}",
                    f"{scene.of_least('gloo', name):.2f}",
                )
            )
    columns = ("ranks", "collective", "hetccl ms", "of limit", "bytes/least", "gloo ms",
               "of limit", "bytes/least")  # fmt: skip
    return Sheet("64 MiB of float32 between hosts, 1 Gbit/s both ways", columns, rows)


def small_sheet(measured: list[Measured]) -> Sheet:
    """4 KiB all-reduces, and idleness."""
    rows = []
    for scene in measured:
        ours, theirs = scene.small("hetccl", "seconds"), scene.small("gloo", "seconds")
        link = scene.scene.hosts > 1
        fast = ours <= goal_of_small(scene.scene)
        times = theirs / ours
        idle = scene.idle("hetccl")
        rows.append(
            (
                scene.scene.name,
                f"{scene.scene.hosts} hosts" if link else "one host",
                goal(f"{1e3 * ours:.3f}", fast or not link),
                f"{1e3 * scene.small('hetccl', 'p99_seconds'):.3f}",
                f"{1e3 * theirs:.3f}",
                f"{1e3 * scene.small('gloo', 'p99_seconds'):.3f}",
                goal(f"{times:.1f}", link or times >= GOAL_TIMES_BELOW_GLOO),
                goal(f"{100 * idle:.2f} %", idle <= GOAL_IDLE_CPU),
            )
        )
    columns = ("ranks", "where", "hetccl ms", "p99 ms", "gloo ms", "p99 ms", "times below",
               "hetccl idle CPU")  # fmt: skip
    return Sheet("All-reduce of 4 KiB, and an idle communicator", columns, rows)


def show(sheets: list[Sheet], console: Console) -> None:
    """Prints the tables."""
    for sheet in sheets:
        console.print(sheet.to_rich())
    console.print("Medians of the slowest rank; every value checked; ! marks a goal that is missed")


def machine() -> str:
    """Returns one line about the machine that was measured."""
    facts = hetccl.machine.facts()
    return f"{facts['processor']}; {facts['system']}; Python {facts['Python']}"


def markdown(sheets: list[Sheet], torch: str, command: str) -> str:
    """docs/benchmarks.md."""
    head = (
        "# Benchmarks\n\n"
        f"`{command}` gave this on {time.strftime('%Y-%m-%d')}: {machine()}; torch {torch}.\n\n"
        "Everything in one run, peers in turn, on the same links (emulated: network namespaces,\n"
        "shaped by the kernel where a rate is named). Medians of the slowest rank after two\n"
        "warm-ups; values checked. Against Gloo through torch.distributed, against all others by\n"
        "small programs on either side. *Of limit*: the time that the link alone would take, over\n"
        "the time taken. *Bytes/least*: what the kernel counted on the links, over the least that\n"
        "can cross. `!` marks a goal that is missed.\n"
    )
    return "\n".join([head, *(f"{sheet.to_markdown()}\n" for sheet in sheets)])
