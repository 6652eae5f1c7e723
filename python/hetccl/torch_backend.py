"""The backend "hetccl" of torch.distributed.

Registering costs nothing: the C++ library is loaded with the first process group that asks for it,
so neither ``import torch`` nor ``import hetccl`` can fail or slow down because of it. There is one
library for each series of torch, ``lib/libhetccl_torch-2.13.so`` for torch 2.13.*.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetccl.origin import how_to_reinstall

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

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
    """Returns options for ``init_process_group`` and ``new_group`` that encode a group's
    collectives between clusters.

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

    Raises ImportError if torch, or its torch.distributed, is missing.
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

    If no library fits this torch, registers the backend all the same, so that users of it learn why
    there is none, and warns everybody.
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
    device = getattr(default, "bound_device_id", None)
    return _join(options, device, backend_of(default), quantized)


def _join(
    options: Any,
    device: torch.device | None = None,
    world: Backend | None = None,
    quantized: Quantized = Quantized(),
) -> Any:
    """Returns torch's Backend of a new process group; blocks until all its ranks have come.

    `device` is used if nothing else decides; `world` is the default group's backend, if hetccl's.
    """
    import torch
    import torch.distributed as dist

    place = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    carrier = _operators().create(
        place.boxed(), options.group_id, list(options.global_ranks_in_group),
        round(options.timeout / timedelta(milliseconds=1)), device,
        world and world.carrier, quantized.wire, quantized.wire_gather, quantized.wire_inside,
    )  # fmt: skip
    return dist.ProcessGroup.unbox(carrier)._get_backend(torch.device("cpu"))


class Backend:
    """hetccl's backend of one process group, with functions beyond torch's interface.

    All methods raise torch's DistBackendError if the group has failed, or has not made its first
    collective; `encode` and `decode` on the host do not need one. Thread-safe.
    """

    def __init__(self, backend: Any):
        import torch
        import torch.distributed as dist

        # torch's operators take a process group, not a Backend: this group only carries it.
        make: Any = dist.ProcessGroup  # torch's stubs lack the constructor without a store
        carrier = make(backend.rank(), backend.size())
        kind = dist.ProcessGroup.BackendType.CUSTOM
        carrier._register_backend(torch.device("cpu"), kind, backend)
        self.carrier = carrier.boxed()
        self.backend = backend  # torch's object

    def stats(self) -> dict[str, int]:
        """Counters of this rank's communicator since init."""
        names = ("operations", "cross_bytes_sent", "least_cross_bytes", "plans")
        return dict(zip(names, _operators().stats(self.carrier), strict=True))

    def topology(self) -> str:
        """The topology as JSON."""
        return str(_operators().topology(self.carrier))

    def tuning(self) -> str:
        """The state of tuning, as the JSON of hetcclCommGetTuning."""
        return str(_operators().tuning(self.carrier))

    def encode(self, tensor: torch.Tensor, codes: torch.Tensor, encoding: str) -> None:
        """Encodes a tensor into `codes`, hetccl.encoded_bytes(tensor.numel(), encoding) bytes of
        uint8 on the same device; on a GPU on torch's current stream, once the group has made its
        first collective. Does not communicate."""
        _operators().encode(self.carrier, tensor, codes, encoding)

    def decode(self, codes: torch.Tensor, tensor: torch.Tensor, encoding: str) -> None:
        """Decodes codes of `encode`, under the same conditions."""
        _operators().decode(self.carrier, codes, tensor, encoding)

    def all_reduce_with_residual(
        self, tensor: torch.Tensor, residual: torch.Tensor, op: Any = None
    ) -> dist.Work:
        """Starts an all_reduce with error feedback; `op` is SUM unless given. An encoded call
        stores its rounding errors in `residual` and adds them in the next call. `residual` begins
        as zeros, and has the tensor's size and device."""
        import torch.distributed as dist

        whole: Any = dist.ReduceOp  # with its factor; otherwise `op` is one of its kinds
        given: Any = dist.ReduceOp.SUM if op is None else op
        kind, factor = given.__getstate__() if type(given) is whole else (given, None)
        factors = (factor, None) if isinstance(factor, float | None) else (None, factor)
        work = _operators().all_reduce_with_residual(
            self.carrier, tensor, residual, int(kind), *factors
        )
        unboxed: dist.Work = dist.Work.unbox(work)
        return unboxed


def backend_of(group: Any) -> Backend | None:
    """Returns hetccl's backend of a process group, also from behind torch's debugging wrapper; else
    None.
    """
    for device in getattr(group, "_device_types", ()):
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if backend.name() == NAME:
            return Backend(backend)
    return None


