"""Emulated hosts on one machine, for the demo, benchmarks and tests.

Each host is a network namespace with one to four interfaces, ``up0`` to ``up3``, its rails. Those
of one rail meet at a bridge in a namespace of its own, which stands for the switch; no packet gets
from one rail to another. Uplinks are shaped both ways, each by itself. Nothing leaves the
machine, and nothing is left behind: namespaces carry the maker's process id in their names, so
those of a process that was killed are swept away by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

INTERFACE = "up0"  # of the first rail
MAX_RAILS = 4
MTU = 9000
_NAMESPACE = re.compile(r"hetccl-(\d+)-\d+-(?:switch|\d+)")
_serial = itertools.count()


def free_port() -> int:
    """Returns a TCP port that nobody listens on here."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


class HostsError(RuntimeError):
    """A command that sets up or queries the emulated hosts has failed."""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HostsError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _sent(namespace: str, interface: str) -> int:
    shown = _run("ip", "-n", namespace, "-j", "-s", "link", "show", interface)
    return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])


def _shape(namespace: str, verb: str, interface: str, rate: str) -> None:
    shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms")
    _run("tc", "-n", namespace, "qdisc", verb, "dev", interface, *shape)


def _mbps(rate: str) -> int:
    """Returns the Mbit/s of a rate as tc writes it, "500mbit" or "1.5gbit". Raises ValueError for
    other texts.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])bit", rate.lower())
    if found is None:
        raise ValueError(f"rate {rate!r}: give it as 500mbit or 10gbit")
    return max(1, round(float(found[1]) * 1000.0 ** ("kmgt".index(found[2]) - 1)))


def _sweep() -> None:
    """Deletes the namespaces of processes that no longer run."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        made_by = _NAMESPACE.fullmatch(name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            with contextlib.suppress(HostsError):
                _run("ip", "netns", "delete", name)


