"""Micro-batches of one rank, for a DataLoader."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

from hetccl.balance.order import Cut, Order, share_out
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError


class BatchSampler(Sampler[list[int]]):
    """The `batch_sampler` of a torch DataLoader: yields the micro-batches of one rank.

    Each step of the job is `plan.accumulation` micro-batches in a row. All ranks must give the same
    arguments but for `rank`. `lengths` are the tokens of each sample; the plan then counts tokens
    (docs/balancing.md). Each iteration is of the next epoch, unless `set_epoch` or `resume` say
    otherwise. A DataLoader draws ahead, so count the steps that you take, for `resume`. Not
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
        lengths: Sequence[int] | None = None,
    ) -> None:
        if not 0 <= rank < plan.size:
            raise BalanceError(f"rank is {rank}, but the plan has {plan.size} ranks")
        _check_unit(plan, lengths is not None)
        self.order = Order(
            samples, plan.batch,
            shuffle=shuffle, seed=seed, drop_last=drop_last, lengths=lengths, most=plan.most,
        )  # fmt: skip
        if self.order.steps == 0:
            raise BalanceError(f"{samples} samples give no step of {plan.batch}")
        self.rank = rank
        self.epoch = 0
        self.step = 0
        self._first_steps = [0]
        self._plans = [plan]
        self._cuts: Sequence[Cut] = self.order.cuts
        self._sizes: dict[int, int] = {}  # of the steps that have been drawn
        self._by_size: dict[tuple[int, int, int], Plan] = {}
        for step, cut in enumerate(self.order.cuts):  # one that cannot be divided is told at once
            try:
                self.plan_of(step)
            except BalanceError as error:
                whole = min(plan.batch // cut.length, plan.most(cut.length))
                if drop_last or cut.samples == whole:
                    raise
                raise BalanceError(
                    f"{error}; or leave out samples that do not fill a step, by drop_last=True"
                ) from None

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
        cut = self._cuts[step]
        at = bisect.bisect_right(self._first_steps, step) - 1
        key = (at, cut.samples, cut.length)
        if key not in self._by_size:
            self._by_size[key] = self._plans[at].of(cut.samples, cut.length)
        return self._by_size[key]

    def take_size(self, step: int) -> int:
        """Returns, once, the size of this rank's computation in a step of this iteration: samples,
        or tokens with padding.
        """
        return self._sizes.pop(step)

    def __len__(self) -> int:
        """The micro-batches of a whole epoch."""
        return self.order.steps * self.plan.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = self.epoch, self.step
        self.epoch, self.step = epoch + 1, 0
        self._first_steps, self._plans = [0], self._plans[-1:]
        self._by_size.clear()
        arranged = self.order.arrange(epoch)
        self._cuts = arranged.cuts
        self._sizes.clear()
        for step in range(first, self.order.steps):
            samples = arranged.samples(arranged.cuts[step])
            micro_batches = share_out(samples, self.plan_of(step), self.rank)
            self._sizes[step] = sum(map(self.order.size_of, micro_batches))
            yield from micro_batches

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`. If it would be that anyway, `resume` holds."""
        if epoch != self.epoch:
            self.resume(epoch, 0)

    def resume(self, epoch: int, step: int) -> None:
        """Makes the next iteration begin at a step of an epoch. Raises BalanceError for no step."""
        if not 0 <= step < self.order.steps:
            raise BalanceError(f"step is {step}, but an epoch has {self.order.steps} steps")
        self.epoch, self.step = epoch, step


def _check_unit(plan: Plan, by_tokens: bool) -> None:
    if by_tokens and plan.unit == "samples":
        raise BalanceError(
            "lengths are given, but the plan counts samples: give profile() the length of the "
            "samples that run() passes"
        )
    if plan.unit == "tokens" and not by_tokens:
        raise BalanceError("the plan counts tokens, so give lengths, the tokens of each sample")
