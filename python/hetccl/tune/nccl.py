"""The best settings as a configuration of NCCL's example tuner plug-in.

The format is that of plugins/tuner/example in NCCL's sources: a line for each range of sizes, with
ten fields; lines that begin with # are comments.
"""

from __future__ import annotations

from collections.abc import Iterator

from hetccl.tune.findings import Finding
from hetccl.tune.records import Point

FIELDS = (
    "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,"
    "regBuff"
)
# NCCL asks its tuner about these, and counts the bytes of all blocks of the larger buffer.
_COLLECTIVES = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
_IN_BLOCKS = ("all_gather", "reduce_scatter")
# What the plug-in does not know it takes for ring and simple, so it must not be written.
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
_ANY = -1


class ExportError(RuntimeError):
    """The points cannot be exported; the text says which and why."""


def _known(point: Point, name: str, names: tuple[str, ...]) -> str:
    value = point.setting[name]
    if value not in names:
        raise ExportError(f"{name} is {value!r}, and NCCL's example tuner knows {', '.join(names)}")
    return str(value)


def _line(point: Point) -> str:
    collective, size_class = point.key["collective"], point.key["size_class"]
    blocks = point.ranks if collective in _IN_BLOCKS else 1
    least = (blocks << size_class - 1) + 1 if size_class > 0 else 0
    values = (
        _COLLECTIVES[collective], least, blocks << size_class,
        _known(point, "nccl_algorithm", _ALGORITHMS), _known(point, "nccl_protocol", _PROTOCOLS),
        point.setting.get("nccl_channels") or _ANY, point.hosts, point.ranks, _ANY, _ANY,
    )  # fmt: skip
    return ",".join(map(str, values))


def _lines(found: list[Finding]) -> Iterator[str]:
    for finding in found:
        best = finding.best
        has_choice = {"nccl_algorithm", "nccl_protocol"} <= set(best.setting)
        if has_choice and best.key["collective"] in _COLLECTIVES:
            yield _line(best)


def configuration(found: list[Finding]) -> tuple[str, int]:
    """The file's text, and how many lines of it configure something. Raises ExportError."""
    lines = list(_lines(found))
    return "\n".join((f"# by hetccl tune: {FIELDS}", *lines, "")), len(lines)
