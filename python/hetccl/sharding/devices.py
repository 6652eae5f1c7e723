"""Default bandwidths and memory of the devices of a topology."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_GIB = 1 << 30


class Device(NamedTuple):
    """`pair` and `host` are GB/s (10^9 bytes), each way, of a device to its neighbour and to all
    others of its host; `memory` is GiB, 0 if unknown. `teraflops` are the maker's of dense matrices
    in 16 bits, 0 if unknown."""

    pair: float
    host: float
    memory: int
    teraflops: float = 0


# By what a model's name holds; the first that fits counts.
_OF_MODEL = (
    (r"G?B300", Device(900, 900, 288, 2500)),  # NVLink 5
    (r"G?B200", Device(900, 900, 180, 2250)),
    (r"GH200", Device(450, 450, 96, 989)),
    (r"H200", Device(450, 450, 141, 989)),  # NVLink 4
    (r"H20", Device(450, 450, 96, 148)),
    (r"H100", Device(450, 450, 80, 989)),
    (r"H800", Device(200, 200, 80, 989)),  # NVLink 4 with fewer links
    (r"A100", Device(300, 300, 40, 312)),  # NVLink 3; the name may say 80GB
    (r"A800", Device(200, 200, 40, 312)),
    (r"V100", Device(150, 150, 16, 125)),  # NVLink 2
    (r"MI35\dX?", Device(537, 537, 288, 2300)),  # seven Infinity Fabric links of 76.8 GB/s
    (r"MI325X?", Device(448, 448, 256, 1307)),  # seven links of 64 GB/s
    (r"MI300A", Device(448, 448, 128, 981)),
    (r"MI30\d[AX]?", Device(448, 448, 192, 1307)),
    # Frontier, a rank for each GCD: 200 GB/s between the two of one MI250X, 50 GB/s between those
    # of two (Xu et al., section IV and table II).
    (r"MI250X?", Device(200, 50, 64, 191.5)),
)
_OF_GPU = Device(25, 25, 0)  # PCIe 4.0, 16 lanes
_OF_HOST = Device(10, 10, 0)  # one copy in a host's memory


def find_device(vendor: str, model: str) -> Device:
    """Returns the known facts of a device ("cuda", "NVIDIA A100-SXM4-80GB"); a size in its name
    counts.
    """
    if vendor == "host":
        return _OF_HOST
    name = model.upper()
    found = _OF_GPU
    for pattern, device in _OF_MODEL:
        if re.search(rf"(?<![A-Z0-9])(?:{pattern})(?!\d)", name):
            found = device
            break
    size = re.search(r"(?<!\d)(\d{1,3}) ?GB", name)
    return found._replace(memory=int(size[1])) if size else found


def find_bandwidths(topology: Mapping[str, Any], clusters_in_hosts: bool) -> dict[str, float]:
    """Bytes/s by level: those of the slowest device or host. What is unknown is left out.

    Between hosts the network cards count that a host's ranks use, in one direction. Clusters on
    one host exchange data through the host's memory.
    """
    devices = [find_device(rank["vendor"], rank.get("model", "")) for rank in topology["ranks"]]
    inside = min(device.host for device in devices) * 1e9
    found = {"pair": min(device.pair for device in devices) * 1e9, "host": inside}
    network = min(find_networks(topology).values())
    if network:
        found["cluster"] = found["all"] = network
    if clusters_in_hosts:
        found["cluster"], found["host"] = inside, min(inside, _OF_HOST.host * 1e9)
    return found


def find_networks(topology: Mapping[str, Any]) -> dict[str, float]:
    """Bytes/s, in one direction, of the network cards that each host's ranks use; 0 if unknown."""
    cards: dict[str, dict[str, int]] = {}
    used: dict[int, list[str]] = {}
    for cluster in topology["clusters"]:
        used.update(zip(cluster["ranks"], cluster["cards"], strict=True))
    for rank in topology["ranks"]:
        mbps = {card["name"]: card["mbps"] for card in rank.get("nics", [])}
        of_host = cards.setdefault(rank["host"], {})
        for name in used[rank["rank"]]:
            of_host[name] = max(of_host.get(name, 0), mbps[name])
    return {host: sum(of_host.values()) * 1e6 / 8 for host, of_host in cards.items()}


def find_device_memory(ranks: Iterable[Mapping[str, Any]]) -> int | None:
    """Bytes of the smallest device; None if one is unknown."""
    sizes = [find_device(rank["vendor"], rank.get("model", "")).memory for rank in ranks]
    return min(sizes) * _GIB if all(sizes) else None
