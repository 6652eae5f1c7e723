"""Sharding of weights, gradients and optimizer states, each over its own number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetccl.sharding.degrees import PRESETS, Sharding, ShardingError
from hetccl.sharding.planner import plan

if TYPE_CHECKING:
    from hetccl.sharding.builder import shard
    from hetccl.sharding.sharded import NonFiniteGradientsError, Sharded

__all__ = [
    "PRESETS",
    "NonFiniteGradientsError",
    "Sharded",
    "Sharding",
    "ShardingError",
    "plan",
    "shard",
]


def __getattr__(name: str) -> Any:
    """Imports modules that need torch at their first use."""
    if name == "shard":
        from hetccl.sharding.builder import shard

        return shard
    if name in ("NonFiniteGradientsError", "Sharded"):
        from hetccl.sharding import sharded

        return getattr(sharded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
