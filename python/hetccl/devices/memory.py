"""The memory that a rank of a command passes: the host's, or a GPU's by its runtime's C API.

No framework is needed: a stranger's machine may have no torch for its GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

from hetccl.devices.adaptor import AdaptorRuntime
from hetccl.devices.errors import DeviceError

_ROOM = 4096  # bytes between buffers, and at least so many
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind


class Ends(Protocol):
    """The bytes that a call sends and receives, on the host; both may be one buffer."""

    send: Any
    recv: Any


class Runtime(Protocol):
    """The functions of a GPU's runtime that a command needs. Addresses are numbers."""

    def allocate(self, size: int) -> int:
        """Memory of the GPU."""

    def write(self, target: int, source: int, size: int) -> None:
        """Copies from the host to the GPU."""

    def read(self, target: int, source: int, size: int) -> None:
        """Copies from the GPU to the host."""

    def synchronize(self) -> None:
        """Waits for all work of the GPU."""


class RuntimeCallError(DeviceError):
    """A call of the vendor's runtime has failed."""


class _Calls:
    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise RuntimeCallError(f"{name} returned {code}")


class Cuda:
    """NVIDIA's driver."""

    def __init__(self, path: str, index: int) -> None:
        self._calls = _Calls(path)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._calls.call("cuInit", 0)
        self._calls.call("cuDeviceGet", ctypes.byref(device), index)
        self._calls.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._calls.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> int:
        """Memory of the GPU."""
        address = ctypes.c_uint64()
        self._calls.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def write(self, target: int, source: int, size: int) -> None:
        """Copies from the host to the GPU."""
        sizes = ctypes.c_uint64(target), ctypes.c_void_p(source), ctypes.c_size_t(size)
        self._calls.call("cuMemcpyHtoD_v2", *sizes)

    def read(self, target: int, source: int, size: int) -> None:
        """Copies from the GPU to the host."""
        sizes = ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(size)
        self._calls.call("cuMemcpyDtoH_v2", *sizes)

    def synchronize(self) -> None:
        """Waits for all work of the GPU."""
        self._calls.call("cuCtxSynchronize")


class Hip:
    """AMD's runtime."""

    def __init__(self, path: str, index: int) -> None:
        self._calls = _Calls(path)
        self._calls.call("hipSetDevice", index)

    def allocate(self, size: int) -> int:
        """Memory of the GPU."""
        address = ctypes.c_void_p()
        self._calls.call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def write(self, target: int, source: int, size: int) -> None:
        """Copies from the host to the GPU."""
        self._copy(target, source, size, _TO_DEVICE)

    def read(self, target: int, source: int, size: int) -> None:
        """Copies from the GPU to the host."""
        self._copy(target, source, size, _TO_HOST)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        ends = ctypes.c_void_p(target), ctypes.c_void_p(source)
        self._calls.call("hipMemcpy", *ends, ctypes.c_size_t(size), kind)

    def synchronize(self) -> None:
        """Waits for all work of the GPU."""
        self._calls.call("hipDeviceSynchronize")


# By vendor: the runtime, and the library of `hetccl info` that is its.
RUNTIMES: dict[str, tuple[type[Cuda] | type[Hip], str]] = {
    "cuda": (Cuda, "cuda driver"),
    "hip": (Hip, "hip runtime"),
}


def _address(buffer: Any) -> int:
    view = memoryview(buffer)
    flat = view if view.nbytes else bytearray()
    return ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(flat))


class HostMemory:
    """The buffers of a call are passed as they are."""

    @contextmanager
    def lend(self, ends: Ends) -> Iterator[None]:
        """Yields while calls may use the buffers, which `ends` has."""
        del ends
        yield

    def reserve(self, size: int) -> None:
        """Nothing needs to be taken ahead."""

    def another(self) -> HostMemory:
        """Memory for calls whose buffers are lent at the same time."""
        return self

    def synchronize(self) -> None:
        """Calls of the host are complete when they return."""


class GpuMemory:
    """The buffers of a call are copied to the GPU and back. One arena serves one call after the
    other."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._arena, self._room = 0, 0

    @contextmanager
    def lend(self, ends: Ends) -> Iterator[None]:
        """Copies the buffers to the GPU, and puts the copies into `ends` while it is open. Then
        copies the results back to the host.

        Buffers that overlap on the host, as in place, overlap on the GPU.
        """
        send, recv = ends.send, ends.recv
        places = [(_address(one), memoryview(one).nbytes) for one in (send, recv)]
        targets = self._place(places)
        for (source, size), target in zip(places, targets, strict=True):
            if size:
                self._runtime.write(target, source, size)
        ends.send, ends.recv = (
            (ctypes.c_ubyte * size).from_address(target)
            for (_, size), target in zip(places, targets, strict=True)
        )
        if recv is send:
            ends.recv = ends.send
        try:
            yield
            self._runtime.synchronize()
        finally:
            ends.send, ends.recv = send, recv
        for (source, size), target in zip(places, targets, strict=True):
            if size:
                self._runtime.read(source, target, size)

    def reserve(self, size: int) -> None:
        """Takes memory for two buffers of up to `size` bytes each."""
        self._take(2 * (size + 2 * _ROOM))

    def another(self) -> GpuMemory:
        """Memory for calls whose buffers are lent at the same time."""
        return GpuMemory(self._runtime)

    def synchronize(self) -> None:
        """Waits for all calls."""
        self._runtime.synchronize()

    def _take(self, room: int) -> None:
        if room > self._room:  # one that is too small is left: the process ends soon
            self._arena, self._room = self._runtime.allocate(room), room

    def _place(self, places: list[tuple[int, int]]) -> list[int]:
        """Returns the addresses of both buffers on the GPU."""
        (send, send_size), (recv, recv_size) = places
        overlap = send_size and recv_size and send < recv + recv_size and recv < send + send_size
        if overlap:
            first = min(send, recv)
            offsets = [send - first, recv - first]
        else:
            offsets = [0, -(-send_size // _ROOM) * _ROOM + _ROOM]
        self._take(max(offsets[0] + send_size, offsets[1] + recv_size, _ROOM))
        return [self._arena + offset for offset in offsets]


Memory = HostMemory | GpuMemory


@contextmanager
def lent(memory: Memory, buffer: Any) -> Iterator[Any]:
    """Yields the memory on which a call works in place. At the end `buffer` has the result."""
    ends = SimpleNamespace(send=buffer, recv=buffer)
    with memory.lend(ends):
        yield ends.send


def memory_of(device: str, libraries: Mapping[str, Sequence[str]]) -> Memory:
    """Returns the memory of a device that hetccl names so. `libraries` has the paths of those
    found, by name.
    """
    vendor, _, index = device.partition(":")
    if vendor == "host":
        return HostMemory()
    if vendor not in RUNTIMES:
        return GpuMemory(AdaptorRuntime(libraries.get(vendor, ()), vendor, int(index or 0)))
    kind, library = RUNTIMES[vendor]
    return GpuMemory(kind(libraries[library][0], int(index or 0)))
