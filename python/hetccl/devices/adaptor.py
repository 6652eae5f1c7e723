"""A device adaptor's memory, by its own table, whose order of calls is that of hetccl/adaptor.h."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from hetccl.devices.errors import DeviceError

_ABI = 1
_LONGEST_WAIT = 60  # seconds
_VOID = ctypes.c_void_p
_DEVICE_CALLS = (
    "error_text",
    "count",
    "describe",
    "use",
    "current",
    "allocate",
    "free",
    "allocate_pinned",
    "free_pinned",
    "pin",
    "unpin",
    "create_stream",
    "destroy_stream",
    "create_event",
    "destroy_event",
    "record",
    "wait",
    "wait_word",
    "write_word",
    "copy",
    "call_host",
    "is_capturing",
    "reduces",
    "reduce",
)


class _Device(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("capabilities", ctypes.c_uint32),
        *((name, _VOID) for name in _DEVICE_CALLS),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("abi", ctypes.c_uint32),
        ("library", _VOID),
        ("device", ctypes.POINTER(_Device)),
    )


class AdaptorCallError(DeviceError):
    """A call of the adaptor has failed."""


def _find_device(paths: Sequence[str], name: str) -> Any:
    """The table of a device. A library of the same name may be in a file of its own."""
    for path in paths:
        entry = ctypes.CDLL(path).hetcclAdaptor
        entry.restype, entry.argtypes = ctypes.POINTER(_Table), [ctypes.c_uint32]
        table = entry(_ABI)
        if not table or not table.contents.device:  # of no device, or of another ABI
            continue
        device = table.contents.device.contents
        if (device.name or b"").decode(errors="replace") == name:
            return device
    raise AdaptorCallError(
        f"no adaptor has a device {name}; looked in {', '.join(paths) or 'none'}"
    )


class AdaptorRuntime:
    """Memory of one device of the adaptor that has it, one of those at `paths`, on the calling
    thread."""

    def __init__(self, paths: Sequence[str], name: str, index: int) -> None:
        self._device: Any = _find_device(paths, name)
        self._call("use", ctypes.c_int(index))
        self._flag = ctypes.c_uint32.from_address(self._make("allocate_pinned", 64))
        self._flag.value = 0
        self._turn = 0

    def _call(self, name: str, *arguments: Any) -> None:
        address = getattr(self._device, name)
        code = ctypes.CFUNCTYPE(ctypes.c_int, *(type(one) for one in arguments))(address)(
            *arguments
        )
        if code != 0:
            raise AdaptorCallError(f"{name} returned {code}{self._explain(code)}")

    def _explain(self, code: int) -> str:
        """Returns the adaptor's text for an error; "" if it has none."""
        if not self._device.error_text:
            return ""
        text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)(self._device.error_text)(code)
        return f": {text.decode(errors='replace')}" if text else ""

    def _make(self, name: str, size: int) -> int:
        address = _VOID()
        self._call(name, _VOID(ctypes.addressof(address)), ctypes.c_size_t(size))
        return address.value or 0

    def allocate(self, size: int) -> int:
        """Memory of the device."""
        return self._make("allocate", size)

    def write(self, target: int, source: int, size: int) -> None:
        """Copies from the host to the device."""
        pinned = self._make("allocate_pinned", size)
        ctypes.memmove(pinned, source, size)
        self._copy(target, pinned, size)
        self._call("free_pinned", _VOID(pinned))

    def read(self, target: int, source: int, size: int) -> None:
        """Copies from the device to the host."""
        pinned = self._make("allocate_pinned", size)
        self._copy(pinned, source, size)
        ctypes.memmove(target, pinned, size)
        self._call("free_pinned", _VOID(pinned))

    def _copy(self, target: int, source: int, size: int) -> None:
        self._call("copy", _VOID(None), _VOID(target), _VOID(source), ctypes.c_size_t(size))
        self.synchronize()

    def synchronize(self) -> None:
        """Waits for all that is on the default stream."""
        self._turn += 1
        word = _VOID(ctypes.addressof(self._flag))
        self._call("write_word", _VOID(None), word, ctypes.c_uint32(self._turn))
        end = time.monotonic() + _LONGEST_WAIT
        while self._flag.value != self._turn:
            if time.monotonic() > end:
                raise AdaptorCallError("the default stream does not end")
            time.sleep(0)
