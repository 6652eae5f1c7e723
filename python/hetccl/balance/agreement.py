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


def describe_model(model: Any) -> str:
    """Returns text that differs for models of other parameters."""
    parameters = getattr(model, "parameters", None)
    if parameters is None:
        return type(model).__name__
    sizes = [parameter.numel() for parameter in parameters()]
    return f"{len(sizes)} tensors of {sum(sizes)} parameters"
