"""The C API of include/hetccl, typed, by ctypes; every failure becomes a HetcclError."""

from __future__ import annotations

import atexit
import ctypes
import functools
import re
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from pathlib import Path
from typing import Any


class Result(IntEnum):
    """hetcclResult_t."""

    SUCCESS = 0
    UNSUPPORTED = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7
    TIMEOUT = 8
    ABORTED = 9


class DataType(IntEnum):
    """hetcclDataType_t, under the names that messages and the command line use."""

    int8 = 0
    uint8 = 1
    int32 = 2
    uint32 = 3
    int64 = 4
    uint64 = 5
    float16 = 6
    float32 = 7
    float64 = 8
    bfloat16 = 9
    float8_e4m3 = 10
    float8_e5m2 = 11
    int16 = 64
    uint16 = 65

    @functools.cached_property
    def bytes(self) -> int:
        """Size of one element."""
        return int(re.findall(r"\d+", self.name)[0]) // 8

    @functools.cached_property
    def argument(self) -> c_int:
        """The type as an argument, which ctypes passes faster than an enum."""
        return c_int(self)


class RedOp(IntEnum):
    """hetcclRedOp_t's built-in operators."""

    sum = 0
    prod = 1
    max = 2
    min = 3
    avg = 4
    band = 64
    bor = 65
    bxor = 66


NCCL_OPS = tuple(op.name for op in RedOp if op <= RedOp.avg)


class Residence(IntEnum):
    """hetcclScalarResidence_t."""

    DEVICE = 0
    HOST_IMMEDIATE = 1


NO_COLOR = -1  # HETCCL_SPLIT_NOCOLOR
SHRINK_DEFAULT = 0  # HETCCL_SHRINK_DEFAULT
_EXIT_GRACE_MS = 2000


class UniqueId(ctypes.Structure):
    """hetcclUniqueId."""

    BYTES = 128
    _fields_ = [("internal", ctypes.c_ubyte * BYTES)]


class Config(ctypes.Structure):
    """hetcclConfig_t."""

    MAGIC = 0x4E7CC100
    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("device", c_char_p),
        ("cluster", c_char_p),
        ("host_id", c_char_p),
        ("timeout_ms", c_int64),
        ("blocking", c_int),
        ("init_timeout_ms", c_int64),
        ("init_limit_ms", c_int64),
        ("wire", c_char_p),
        ("wire_gather", c_char_p),
        ("wire_inside", c_int),
        ("name", c_char_p),
        ("min_ctas", c_int),
        ("max_ctas", c_int),
    ]


class SimInfo(ctypes.Structure):
    """hetcclSimInfo_t."""

    _fields_ = [("size", c_size_t), ("estimated_us", c_double)]


class Stats(ctypes.Structure):
    """hetcclCommStats_t."""

    _fields_ = [
        ("size", c_size_t),
        ("operations", c_uint64),
        ("cross_bytes_sent", c_uint64),
        ("least_cross_bytes", c_uint64),
        ("plans", c_uint64),
    ]


