"""Agreement of ranks on the arguments of a balanced job."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from hetccl.agreement import gather
from hetccl.balance.profiles import BalanceError


def check_alike(facts: dict[str, Any], reason: str, group: dist.ProcessGroup | None) -> None:
    """Raises BalanceError on all ranks where one has a reason, or they differ in a fact.

    `reason` is what is wrong with this rank's arguments; "" is nothing. Collective.
    """
    every = gather((reason, facts), group)
    for rank, (its_reason, _) in enumerate(every):
        if its_reason:
            raise BalanceError(f"rank {rank}: {its_reason}")
    _, first_facts = every[0]
    for name, value in first_facts.items():
        for rank, (_, its_facts) in enumerate(every):
            if its_facts[name] != value:
                raise BalanceError(
                    f"{name}: rank {rank} has {its_facts[name]}, and rank 0 {value}: all ranks "
                    "must have the same"
                )
