"""The order of an epoch's samples, and their way to micro-batches: alike on all ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError


@dataclasses.dataclass(frozen=True)
class Order:
    """Cuts each epoch of `samples` samples into steps of at most `batch` samples.

    Every sample is in one step of each epoch; the sizes of steps differ by at most one. With
    `drop_last` every step has `batch` samples, and the rest of the epoch is left out.
    """

    samples: int
    batch: int
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        whole, rest = divmod(self.samples, self.batch)
        return whole + (rest > 0 and not self.drop_last)

    def bounds(self, step: int) -> tuple[int, int]:
        """Returns where a step's samples begin and end in the epoch's order."""
        if self.drop_last:
            return step * self.batch, (step + 1) * self.batch
        return step * self.samples // self.steps, (step + 1) * self.samples // self.steps

    def samples_of(self, epoch: int) -> Sequence[int]:
        """Returns all samples in the epoch's order, which the seed and the epoch determine."""
        if not self.shuffle:
            return range(self.samples)
        generator = torch.Generator().manual_seed((self.seed << 32 ^ epoch) % (1 << 63))
        order: list[int] = torch.randperm(self.samples, generator=generator).tolist()
        return order


def cut(samples: Sequence[int], plan: Plan, rank: int) -> list[list[int]]:
    """Returns a rank's micro-batches of one step's samples. Pure."""
    if len(samples) != plan.batch:
        raise BalanceError(f"a step has {len(samples)} samples, but its plan {plan.batch}")
    at = sum(plan.shares[:rank])
    found = []
    for size in plan.micro_batches(rank):
        found.append([*samples[at : at + size]])
        at += size
    return found
