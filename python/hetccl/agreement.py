"""Exchange of small values between the ranks of a process group."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist


def digest(data: bytes) -> str:
    """Returns a short text that differs for other data: ranks compare it instead of the data."""
    return hashlib.sha256(data).hexdigest()[:16]


def gather(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Returns the values of all ranks, by rank; of the default group if it is None. Collective.

    Raises RuntimeError if torch has no NumPy.
    """
    try:
        torch.zeros(1).numpy()
    except RuntimeError as error:
        raise RuntimeError(
            "torch's object collectives, by which ranks compare their arguments, need NumPy, and "
            f"torch cannot use it here ({error}): pip install numpy"
        ) from error
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, value, group=group)
    return every


def check_alike(
    facts: dict[str, Any], reason: str, error: type[ValueError],
    group: dist.ProcessGroup | None = None,
) -> None:  # fmt: skip
    """Raises `error` on all ranks if one of them has a reason, or if they differ in a fact.

    `reason` tells why this rank's arguments are wrong; "" if they are right. Collective.
    """
    every = gather((reason, facts), group)
    for rank, (its_reason, _) in enumerate(every):
        if its_reason:
            raise error(f"rank {rank}: {its_reason}")
    _, first_facts = every[0]
    for name, value in first_facts.items():
        for rank, (_, its_facts) in enumerate(every):
            if its_facts[name] != value:
                raise error(
                    f"{name}: rank {rank} has {its_facts[name]}, and rank 0 {value}: all ranks "
                    "must have the same"
                )
