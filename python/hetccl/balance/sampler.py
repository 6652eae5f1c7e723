"""Micro-batches of one rank, for a DataLoader."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from torch.utils.data import Sampler

from hetccl.balance.order import Order, cut
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError


class BatchSampler(Sampler[list[int]]):
    """The `batch_sampler` of a torch DataLoader: yields the micro-batches of one rank.

    Each step of the job is `plan.accumulation` micro-batches in a row. All ranks must give the same
    arguments but for `rank`. Each iteration is of the next epoch, unless `set_epoch` or `resume`
    say otherwise. A DataLoader draws ahead, so count the steps that you take, for `resume`. Not
    thread-safe.

    Raises BalanceError where a step of so many samples cannot be divided.
    """

    def __init__(
        self,
        samples: int,
        plan: Plan,
        rank: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not 0 <= rank < plan.size:
            raise BalanceError(f"rank is {rank}, but the plan has {plan.size} ranks")
        self.order = Order(samples, plan.batch, shuffle, seed, drop_last)
        if self.order.steps == 0:
            raise BalanceError(f"{samples} samples give no step of {plan.batch}")
        self.rank = rank
        self.epoch = 0
        self.step = 0
        self._first_steps = [0]
        self._plans = [plan]
        self._by_size: dict[tuple[int, int], Plan] = {}
        for step in {0, self.order.steps - 1}:  # the smallest and the largest are among them
            self.plan_of(step)

    @property
    def plan(self) -> Plan:
        """The plan of the steps to come."""
        return self._plans[-1]

    def change(self, plan: Plan, step: int) -> None:
        """Uses `plan` from `step` of this iteration on. Raises BalanceError for another batch or
        number of micro-batches."""
        if (plan.batch, plan.accumulation) != (self.plan.batch, self.plan.accumulation):
            raise BalanceError("a plan can be changed for one of the same batch and accumulation")
        self._first_steps.append(step)
        self._plans.append(plan)

    def plan_of(self, step: int) -> Plan:
        """Returns the plan of a step of this iteration, whose batch is the step's own."""
        begin, end = self.order.bounds(step)
        at = bisect.bisect_right(self._first_steps, step) - 1
        key = (at, end - begin)
        if key not in self._by_size:
            whole = self._plans[at]
            self._by_size[key] = whole if whole.batch == key[1] else whole.of(key[1])
        return self._by_size[key]

    def __len__(self) -> int:
        """The micro-batches of a whole epoch."""
        return self.order.steps * self.plan.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = self.epoch, self.step
        self.epoch, self.step = epoch + 1, 0
        self._first_steps, self._plans = [0], self._plans[-1:]
        self._by_size.clear()
        samples = self.order.samples_of(epoch)
        for step in range(first, self.order.steps):
            begin, end = self.order.bounds(step)
            yield from cut(samples[begin:end], self.plan_of(step), self.rank)

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration be of `epoch`; from where `resume` has put it, if it is that."""
        if epoch != self.epoch:
            self.resume(epoch, 0)

    def resume(self, epoch: int, step: int) -> None:
        """Has the next iteration begin at a step of an epoch."""
        self.epoch, self.step = epoch, step
