"""Encodings as arguments of a sharding."""

from __future__ import annotations

import functools

from hetccl import HetcclError, encoded_bytes
from hetccl.sharding.degrees import ShardingError

SCALE_BITS = 32  # a float32 for each block
_LONGEST_BLOCK = 512


def check_wire(argument: str, wire: str) -> None:
    """Raises ShardingError, which names `argument`, for an encoding that it does not take."""
    if not isinstance(wire, str):
        raise ShardingError(f'{argument}={wire!r} is no text: give "int8", or "" for none')
    if not wire:
        return
    try:
        encoded_bytes(1, wire)
    except (HetcclError, ValueError) as error:
        raise ShardingError(f"{argument}={wire!r}: {error}") from None
    if argument != "gradient_wire" and "stochastic" in wire:
        raise ShardingError(
            f"{argument}={wire!r}: weights are rounded to nearest, so that all ranks and all "
            "gathers get the same; leave :stochastic to gradient_wire"
        )


def wire_bytes(argument: str, wire: str, type_bytes: int, scale_bits: int = SCALE_BITS) -> float:
    """Bytes of an element on the wire: 1.015625 for "int8", `type_bytes` for "". With `scale_bits`
    0 its scale's part of the block is left out. Raises ShardingError as check_wire."""
    check_wire(argument, wire)
    if not wire:
        return type_bytes
    code = 0.5 if wire.startswith("int4") else 1.0
    return code + (_encoded_element(wire) - code) * scale_bits / SCALE_BITS


@functools.cache
def _encoded_element(wire: str) -> float:
    return encoded_bytes(_LONGEST_BLOCK, wire) / _LONGEST_BLOCK
