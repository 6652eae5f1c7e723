"""Exports learnt settings of NCCL as a configuration of NCCL's example tuner plug-in.

It comes from the file that hetccl's own plug-in for plain NCCL programs writes (HETCCL_TUNE_FILE).

The format is that of plugins/tuner/example in NCCL's sources: a line for each range of sizes, with
ten fields; lines that begin with # are comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

FIELDS = (
    "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,"
    "regBuff"
)
_COLLECTIVES = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
# The plug-in reads an unknown name as ring or simple, so no unknown name may be written.
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
_PLACE = re.compile(r"nccl: (\d+) ranks on (\d+) nodes")
_ANY = -1


class ExportError(RuntimeError):
    """The file cannot be exported; the text says why."""


def _known(setting: dict[str, Any], name: str, names: tuple[str, ...]) -> str:
    value = setting[name]
    if value not in names:
        raise ExportError(f"{name} is {value!r}, and NCCL's example tuner knows {', '.join(names)}")
    return str(value)


def _line(entry: dict[str, Any], ranks: str, nodes: str) -> str:
    size_class, setting = entry["key"]["size_class"], entry["setting"]
    values = (
        _COLLECTIVES[entry["key"]["collective"]],
        (1 << size_class - 1) + 1 if size_class > 0 else 0,
        1 << size_class,
        _known(setting, "nccl_algorithm", _ALGORITHMS),
        _known(setting, "nccl_protocol", _PROTOCOLS),
        setting.get("nccl_channels") or _ANY,
        nodes,
        ranks,
        _ANY,
        _ANY,
    )
    return ",".join(map(str, values))


def _lines(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        place = _PLACE.fullmatch(entry.get("summary", ""))
        has_choice = {"nccl_algorithm", "nccl_protocol"} <= set(entry["setting"])
        if place and has_choice and entry["key"]["collective"] in _COLLECTIVES:
            yield _line(entry, place[1], place[2])


def configuration(text: str) -> tuple[str, int]:
    """The configuration, and how many lines of it choose something. Raises ExportError."""
    try:
        entries = json.loads(text)["entries"]
        lines = list(_lines(entries))
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"this is no tuning file of hetccl: {error}") from error
    return "\n".join((f"# by hetccl tune: {FIELDS}", *lines, "")), len(lines)
