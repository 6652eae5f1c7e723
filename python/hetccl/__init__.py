"""hetccl: one communicator over unlike accelerators.

With PyTorch, ``import hetccl`` registers the backend "hetccl" of torch.distributed. Without it,
`hetccl.Communicator` runs the same collectives on anything that offers the buffer protocol, DLPack
or the CUDA array interface.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from hetccl._groups import group
from hetccl._lib import HetcclError, encoded_bytes, step, unique_id, version
from hetccl._operators import PreMulSum
from hetccl._streams import Stream
from hetccl.communicator import Communicator
from hetccl.endpoint import Endpoint
from hetccl.gradients import Residuals, compress_gradients
from hetccl.launchers.placement import Placement, RendezvousError, find_placement
from hetccl.rendezvous import init_from_launcher
from hetccl.torch_backend import quantized

__all__ = [
    "Communicator",
    "Endpoint",
    "HetcclError",
    "Placement",
    "PreMulSum",
    "RendezvousError",
    "Residuals",
    "Stream",
    "compress_gradients",
    "encoded_bytes",
    "find_placement",
    "get_cmake_dir",
    "get_include",
    "group",
    "init_from_launcher",
    "quantized",
    "step",
    "unique_id",
    "version",
]
__version__ = "0.1.0"


def get_include() -> str:
    """The folder to give to the compiler with -I; it holds hetccl/hetccl.h."""
    return str(Path(__file__).parent / "include")


def get_cmake_dir() -> str:
    """The folder of hetcclConfig.cmake, for -Dhetccl_DIR."""
    return str(Path(__file__).parent / "lib" / "cmake" / "hetccl")


def _register_torch_backend() -> None:
    """Registers at once where torch is loaded.

    Otherwise importing torch will do it by entry point, unless the user has switched that off; so
    that the command line need not wait for torch.
    """
    wanted = "torch" in sys.modules or (
        os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
        and importlib.util.find_spec("torch") is not None
    )
    if wanted:
        importlib.import_module("hetccl.torch_backend").autoload()


_register_torch_backend()