def seconds_waited() -> float:
    """Returns how long this thread has been blocked in hetccl's calls on host memory."""
    return float(_operators().seconds_waited())


def _teach_torch() -> None:
    """Gives torch's class of backends the members that torch expects of backends that can be split.
    Other libraries' backends see no change.
    """
    from torch._C import _distributed_c10d as c10d

    class Options(c10d.Backend.Options):
        def __deepcopy__(self, memo: object) -> Options:
            return _options_like(self.group_name, self._timeout, self.global_ranks_in_group)

        def __copy__(self) -> Options:
            return self.__deepcopy__(None)

    def _options_like(name: Any, timeout: timedelta, ranks: list[int]) -> Options:
        options = Options(NAME, timeout)
        options.group_name, options.global_ranks_in_group = name, ranks
        return options

    def own(name: str, value: Any) -> property:
        def of(backend: Any) -> Any:
            if backend.name() != NAME:
                raise AttributeError(f"{type(backend).__name__!r} has no attribute {name!r}")
            return value(backend)

        return property(of)

    def options(backend: Any) -> Options:
        name, timeout_ms, ranks = _operators().options(Backend(backend).carrier)
        return _options_like(name, timedelta(milliseconds=timeout_ms), ranks)

    # torch calls this on ranks that are not members of a new_group. Its members meet by the store.
    def perform_nocolor_split(_: Any) -> Any:
        return lambda device: None

    for value in (options, perform_nocolor_split):
        if not hasattr(c10d.Backend, value.__name__):
            setattr(c10d.Backend, value.__name__, own(value.__name__, value))


def _mark_steps() -> None:
    """Makes every step of an optimizer count as a step of the program (hetccl.step)."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from hetccl._lib import step

    register_optimizer_step_post_hook(lambda *_: step())


@functools.cache
def _operators() -> Any:
    """Returns torch.ops.hetccl. The first call loads the library that fits this torch, and ends all
    living backends before the interpreter ends. Raises ImportError with the remedy.
    """
    import torch

    if not libraries():
        raise ImportError(
            "hetccl was installed without its PyTorch backend, because torch was missing when it "
            f"was built. {_remedy(torch.__version__)}"
        )
    if mismatch := _mismatch():
        raise ImportError(mismatch)
    library = libraries()[_series(torch.__version__)]
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise ImportError(
            f"hetccl's PyTorch backend ({library.name}) does not load: {error}. "
            f"{_remedy(torch.__version__)}"
        ) from error
    operators = torch.ops.hetccl
    atexit.register(operators.close_all, _EXIT_GRACE_MS)
    _teach_torch()
    if os.environ.get("HETCCL_TUNE") == "step":
        _mark_steps()
    return operators


def libraries() -> dict[str, Path]:
    """Returns the libraries of this installation, by the series of torch that they fit."""
    prefix = "libhetccl_torch-"
    found = Path(__file__).parent.joinpath("lib").glob(f"{prefix}*.so")
    by_series = {path.name.removeprefix(prefix).removesuffix(".so"): path for path in found}
    return dict(sorted(by_series.items(), key=lambda item: [int(n) for n in item[0].split(".")]))


def _mismatch() -> str | None:
    """Returns the text for users if there are libraries, but none for this torch; else ""."""
    import torch

    built_for = list(libraries())
    if not built_for or _series(torch.__version__) in built_for:
        return None
    return (
        f"hetccl's PyTorch backend was built for torch {', '.join(built_for)}, but this is torch "
        f"{torch.__version__}. Install a torch that fits: {_install(built_for[-1])}. Or build "
        f"hetccl for this one: {_remedy(torch.__version__)}"
    )


def _install(series: str) -> str:
    return f"{sys.executable} -m pip install torch=={series}.*"


def _series(version: str) -> str:
    """Returns major.minor of a version, within which torch keeps its C++ interface."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _remedy(version: str) -> str:
    return f"With torch {version} installed, {how_to_reinstall()}"


def state() -> dict[str, Any]:
    """Returns whether the backend loads here, the series of torch for which it was built, and any
    obstacle.
    """
    import warnings

    built_for = list(libraries())
    found: dict[str, Any] = {"available": False, "built_for": built_for, "torch": None}
    try:
        with warnings.catch_warnings():  # `reason` says the same
            warnings.simplefilter("ignore")
            import torch
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        reason = f"torch does not load: {error}"
        if missing and built_for:
            reason = f"torch is not installed; run: {_install(built_for[-1])}"
        elif missing:
            reason = f"torch is not installed; install it, then {how_to_reinstall()}"
        return {**found, "reason": reason}
    found["torch"] = str(torch.__version__)
    try:
        _operators()
    except ImportError as error:
        return {**found, "reason": str(error)}
    return {**found, "available": True}
