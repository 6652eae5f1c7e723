"""Pipelines of unlike stages, and [tensor, data, pipeline] strategies (paper 001, section 6.2)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetccl.parallel.models import PRESETS, Model, ParallelError, model_of, read_model
from hetccl.parallel.planner import Plan, plan
from hetccl.parallel.pricing import Price, price_strategy
from hetccl.parallel.sites import Site, read_site, read_times
from hetccl.parallel.strategies import Stage, Strategy

if TYPE_CHECKING:
    from hetccl.parallel.measure import (
        measure,
        measure_links,
        measure_reduces,
        measure_split,
        read_topology,
    )
    from hetccl.parallel.pipeline import Pipeline

__all__ = [
    "PRESETS",
    "Model",
    "ParallelError",
    "Pipeline",
    "Plan",
    "Price",
    "Site",
    "Stage",
    "Strategy",
    "measure",
    "measure_links",
    "measure_reduces",
    "measure_split",
    "model_of",
    "plan",
    "price_strategy",
    "read_model",
    "read_site",
    "read_times",
    "read_topology",
]

_NEED_TORCH = {
    "Pipeline": "pipeline",
    "measure": "measure",
    "measure_links": "measure",
    "measure_reduces": "measure",
    "measure_split": "measure",
    "read_topology": "measure",
}


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is asked for."""
    if name in _NEED_TORCH:
        found = getattr(importlib.import_module(f"hetccl.parallel.{_NEED_TORCH[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
