"""Key-value caches between unlike devices: prefill on one, decode on another (docs/kv.md)."""

from __future__ import annotations

from hetccl.kv.codes import convert, fold_scale
from hetccl.kv.describe import describe, storages
from hetccl.kv.description import Description, Layer, Region, check_joinable
from hetccl.kv.errors import KvError
from hetccl.kv.layout import Layout
from hetccl.kv.metrics import Metrics
from hetccl.kv.pack import Cache
from hetccl.kv.plan import Plan, plan
from hetccl.kv.receiver import Receiver
from hetccl.kv.sender import Sender
from hetccl.kv.session import Options, Outcome
from hetccl.kv.shares import Share, divide, readers

__all__ = [
    "Cache",
    "Description",
    "KvError",
    "Layer",
    "Layout",
    "Metrics",
    "Options",
    "Outcome",
    "Plan",
    "Receiver",
    "Region",
    "Sender",
    "Share",
    "check_joinable",
    "convert",
    "describe",
    "divide",
    "fold_scale",
    "plan",
    "readers",
    "storages",
]