class PlanQuery(ctypes.Structure):
    """hetcclPlanQuery_t."""

    _fields_ = [
        ("size", c_size_t),
        ("topology", c_char_p),
        ("collective", c_char_p),
        ("count", c_size_t),
        ("datatype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("rank", c_int),
        ("slice_bytes", c_size_t),
        ("depth", c_uint),
        ("code", c_int),
        ("mutants", c_size_t),
        ("seed", c_size_t),
        ("tuning", c_char_p),
        ("to", c_int),
    ]


_COUNTS = POINTER(c_size_t)  # one for each rank, or None


class Call(ctypes.Structure):
    """hetcclCall_t."""

    _fields_ = [
        ("size", c_size_t),
        ("function", c_int),
        ("datatype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("sendbuff", c_void_p),
        ("recvbuff", c_void_p),
        ("count", c_size_t),
        ("sendcounts", _COUNTS),
        ("sdispls", _COUNTS),
        ("recvcounts", _COUNTS),
        ("rdispls", _COUNTS),
        ("residual", c_void_p),
        ("factor", c_void_p),
        ("tag", c_uint32),
        ("source", POINTER(c_int)),
    ]


class Work(ctypes.Structure):
    """hetcclWork_t."""

    _fields_ = [("internal", c_uint64 * 4)]


_WITH_RESIDUAL = [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]

# Arguments of every function that returns hetcclResult_t. The header is the contract, and
# tests/python/test_lib.py compares them.
PROTOTYPES: dict[str, list[Any]] = {
    "hetcclEndpointCreate": [POINTER(c_void_p), c_char_p, c_char_p],
    "hetcclEndpointDestroy": [c_void_p],
    "hetcclEndpointGetMetadata": [c_void_p, c_char_p, POINTER(c_size_t)],
    "hetcclEndpointRegister": [
        c_void_p,
        c_void_p,
        c_size_t,
        c_uint,
        c_char_p,
        POINTER(c_uint64),
    ],
    "hetcclEndpointDeregister": [c_void_p, c_uint64, c_int64],
    "hetcclEndpointConnect": [c_void_p, c_char_p, c_size_t, c_int64, POINTER(c_uint64)],
    "hetcclEndpointDisconnect": [c_void_p, c_uint64],
    "hetcclEndpointGetPeers": [c_void_p, c_char_p, POINTER(c_size_t)],
    "hetcclEndpointPrepare": [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)],
    "hetcclBlockListFree": [c_void_p],
    "hetcclEndpointPut": [c_void_p, c_uint64, c_void_p, c_void_p, POINTER(c_void_p)],
    "hetcclEndpointGet": [c_void_p, c_uint64, c_void_p, c_void_p, POINTER(c_void_p)],
    "hetcclTransferTest": [c_void_p],
    "hetcclTransferWait": [c_void_p, c_int64],
    "hetcclTransferSetHook": [c_void_p, c_void_p, c_void_p],
    "hetcclTransferCancel": [c_void_p],
    "hetcclTransferFree": [c_void_p],
    "hetcclEndpointNotify": [c_void_p, c_uint64, c_void_p, c_size_t],
    "hetcclEndpointTakeNotification": [
        c_void_p,
        c_int64,
        POINTER(c_uint64),
        c_void_p,
        POINTER(c_size_t),
    ],
    "hetcclEndpointGetDescriptor": [c_void_p, POINTER(c_int)],
    "hetcclGetVersion": [POINTER(c_int)],
    "hetcclGetUniqueId": [POINTER(UniqueId)],
    "hetcclCommInitRank": [POINTER(c_void_p), c_int, UniqueId, c_int],
    "hetcclCommInitRankConfig": [POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(Config)],
    "hetcclCommSplit": [c_void_p, c_int, c_int, POINTER(c_void_p), POINTER(Config)],
    "hetcclCommInitRankScalable": [
        POINTER(c_void_p),
        c_int,
        c_int,
        c_int,
        POINTER(UniqueId),
        POINTER(Config),
    ],
    "hetcclCommInitAll": [POINTER(c_void_p), c_int, POINTER(c_int)],
    "hetcclCommShrink": [
        c_void_p,
        POINTER(c_int),
        c_int,
        POINTER(c_void_p),
        POINTER(Config),
        c_int,
    ],
    "hetcclCommFinalize": [c_void_p],
    "hetcclCommDestroy": [c_void_p],
    "hetcclCommAbort": [c_void_p],
    "hetcclShutdown": [c_int64],
    "hetcclCommGetAsyncError": [c_void_p, POINTER(c_int)],
    "hetcclCommCount": [c_void_p, POINTER(c_int)],
    "hetcclCommUserRank": [c_void_p, POINTER(c_int)],
    "hetcclCommCuDevice": [c_void_p, POINTER(c_int)],
    "hetcclCommSetTimeout": [c_void_p, c_int64],
    "hetcclAllReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclReduceScatter": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclAllReduceWithResidual": _WITH_RESIDUAL,
    "hetcclReduceScatterWithResidual": _WITH_RESIDUAL,
    "hetcclAllGather": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "hetcclBroadcast": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclBcast": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p],
    "hetcclGather": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclScatter": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclAllToAll": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "hetcclAllGatherV": [c_void_p, c_void_p, _COUNTS, _COUNTS, c_int, c_void_p, c_void_p],
    "hetcclReduceScatterV": [
        c_void_p,
        _COUNTS,
        _COUNTS,
        c_void_p,
        c_int,
        c_int,
        c_void_p,
        c_void_p,
    ],
    "hetcclGatherV": [
        c_void_p,
        c_size_t,
        c_void_p,
        _COUNTS,
        _COUNTS,
        c_int,
        c_int,
        c_void_p,
        c_void_p,
    ],
    "hetcclScatterV": [
        c_void_p,
        _COUNTS,
        _COUNTS,
        c_void_p,
        c_size_t,
        c_int,
        c_int,
        c_void_p,
        c_void_p,
    ],
    "hetcclAllToAllV": [
        c_void_p,
        _COUNTS,
        _COUNTS,
        c_void_p,
        _COUNTS,
        _COUNTS,
        c_int,
        c_void_p,
        c_void_p,
    ],
    "hetcclSend": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclRecv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "hetcclSendTag": [c_void_p, c_size_t, c_int, c_int, c_uint32, c_void_p, c_void_p],
    "hetcclRecvTag": [c_void_p, c_size_t, c_int, c_int, c_uint32, c_void_p, c_void_p],
    "hetcclRecvAny": [c_void_p, c_size_t, c_int, c_uint32, POINTER(c_int), c_void_p, c_void_p],
    "hetcclGroupStart": [],
    "hetcclGroupEnd": [],
    "hetcclGroupSimulateEnd": [POINTER(SimInfo)],
    "hetcclBarrier": [c_void_p, c_void_p],
    "hetcclMemAlloc": [POINTER(c_void_p), c_size_t],
    "hetcclMemFree": [c_void_p],
    "hetcclCommRegister": [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)],
    "hetcclCommDeregister": [c_void_p, c_void_p],
    "hetcclRedOpCreatePreMulSum": [POINTER(c_int), c_void_p, c_int, c_int, c_void_p],
    "hetcclRedOpDestroy": [c_int, c_void_p],
    "hetcclEncodedBytes": [c_size_t, c_char_p, POINTER(c_size_t)],
    "hetcclEncode": [c_void_p, c_void_p, c_size_t, c_int, c_char_p, c_void_p, c_void_p],
    "hetcclDecode": [c_void_p, c_void_p, c_size_t, c_int, c_char_p, c_void_p, c_void_p],
    "hetcclHostStreamCreate": [POINTER(c_void_p)],
    "hetcclHostStreamDestroy": [c_void_p],
    "hetcclHostStreamRecord": [c_void_p, POINTER(c_uint64)],
    "hetcclHostStreamQuery": [c_void_p, c_uint64],
    "hetcclHostStreamWait": [c_void_p, c_uint64, c_int64],
    "hetcclCommGetStats": [c_void_p, POINTER(Stats)],
    "hetcclSetIdleHook": [c_void_p, c_void_p],
    "hetcclStart": [POINTER(Call), c_size_t, c_void_p, c_void_p, c_int64, POINTER(Work)],
    "hetcclWorkQuery": [POINTER(Work)],
    "hetcclWorkWait": [POINTER(Work), c_int64],
    "hetcclCommWait": [c_void_p, c_int64],
    "hetcclCommIsCapturing": [c_void_p, c_void_p, POINTER(c_int)],
    "hetcclCommGetTopology": [c_void_p, POINTER(c_char_p)],
    "hetcclCommGetTuning": [c_void_p, POINTER(c_char_p)],
    "hetcclStep": [],
    "hetcclCommSetTuning": [c_void_p, c_char_p],
    "hetcclCommGetTuningSpace": [
        c_void_p,
        c_char_p,
        c_size_t,
        c_int,
        c_int,
        c_int,
        POINTER(c_char_p),
    ],
    "hetcclTopologyDescribe": [c_char_p, POINTER(c_char_p)],
    "hetcclPlanDescribe": [POINTER(PlanQuery), POINTER(c_char_p)],
    "hetcclCompareTimes": [
        POINTER(c_double),
        POINTER(c_double),
        c_size_t,
        POINTER(c_double),
        POINTER(c_double),
    ],
    "hetcclCommDump": [c_void_p, POINTER(c_char_p)],
    "hetcclGetInfo": [POINTER(c_char_p)],
}
TEXTS: dict[str, list[Any]] = {"hetcclGetErrorString": [c_int], "hetcclGetLastError": [c_void_p]}


