"""Ranks meet by a broadcast of mpi4py's, over an MPI that the program has initialised itself."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from hetccl.launchers.placement import RendezvousError

_LONGEST = 4096
_kept: list[Any] = []  # buffers of broadcasts that have not ended in time


def find_world() -> Any:
    """Returns mpi4py's COMM_WORLD, if mpi4py is loaded and MPI is initialised; else None."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return None
    return module.COMM_WORLD


def _libraries() -> list[ctypes.CDLL]:
    """The MPI libraries that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    loaded = []
    for path in set(re.findall(r"/\S*/libmpi(?:ch|_cray)?\.so\S*", maps)):
        try:
            loaded.append(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
        except OSError:
            continue
    return loaded


def is_initialized() -> bool:
    """Whether MPI_Init was called in this process, in whichever language."""
    flag = ctypes.c_int()
    for library in _libraries():
        if library.MPI_Initialized(ctypes.byref(flag)) == 0 and flag.value:
            return True
    return False


class MpiBoard:
    """Broadcasts of the program's own MPI, by mpi4py."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def share(self, key: str, value: str | None, timeout: float) -> str:
        """Rank 0's `value` on every rank; the others pass None. Waits for rank 0."""
        buffer = bytearray(_LONGEST)
        if value is not None:
            buffer[: len(value)] = value.encode("ascii")
        request = self._world.Ibcast(buffer, root=0)
        deadline = time.monotonic() + timeout
        while not request.Test():
            if time.monotonic() > deadline:
                _kept.append((buffer, request))
                raise RendezvousError(
                    f"the ranks cannot meet by MPI: rank 0 has not come within {timeout:.0f} s "
                    f"({key})"
                )
            time.sleep(0.001)
        return buffer.rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Leaves MPI to the program."""
