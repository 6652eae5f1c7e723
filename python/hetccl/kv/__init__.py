"""Key-value caches between unlike devices: prefill on one, decode on another (docs/kv.md)."""

from __future__ import annotations

from hetccl.kv.describe import describe, storages
from hetccl.kv.description import Description, Layer, Region, check_joinable
from hetccl.kv.errors import KvError
from hetccl.kv.layout import Layout
from hetccl.kv.plan import Plan, plan
from hetccl.kv.shares import Share, divide, readers

__all__ = [
    "Description",
    "KvError",
    "Layer",
    "Layout",
    "Plan",
    "Region",
    "Share",
    "check_joinable",
    "describe",
    "divide",
    "plan",
    "readers",
    "storages",
]