class HetcclError(RuntimeError):
    """A call of hetccl failed. ``result`` is the code; the text says what happened, where, and what
    to do.
    """

    def __init__(self, result: Result, text: str) -> None:
        super().__init__(text)
        self.result = result


class Library:
    """libhetccl.so, loaded. Thread-safe, as the library is."""

    def __init__(self, path: Path) -> None:
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise ImportError(
                f"cannot load {path}: {error}. Reinstall hetccl, or run this outside its sources"
            ) from error
        # The functions of PROTOTYPES themselves, for callers to whom a microsecond matters.
        self.functions: dict[str, Callable[..., int]] = {}
        for name, arguments in PROTOTYPES.items():
            getattr(self._dll, name).argtypes = arguments
            getattr(self._dll, name).restype = c_int
            self.functions[name] = getattr(self._dll, name)
        for name, arguments in TEXTS.items():
            getattr(self._dll, name).argtypes = arguments
            getattr(self._dll, name).restype = c_char_p

    def error(self, code: int) -> HetcclError:
        """Returns the exception for `code`, the result of this thread's last failed call."""
        text: bytes = self._dll.hetcclGetLastError(None) or self._dll.hetcclGetErrorString(code)
        try:
            result = Result(code)
        except ValueError:  # a result of a newer library
            result = Result.INTERNAL_ERROR
        return HetcclError(result, text.decode(errors="replace"))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of PROTOTYPES."""
        code = self.functions[name](*arguments)
        if code:
            raise self.error(code)

    def result(self, name: str, *arguments: Any) -> int:
        """Calls a function of PROTOTYPES that may be in progress, and returns its result."""
        return self.functions[name](*arguments)


@functools.cache
def library() -> Library:
    """Returns the library that was installed with this package."""
    loaded = Library(Path(__file__).parent / "lib" / "libhetccl.so")
    # Before the interpreter frees the buffers of collectives that are still in flight. A forked
    # child is refused, and its parent is none of its business.
    atexit.register(loaded.result, "hetcclShutdown", _EXIT_GRACE_MS)
    return loaded


def version() -> tuple[int, int, int]:
    """Returns (major, minor, patch) of the loaded library."""
    code = c_int()
    library().call("hetcclGetVersion", ctypes.byref(code))
    return code.value // 10000, code.value // 100 % 100, code.value % 100


def unique_id() -> bytes:
    """Returns an id by which the ranks of one communicator meet, with the secret that admits them.

    Carry it to every rank by a channel that nobody else can read. This process must live as long
    as the communicator.
    """
    raw = UniqueId()
    library().call("hetcclGetUniqueId", ctypes.byref(raw))
    return bytes(raw)


def step() -> None:
    """Tells tuning that the program has finished a step. With ``HETCCL_TUNE=step`` the search looks
    for settings with which steps are short; PyTorch's optimizers then call this by themselves. See
    hetcclStep.
    """
    library().call("hetcclStep")


def encoded_bytes(count: int, encoding: str) -> int:
    """Returns the bytes of `count` elements in `encoding`: "int8", "int4:128", as in `wire`."""
    if not isinstance(encoding, str):
        raise TypeError(f'encoding is {encoding!r}, but must be a text, such as "int8"')
    if count < 0:
        raise ValueError(f"count is {count}, but must not be negative")
    found = c_size_t()
    library().call("hetcclEncodedBytes", count, encoding.encode(), ctypes.byref(found))
    return found.value


def info() -> str:
    """Returns JSON that describes what this machine offers."""
    return _text_of("hetcclGetInfo")


def topology(ranks: str) -> str:
    """Returns, as JSON, the topology of the ranks that a JSON text describes, with clusters and
    links.
    """
    return _text_of("hetcclTopologyDescribe", ranks.encode())


def plan(
    topology: str,
    collective: str,
    *,
    count: int = 1 << 20,
    dtype: DataType = DataType.float32,
    op: int = RedOp.sum,
    root: int = 0,
    to: int = 1,
    rank: int | None = None,
    slice_bytes: int = 0,
    depth: int = 0,
    code: bool = False,
    mutants: int = 0,
    seed: int = 0,
    tuning: str | None = None,
) -> str:
    """Returns the plans of all ranks for one call, as JSON; `rank` lists only one rank's steps.

    The collective "send_recv" is a message from `root` to `to`.

    `code` also lists the instructions that run. `mutants` is the number of programs with one
    mistake, chosen by `seed`, on which the verifier is tested. `tuning` is the JSON of
    Communicator.tuning on rank 0 of such a job.
    """
    query = PlanQuery(
        size=ctypes.sizeof(PlanQuery),
        topology=topology.encode(),
        collective=collective.encode(),
        count=count,
        datatype=dtype,
        op=op,
        root=root,
        rank=-1 if rank is None else rank,
        slice_bytes=slice_bytes,
        depth=depth,
        code=code,
        mutants=mutants,
        seed=seed,
        tuning=None if tuning is None else tuning.encode(),
        to=to,
    )
    return _text_of("hetcclPlanDescribe", ctypes.byref(query))


def compare_times(tried: list[float], beside: list[float]) -> tuple[float, float]:
    """Returns the ratio of pairs of times in us, and the standard error of its logarithm."""
    pairs = c_double * len(tried)
    ratio, error = c_double(), c_double()
    library().call(
        "hetcclCompareTimes",
        pairs(*tried),
        pairs(*beside),
        len(tried),
        ctypes.byref(ratio),
        ctypes.byref(error),
    )
    return ratio.value, error.value


def _text_of(name: str, *arguments: Any) -> str:
    """Returns the text that a function writes to its last argument."""
    text = c_char_p()
    library().call(name, *arguments, ctypes.byref(text))
    return (text.value or b"{}").decode(errors="replace")
