"""Devices and links as the planner sees them: speed and memory of ranks, bytes/s between them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetccl import _lib
from hetccl.balance import Profile
from hetccl.parallel.models import ParallelError
from hetccl.sharding.devices import find_device, find_networks
from hetccl.topology import graph
from hetccl.tune import records
from hetccl.units import counted

UTILISATION = 0.4  # of the maker's FLOP/s, which training of large models reaches
LEVELS = ("host", "between", "cluster", "all")
_GIB = 1 << 30
_HOST_COPY = 10e9  # bytes/s between clusters on one host: one copy in its memory
_LATENCY = 50e-6  # seconds of a message, or of a round of a collective
_MOST_RATE = 1e24


@dataclasses.dataclass(frozen=True)
class Group:
    """Ranks that reduce `size` bytes together."""

    ranks: tuple[int, ...]
    size: float


@dataclasses.dataclass(frozen=True)
class Flow:
    """`size` bytes from one rank to another."""

    source: int
    target: int
    size: float


@dataclasses.dataclass(frozen=True)
class Site:
    """The place of a job. Sequences are by rank, but for those of `clusters` and hosts' rates.

    `clusters` has each cluster's ranks, `hosts` each rank's host. `speeds` are the FLOP/s that a
    rank reaches in training, or `profiles` the seconds of a layer's forward and backward pass by
    the number of samples; one of them is empty. `memory` are a rank's bytes, None if unknown.
    `inside` is bytes/s of a rank to others of its host; `network` and `crossing` are bytes/s of a
    host, each way, to hosts of the same cluster and of other ones: 0 is unknown. `between` is
    bytes/s of a rank to ranks of other clusters on its host. `latency` is the seconds of a message.
    `times` are bytes and seconds of all-reduces of all ranks together, as `hetccl tune` or
    `measure_reduces` has measured them.
    """

    clusters: tuple[tuple[int, ...], ...]
    hosts: tuple[int, ...]
    speeds: tuple[float, ...]
    memory: tuple[int | None, ...]
    inside: tuple[float, ...]
    network: tuple[float, ...]
    crossing: tuple[float, ...]
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    latency: float = _LATENCY
    times: tuple[tuple[int, float], ...] = ()
    between: float = _HOST_COPY
    profiles: tuple[Profile, ...] = ()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @functools.cached_property
    def cluster_of(self) -> dict[int, int]:
        """The number of each rank's cluster."""
        return {rank: number for number, ranks in enumerate(self.clusters) for rank in ranks}

    def device(self, rank: int) -> str:
        """Names a rank and its device for errors."""
        name = self.devices[rank] if self.devices else ""
        return f"rank {rank} ({name})" if name else f"rank {rank}"

    def _leave(self, host: int, crossing: bool) -> float:
        rate = (self.crossing if crossing else self.network)[host]
        if rate <= 0:
            name = self.names[host] if self.names else str(host)
            raise ParallelError(
                f"the bandwidth of host {name} to other hosts is unknown: give "
                f"bandwidths={{{'all' if crossing else 'cluster'!r}: bytes/s}}, or --bandwidth"
            )
        return rate

    def _within(self, ranks: Iterable[int]) -> float:
        """Bytes/s of each of some ranks of one host."""
        ranks = list(ranks)
        rate = min(self.inside[rank] for rank in ranks)
        if len({self.cluster_of[rank] for rank in ranks}) > 1:
            return min(rate, self.between)
        return rate

    def send_seconds(self, flows: Iterable[Flow]) -> float:
        """Returns the seconds of messages that are sent at once; messages of one host share its
        cards.
        """
        busy: dict[tuple[str, int], float] = defaultdict(float)
        for flow in flows:
            one, other = self.hosts[flow.source], self.hosts[flow.target]
            if flow.source == flow.target:
                continue
            if one == other:
                rate = self._within((flow.source, flow.target))
                busy["from", flow.source] += flow.size / rate
                busy["to", flow.target] += flow.size / rate
                continue
            crosses = self.cluster_of[flow.source] != self.cluster_of[flow.target]
            busy["out", one] += flow.size / self._leave(one, crosses)
            busy["in", other] += flow.size / self._leave(other, crosses)
        return self.latency + max(busy.values()) if busy else 0.0

    def reduce_seconds(self, groups: Iterable[Group]) -> float:
        """Returns the seconds of all-reduces that start at once.

        A host of k ranks of a group of d over h hosts sends (d - k)/d of the buffer to be added up
        and k/d of the sum to each other host, as `hetccl.sharding` counts. Its ranks share the
        arrived bytes meanwhile, so the slower of both counts. Measurements count before computed
        values.
        """
        groups = [group for group in groups if len(group.ranks) > 1 and group.size]
        if self.times and len(groups) == 1 and len(groups[0].ranks) == self.size:
            return Profile(self.times).time(math.ceil(groups[0].size))
        outside: dict[int, float] = defaultdict(float)
        inside: dict[int, float] = defaultdict(float)
        rounds = 0
        for group in groups:
            of_host: dict[int, list[int]] = defaultdict(list)
            for rank in group.ranks:
                of_host[self.hosts[rank]].append(rank)
            crosses = len({self.cluster_of[rank] for rank in group.ranks}) > 1
            rounds = max(rounds, 2 if len(of_host) == 1 else 4)
            for host, ranks in of_host.items():
                own = len(ranks) / len(group.ranks)
                if len(of_host) > 1:
                    sent = group.size * (1 - own + own * (len(of_host) - 1))
                    outside[host] += sent / self._leave(host, crosses)
                if len(ranks) > 1:
                    shared = 2 * group.size * (len(ranks) - 1) / len(ranks)
                    for rank in ranks:
                        inside[rank] += shared / self._within(ranks)
        return rounds * self.latency + max([0.0, *outside.values(), *inside.values()])


