"""Gradients on their way from backward to the rank that owns their part of the optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist

from hetccl.sharding.groups import Group, Groups, average, scatter_sum
from hetccl.sharding.layout import Flat, local_of
from hetccl.sharding.pipeline import Pipeline, Steps, TensorSteps

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


class GradientFlow:
    """The gradients of all flat buffers, and the reductions of them that are under way.

    `crosses` says whether passes go beyond the gradients groups.
    """

    def __init__(self) -> None:
        self.crosses = True
        self._every: list[Gradients] = []
        self._pipeline = Pipeline()
        self._is_watching = False

    def add(self, gradients: Gradients) -> None:
        """Adds those of one more flat buffer: all ranks must do so in the same order."""
        self._every.append(gradients)

    def begin(self, steps: Steps) -> None:
        """Begins a reduction."""
        self._pipeline.begin(steps)

    def watch_backward(self) -> None:
        """Has the gradients of the backward pass that is under way delivered when it ends."""
        if not self._is_watching:
            self._is_watching = True
            # FSDP2 and DistributedDataParallel learn of the end in the same way.
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    @torch.no_grad()
    def _end_backward(self) -> None:
        self._is_watching = False
        for gradients in self._every:
            gradients.reduce()
        self._pipeline.finish()

    @torch.no_grad()
    def finish(self) -> None:
        """Delivers gradients of passes that did not cross, or that failed."""
        self._end_backward()
        for gradients in self._every:
            gradients.cross()
        self._pipeline.finish()

    def drop(self) -> None:
        """Drops gradients that have not been delivered."""
        self._is_watching = False
        self._pipeline.finish()
        for gradients in self._every:
            gradients.drop()

    @property
    def nbytes(self) -> int:
        """The memory of gradients that wait for a pass that crosses."""
        return sum(gradients.nbytes for gradients in self._every)


class Gradients:
    """The gradients of one flat buffer's parameters.

    FSDP2 leaves on each rank its part of each gradient, as the mean over the weights group. When
    all parts are there, this averages their buffer over the gradients group, of which each rank
    keeps one part, and adds the results of former passes. In the last pass it averages that part
    over the optimizer states group, of which each rank again keeps one part, and over the replicas.
    """

    def __init__(
        self,
        flat: Flat,
        groups: Groups,
        is_exact: bool,
        dtype: torch.dtype,
        flow: GradientFlow,
        receive: Callable[[torch.Tensor], None],
    ) -> None:
        self._flat = flat
        names = ("gradients", "optimizer_states", "replicas")
        self._inner, self._outer, self._replicas = (
            groups.exact[name] if is_exact else getattr(groups, name) for name in names
        )
        self._dtype = dtype
        self._flow = flow
        self._receive = receive
        self._buffer: torch.Tensor | None = None
        self._arrived: set[int] = set()
        self._part: torch.Tensor | None = None
        flow.add(self)

    def register_hooks(self) -> None:
        """Takes the gradients from FSDP2 as they come."""
        for index, slot in enumerate(self._flat.slots):
            take = functools.partial(self._take, index)
            slot.parameter.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _take(self, index: int, parameter: DTensor) -> None:
        if index in self._arrived:
            self.reduce()
        self._flow.watch_backward()
        gradient = local_of(cast("DTensor", parameter.grad))
        parameter.grad = None
        if self._buffer is None:
            size, device = self._flat.length, gradient.device
            self._buffer = torch.zeros(size, dtype=self._dtype, device=device)
        offset = self._flat.slots[index].offset
        self._buffer[offset : offset + gradient.numel()] = gradient
        self._arrived.add(index)
        if len(self._arrived) == len(self._flat.slots):
            self.reduce()

    def reduce(self) -> None:
        """Begins to reduce the gradients that have come, zeros in place of others."""
        buffer, self._buffer = self._buffer, None
        self._arrived.clear()
        if buffer is not None:
            self._flow.begin(self._steps(buffer, self._flow.crosses))

    def _steps(self, buffer: torch.Tensor, crosses: bool) -> Steps:
        part = yield from _scatter(buffer, self._inner)
        del buffer
        if self._part is not None:
            part += self._part
        self._part = None if crosses else part
        if crosses:
            yield from self._cross(part)

    def _cross(self, part: torch.Tensor) -> Steps:
        shard = yield from _scatter(part, self._outer)
        del part
        if self._replicas.size > 1:
            yield average(shard, self._replicas)
        self._receive(shard)

    def cross(self) -> None:
        """Begins to reduce gradients of passes that did not cross."""
        if self._part is not None:
            part, self._part = self._part, None
            self._flow.begin(self._cross(part))

    @property
    def nbytes(self) -> int:
        """The memory of gradients that wait for a pass that crosses."""
        return 0 if self._part is None else self._part.nbytes

    def drop(self) -> None:
        """Drops gradients that have not been delivered."""
        self._buffer = self._part = None
        self._arrived.clear()


def _scatter(whole: torch.Tensor, group: Group) -> TensorSteps:
    """Starts to average `whole` over the group; returns this rank's part of the mean."""
    if group.size == 1:
        return whole
    part = whole.new_empty(whole.numel() // group.size)
    yield scatter_sum(part, whole, op=dist.ReduceOp.AVG, group=group.process_group, async_op=True)
    return part
