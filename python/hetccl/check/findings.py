"""Derives findings from the document of a check: each is a fault with its remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hetccl.check import graph
from hetccl.check.graph import Hosts
from hetccl.units import binary_size, counted, duration, ranges

ERROR, WARNING, NOTE = "error", "warning", "note"
STATUS = {ERROR: 1, WARNING: 3, NOTE: 0}  # a process's

_CLOCKS = 0.5  # seconds
_SLOW_RANK = 0.5  # of its like
_SHM = 64 << 20  # bytes for each rank of a host
_MEMLOCK = 64 << 20  # bytes
_FILES, _FILES_EACH = 256, 4  # descriptors: some, and for each rank of the job
_MOST_PORTS = 8  # that a text lists
_MOST_FAILURES = 3  # one is the cause, and others are what ranks have heard of it


@dataclass(frozen=True)
class Finding:
    """One line for people: the fault, and what to do about it."""

    severity: str
    text: str
    remedy: str


def status(found: list[Finding]) -> int:
    """The exit status: that of the worst."""
    return next((STATUS[kind] for kind in (ERROR, WARNING) if _has(found, kind)), 0)


def _has(found: list[Finding], severity: str) -> bool:
    return any(one.severity == severity for one in found)


def _by_value(values: dict[int, str]) -> Iterator[tuple[str, list[int]]]:
    """Returns each value with the ranks that have it, the most frequent value first."""
    for value, _ in Counter(values.values()).most_common():
        yield value, [rank for rank, other in values.items() if other == value]


def _missing(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    for why, ranks in _by_value({int(rank): why for rank, why in document["lost"].items()}):
        yield Finding(
            ERROR,
            f"{hosts.several(ranks)} of {len(document['ranks'])} "
            f"{'is' if len(ranks) == 1 else 'are'} missing: {why}",
            "see what they have printed; start them, or open rank 0's ports (HETCCL_PORT_RANGE) in "
            "every host's firewall, or choose an interface that all hosts reach by "
            "HETCCL_SOCKET_IFNAME",
        )


def _versions(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    versions = {rank: one["version"] for rank, one in hosts.present()}
    (usual, _), *others = _by_value(versions)
    for version, ranks in others:
        yield Finding(
            ERROR, f"{hosts.several(ranks)}: hetccl {version}, and {usual} elsewhere",
            f"install the same version there: pip install hetccl=={usual}",
        )  # fmt: skip


def _libraries(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    names = {name for _, one in hosts.present() for name in one["libraries"]}
    for name in sorted(names):
        versions = {
            rank: one["libraries"][name]
            for rank, one in hosts.present()
            if name in one["libraries"]
        }
        (usual, _), *others = _by_value(versions)
        for version, ranks in others:
            yield Finding(
                WARNING, f"{hosts.several(ranks)}: {name} {version}, and {usual} elsewhere",
                "install the same version: ranks of different versions share no cluster",
            )  # fmt: skip


def _ports(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    closed: dict[tuple[int, str], dict[int, list[int]]] = {}
    for one in document["closed"]:
        closed.setdefault((one["to"], one["reason"]), {}).setdefault(one["from"], []).append(
            one["port"]
        )
    for (to, reason), sources in closed.items():
        ports = sorted({port for listed in sources.values() for port in listed})
        more = f" and {len(ports) - _MOST_PORTS} more" if len(ports) > _MOST_PORTS else ""
        span = next((one["ports"] for _, one in hosts.present(to) if one["ports"]), None)
        which = f"ports {span[0]}-{span[1]}" if span else "all ports, or set HETCCL_PORT_RANGE and"
        yield Finding(
            ERROR,
            f"{hosts.name(to)}: port {ranges(ports[:_MOST_PORTS])}{more} cannot be reached from "
            f"{', '.join(hosts.name(one) for one in sorted(sources))}: {reason}",
            f"open {which} {'' if span else 'open those '}in the firewall of {hosts.name(to)}, or "
            "choose an interface that all hosts reach by HETCCL_SOCKET_IFNAME",
        )


def _refusals(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    texts = {int(rank): text for rank, text in document["refused"].items()}
    for text, ranks in list(_by_value(texts))[:1]:
        yield Finding(
            ERROR, f"the ranks cannot make a communicator; {hosts.several(ranks)}: {text}",
            "docs/troubleshooting.md has the text",
        )  # fmt: skip


def _failures(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    failed = {
        rank: f"{result['failed']['at']} failed: {result['failed']['text']}"
        for rank, result in enumerate(document["results"])
        if result and "failed" in result
    }
    for text, ranks in list(_by_value(failed))[:_MOST_FAILURES]:
        yield Finding(
            ERROR, f"{hosts.several(ranks)}: {text}",
            "what follows was not tried: mend this and check again",
        )  # fmt: skip


def _values(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    for rank, result in enumerate(document["results"]):
        for one in (result or {}).get("collectives", ()):
            if one.get("wrong"):
                yield Finding(
                    ERROR, f"{hosts.rank(rank)}: {one['operation']} of "
                    f"{binary_size(one['bytes'])} gave {counted(one['wrong'], 'wrong element')}",
                    "take the device out of the job; run `hetccl selftest` there",
                )  # fmt: skip
        for link in (result or {}).get("links", ()):
            if link["wrong"]:
                yield Finding(
                    ERROR, f"{hosts.rank(rank)}: a message from {hosts.rank(link['peer'])} came "
                    f"with {counted(link['wrong'], 'wrong byte')}",
                    "run `hetccl selftest` on both hosts; look for errors of the card and cable",
                )  # fmt: skip


def slow_ranks(document: dict[str, Any]) -> dict[int, float]:
    """Ranks that are slower than their like, and how fast they are beside those."""
    kinds: dict[tuple[str, str], dict[int, float]] = {}
    described = (document["topology"] or {}).get("ranks", [])
    for rank, result in enumerate(document["results"]):
        if result and result.get("speed") and rank < len(described):
            kind = (described[rank]["vendor"], described[rank]["model"])
            kinds.setdefault(kind, {})[rank] = result["speed"]
    found = {}
    for speeds in kinds.values():
        ordered = sorted(speeds.values())
        usual = ordered[len(ordered) // 2]  # the upper one of two in the middle
        found.update({r: s / usual for r, s in speeds.items() if s < _SLOW_RANK * usual})
    return found


def _speeds(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    for rank, part in slow_ranks(document).items():
        device = document["ranks"][rank]["device"]
        cause = (
            "look for other programs, a limit of CPU time, cores that ranks share"
            if device == "host"
            else "look for other programs on the GPU, its clocks, temperature and power limit, MPS"
        )
        yield Finding(
            WARNING, f"{hosts.rank(rank)}, device {device}: it works at {part:.0%} of the speed of "
            "ranks like it", cause,
        )  # fmt: skip


def _links(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    slow = set(slow_ranks(document))
    for text, remedy in graph.find_slow(graph.links(document), hosts, slow):
        yield Finding(WARNING, text, remedy)


def _clocks(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    said = set()
    for rank, (ahead, error) in document["clocks"].items():
        host = hosts.of(int(rank))
        if abs(ahead) - error > _CLOCKS and host not in said:
            said.add(host)
            way = "ahead of" if ahead > 0 else "behind"
            yield Finding(
                WARNING, f"{hosts.rank(int(rank))}: its clock is {duration(abs(ahead))} {way} rank "
                "0's", "synchronise the hosts' clocks (chrony, ntpd): logs and traces mislead",
            )  # fmt: skip


def _mtus(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    mtus = {
        rank: str(one["interfaces"][0]["mtu"])
        for rank, one in hosts.first_ranks()
        if one["interfaces"] and one["interfaces"][0]["mtu"]
    }
    if len(hosts.numbers) < 2 or not mtus:
        return
    (usual, _), *others = _by_value(mtus)
    for mtu, ranks in others:
        names = ", ".join(hosts.name(hosts.of(rank)) for rank in ranks)
        yield Finding(
            WARNING, f"{names}: MTU {mtu}, and {usual} elsewhere",
            f"set the same MTU on all hosts and switches: ip link set DEVICE mtu {usual}",
        )  # fmt: skip


def _limits(document: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    needed = _FILES + _FILES_EACH * len(document["ranks"])
    for rank, one in hosts.first_ranks():
        name, ranks = hosts.name(hosts.of(rank)), hosts.ranks_of(hosts.of(rank))
        if 0 <= one["nofile"] < needed:
            yield Finding(
                ERROR, f"{name}: a process may open {one['nofile']} files (ulimit -n), and a rank "
                f"of {len(document['ranks'])} may need {needed}",
                f"ulimit -n {needed}, or LimitNOFILE, /etc/security/limits.conf, --ulimit nofile",
            )  # fmt: skip
        if "verbs" in one["transports"] and 0 <= one["memlock"] < _MEMLOCK:
            yield Finding(
                WARNING, f"{name}: a process may lock {binary_size(one['memlock'])} (ulimit -l), "
                "and RDMA locks the memory of messages",
                "ulimit -l unlimited, or LimitMEMLOCK=infinity, --ulimit memlock=-1",
            )  # fmt: skip
        if one["shm"] is not None and len(ranks) > 1 and one["shm"] < _SHM * len(ranks):
            yield Finding(
                WARNING, f"{name}: /dev/shm has {binary_size(one['shm'])} left for "
                f"{len(ranks)} ranks", "enlarge it: docker run --shm-size 8g, or mount -o "
                "remount,size=8G /dev/shm",
            )  # fmt: skip
        cpus = [r for r in ranks if document["ranks"][r]["device"] == "host"]
        if len(cpus) > one["cores"]:
            yield Finding(
                NOTE, f"{name}: {len(cpus)} ranks of the host share "
                f"{counted(one['cores'], 'core')}", "start fewer ranks there",
            )  # fmt: skip


_RULES: tuple[Callable[[dict[str, Any], Hosts], Iterator[Finding]], ...] = (
    _missing, _versions, _ports, _refusals, _failures, _values, _speeds, _links, _libraries,
    _clocks, _mtus, _limits,
)  # fmt: skip


def find(document: dict[str, Any]) -> list[Finding]:
    """Returns all findings, errors first."""
    hosts = Hosts(document)
    found = [finding for rule in _RULES for finding in rule(document, hosts)]
    return sorted(found, key=lambda one: (ERROR, WARNING, NOTE).index(one.severity))
