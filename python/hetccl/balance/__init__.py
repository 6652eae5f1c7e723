"""Shares of each batch in proportion to the speed of unlike devices (paper 000, section 4.5)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetccl.balance.planner import Plan, divide_by_speeds, divide_evenly, plan
from hetccl.balance.profiles import BalanceError, Profile

if TYPE_CHECKING:
    from hetccl.balance.loader import Loader, total
    from hetccl.balance.measure import profile
    from hetccl.balance.sampler import BatchSampler
    from hetccl.balance.step import Step

__all__ = [
    "BalanceError",
    "BatchSampler",
    "Loader",
    "Plan",
    "Profile",
    "Step",
    "divide_by_speeds",
    "divide_evenly",
    "plan",
    "profile",
    "total",
]

_NEED_TORCH = {
    "BatchSampler": "sampler",
    "Loader": "loader",
    "Step": "step",
    "profile": "measure",
    "total": "loader",
}


def __getattr__(name: str) -> Any:
    """Imports modules that need torch at their first use."""
    if name in _NEED_TORCH:
        found = getattr(importlib.import_module(f"hetccl.balance.{_NEED_TORCH[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
