"""PMIx: Open MPI's, Slurm's or Flux's, by libpmix.so.2, which is loaded at run time.

Types and numbers are those of the PMIx standard, version 4 (pmix_common.h), which later versions
keep: https://pmix.github.io/standard.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetccl.launchers.placement import Placement, RendezvousError

_SONAME = "libpmix.so.2"
_SUCCESS, _GLOBAL, _BOOL, _STRING, _UINT32 = 0, 3, 1, 3, 14
_EVERY_RANK = 2**32 - 2  # PMIX_RANK_WILDCARD: the job itself
_LONGEST_VALUE = 4096
_PREFIXES = ("PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX")


class _Proc(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = [("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class _Value(ctypes.Structure):
    """pmix_value_t; `data` is a union of 24 bytes."""

    _fields_ = [("type", ctypes.c_uint16), ("data", ctypes.c_uint64 * 3)]


class _Info(ctypes.Structure):
    """pmix_info_t."""

    _fields_ = [("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value)]


def _paths() -> list[str]:
    """Returns the places where the library may be; the launcher's own comes before the system's."""
    folders = [Path(os.environ[name]) for name in _PREFIXES if os.environ.get(name)]
    folders = [folder for folder in folders if folder.is_absolute()]
    programs = (part for part in os.get_exec_path() if Path(part).is_absolute())
    if launcher := shutil.which("mpirun", path=os.pathsep.join(programs)):
        folders.append(Path(launcher).resolve().parent.parent)
    inside = ("lib", "lib64", "lib/openmpi")
    paths = [folder / part / _SONAME for folder in folders for part in inside]
    return [*(str(path) for path in paths if path.exists()), _SONAME]


def _load() -> ctypes.CDLL:
    """Loads the library. Prefers a copy that the process has loaded already, perhaps by its MPI."""
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        failures = []
    for path in _paths():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise OSError("; ".join(failures))


def _read_text(address: int) -> bytes | None:
    """Returns the bytes before the next NUL, or None if there are too many."""
    got = bytearray()
    while len(got) < _LONGEST_VALUE:  # one at a time: what is behind the NUL is nobody's to read
        byte = ctypes.string_at(address + len(got), 1)
        if byte == b"\0":
            return bytes(got)
        got += byte
    return None


class PmixBoard:
    """A session of PMIx. Rank 0 publishes values, and all ranks read them."""

    def __init__(self, placement: Placement, timeout: float) -> None:
        """Begins the session, perhaps beside others of this process. Raises RendezvousError."""
        self._placement = placement
        self._hangs = False
        self._deadline = time.monotonic() + timeout
        self._limit = timeout
        self._kept: list[Any] = []  # what a call that has not returned may still read and write
        try:
            self._library = _load()
        except OSError as error:
            raise self._failure(
                f"{_SONAME} is not found ({error}): put its folder into LD_LIBRARY_PATH"
            ) from None
        self._library.PMIx_Error_string.restype = ctypes.c_char_p
        self._self = _Proc()
        self._call("PMIx_Init", ctypes.byref(self._self), None, ctypes.c_size_t(0))
        size = self._get(_EVERY_RANK, "pmix.job.size")
        told = self._self.rank, int(size.data[0]) & 0xFFFFFFFF if size.type == _UINT32 else None
        if told != (placement.rank, placement.size):
            launcher = placement.launcher
            raise self._failure(
                f"it knows this process as rank {told[0]} of {told[1]}, but {launcher.rank} and "
                f"{launcher.size} are {placement.rank} and {placement.size}"
            )

    def share(self, key: str, value: str | None, timeout: float) -> str:
        """Returns rank 0's `value` on every rank; the others pass None. Waits for all ranks."""
        self._deadline = time.monotonic() + timeout
        self._limit = timeout
        if value is not None:
            text = ctypes.create_string_buffer(value.encode("ascii"))
            given = _Value(_STRING, (ctypes.addressof(text), 0, 0))
            scope = ctypes.c_uint8(_GLOBAL)
            self._kept.append(text)
            self._call("PMIx_Put", scope, key.encode(), ctypes.byref(given))
            self._call("PMIx_Commit")
        collect = _Info(b"pmix.collect", 0, _Value(_BOOL, (1, 0, 0)))
        fence = None, ctypes.c_size_t(0), ctypes.byref(collect), ctypes.c_size_t(1)
        self._call("PMIx_Fence", *fence)
        got = self._get(0, key)
        if got.type != _STRING or not got.data[0]:
            raise self._failure(f"{key} is of type {got.type}, not a text")
        read = _read_text(got.data[0])
        if read is None:
            raise self._failure(f"{key} is a text without an end")
        return read.decode("ascii", "replace")

    def close(self) -> None:
        """Ends the session. An MPI in this process keeps its own."""
        if not self._hangs:  # at its end Python starts no thread; PMIx has a time limit of its own
            self._library.PMIx_Finalize(None, ctypes.c_size_t(0))

    def _get(self, rank: int, key: str) -> _Value:
        """Returns a value of a rank. PMIx allocates it, and it lives as long as the process."""
        owner = _Proc(self._self.namespace, rank)
        got = ctypes.POINTER(_Value)()
        nothing = None, ctypes.c_size_t(0)
        where = ctypes.byref(owner), key.encode(), *nothing, ctypes.byref(got)
        self._call("PMIx_Get", *where)
        return got.contents

    def _call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library, which may block, until the deadline."""
        code = self._bounded(name, lambda: getattr(self._library, name)(*arguments))
        if code != _SUCCESS:
            text = self._library.PMIx_Error_string(code) or b"?"
            raise self._failure(f"{name} failed: {text.decode('ascii', 'replace')}")

    def _bounded(self, name: str, call: Callable[[], int]) -> int:
        """Makes a call on a thread of its own, which stays behind if the call never returns."""
        result: list[int | Exception] = []

        def work() -> None:
            try:
                result.append(call())
            except Exception as error:  # raised where the caller is
                result.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if not result:
            self._hangs = True
            late = "not all ranks have come" if name == "PMIx_Fence" else f"{name} has not returned"
            raise self._failure(f"{late} within {self._limit:.0f} s")
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def _failure(self, what: str) -> RendezvousError:
        launcher = self._placement.launcher
        return RendezvousError(
            f"the ranks cannot meet by {launcher.name}'s PMIx "
            f"(PMIX_NAMESPACE={os.environ.get('PMIX_NAMESPACE', '')[:80]!r}): {what}; "
            f"{launcher.remedy}, or set MASTER_ADDR and MASTER_PORT"
        )
