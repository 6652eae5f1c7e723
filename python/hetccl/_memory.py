"""Arguments as the C API takes them: a buffer's address, element type and count; a tag."""

from __future__ import annotations

import ctypes
from typing import Any

from hetccl._lib import DataType, encoded_bytes

# By name and by struct's code: looked up in every call.
DATA_TYPES = dict(DataType.__members__)
_FORMATS = {"e": DataType.float16, "f": DataType.float32, "d": DataType.float64}


class Memory:
    """A contiguous buffer's address, element type and count; keeps the buffer alive."""

    def __init__(
        self, buffer: Any, dtype: str | None, writable: bool, name: str = "the buffer that receives"
    ) -> None:
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous: copy it first")
        if view.readonly and writable:
            raise ValueError(f"{name} is read-only")
        self.dtype = _data_type(view, dtype)
        if view.nbytes % self.dtype.bytes:
            raise ValueError(f"{view.nbytes} bytes are no whole number of {self.dtype.name}")
        self.count = view.nbytes // self.dtype.bytes
        flat = bytearray(view) if view.readonly else view.cast("B") if view.nbytes else bytearray()
        self._memory = (ctypes.c_char * view.nbytes).from_buffer(flat)
        self.address = ctypes.addressof(self._memory)


def _data_type(view: memoryview, dtype: str | None) -> DataType:
    if dtype is not None:
        if dtype not in DATA_TYPES:
            raise ValueError(f"{dtype!r} is none of {', '.join(DATA_TYPES)}")
        return DATA_TYPES[dtype]
    code = view.format.lstrip("@=")
    if code in _FORMATS:
        return _FORMATS[code]
    if len(code) == 1 and code in "bhilq":
        return DATA_TYPES[f"int{8 * view.itemsize}"]
    if len(code) == 1 and code in "BHILQ":
        return DATA_TYPES[f"uint{8 * view.itemsize}"]
    raise TypeError(f"elements of format {view.format!r} cannot be reduced or sent: pass dtype=")


def check_codes(codes: Memory, plain: Memory, encoding: str) -> None:
    """Raises unless `codes` has the bytes that the elements of `plain` take."""
    expected = encoded_bytes(plain.count, encoding)
    if codes.count != expected:
        raise ValueError(
            f"codes has {codes.count} bytes, but {plain.count} elements in {encoding} take "
            f"{expected}"
        )


def read_residual(buffer: Any, source: Memory, dtype: str | None) -> Memory | None:
    """The residual of a reduction of `source`, or None. Raises unless it is as long and of the same
    type."""
    if buffer is None:
        return None
    residual = Memory(buffer, dtype, writable=True, name="residual")
    if residual.dtype != source.dtype:
        raise TypeError(f"residual has {residual.dtype.name}, but {source.dtype.name} is reduced")
    if residual.count != source.count:
        raise ValueError(
            f"residual has {residual.count} elements, but {source.count} are reduced: give as many"
        )
    return residual


def check_tag(tag: int) -> int:
    """The tag of a message, if it is one."""
    if not 0 <= tag < 1 << 32:
        raise ValueError(f"tag is {tag}: it must be from 0 to {(1 << 32) - 1}")
    return tag
