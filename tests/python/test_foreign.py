"""Arrays of other libraries as buffers of `hetccl.Communicator`."""

import ctypes
import gc
import struct
import weakref

import pytest
from ranks import run_ranks

from hetccl import Communicator, encoded_bytes, unique_id
from hetccl._lib import DataType
from hetccl._memory import Memory

torch = pytest.importorskip("torch")


class CudaArray:
    """An array with the CUDA array interface alone; its memory is the host's here."""

    def __init__(self, count, typestr="<f4", strides=None, read_only=False):
        self.memory = (ctypes.c_float * count)(*range(count))
        self.__cuda_array_interface__ = {
            "data": (ctypes.addressof(self.memory), read_only), "shape": (count,),
            "typestr": typestr, "strides": strides, "version": 3,
        }  # fmt: skip


def reduced(comm):
    tensor = torch.full((3, 4), comm.rank + 1, dtype=torch.bfloat16)
    comm.all_reduce(tensor)
    other = CudaArray(4)
    comm.all_reduce(other, op="max")
    gathered = torch.zeros(2, 5, dtype=torch.int64)
    comm.all_gather(torch.arange(5) + 10 * comm.rank, gathered)
    part = gathered[1]  # with an offset
    comm.broadcast(part, root=1)
    return tensor.tolist(), list(other.memory), gathered.tolist()


def test_tensors_and_cuda_arrays_are_buffers():
    for summed, most, gathered in run_ranks(2, reduced, ("a", "b")):
        assert summed == [[3.0] * 4] * 3
        assert most == [0.0, 1.0, 2.0, 3.0]
        assert gathered == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]


@pytest.mark.parametrize(
    "name",
    ["int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"],
)
def test_types_are_read_and_memory_is_not_copied(name):
    tensor = torch.zeros(6, dtype=getattr(torch, name))[2:]
    found = Memory(tensor, None, writable=True)
    assert found.dtype == DataType[name]
    assert found.count == 4
    assert found.address == tensor.data_ptr()


def test_an_array_lives_as_long_as_its_buffer():
    array = CudaArray(4)
    alive, found = weakref.ref(array), Memory(array, None, writable=True)
    del array
    gc.collect()
    assert alive() is not None
    del found
    gc.collect()
    assert alive() is None
    tensor = torch.zeros(4)
    assert Memory(tensor, None, writable=True)._held is tensor
    other = torch.nn.Parameter(tensor, requires_grad=False)  # by DLPack
    assert type(Memory(other, None, writable=True)._held).__name__ == "PyCapsule"


@pytest.mark.parametrize(
    ("make", "options", "error", "said"),
    [
        (lambda: torch.zeros(4, 4).t(), {}, ValueError, "not contiguous"),
        (lambda: torch.zeros(8)[::2], {}, ValueError, "not contiguous"),
        (lambda: CudaArray(4, strides=(8,)), {}, ValueError, "not contiguous"),
        (lambda: CudaArray(4, read_only=True), {}, ValueError, "is read-only"),
        (lambda: torch.zeros(4, dtype=torch.complex64), {}, TypeError, "pass dtype="),
        (lambda: CudaArray(4, typestr="<c8"), {}, TypeError, "pass dtype="),
        (lambda: torch.zeros(3, dtype=torch.int8), {"dtype": "int16"}, ValueError, "no whole"),
        (lambda: torch.zeros(3), {"dtype": "int7"}, ValueError, "is none of"),
        (lambda: [1.0], {}, TypeError, "list offers neither the buffer protocol, nor DLPack"),
    ],
)
def test_what_cannot_be_a_buffer_says_why(make, options, error, said):
    with pytest.raises(error, match=said):
        Memory(make(), options.get("dtype"), writable=True)


def test_elements_of_another_type_are_taken_by_name():
    assert Memory(torch.zeros(4, dtype=torch.complex64), "float32", writable=True).count == 8
    assert Memory(CudaArray(4, strides=(4,)), None, writable=True).count == 4
    assert Memory(torch.zeros(0), None, writable=True).count == 0
    assert Memory(torch.zeros(1, 5, 1).expand(1, 5, 1), None, writable=True).count == 5


class OnDevice:
    """A tensor whose DLPack says that it is on a device: kDLCUDA, number 1."""

    def __init__(self):
        self._tensor = torch.zeros(4)

    def __dlpack__(self):
        capsule = self._tensor.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.memmove(get(capsule, b"dltensor") + 8, struct.pack("=ii", 2, 1), 8)
        return capsule


def test_a_host_refuses_a_devices_memory():
    comm = Communicator(unique_id(), 0, 1)
    codes = bytearray(64)
    for call in (
        lambda: comm.all_reduce(OnDevice()),
        lambda: comm.send(OnDevice(), 0),
        lambda: comm.all_gather(OnDevice(), torch.zeros(4)),
        lambda: comm.encode(OnDevice(), codes[: encoded_bytes(4, "int8")], "int8"),
        lambda: comm.split(0).broadcast(OnDevice()),
    ):
        with pytest.raises(ValueError, match="is in a device's memory, and this communicator"):
            call()
    comm.destroy()


def test_tensors_that_dlpack_refuses_are_refused():
    for tensor in (torch.zeros(4, requires_grad=True), torch.eye(4).to_sparse()):
        Memory(torch.zeros(1), None, writable=True)  # its type is known now
        with pytest.raises((BufferError, RuntimeError)):
            Memory(tensor, None, writable=True)
