"""NCCL of Python's wheels, which lies in a folder that no loader knows."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

_NAME = "libnccl.so.2"


def load_nccl() -> None:
    """Loads the NCCL of pip's nvidia-nccl-cu12 or -cu13, so that hetccl finds it by its name.

    It is the NCCL that PyTorch uses. Does nothing if the process has an NCCL already, if
    HETCCL_NCCL_LIBRARY names one, or if there is no such wheel.
    """
    if os.environ.get("HETCCL_NCCL_LIBRARY") or _is_loaded():
        return
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:  # there is no package "nvidia"
        return
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "lib" / _NAME
        if path.is_file():
            try:
                ctypes.CDLL(str(path))
            except OSError:  # of another machine, say: hetccl looks for the system's
                continue
            return


def _is_loaded() -> bool:
    try:
        ctypes.CDLL(_NAME, os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
