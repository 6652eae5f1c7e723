"""Exchange of small values between the ranks of a process group."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def gather(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Returns the values of all ranks, by rank; of the default group if it is None. Collective."""
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, value, group=group)
    return every
