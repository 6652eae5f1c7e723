"""Options that several commands share: the same names of types, operators and calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hetccl._lib import NCCL_OPS, DataType

TYPES = tuple(DataType.__members__)
# As nccl-tests, NCCL, MPI and PyTorch write them; hyphens and underscores are left out first.
_TYPE_WORDS = {
    "float": "float32", "double": "float64", "half": "float16", "fp16": "float16",
    "fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "char": "int8", "int": "int32",
    "f8e4m3": "float8_e4m3", "f8e5m2": "float8_e5m2", "fp8e4m3": "float8_e4m3",
    "fp8e5m2": "float8_e5m2",
}  # fmt: skip
_OP_WORDS = {"mean": "avg", "average": "avg", "product": "prod", "maximum": "max", "minimum": "min"}
_CALL_WORDS = {"bcast": "broadcast", "sendrecv": "send_recv"}
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _find(given: str, names: Sequence[str], words: Mapping[str, str], what: str) -> str:
    """Returns the one of `names` that a word means."""
    plain = {_plain(name): name for name in names} | {
        word: name for word, name in words.items() if name in names
    }
    found = plain.get(_plain(given))
    if found is None:
        raise typer.BadParameter(f"{given!r} is no {what}: write one of {', '.join(names)}")
    return found


def parse_type(given: str) -> str:
    """A type of elements by its name: "float32", "float", "fp32"."""
    return _find(given, TYPES, _TYPE_WORDS, "type of elements")


def or_all(parse: Callable[[str], str]) -> Callable[[str], str]:
    """Returns the parser of an option that takes "all", too."""

    def parse_or_all(given: str) -> str:
        return "all" if given == "all" else parse(given)

    return parse_or_all


TYPE_FLAGS = ("-d", "--datatype", "--dtype", "--type")
Datatype = Annotated[
    str,
    typer.Option(
        *TYPE_FLAGS,
        parser=parse_type,
        metavar="TYPE",
        help="float32, bfloat16, int8, ...",
    ),
]

Rendezvous = Annotated[
    Path | None,
    typer.Option(
        help="A file by which ranks of a launcher meet, instead of the launcher's own store."
    ),
]


def parse_op(given: str, more: Sequence[str] = ()) -> str:
    """An operator by its name, "avg" or "mean"; `more` are names that one command takes, too."""
    return _find(given, (*NCCL_OPS, *more), _OP_WORDS, "operator")


def parse_call(given: str, names: Sequence[str]) -> str:
    """Returns the one of `names` that a word means, such as "all_reduce", "allreduce", "bcast"."""
    return _find(given, names, _CALL_WORDS, "collective")


def _scaled(given: str | int, what: str, example: str) -> int:
    match = re.fullmatch(r"([0-9]+)(?:([KMG])(?:iB)?)?", str(given), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{str(given)!r} is no {what}: write {example}")
    return int(match[1]) << _UNITS[(match[2] or "").upper()]


def parse_size(given: str | int) -> int:
    """Returns the bytes that "8", "64K", "128M" or "1G" mean to nccl-tests. A number is a default,
    and stays.

    "64KiB" is the same as "64K".
    """
    return _scaled(given, "size", "8, 64K, 128M or 1G")


def parse_count(given: str | int) -> int:
    """Elements of "8", "64K" or "1M": units as of sizes."""
    return _scaled(given, "number of elements", "8, 64K, 1M or 1G")