def read_times(path: Path, site: Site) -> Site:
    """Returns `site` with the all-reduces of all its ranks that `hetccl tune --output` has
    measured.

    The fastest setting of each size counts, as in a tuned job. Raises OSError, and ParallelError if
    the file is damaged or was measured with other ranks or hosts.
    """
    try:
        points = [point for point in records.read(path) if not point.failed]
    except records.RecordsError as error:
        raise ParallelError(str(error)) from None
    hosts = len(set(site.hosts))
    found: dict[int, float] = {}
    for point in points:
        where = point.key["collective"], point.ranks, point.hosts
        if where == ("all_reduce", site.size, hosts):
            seconds = point.us / 1e6
            found[point.bytes] = min(seconds, found.get(point.bytes, seconds))
    if not found:
        others = sorted({(point.ranks, point.hosts) for point in points})[:4]
        told = "; ".join(f"calls of {ranks} ranks on {hosts} hosts" for ranks, hosts in others)
        raise ParallelError(
            f"times: {path} has no all_reduce of {site.size} ranks on {counted(hosts, 'host')}: it "
            f"has {told or 'no measurement'}"
        )
    return dataclasses.replace(site, times=tuple(sorted(found.items())))


def _check_rate(what: str, rate: object) -> float:
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not 0 < rate <= _MOST_RATE:  # type: ignore[operator]
        raise ParallelError(f"{what}={str(rate)[:40]} is no number above 0")
    return float(rate)  # type: ignore[arg-type]


