"""The kinds of models that train in step on several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule


def module_of(model: Any) -> nn.Module | None:
    """Returns the module of a model, which is one, or of a `hetccl.sharding.Sharded`; or None."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    return found if isinstance(found, nn.Module) else None


def describe_model(model: Any) -> str:
    """Returns text that differs for models of other parameters."""
    module = module_of(model)
    if module is None:
        return "none"
    sizes = [parameter.numel() for parameter in module.parameters()]
    return f"{len(sizes)} tensors of {sum(sizes)} parameters"


def is_fsdp(module: nn.Module) -> bool:
    """Returns whether FSDP2 shards the module or a part of it."""
    return any(isinstance(one, FSDPModule) for one in module.modules())


@contextlib.contextmanager
def add_up(model: Any) -> Iterator[None]:
    """Backward passes inside leave their gradients on this rank. Not collective."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
        return
    for name in ("no_sync", "accumulate"):  # of DDP, and of hetccl.sharding
        if hasattr(model, name):
            with getattr(model, name)():
                yield
            return
    yield
