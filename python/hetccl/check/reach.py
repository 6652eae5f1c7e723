"""Finds ports of other hosts that a host cannot reach, so that a firewall's drops show before any
communicator is made.

One rank of each host listens, at ports that a rank of a job would take, and all hosts dial them.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from hetccl.check.panel import listen_at

MOST_HOSTS = 64  # that one host dials: firewalls are a host's, not a pair's
_MOST_PORTS = 64  # of one host
_WAIT = 3.0  # seconds: one lost packet is sent again after one
_LONGEST = 60.0
_DIALS = 64  # at the same time


@contextmanager
def listening(ports: tuple[int, int] | None, ranks: int) -> Iterator[list[int]]:
    """The ports at which this process listens meanwhile: free ones of the range, two for each rank
    of this host, or any two."""
    wanted = min(2 * ranks, _MOST_PORTS)
    candidates: Sequence[int] = range(ports[0], ports[1] + 1) if ports else (0, 0)
    with contextlib.ExitStack() as open_ones:
        found: list[int] = []
        for port in candidates:
            if len(found) == wanted:
                break
            with contextlib.suppress(OSError):
                listener = open_ones.enter_context(listen_at(port))
                found.append(listener.getsockname()[1])
        yield found


def targets(own: int, hosts: int) -> list[int]:
    """The hosts that host `own` dials, by number."""
    return [(own + step) % hosts for step in range(1, min(hosts, MOST_HOSTS + 1))]


def _dial(addresses: Sequence[str], port: int) -> str:
    """Returns the reason why none of the addresses answers at a port; "" if one answers."""
    said = "it has no address"
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=_WAIT).close()
            return ""
        except TimeoutError:
            said = "no answer: a firewall drops it, or there is no route"
        except OSError as error:
            said = error.strerror or str(error)
    return said


def dial(own: int, listeners: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the listeners of other hosts that host `own` cannot reach. `listeners` has each
    host's addresses and ports.
    """
    calls = [
        (host, port) for host in targets(own, len(listeners)) for port in listeners[host]["ports"]
    ]
    deadline = time.monotonic() + _LONGEST

    def one(call: tuple[int, int]) -> str:
        host, port = call
        if time.monotonic() > deadline:
            return "not tried: others took too long"
        return _dial(listeners[host]["addresses"], port)

    with ThreadPoolExecutor(_DIALS) as pool:
        answers = list(pool.map(one, calls))
    return [
        {"from": own, "to": host, "port": port, "reason": answer}
        for (host, port), answer in zip(calls, answers, strict=True)
        if answer
    ]
