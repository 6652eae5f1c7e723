"""Sharding of weights, gradients and optimizer states, each over its own number of ranks."""

from hetccl.sharding.degrees import PRESETS, Sharding, ShardingError
from hetccl.sharding.planner import plan

__all__ = ["PRESETS", "Sharding", "ShardingError", "plan"]
