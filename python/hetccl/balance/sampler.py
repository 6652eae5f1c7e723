"""Micro-batches of one rank, for a DataLoader."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from hetccl.balance.order import Order, cut
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError


class BatchSampler(Sampler[list[int]]):
    """The `batch_sampler` of a torch DataLoader: yields the micro-batches of one rank.

    Each step of the job is `plan.accumulation` micro-batches in a row. All ranks must give the same
    arguments but for `rank`. An iteration begins at the first step that has not been taken; its end
    begins the next epoch. Not thread-safe.

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
        self._is_over = False  # an iteration has come to the epoch's end
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
        """Uses `plan` from `step` of this epoch on. Raises BalanceError for another batch or number
        of micro-batches."""
        if (plan.batch, plan.accumulation) != (self.plan.batch, self.plan.accumulation):
            raise BalanceError("a plan can be changed for one of the same batch and accumulation")
        self._first_steps.append(step)
        self._plans.append(plan)

    def plan_of(self, step: int) -> Plan:
        """Returns the plan of a step of this epoch, whose batch is the step's own."""
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
        if self._is_over:
            self.set_epoch(self.epoch + 1)
        samples = self.order.samples_of(self.epoch)
        for step in range(self.step, self.order.steps):
            begin, end = self.order.bounds(step)
            micro_batches = cut(samples[begin:end], self.plan_of(step), self.rank)
            for index, micro_batch in enumerate(micro_batches, 1):
                if index == len(micro_batches):
                    self.step = step + 1
                yield micro_batch
        self._is_over = True

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch; one that is under way goes on where it is."""
        if epoch == self.epoch and not self._is_over:
            return
        self.resume(epoch, 0)

    def resume(self, epoch: int, step: int) -> None:
        """Has the next iteration begin at a step of an epoch."""
        if epoch != self.epoch or step == 0:
            del self._first_steps[:-1], self._plans[:-1]
            self._first_steps[0] = 0
            self._by_size.clear()
        self.epoch, self.step, self._is_over = epoch, step, False

    def state_dict(self) -> dict[str, Any]:
        """Returns where the job is: the epoch, and the next step of it."""
        return {"epoch": self.epoch, "step": self.step, **self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a job was, whose number of ranks and shares may have been others.

        Raises BalanceError where its data, batch, order or seed were others.
        """
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise BalanceError(
                    f"{name} was {state.get(name)!r} where the state was saved, and is {value!r}"
                )
        epoch, step = state.get("epoch"), state.get("step")
        if not isinstance(epoch, int) or not isinstance(step, int):
            raise BalanceError(f"epoch and step are {epoch!r} and {step!r}: no state of a loader")
        if not 0 <= step <= self.order.steps:
            raise BalanceError(f"step is {step}, but an epoch has {self.order.steps} steps")
        self.resume(epoch, step)

    @property
    def _identity(self) -> dict[str, Any]:
        order = self.order
        return {
            "samples": order.samples,
            "batch": order.batch,
            "shuffle": order.shuffle,
            "seed": order.seed,
            "drop_last": order.drop_last,
        }
