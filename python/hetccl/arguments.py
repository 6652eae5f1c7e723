"""What options of several commands take."""

from __future__ import annotations

import re
from typing import Literal

import typer

RedOpName = Literal["sum", "prod", "max", "min", "avg"]
TypeName = Literal[
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


def parse_size(given: str | int) -> int:
    """Bytes of "8", "64K", "128M" or "1G", as nccl-tests reads them; a default is a number.

    "64KiB" is the same as "64K".
    """
    match = re.fullmatch(r"([0-9]+)(?:([KMG])(?:iB)?)?", str(given), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{str(given)!r} is no size: write 8, 64K, 128M or 1G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[(match[2] or "").upper()]
