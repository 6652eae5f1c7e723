"""Arguments as the C API takes them: a buffer's address, element type and count; a tag."""

from __future__ import annotations

import ctypes
from typing import Any

from hetccl import _foreign
from hetccl._lib import DataType, encoded_bytes

# By name and by struct's code: looked up in every call.
DATA_TYPES = dict(DataType.__members__)
_FORMATS = {"e": DataType.float16, "f": DataType.float32, "d": DataType.float64}


class Memory:
    """A contiguous buffer's address, element type and count; keeps the buffer alive."""

    def __init__(
        self, buffer: Any, dtype: str | None, writable: bool, name: str = "the buffer that receives"
    ) -> None:
        try:
            view = memoryview(buffer)
        except TypeError:
            self._take(_foreign.find(buffer), dtype, writable, name)
            return
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous: copy it first")
        if view.readonly and writable:
            raise ValueError(f"{name} is read-only")
        self.dtype = _data_type(view, dtype)
        self.count = self._count(view.nbytes)
        flat = bytearray(view) if view.readonly else view.cast("B") if view.nbytes else bytearray()
        self._memory = (ctypes.c_char * view.nbytes).from_buffer(flat)
        self.address = ctypes.addressof(self._memory)

    def _take(
        self, found: _foreign.Foreign, dtype: str | None, writable: bool, name: str
    ) -> None:  # fmt: skip
        """The memory of another library's array."""
        if found.is_read_only and writable:
            raise ValueError(f"{name} is read-only")
        named = found.dtype if dtype is None else _named(dtype)
        if named is None:
            raise TypeError("elements of this type cannot be reduced or sent: pass dtype=")
        self.dtype, self.address, self._held = named, found.address, found.held
        self.count = self._count(found.bytes)

    def _count(self, size: int) -> int:
        if size % self.dtype.bytes:
            raise ValueError(f"{size} bytes are no whole number of {self.dtype.name}")
        return size // self.dtype.bytes


def _named(dtype: str) -> DataType:
    if dtype not in DATA_TYPES:
        raise ValueError(f"{dtype!r} is none of {', '.join(DATA_TYPES)}")
    return DATA_TYPES[dtype]


def _data_type(view: memoryview, dtype: str | None) -> DataType:
    if dtype is not None:
        return _named(dtype)
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
