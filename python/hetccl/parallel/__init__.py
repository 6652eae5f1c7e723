"""Pipelines of unlike stages, and [tensor, data, pipeline] strategies (paper 001, section 6.2)."""

from __future__ import annotations

from hetccl.parallel.models import PRESETS, Model, ParallelError, model_of, read_model
from hetccl.parallel.planner import Plan, plan
from hetccl.parallel.pricing import Price, price_strategy
from hetccl.parallel.sites import Site, read_site
from hetccl.parallel.strategies import Stage, Strategy

__all__ = [
    "PRESETS",
    "Model",
    "ParallelError",
    "Plan",
    "Price",
    "Site",
    "Stage",
    "Strategy",
    "model_of",
    "plan",
    "price_strategy",
    "read_model",
    "read_site",
]
