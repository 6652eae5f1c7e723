"""Arguments as the C API takes them: a buffer's address, element type and count; a tag."""

from __future__ import annotations

import ctypes
from struct import calcsize
from typing import Any

from hetccl import _foreign
from hetccl._lib import DataType, encoded_bytes

DATA_TYPES = dict(DataType.__members__)
_NAMED = {name: (one, one.bytes) for name, one in DATA_TYPES.items()}
_KINDS = {"efd": "float", "bhilq": "int", "BHILQ": "uint"}
# By a memoryview's format: native sizes and, behind "=", standard ones.
_FORMATS = {
    order + code: _NAMED[f"{kind}{8 * calcsize(order + code)}"]
    for codes, kind in _KINDS.items()
    for code in codes
    for order in ("", "@", "=")
}
FOREIGN_DEVICE = (
    "the buffer is in a device's memory, and this communicator is the host's: make one with "
    'device=, such as "cuda:0"'
)
_from_buffer = ctypes.c_char.from_buffer
_NOTHING = _from_buffer(bytearray(1))


class Memory:
    """A contiguous buffer's address, element type and count; keeps the buffer alive. `is_host` is
    False if DLPack says that only a device can read it.
    """

    __slots__ = ("_held", "address", "count", "dtype", "is_host")

    def __init__(
        self, buffer: Any, dtype: str | None, writable: bool, name: str = "the buffer that receives"
    ) -> None:
        # Every call of a collective comes here once or twice: no lookup that can be saved.
        finder = _foreign.FINDERS.get(type(buffer))
        if finder is not None:
            self._take(finder(buffer), dtype, writable, name)
            return
        try:
            view = memoryview(buffer)
        except TypeError:
            self._take(_foreign.find(buffer), dtype, writable, name)
            return
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous: copy it first")
        if view.readonly:
            if writable:
                raise ValueError(f"{name} is read-only")
            view = memoryview(bytearray(view))
        self.is_host = True
        known = _FORMATS.get(view.format) if dtype is None else _named(dtype)
        if known is None:
            raise TypeError(
                f"elements of format {view.format!r} cannot be reduced or sent: pass dtype="
            )
        self.dtype, each = known
        size = view.nbytes
        self.count = size // each
        if self.count * each != size:
            raise self._size_error(size)
        self._held: Any = _from_buffer(view) if size else _NOTHING
        self.address = ctypes.addressof(self._held)

    def _take(
        self, found: _foreign.Foreign, dtype: str | None, writable: bool, name: str
    ) -> None:  # fmt: skip
        """The memory of another library's array."""
        self.address, size, named, is_read_only, self.is_host, self._held = found
        if is_read_only and writable:
            raise ValueError(f"{name} is read-only")
        if dtype is not None:
            named = _named(dtype)[0]
        if named is None:
            raise TypeError("elements of this type cannot be reduced or sent: pass dtype=")
        self.dtype = named
        self.count = size // named.bytes
        if self.count * named.bytes != size:
            raise self._size_error(size)

    def _size_error(self, size: int) -> ValueError:
        return ValueError(f"{size} bytes are no whole number of {self.dtype.name}")


def _named(dtype: str) -> tuple[DataType, int]:
    if dtype not in _NAMED:
        raise ValueError(f"{dtype!r} is none of {', '.join(DATA_TYPES)}")
    return _NAMED[dtype]


def check_codes(codes: Memory, plain: Memory, encoding: str) -> None:
    """Raises unless `codes` has the bytes that the elements of `plain` take."""
    expected = encoded_bytes(plain.count, encoding)
    if codes.count != expected:
        raise ValueError(
            f"codes has {codes.count} bytes, but {plain.count} elements in {encoding} take "
            f"{expected}"
        )


def read_residual(buffer: Any, source: Memory, dtype: str | None) -> Memory | None:
    """Returns the residual of a reduction of `source`, or None. Raises unless it has the same
    length and type.
    """
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
