"""The RDMA part of a self test's report: ports, limits, and which transport moved the memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRANSPORT = "verbs"
_CLASS = Path("/sys/class/infiniband")
_MODULES = Path("/sys/module")
_PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem")  # modules that tell cards of a GPU's memory
_LIBRARY = "libibverbs.so"
_SOFTWARE = "software"
_OF_DEVICE = {"firmware": "fw_ver", "board": "board_id"}
_OF_PORT = {"link_layer": "link_layer", "state": "state", "rate": "rate"}
_OF_KERNEL = ("driver", "firmware", "link_layer", "state", "rate")  # as printed
_MEMORY = {
    "system": "memory of the host",
    "device": "the card moved the GPU's memory",
    "pinned": "the GPU's memory went through pinned memory",
}


def settings(rank: int) -> dict[str, str]:
    """The settings with which a rank is a host of its own that others reach by RDMA alone."""
    return {"HETCCL_TRANSPORT": TRANSPORT, "HETCCL_HOSTID": f"selftest-{rank}"}


def why_no_rdma(found: dict[str, Any]) -> str:
    """Returns why this machine has no RDMA, by the facts of `hetccl info`; "" if it has."""
    mine = [one for one in found.get("transports", []) if one["name"] == TRANSPORT]
    if any(one["available"] for one in mine):
        return ""
    return next((str(one["reason"]) for one in mine), "this build of hetccl has no RDMA")


def choose_devices(gpus: list[str]) -> list[str]:
    """Every GPU, a lone one twice, and two ranks of the host: each kind of memory meets each."""
    return (gpus * 2 if len(gpus) == 1 else gpus) + ["host"] * 2


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _driver(device: Path) -> str:
    """The kernel's driver. Software such as rdma_rxe has no device below it."""
    link = device / "device" / "driver"
    return link.resolve().name if link.exists() else _SOFTWARE


def _ports_of_kernel(folder: Path) -> Iterator[dict[str, Any]]:
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        for port in sorted((device / "ports").glob("*"), key=lambda one: int(one.name)):
            facts = {"driver": _driver(device)}
            facts |= {key: _read(device / name) for key, name in _OF_DEVICE.items()}
            facts |= {key: _read(port / name) for key, name in _OF_PORT.items()}
            known = {key: value for key, value in facts.items() if value}
            yield {"port": f"{device.name}:{port.name}", **known}


def find_ports(found: dict[str, Any], folder: Path = _CLASS) -> list[dict[str, Any]]:
    """Each port: the kernel's facts, and under "hetccl" its address (GID), MTU and rate, or why
    hetccl does not use it."""
    lines = [line for one in found.get("transports", []) if one["name"] == TRANSPORT
             for line in one.get("ports", [])]  # fmt: skip
    ports = {one["port"]: one for one in _ports_of_kernel(folder)}
    for line in lines:  # "mlx5_0:1: RoCE v2, ..." or "mlx5_0:1 is not used: ..."
        name = line.split(" ")[0].removesuffix(":")
        ports.setdefault(name, {"port": name})["hetccl"] = (
            line[len(name) :].removeprefix(": ").strip()
        )
    return [{"hetccl": "is not used: a setting leaves it out", **one} for one in ports.values()]


def _limit() -> int | str:
    bytes_ = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if bytes_ == resource.RLIM_INFINITY else bytes_ >> 10


def describe(found: dict[str, Any]) -> dict[str, Any]:
    """Returns a report's lines about the machine's RDMA."""
    return {
        "ports": find_ports(found),
        "locked_memory_kib": _limit(),  # ulimit -l
        "peer_memory": [name for name in _PEER_MEMORY if (_MODULES / name).is_dir()],
        "library": "",  # the ranks have it
    }


def find_library(maps: Path = Path("/proc/self/maps")) -> str:
    """The name of the libibverbs that this process has loaded, which has its version."""
    paths = {line.split(maxsplit=5)[5] for line in _read(maps).splitlines() if _LIBRARY in line}
    return next((Path(path).name for path in sorted(paths)), "")


def evidence(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the evidence for RDMA in a report in which nothing failed."""
    ports = document["rdma"]["ports"]
    used = [one for one in ports if not one["hetccl"].startswith("is not used")]
    moved = {one["memory"] for rank in document["ranks"] for some in rank["transports"].values()
             for one in some if one["name"] == TRANSPORT}  # fmt: skip
    return {
        "hardware": any(one.get("driver", _SOFTWARE) != _SOFTWARE for one in used),
        "links": sorted({one["hetccl"].split(",")[0] for one in used}),
        "drivers": sorted({one.get("driver", _SOFTWARE) for one in used}),
        "memory": sorted(moved),
    }


def text_of(shown: dict[str, Any]) -> str:
    """The evidence, for people."""
    if not shown["memory"]:
        return "RDMA: no rank was reached by it"
    links = f"{', '.join(shown['links'])} by {', '.join(shown['drivers'])}"
    where = "ran on this hardware" if shown["hardware"] else "ran in software, on no card"
    return f"RDMA ({links}): {where}; {'; '.join(_MEMORY[one] for one in shown['memory'])}"


def show(document: dict[str, Any]) -> None:
    """Prints ports, limits, and how each rank was reached."""
    facts = document["rdma"]
    for port in facts["ports"]:
        kernel = ", ".join(port[key] for key in _OF_KERNEL if key in port)
        print(": ".join(filter(None, (f"port {port['port']}", kernel, port["hetccl"]))))
    print(f"{facts['library'] or 'no libibverbs loaded'}; ulimit -l: {facts['locked_memory_kib']}")
    for rank in document["ranks"]:
        for layout, reached in rank["transports"].items():
            for one in reached:
                peers = ", ".join(map(str, one["peers"]))
                memory = f"{_MEMORY[one['memory']]}{': ' if one['reason'] else ''}{one['reason']}"
                print(f"rank {rank['rank']}, {layout}: {one['name']} to {peers}: {memory}")
