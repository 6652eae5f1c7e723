"""Facts about this machine, for reports and for other ranks."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _lines(path: str, key: str) -> list[str]:
    """Returns the values of "key : value" lines of a file of /proc; none if it cannot be read."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(key)]


def facts() -> dict[str, str]:
    """Processor, memory, system and Python, each in a few words."""
    models = ", ".join(sorted(set(_lines("/proc/cpuinfo", "model name")))) or platform.machine()
    found = {"processor": f"{os.cpu_count()} cores of {models}"}
    for total in _lines("/proc/meminfo", "MemTotal"):
        found["memory"] = f"{int(total.split()[0]) / 2**20:.1f} GiB"
    found["system"] = f"{platform.system()} {platform.release()}"
    found["Python"] = platform.python_version()
    return found


def addresses(found: Mapping[str, Any]) -> list[str]:
    """The addresses of the interfaces that `hetccl info` has found, without ports, the best first:
    those that hetccl uses (HETCCL_SOCKET_IFNAME)."""
    listed = [one["address"].rpartition(":")[0].strip("[]") for one in found["interfaces"]]
    return list(dict.fromkeys(listed))
