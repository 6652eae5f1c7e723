"""The backend "hetccl" of torch.distributed.

Registering costs nothing: the C++ extension is loaded with the first process group that asks for
it, so neither ``import torch`` nor ``import hetccl`` can fail or slow down because of it.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib
import os
import sys
from typing import Any

from hetccl.origin import how_to_reinstall

NAME = "hetccl"

# Time for calls in flight when the interpreter ends without destroy_process_group.
_EXIT_GRACE_MS = 2000


@dataclasses.dataclass(frozen=True)
class Quantized:
    """`pg_options` of a process group; see `quantized`."""

    wire: str | None = None
    wire_gather: str | None = None
    wire_inside: bool | None = None


def quantized(
    wire: str | None = None, wire_gather: str | None = None, wire_inside: bool | None = None
) -> Quantized:
    """Options for ``init_process_group`` and ``new_group``: what of a group's collectives is
    encoded on its way between clusters.

        dist.new_group(ranks, backend="hetccl", pg_options=hetccl.quantized("int8"))

    They are as in `hetccl.Communicator`: `wire` is of all-reduces and reduce-scatters,
    `wire_gather` of all-gathers; `wire_inside` says whether a group of one cluster encodes, too.
    None leaves it to the settings, "" or False switches it off. Raises TypeError for other types.
    """
    for name, value in (("wire", wire), ("wire_gather", wire_gather)):
        if not isinstance(value, str | None):
            raise TypeError(f'{name} is {value!r}, but must be a text, such as "int8", or None')
    return Quantized(wire, wire_gather, wire_inside)


def register() -> None:
    """Makes ``init_process_group("hetccl")`` work. May be called any number of times.

    Raises ImportError where torch, or its torch.distributed, is missing.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise ImportError("this build of torch has no torch.distributed, which hetccl extends")
    if NAME in dist.Backend.backend_list:
        return
    from hetccl.launchers import torch_store

    torch_store.register()
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def autoload() -> None:
    """torch's entry point, run inside ``import torch``, where an exception would break torch.

    A backend that was built for another torch is registered too, so that whoever asks for it learns
    why there is none; everybody is warned.
    """
    import warnings

    try:
        register()
        mismatch = _mismatch()
    except Exception as error:
        mismatch = f"hetccl could not register with torch.distributed: {error}"
    if mismatch:
        warnings.warn(mismatch, stacklevel=2)


def _create(options: Any, backend_options: Any = None) -> Any:
    """Joins the process group that `options` (DistributedBackendOptions) describes; blocks.

    torch calls it on the group's members only. `backend_options` may carry a timeout. Where a rank
    has a GPU the communicator is joined by the group's first call.
    """
    import torch.distributed as dist

    timeout = getattr(backend_options, "_timeout", None)
    if timeout is not None:
        options.timeout = timeout
    # torch tells a group its device_id later, and only one that was made with it.
    default = dist.group.WORLD
    quantized = backend_options if isinstance(backend_options, Quantized) else Quantized()
    return _registry().create(
        options, getattr(default, "bound_device_id", None), backend_of(default),
        quantized.wire, quantized.wire_gather, quantized.wire_inside,
    )  # fmt: skip


def backend_of(group: Any) -> Any:
    """hetccl's backend of a process group, also behind torch's debugging wrapper; or None."""
    for device in getattr(group, "_device_types", ()):
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, extension().Backend):
            return backend
    return None


@functools.cache
def _registry() -> Any:
    """The extension's registry of living backends, which ends them before the interpreter ends."""
    registry = extension().Registry()
    atexit.register(registry.close_all, _EXIT_GRACE_MS)
    if os.environ.get("HETCCL_TUNE") == "step":
        _mark_steps()
    return registry


def _mark_steps() -> None:
    """Has every step of an optimizer count as a step of the program (hetccl.step)."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from hetccl._lib import step

    register_optimizer_step_post_hook(lambda *_: step())


@functools.cache
def extension() -> Any:
    """The C++ extension hetccl._torch. Raises ImportError with what to do where it cannot load."""
    import torch

    built_for = _built_for()
    if built_for is None:
        raise ImportError(
            "hetccl was installed without its PyTorch backend, because torch was missing when it "
            f"was built. {_remedy(torch.__version__)}"
        )
    if mismatch := _mismatch():
        raise ImportError(mismatch)
    try:
        return importlib.import_module("hetccl._torch")
    except ImportError as error:
        raise ImportError(
            f"hetccl's PyTorch backend (built for torch {built_for}) does not load: {error}. "
            f"{_remedy(torch.__version__)}"
        ) from error


def _built_for() -> str | None:
    """The version of torch that the extension was compiled against; None without an extension."""
    try:
        return str(importlib.import_module("hetccl._torch_build").TORCH_VERSION)
    except ImportError:
        return None


def _mismatch() -> str | None:
    """What to tell the user where the extension was built for another torch."""
    import torch

    built_for = _built_for()
    if built_for is None or _series(built_for) == _series(torch.__version__):
        return None
    return (
        f"hetccl's PyTorch backend was built for torch {built_for}, but this is torch "
        f"{torch.__version__}. {_remedy(torch.__version__)}"
    )


def _series(version: str) -> tuple[str, ...]:
    """torch keeps its C++ interface within major.minor only."""
    return tuple(version.split("+")[0].split(".")[:2])


def _remedy(version: str) -> str:
    return f"With torch {version} installed, {how_to_reinstall(version)}"


def state() -> dict[str, Any]:
    """Whether the backend loads here, for which torch it was built, and what is in its way."""
    import warnings

    built_for = _built_for()
    found: dict[str, Any] = {"available": False, "built_for": built_for, "torch": None}
    try:
        with warnings.catch_warnings():  # `reason` says the same
            warnings.simplefilter("ignore")
            import torch
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        reason = f"torch does not load: {error}"
        if missing and built_for:
            fits = ".".join(_series(built_for))
            reason = f"torch is not installed; run: {sys.executable} -m pip install torch=={fits}.*"
        elif missing:
            reason = f"torch is not installed; install it, then {how_to_reinstall(None)}"
        return {**found, "reason": reason}
    found["torch"] = str(torch.__version__)
    try:
        extension()
    except ImportError as error:
        return {**found, "reason": str(error)}
    return {**found, "available": True}