def _by_rank(
    what: str, given: Mapping[int, Any] | Sequence[Any] | None, found: graph.Topology
) -> dict[int, Any]:
    """Returns by rank the values that were given for clusters (a mapping by number) or ranks (a
    sequence).
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for number in given:
            if number not in range(len(found.clusters)):
                raise ParallelError(
                    f"{what}: there is no cluster {number}; clusters are numbered 0 to "
                    f"{len(found.clusters) - 1} (hetccl topo shows them)"
                )
        return {rank: value for number, value in given.items()
                for rank in found.clusters[number].ranks}  # fmt: skip
    if len(given) != len(found.ranks):
        raise ParallelError(f"{what} has {len(given)} values for {len(found.ranks)} ranks")
    return dict(enumerate(given))


def read_site(
    topology: Mapping[str, Any],
    speeds: Mapping[int, float] | Sequence[float] | None = None,
    memory: Mapping[int, int] | Sequence[int] | None = None,
    bandwidths: Mapping[str, float] | None = None,
    latency: float = _LATENCY,
    profiles: Sequence[Profile] = (),
    times: Sequence[tuple[int, float]] = (),
) -> Site:
    """The site of a topology file's content, or of what `Communicator.topology` returns.

    `profiles` are what `measure` returns, and replace speeds. `speeds` (FLOP/s) and `memory`
    (bytes) are by rank, or by the number of the cluster; by default the kind of device decides.
    `bandwidths` are bytes/s by level: "host" of a rank inside its host, "between" of a rank to
    other clusters on its host, "cluster" and "all" of a host to other hosts
    of its cluster and of other clusters. `times` are bytes and seconds of all-reduces of all ranks,
    which `measure_reduces` returns. Raises ParallelError for what means nothing or is unknown,
    HetcclError for a wrong topology.
    """
    found, networks = _parse(topology)
    if profiles and (speeds is not None or len(profiles) != len(found.ranks)):
        raise ParallelError(
            f"profiles: there are {len(profiles)} for {counted(len(found.ranks), 'rank')}: give "
            "one for each, and no speeds"
        )
    rates = dict(bandwidths or {})
    for level, rate in rates.items():
        if level not in LEVELS:
            raise ParallelError(f"bandwidths: {level!r} is no level: give {', '.join(LEVELS)}")
        _check_rate(f"bandwidths: {level}", rate)
    for size, seconds in times:
        _check_rate(f"times: {size} bytes", seconds)
    names = found.hosts
    numbers = {host: number for number, host in enumerate(names)}
    network = tuple(rates.get("cluster", networks[host]) for host in names)
    crossing = tuple(rates.get("all", networks[host]) for host in names)
    kinds = [find_device(rank.vendor, rank.model) for rank in found.ranks]
    return Site(
        tuple(cluster.ranks for cluster in found.clusters),
        tuple(numbers[rank.host] for rank in found.ranks),
        () if profiles else _find_speeds(found, _by_rank("speeds", speeds, found)),
        _find_memory(found, _by_rank("memory", memory, found)),
        tuple(rates.get("host", kind.host * 1e9) for kind in kinds),
        network, crossing, tuple(names.values()),
        tuple(rank.model or rank.vendor for rank in found.ranks), latency,
        times=tuple(sorted((int(size), seconds) for size, seconds in times)),
        between=rates.get("between", _HOST_COPY), profiles=tuple(profiles),
    )  # fmt: skip


def _parse(topology: Mapping[str, Any]) -> tuple[graph.Topology, dict[str, float]]:
    """Returns a topology, and the bytes/s of its hosts' cards."""
    described = dict(topology)
    if "clusters" not in described:
        described = json.loads(_lib.topology(json.dumps(described)))
    try:
        found = graph.parse(json.dumps(described))
        networks = find_networks(described)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ParallelError(
            f"topology: {type(error).__name__}: {error}: it is no topology; give the content of a "
            "file of hetccl topo --save, or Communicator.topology"
        ) from None
    if not found.ranks:
        raise ParallelError("topology: it has no rank")
    return found, networks


def _find_speeds(found: graph.Topology, given: dict[int, Any]) -> tuple[float, ...]:
    speeds = []
    for rank in found.ranks:
        if rank.rank in given:
            speeds.append(_check_rate("speeds", given[rank.rank]))
            continue
        known = find_device(rank.vendor, rank.model).teraflops
        if not known:
            raise ParallelError(
                f"the speed of rank {rank.rank} ({rank.model or rank.vendor}) is unknown: measure "
                "it (hetccl.parallel.measure), and give speeds=, or --speed CLUSTER=FLOP/s"
            )
        speeds.append(known * 1e12 * UTILISATION)
    return tuple(speeds)


def _find_memory(found: graph.Topology, given: dict[int, Any]) -> tuple[int | None, ...]:
    memory: list[int | None] = []
    for rank in found.ranks:
        if rank.rank in given:
            memory.append(int(_check_rate("memory", given[rank.rank])))
            continue
        known = find_device(rank.vendor, rank.model).memory
        memory.append(known * _GIB if known else None)
    return tuple(memory)
