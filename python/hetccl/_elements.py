"""Numbers as elements of hetccl's types, in this machine's byte order."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from hetccl._lib import DataType

_FORMATS = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
# Floats that struct does not know: format of the code, bits of fraction, the least normal exponent,
# the code of the largest finite number.
_SMALL = {
    "bfloat16": ("H", 7, -126, 0x7F7F),
    "float8_e4m3": ("B", 3, -6, 0x7E),
    "float8_e5m2": ("B", 2, -14, 0x7B),
}


def _small_code(value: float, dtype: DataType) -> int:
    """The code of the number of `dtype` that is nearest, ties to even."""
    form, fraction, least, largest = _SMALL[dtype.name]
    magnitude = abs(value)
    if not math.isfinite(magnitude):
        raise OverflowError(f"{value} is no finite number of {dtype.name}")
    exponent = max(math.frexp(magnitude)[1] - 1, least) if magnitude else least
    units = round(math.ldexp(magnitude, fraction - exponent))  # ties to even
    code = units + ((exponent - least) << fraction)
    if code > largest:
        raise OverflowError(f"{value} is too large for {dtype.name}")
    sign = 1 << (8 * struct.calcsize(form) - 1)
    return code | (sign if math.copysign(1, value) < 0 else 0)


def pack(values: Iterable[float], dtype: DataType) -> bytes:
    """Returns `values` as elements of `dtype`. Raises OverflowError or struct.error if one does not
    fit.
    """
    listed = list(values)
    if dtype.name in _SMALL:
        codes = [_small_code(value, dtype) for value in listed]
        return struct.pack(f"={len(codes)}{_SMALL[dtype.name][0]}", *codes)
    return struct.pack(f"={len(listed)}{_FORMATS[dtype.name]}", *listed)


def _small_value(code: int, dtype: DataType) -> float:
    """The number of a code of `dtype`."""
    form, fraction, least, largest = _SMALL[dtype.name]
    sign_bit = 1 << (8 * struct.calcsize(form) - 1)
    sign, magnitude = (-1.0 if code & sign_bit else 1.0), code & (sign_bit - 1)
    if magnitude > largest:  # e4m3 has no infinity
        infinite = dtype.name != "float8_e4m3" and magnitude == largest + 1
        return sign * math.inf if infinite else math.nan
    exponent, units = magnitude >> fraction, magnitude & ((1 << fraction) - 1)
    if exponent:
        units += 1 << fraction
    return sign * math.ldexp(units, max(exponent, 1) - 1 + least - fraction)


def unpack(codes: Iterable[int], dtype: DataType) -> list[float]:
    """The numbers of elements of `dtype` that are given as unsigned integers of its size."""
    if dtype.name in _SMALL:
        return [_small_value(code, dtype) for code in codes]
    listed, unsigned = list(codes), {1: "B", 2: "H", 4: "I", 8: "Q"}[dtype.bytes]
    raw = struct.pack(f"={len(listed)}{unsigned}", *listed)
    return list(struct.unpack(f"={len(listed)}{_FORMATS[dtype.name]}", raw))
