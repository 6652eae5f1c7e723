"""Profiles of the ranks of a job."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from hetccl.agreement import check_alike, gather
from hetccl.balance.models import alone, describe_model, is_fsdp
from hetccl.balance.profiles import BalanceError, Profile
from hetccl.balance.stopwatch import synchronize

_LEAST_SECONDS, _LEAST_RUNS = 0.3, 3  # of a size
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


def profile(
    model: torch.nn.Module,
    run: Callable[[int], object],
    limit: int,
    *,
    length: int | None = None,
    seconds: float = 20.0,
    group: dist.ProcessGroup | None = None,
) -> list[Profile]:
    """Measures how long each rank computes for micro-batches of 1, 2, 4 to `limit` samples.

    `run(size)` makes one forward and backward pass of `model`, a plain module or a
    DistributedDataParallel, over `size` samples; it ends by calling backward(). No gradients are
    exchanged meanwhile, and what it leaves in the model's gradients is dropped; running statistics,
    as of batch normalisation, change. A size that does not fit the device's memory is survived, and
    the largest that fits is found by halving. No size is begun after `seconds`, and no plan gives a
    rank a larger micro-batch than it has run. `length` is the number of tokens of each of these
    samples, for a plan that counts tokens. Warns where time ended before `limit` was reached.

    Returns the profiles of all ranks of `group`, by rank, to all of them. Collective. Raises
    BalanceError on all ranks where they give other models or limits, where a rank fits no sample,
    and where `run` fails.
    """
    is_module = isinstance(model, torch.nn.Module) and next(model.parameters(), None) is not None
    reason = "" if is_module else "profile: the model must be a module with parameters"
    if is_module and is_fsdp(model):
        reason = "profile: give the model before it is sharded"
    for name, value in (("limit", limit), ("length", 1 if length is None else length)):
        if not isinstance(value, int) or value < 1:
            reason = reason or f"profile: {name} is {value!r}, but must be a positive integer"
    facts = {
        "model": describe_model(model), "limit": limit, "length": length, "seconds": seconds,
    }  # fmt: skip
    check_alike(facts, reason, BalanceError, group)
    own, cause = None, None
    model.zero_grad(set_to_none=True)
    try:
        with alone(model):
            own = _measure(run, limit, seconds, next(model.parameters()).device)
        if all(parameter.grad is None for parameter in model.parameters()):
            raise BalanceError("run has made no gradients of the model: it must call backward()")
    except Exception as error:  # whatever a user's code raises
        cause = error
    model.zero_grad(set_to_none=True)
    reason = f"{type(cause).__name__}: {cause}" if cause else ""
    every = gather((own, reason), group)
    for rank, (_, its_reason) in enumerate(every):
        if its_reason:
            raise BalanceError(f"profile: rank {rank}: {its_reason}") from cause
    found = [its_own for its_own, _ in every]
    return found if length is None else [one.in_tokens(length) for one in found]


def _measure(
    run: Callable[[int], object], limit: int, seconds: float, device: torch.device
) -> Profile:
    found: list[tuple[int, float]] = []
    end = time.perf_counter() + seconds
    fails = 0
    for size in _sizes(limit):
        if found and time.perf_counter() > end:
            warnings.warn(
                f"profile: in {seconds:g} s this rank has run micro-batches of up to "
                f"{found[-1][0]} samples, not of {limit}, and will get no larger ones: give more "
                "seconds, or a lower limit",
                stacklevel=3,
            )
            break
        taken = _time(run, size, device)
        if taken is None:
            fails = size
            break
        found.append((size, taken))
    if not found:
        raise BalanceError(f"its device ({_name(device)}) has no memory for one sample")
    most = found[-1][0]
    while fails - most > max(1, most // 8) and time.perf_counter() <= end:
        middle = (most + fails) // 2
        taken = _time(run, middle, device)
        if taken is None:
            fails = middle
        else:
            most = middle
            found.append((middle, taken))
    return Profile(tuple(found), most, _name(device), "samples")


def _sizes(limit: int) -> Iterator[int]:
    size = 1
    while size < limit:
        yield size
        size *= 2
    yield limit


def _time(run: Callable[[int], object], size: int, device: torch.device) -> float | None:
    """Returns the mean seconds of a pass; None if the device lacks memory for it."""
    try:
        run(size)
        synchronize(device)
        runs, begin = 0, time.perf_counter()
        while True:
            run(size)
            synchronize(device)
            runs += 1
            taken = time.perf_counter() - begin
            if runs >= _LEAST_RUNS and taken >= _LEAST_SECONDS:
                return taken / runs
    except (MemoryError, torch.OutOfMemoryError):
        pass
    except RuntimeError as error:
        if not any(text in str(error).lower() for text in _NO_MEMORY):
            raise
    _free_memory(device)  # no longer held by the exception
    return None


def _free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type != "cpu":
        torch.cuda.empty_cache()


def _name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else str(torch.cuda.get_device_name(device))
