"""Arrays of other libraries, without copying them: by DLPack or by the CUDA array interface.

PyTorch, JAX, CuPy and NumPy speak DLPack, Numba the CUDA array interface. What an object hands out
stays alive with it: a capsule that nobody has consumed frees its tensor itself.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from hetccl._lib import DataType

_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4
_FLOAT8 = {
    10: DataType.float8_e4m3,
    12: DataType.float8_e5m2,
}  # those of PyTorch
_KINDS = {"i": "int", "u": "uint", "f": "float"}


# DLTensor of dlpack.h, which a DLManagedTensor begins with: data, device (type and number), number
# of dimensions, type (code, bits, lanes), shape, strides, offset in bytes.
_TENSOR = struct.Struct("=QiiiBBHQQQ")
_HOST_DEVICES = (1, 3, 11, 13)  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Foreign(NamedTuple):
    """Contiguous memory of an object's. `dtype` is None where hetccl has no such type; `is_host` is
    False where only a device reads it; `held` keeps the memory alive."""

    address: int
    bytes: int
    dtype: DataType | None
    is_read_only: bool
    is_host: bool
    held: object


def _refuse_gaps() -> ValueError:
    return ValueError("the buffer is not contiguous: copy it first")


@cache
def _number_of(code: int, bits: int, lanes: int) -> DataType | None:
    if lanes != 1:
        return None
    if code in _FLOAT8:
        return _FLOAT8[code]
    if code == _BFLOAT:
        return DataType.bfloat16 if bits == 16 else None
    prefix = {_INT: "int", _UINT: "uint", _FLOAT: "float"}.get(code)
    return DataType.__members__.get(f"{prefix}{bits}")


def _numbers(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}q", ctypes.string_at(address, 8 * count))


def _by_dlpack(array: Any) -> Foreign:
    capsule = array.__dlpack__()
    raw = ctypes.string_at(_get_pointer(capsule, b"dltensor"), _TENSOR.size)
    data, device, _, ndim, code, bits, lanes, shape, strides, offset = _TENSOR.unpack(raw)
    lengths = _numbers(shape, ndim)
    count = math.prod(lengths)
    if strides and count:
        expected, steps = 1, _numbers(strides, ndim)
        for n in range(ndim - 1, -1, -1):
            if steps[n] != expected and lengths[n] != 1:
                raise _refuse_gaps()
            expected *= lengths[n]
    size = count * ((bits * lanes + 7) // 8)
    dtype, is_host = _number_of(code, bits, lanes), device in _HOST_DEVICES
    return Foreign(data + offset, size, dtype, False, is_host, capsule)


def _by_cuda_array(array: Any, interface: dict[str, Any]) -> Foreign:
    address, is_read_only = interface["data"]
    kind, each = interface["typestr"][1], int(interface["typestr"][2:])
    count, expected = math.prod(interface["shape"]), each
    strides = interface.get("strides")
    if strides is not None and count:
        for length, stride in zip(reversed(interface["shape"]), reversed(strides), strict=True):
            if length != 1 and stride != expected:
                raise _refuse_gaps()
            expected *= length
    dtype = DataType.__members__.get(f"{_KINDS.get(kind)}{8 * each}")
    return Foreign(address, count * each, dtype, bool(is_read_only), True, array)


def _finder_of_torch(torch: Any) -> Callable[[Any], Foreign]:
    """Returns a way to find plain tensors of the host that is faster than DLPack."""
    types = {getattr(torch, name): one for name, one in DataType.__members__.items()
             if hasattr(torch, name)}  # fmt: skip
    strided = torch.strided

    def find_tensor(tensor: Any) -> Foreign:
        dtype = types.get(tensor.dtype)
        if dtype is None or not tensor.is_cpu or tensor.requires_grad:
            return _by_dlpack(tensor)
        if tensor.layout is not strided or not tensor.is_contiguous():
            return _by_dlpack(tensor)
        return Foreign(tensor.data_ptr(), tensor.nbytes, dtype, False, True, tensor)

    return find_tensor


# By the exact type of an array, known after its first call: ways that take less than a microsecond.
FINDERS: dict[type, Callable[[Any], Foreign]] = {}


def find(array: Any) -> Foreign:
    """Returns the memory of `array`. Raises TypeError if it offers none, ValueError if it has gaps,
    and the array's own error if it refuses to hand out its memory.
    """
    torch = sys.modules.get("torch")
    if torch is not None and type(array) is torch.Tensor:
        FINDERS[torch.Tensor] = _finder_of_torch(torch)
    if hasattr(array, "__dlpack__"):
        return _by_dlpack(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(
            f"{type(array).__name__} offers neither the buffer protocol, nor DLPack, nor the CUDA "
            "array interface"
        )
    return _by_cuda_array(array, interface)
