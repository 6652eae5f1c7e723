"""Lists the contents of a checkpoint of torch.distributed.checkpoint before anything is read from
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata

_MODEL = "model."
_STATE = "optimizer.state."
_GROUPS = "optimizer.param_groups."


class Saved:
    """The entries of a checkpoint {"model": …, "optimizer": …}, by their names in its metadata."""

    def __init__(self, entries: Mapping[str, STORAGE_TYPES]) -> None:
        self._entries = entries

    @property
    def has_states(self) -> bool:
        """Whether the optimizer had a state."""
        return any(key.startswith(_STATE) for key in self._entries)

    def has_state(self, name: str) -> bool:
        """Whether the optimizer had a state of the parameter."""
        return any(key.startswith(f"{_STATE}{name}.") for key in self._entries)

    def find_fault(
        self, model: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]], groups: int
    ) -> str:
        """Why this cannot be loaded into a model's values and an optimizer's states, both by name,
        with so many groups of parameters; empty if it can."""
        its = {key.split(".")[2] for key in self._entries if key.startswith(_GROUPS)}
        if len(its) != groups:
            return f"the checkpoint has {len(its)} groups of parameters, the optimizer {groups}"
        wanted = {_MODEL + name: value for name, value in model.items()}
        extra = {key for key in self._entries if key.startswith(_MODEL)} - set(wanted)
        if extra:
            return f"the checkpoint is of another model: it has {sorted(extra)[:3]}"
        for name, values in states.items():
            wanted.update({f"{_STATE}{name}.{key}": value for key, value in values.items()})
        missing = [key for key in wanted if key not in self._entries]
        if missing:
            return f"the checkpoint is of another model or optimizer: it lacks {missing[:3]}"
        for key, value in wanted.items():
            entry = self._entries[key]
            if not isinstance(entry, TensorStorageMetadata) or not isinstance(value, torch.Tensor):
                continue
            if entry.size != value.shape:
                return f"{key} has the shape {[*value.shape]}, in the checkpoint {[*entry.size]}"
        return ""
