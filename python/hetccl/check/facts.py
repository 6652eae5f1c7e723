"""The facts that a rank of a check reports about itself and its host."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from hetccl.machine import addresses

_UNLIMITED = -1


def _mtu(interface: str) -> int:
    """Returns the interface's MTU; 0 if it is unknown."""
    try:
        return int(Path("/sys/class/net", interface, "mtu").read_text())
    except (OSError, ValueError):
        return 0


def _limit(which: int) -> int:
    soft, _ = resource.getrlimit(which)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _free_shm() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _torch() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def port_range() -> tuple[int, int] | None:
    """HETCCL_PORT_RANGE; None if it is not set, or no range, which the library refuses by name."""
    first, dash, last = os.environ.get("HETCCL_PORT_RANGE", "").partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        return None
    low, high = int(first), int(last)
    return (low, high) if 0 < low <= high < 1 << 16 else None


def gather(found: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Returns this rank's facts. `found` is the result of `hetccl info` here, of any version."""
    interfaces = [
        {"name": one["name"], "mbps": one["mbps"], "mtu": _mtu(one["name"])}
        for one in found["interfaces"]
    ]
    ports = port_range()
    return {
        "version": found["version"],
        "host": found["host"],
        "name": socket.gethostname(),
        "device": device,
        "addresses": addresses(found),
        "interfaces": interfaces,
        "libraries": {
            one["name"]: one["version"]
            for one in found["libraries"]
            if one["available"] and "version" in one
        },
        "transports": [one["name"] for one in found["transports"] if one["available"]],
        "torch": _torch(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "memlock": _limit(resource.RLIMIT_MEMLOCK),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "shm": _free_shm(),
        "ports": list(ports) if ports else None,
    }
