"""Steps of a balanced job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from hetccl.agreement import check_alike, digest, gather
from hetccl.balance.models import describe_model
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError
from hetccl.balance.sampler import BatchSampler
from hetccl.balance.step import Step
from hetccl.balance.watch import Watch, why_not_measured


class Loader:
    """Gives each rank its share of each batch: an iteration yields a `Step` per step of the epoch.

    Collective over `group`, the default process group if None; all ranks give the same arguments.
    `model` is the model in training: a DistributedDataParallel, an FSDP2 module or a
    `hetccl.sharding.Sharded`. It exchanges gradients only with the last micro-batch of a step.
    `online` moves shares to faster ranks while the job runs (docs/balancing.md); it needs `model`,
    and does nothing with HETCCL_DETERMINISTIC=1. `lengths` are the tokens of each sample; the plan
    then counts tokens, and steps take samples of similar length. `options` go to the torch
    DataLoader.

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
        lengths: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        self._model = model
        self._ranks = dist.get_world_size(group)
        moves = online and os.environ.get("HETCCL_DETERMINISTIC", "") in ("", "0")
        reason = why_not_measured(model, group) if online else ""
        facts: dict[str, Any] = {}
        try:
            _check(plan, self._ranks, options)
            self._sampler = BatchSampler(
                len(dataset),  # type: ignore[arg-type]
                plan, dist.get_rank(group),
                shuffle=shuffle, seed=seed, drop_last=drop_last, lengths=lengths,
            )  # fmt: skip
            facts = self._sampler.order.facts
            self._data = DataLoader(dataset, batch_sampler=self._sampler, **options)
            facts |= {
                "plan": (plan.batch, plan.accumulation, plan.shares), "online": moves,
                "profiles": digest(repr(plan.profiles).encode()),
                "model": describe_model(model),
            }  # fmt: skip
        except BalanceError as error:
            reason = reason or str(error)
        except Exception as error:  # whatever the data set and torch's DataLoader raise
            reason = reason or f"{type(error).__name__}: {error}"
        check_alike(facts, reason, BalanceError, group)
        self._epoch = self._step = 0
        self._watch = Watch(plan, model, group) if moves else None

    @property
    def plan(self) -> Plan:
        """The plan of the steps to come."""
        return self._sampler.plan

    def __len__(self) -> int:
        """The steps of an epoch."""
        return self._sampler.order.steps

    def __iter__(self) -> Iterator[Step]:
        if self._step == len(self):
            self._epoch, self._step = self._epoch + 1, 0
        self._sampler.resume(self._epoch, self._step)
        data = iter(self._data)
        rank, count = self._sampler.rank, self.plan.accumulation
        for number in range(self._step, len(self)):
            micro_batches = [next(data) for _ in range(count)]
            plan = self._sampler.plan_of(number)
            share = plan.shares[rank]
            size = self._sampler.take_size(number)
            position = self._epoch, self._step = self._epoch, number + 1
            yield Step(
                number, plan.batch, share, micro_batches, self._ranks, self._model,
                self._watch.stopwatch if self._watch else None,
            )  # fmt: skip
            if position != (self._epoch, self._step):
                raise BalanceError(
                    "set_epoch() or load_state_dict() was called within a loop over the loader"
                )
            if self._watch is not None:
                self._balance(self._watch, size)

    def _balance(self, watch: Watch, size: int) -> None:
        changed = watch.end_step(size, self._count_prefetched)
        if changed is not None:
            plan, ahead = changed
            self._sampler.change(plan, self._step + ahead)

    @property
    def _count_prefetched(self) -> int:
        """Returns the number of steps whose samples the DataLoader draws ahead."""
        drawn = self._data.num_workers * (self._data.prefetch_factor or 0)
        return -(-drawn // self._sampler.plan.accumulation)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. If that epoch is under way, it continues. Not collective."""
        if epoch != self._epoch or self._step == len(self):
            self._epoch, self._step = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the next step of the job, for a checkpoint: the same on all ranks. Not
        collective."""
        is_over = self._step == len(self)
        epoch, step = (self._epoch + 1, 0) if is_over else (self._epoch, self._step)
        return {"epoch": epoch, "step": step, **self._sampler.order.facts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues another job, whose number of ranks and shares may have been different.

        Every rank must load the state. Raises BalanceError if its data, batch, order or seed were
        different. Not collective.
        """
        if not {"epoch", "step", *self._sampler.order.facts} <= state.keys():
            raise BalanceError("the state is none of a balance.Loader: it lacks entries")
        for name, value in self._sampler.order.facts.items():
            if state.get(name) != value:
                raise BalanceError(
                    f"{name} was {state.get(name)!r} where the state was saved, and is {value!r}"
                )
        epoch, step = state.get("epoch"), state.get("step")
        if not isinstance(epoch, int) or not isinstance(step, int):
            raise BalanceError(f"epoch and step are {epoch!r} and {step!r}: no state of a loader")
        self._sampler.resume(epoch, step)
        self._epoch, self._step = epoch, step


def _check(plan: Plan, ranks: int, options: dict[str, Any]) -> None:
    """Raises BalanceError for arguments of a Loader that do not belong together."""
    if plan.size != ranks:
        raise BalanceError(f"the plan has {plan.size} ranks, but the group {ranks}")
    if not options.get("in_order", True):
        raise BalanceError("in_order is False, but micro-batches of a step belong together")
    for name in ("batch_size", "sampler", "batch_sampler"):
        if name in options:
            raise BalanceError(f"{name} is no option: the plan says which samples a rank takes")


def total(count: int, group: dist.ProcessGroup | None = None) -> int:
    """Returns the sum of the ranks' counts, such as tokens of a step. Collective."""
    return sum(gather(count, group))
