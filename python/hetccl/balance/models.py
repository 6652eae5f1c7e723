"""The kinds of models that train in step on several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from hetccl.agreement import digest


def module_of(model: Any) -> nn.Module | None:
    """Returns the model if it is a module, or a `hetccl.sharding.Sharded`'s module, or None."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    return found if isinstance(found, nn.Module) else None


def describe_model(model: Any) -> str:
    """Returns text that differs for models of other parameters, and other names or shapes."""
    module = module_of(model)
    if module is None:
        return "none"
    shapes = [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    count = sum(parameter.numel() for parameter in module.parameters())
    told = digest(repr(shapes).encode())
    return f"{len(shapes)} tensors of {count} parameters (shapes {told})"


def device_of(model: Any) -> torch.device:
    """Returns the device of the model's parameters; it must have one."""
    module = module_of(model)
    assert module is not None
    return next(module.parameters()).device


def is_fsdp(module: nn.Module) -> bool:
    """Returns whether FSDP2 shards the module or a part of it."""
    return any(isinstance(one, FSDPModule) for one in module.modules())


def waits_inside(module: nn.Module) -> bool:
    """Returns whether passes wait for other ranks: those of FSDP2 and DeepSpeed's ZeRO 2 and 3."""
    stage = getattr(module, "zero_optimization_stage", None)
    is_zero_3 = any(hasattr(parameter, "ds_id") for parameter in module.parameters())
    return is_fsdp(module) or is_zero_3 or (callable(stage) and stage() >= 2)


def _uncompiled(model: Any) -> Any:
    """Returns the module that torch.compile has wrapped, or the model as it is."""
    return getattr(model, "_orig_mod", model)


@contextlib.contextmanager
def add_up(model: Any) -> Iterator[None]:
    """Backward passes inside leave their gradients on this rank. Not collective."""
    model = _uncompiled(model)
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
        return
    if isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    elif not isinstance(model, nn.Module) and hasattr(model, "accumulate"):  # hetccl.sharding's
        with model.accumulate():
            yield
    else:
        yield


@contextlib.contextmanager
def alone(model: nn.Module) -> Iterator[None]:
    """Passes inside communicate nothing: neither gradients, nor the buffers of a DDP model."""
    model = _uncompiled(model)
    before = getattr(model, "require_forward_param_sync", False)
    if isinstance(model, DistributedDataParallel):
        model.require_forward_param_sync = False
    try:
        with add_up(model):
            yield
    finally:
        if isinstance(model, DistributedDataParallel):
            model.require_forward_param_sync = before
