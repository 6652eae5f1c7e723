"""What ranks tell each other."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from hetccl.balance.profiles import BalanceError


def gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Returns the ranks' values, by rank. Collective."""
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, value, group=group)
    return every


def check_alike(facts: dict[str, Any], group: dist.ProcessGroup | None) -> None:
    """Raises BalanceError on all ranks where they differ in a fact. Collective."""
    every = gather(facts, group)
    for name, value in every[0].items():
        for rank, its_facts in enumerate(every):
            if its_facts[name] != value:
                raise BalanceError(
                    f"{name}: rank {rank} has {its_facts[name]}, and rank 0 {value}: all ranks "
                    "must have the same"
                )


def raise_for_all(reason: str, group: dist.ProcessGroup | None) -> None:
    """Raises BalanceError on all ranks where one has a reason; "" is none. Collective."""
    for rank, its_reason in enumerate(gather(reason, group)):
        if its_reason:
            raise BalanceError(f"rank {rank}: {its_reason}")
