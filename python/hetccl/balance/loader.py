"""Steps of a balanced job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from hetccl.balance.agreement import check_alike, gather
from hetccl.balance.models import describe_model
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError
from hetccl.balance.sampler import BatchSampler
from hetccl.balance.step import Step
from hetccl.balance.watch import Watch


class Loader:
    """Gives each rank its share of each batch: an iteration yields a `Step` per step of the epoch.

    Collective over `group`, the default process group if None; all ranks give the same arguments.
    `model` is the model in training: a DistributedDataParallel, an FSDP2 module or a
    `hetccl.sharding.Sharded`. It exchanges gradients only with the last micro-batch of a step.
    `online` moves shares to faster ranks while the job runs (docs/balancing.md); it needs `model`,
    and does nothing with HETCCL_DETERMINISTIC=1. `options` go to the torch DataLoader.

    An iteration begins at the first step that has not been taken; its end begins the next epoch.
    Not thread-safe. Raises BalanceError where ranks differ, and where steps cannot be divided.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        plan: Plan,
        model: Any = None,
        *,
        group: dist.ProcessGroup | None = None,
        online: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        self._group, self._model = group, model
        self._ranks = dist.get_world_size(group)
        samples = len(dataset)  # type: ignore[arg-type]
        facts = {
            "plan": (plan.batch, plan.accumulation, plan.shares), "samples": samples, "seed": seed,
            "shuffle": shuffle, "drop_last": drop_last, "online": online,
            "model": describe_model(model),
        }  # fmt: skip
        check_alike(facts, group)
        if plan.size != self._ranks:
            raise BalanceError(f"the plan has {plan.size} ranks, but the group {self._ranks}")
        self._sampler = BatchSampler(
            samples, plan, dist.get_rank(group), shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        self._data = DataLoader(dataset, batch_sampler=self._sampler, **options)
        self._epoch = self._step = 0
        self._is_over = False  # an iteration has come to the epoch's end
        self._watch = Watch(plan, model, group) if online and _may_move() else None

    @property
    def plan(self) -> Plan:
        """The plan of the steps to come."""
        return self._sampler.plan

    def __len__(self) -> int:
        """The steps of an epoch."""
        return self._sampler.order.steps

    def __iter__(self) -> Iterator[Step]:
        if self._is_over:
            self.set_epoch(self._epoch + 1)
        self._sampler.resume(self._epoch, self._step)
        data = iter(self._data)
        while self._step < len(self):
            begin, end = self._sampler.order.bounds(self._step)
            plan = self._sampler.plan_of(self._step)
            micro_batches = [next(data) for _ in range(plan.accumulation)]
            step = Step(
                self._step, end - begin, plan.shares[self._sampler.rank], micro_batches,
                self._ranks, self._model, self._watch.stopwatch if self._watch else None,
            )  # fmt: skip
            self._step += 1
            yield step
            self._balance()
        self._is_over = True

    def _balance(self) -> None:
        changed = self._watch and self._watch.end_step(self._ahead)
        if changed:
            plan, ahead = changed
            self._sampler.change(plan, self._step + ahead)

    @property
    def _ahead(self) -> int:
        """Steps whose samples the DataLoader has drawn before they are asked for."""
        drawn = self._data.num_workers * (self._data.prefetch_factor or 0)
        return -(-drawn // self._sampler.plan.accumulation)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch; one that is under way goes on where it is. Not collective."""
        if epoch != self._epoch or self._is_over:
            self._epoch, self._step, self._is_over = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Returns where the job is, for a checkpoint: the same on all ranks. Not collective."""
        state = self._sampler.state_dict()
        return {**state, "epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a job was, whose number of ranks and shares may have been others.

        Raises BalanceError where its data, batch, order or seed were others. Not collective.
        """
        self._sampler.load_state_dict(state)
        self._epoch, self._step = self._sampler.epoch, self._sampler.step
        self._is_over = False


def total(count: int, group: dist.ProcessGroup | None = None) -> int:
    """Returns the sum of the ranks' counts, such as tokens of a step. Collective."""
    return sum(gather(count, group))


def _may_move() -> bool:
    return os.environ.get("HETCCL_DETERMINISTIC", "") in ("", "0")