class EmulatedHosts:
    """``n`` hosts joined by a switch, each uplink shaped to ``rate`` (as tc writes it) both ways.

    ``rate=None`` leaves the links as fast as the kernel. A sequence of rates gives each host as
    many rails, 1 to 4, one of each rate. With ``sites`` the hosts, in order, are at
    so many places of equal size, each with one switch; what leaves a site passes its trunk, which
    is shaped to ``trunk`` both ways. A context manager; not thread-safe.
    Addresses are the same in every instance (10.77.0.1 upward), and yet instances do not meet.

    >>> with EmulatedHosts(2, rate="1gbit") as hosts:
    ...     hosts.popen(0, ["python", "worker.py"], env={"MASTER_ADDR": hosts.address(0)})
    """

    def __init__(
        self,
        n: int = 2,
        rate: str | Sequence[str | None] | None = "1gbit",
        sites: int = 1,
        trunk: str = "100mbit",
    ) -> None:
        if not 1 <= n <= 250:
            raise ValueError(f"n={n}: 1 to 250 hosts can be emulated")
        if sites < 1 or n % sites:
            raise ValueError(f"sites={sites}: {n} hosts cannot be split among them evenly")
        rates = [rate] if rate is None or isinstance(rate, str) else list(rate)
        if not 1 <= len(rates) <= MAX_RAILS or (sites > 1 and len(rates) > 1):
            raise ValueError(f"{len(rates)} rates: 1 to {MAX_RAILS} rails, and 1 between sites")
        self.n = n
        self.rates = rates
        self.sites = sites
        self.trunk = trunk
        self._name = f"hetccl-{os.getpid()}-{next(_serial)}"
        self._switch = f"{self._name}-switch"
        self._processes: list[subprocess.Popen[Any]] = []
        self._handlers: dict[int, Any] = {}
        self._owner = os.getpid()

    @staticmethod
    @functools.cache
    def unavailable() -> str | None:
        """The reason why hosts cannot be emulated here, or None."""
        if os.geteuid() != 0:
            return "emulating hosts takes root"
        missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
        if missing:
            return f"{' and '.join(missing)} not found: install iproute2"
        try:
            with EmulatedHosts(1):
                return None
        except HostsError as error:
            return f"the kernel refuses: {error}"

    def namespace(self, host: int) -> str:
        """The network namespace that is ``host`` (0 to n-1)."""
        if not 0 <= host < self.n:
            raise IndexError(f"host {host}: there are {self.n}")
        return f"{self._name}-{host}"

    @property
    def rails(self) -> int:
        """The number of uplinks of each host."""
        return len(self.rates)

    def interface(self, rail: int) -> str:
        """Returns each host's name of its uplink of that rail (0 to rails - 1)."""
        if not 0 <= rail < self.rails:
            raise IndexError(f"rail {rail}: there are {self.rails}")
        return f"up{rail}"

    def address(self, host: int, rail: int = 0) -> str:
        """Returns ``host``'s address on that uplink."""
        return f"10.77.{rail}.{host + 1}"

    def card_mbps(self) -> str:
        """Returns HETCCL_CARD_MBPS for these hosts, because the kernel says 10 Gbit/s for each
        veth.
        """
        shaped = [(self.interface(rail), rate) for rail, rate in enumerate(self.rates) if rate]
        return ",".join(f"{name}={_mbps(rate)}" for name, rate in shaped)

    def popen(
        self,
        host: int,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts ``argv`` on ``host``, with ``env`` added to this process's environment, and
        HETCCL_TRANSPORT=tcp in any case: RDMA and net plug-ins would go past the shaped links.

        The process leads a session of its own, and is killed when the hosts go down. ``options``
        are subprocess.Popen's.
        """
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), *argv],
            env={**os.environ, **(env or {}), "HETCCL_TRANSPORT": "tcp"},
            start_new_session=True,
            **options,
        )
        self._processes.append(process)
        return process

    def tx_bytes(self, host: int, rail: int = 0) -> int:
        """Returns the bytes that ``host`` has sent over that uplink, headers included, as the
        kernel counts.
        """
        return _sent(self.namespace(host), self.interface(rail))

    def trunk_bytes(self, site: int) -> int:
        """Returns the bytes that ``site``'s hosts have sent to other sites, headers included."""
        if not 0 <= site < self.sites or self.sites == 1:
            raise IndexError(f"site {site}: there are {self.sites}, and one alone has no trunk")
        return _sent(self._switch, f"t{site}")

    def cut(self, host: int, rail: int = 0) -> None:
        """Drops that uplink of ``host``, as a pulled cable would."""
        _run("ip", "-n", self._switch, "link", "set", self._port(host, rail), "down")

    def restore(self, host: int, rail: int = 0) -> None:
        """Brings that uplink of ``host`` back."""
        _run("ip", "-n", self._switch, "link", "set", self._port(host, rail), "up")

    def shape(self, rate: str, rail: int | None = None, host: int | None = None) -> None:
        """Changes the rate of every uplink, or of those of one rail or one host, which must have
        one, while connections last. `card_mbps` does not tell of one host's."""
        for one in range(self.rails) if rail is None else [rail]:
            for number in range(self.n) if host is None else [host]:
                self._shape_uplink(number, "change", rate, one)
            if host is None:
                self.rates[one] = rate

    def block(self, host: int, first: int, last: int) -> None:
        """Closes ``host``'s TCP ports ``first`` to ``last`` to other hosts, as a firewall does.

        A process that dials one of them gets no answer. Connections that such a port has accepted
        fall silent.
        """
        _run("ip", "-n", self.namespace(host), "rule", "add", "ipproto", "tcp",
             "sport", f"{first}-{last}", "blackhole")  # fmt: skip

    def part(self, a: int, b: int) -> None:
        """Drops everything that hosts ``a`` and ``b`` send each other, and nothing else, as a
        broken route does.
        """
        for host, other in ((a, b), (b, a)):  # to a card that nobody has
            _run("ip", "-n", self.namespace(host), "neighbour", "replace", self.address(other),
                 "lladdr", "02:00:00:00:00:00", "nud", "permanent", "dev", INTERFACE)  # fmt: skip

    def kill(self) -> None:
        """Kills every process that ``popen`` started and that still runs, with its children."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        self._processes.clear()

    def __enter__(self) -> EmulatedHosts:
        _sweep()
        atexit.register(self._down)
        self._catch_signals()
        try:
            self._up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        self._down()
        atexit.unregister(self._down)

    def _up(self) -> None:
        switch = self._switch
        _run("ip", "netns", "add", switch)
        bridges = [f"br{place}" for place in range(max(self.sites, self.rails))]
        if self.sites > 1:
            bridges.append("core")
        for bridge in bridges:
            _run("ip", "-n", switch, "link", "add", bridge, "type", "bridge")
            _run("ip", "-n", switch, "link", "set", bridge, "mtu", str(MTU), "up")
        for site in range(self.sites if self.sites > 1 else 0):
            self._lay_trunk(site)
        for host in range(self.n):
            self._make_host(host)

    def _port(self, host: int, rail: int) -> str:
        """The switch's end of an uplink."""
        self.interface(rail)  # there is such a rail
        return f"p{host}" if rail == 0 else f"p{host}r{rail}"

    def _make_host(self, host: int) -> None:
        ns = self.namespace(host)
        _run("ip", "netns", "add", ns)
        _run("ip", "-n", ns, "link", "set", "lo", "up")
        for rail, rate in enumerate(self.rates):
            self._connect(host, rail)
            if rate is not None:
                self._shape_uplink(host, "add", rate, rail)

    def _connect(self, host: int, rail: int) -> None:
        """Joins a host to the switch of one rail."""
        ns, interface, port = self.namespace(host), self.interface(rail), self._port(host, rail)
        mtu = ("mtu", str(MTU))
        _run("ip", "link", "add", interface, *mtu, "netns", ns, "type", "veth", "peer",
             "name", port, *mtu, "netns", self._switch)  # fmt: skip
        bridge = f"br{host * self.sites // self.n if self.sites > 1 else rail}"
        _run("ip", "-n", self._switch, "link", "set", port, "master", bridge, "up")
        _run("ip", "-n", ns, "address", "add", f"{self.address(host, rail)}/24", "dev", interface)
        _run("ip", "-n", ns, "link", "set", interface, "up")

    def _lay_trunk(self, site: int) -> None:
        """Joins a site's switch to the others'."""
        near, far = f"t{site}", f"c{site}"
        mtu = ("mtu", str(MTU))
        _run("ip", "-n", self._switch, "link", "add", near, *mtu, "type", "veth", "peer",
             "name", far, *mtu)  # fmt: skip
        for end, bridge in ((near, f"br{site}"), (far, "core")):
            _run("ip", "-n", self._switch, "link", "set", end, "master", bridge, "up")
            _shape(self._switch, "add", end, self.trunk)

    def _shape_uplink(self, host: int, verb: str, rate: str, rail: int) -> None:
        _shape(self.namespace(host), verb, self.interface(rail), rate)
        _shape(self._switch, verb, self._port(host, rail), rate)

    def _down(self) -> None:
        if os.getpid() != self._owner:  # a forked child must not tear down its parent's hosts
            return
        self.kill()
        for ns in self._namespaces():
            with contextlib.suppress(HostsError):
                _run("ip", "netns", "delete", ns)

    def _namespaces(self) -> Iterator[str]:
        for name in (*(self.namespace(host) for host in range(self.n)), self._switch):
            if Path("/run/netns", name).exists():
                yield name

    def _catch_signals(self) -> None:
        """Turns SIGTERM and SIGHUP into SystemExit while the hosts are up, so that they go down."""
        if threading.current_thread() is not threading.main_thread():
            return

        def leave(number: int, frame: FrameType | None) -> None:
            raise SystemExit(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, leave)
