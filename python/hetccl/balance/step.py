"""One step of a balanced job."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from hetccl.balance.models import add_up
from hetccl.balance.profiles import BalanceError
from hetccl.balance.stopwatch import Stopwatch


class Step:
    """The micro-batches of one rank for one step. Iterate over it once; not thread-safe::

        for step in loader:
            for inputs, targets in step:
                loss = cross_entropy(model(inputs), targets, reduction="sum")
                step.weigh(loss).backward()
            optimizer.step()
            optimizer.zero_grad()

    `number` counts the epoch's steps from 0. `samples` is the number of samples of all ranks,
    `share` that of this rank, which `micro_batches` hold.
    """

    def __init__(
        self,
        number: int,
        samples: int,
        share: int,
        micro_batches: list[Any],
        ranks: int,
        model: Any = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.number = number
        self.samples = samples
        self.share = share
        self.micro_batches = micro_batches
        self._ranks = ranks
        self._model = model
        self._stopwatch = stopwatch
        self._taken = self._weighed = False

    def __iter__(self) -> Iterator[Any]:
        """Yields the micro-batches. The model's gradients are only added up in the backward passes
        of all but the last, which exchanges them. Raises BalanceError the second time."""
        if self._taken:
            raise BalanceError(
                f"step {self.number} has been iterated over before; step.micro_batches is a list"
            )
        self._taken = True
        last = len(self.micro_batches) - 1
        for index, micro_batch in enumerate(self.micro_batches):
            with contextlib.nullcontext() if index == last else add_up(self._model):
                if self._stopwatch is not None:
                    self._stopwatch.begin()
                yield micro_batch
        if self.micro_batches and not self._weighed:
            warnings.warn(
                f"step {self.number} of a balanced job has called step.weigh(loss) for no "
                "micro-batch: gradients are not those of the mean over all ranks' samples",
                stacklevel=2,
            )

    def weigh(self, loss: torch.Tensor, total: int | float | None = None) -> torch.Tensor:
        """Returns the loss to call backward() on. The gradients of the step then are those of the
        mean over the samples of all ranks, although the ranks' shares differ.

        `loss` is the sum, not the mean, over the micro-batch. `total` is the divisor of the mean,
        if it is not the number of the step's samples: for example the tokens of all ranks and
        micro-batches (`hetccl.balance.total`). The model must average its gradients over the
        loader's ranks, as DDP, FSDP2 and hetccl.sharding do.
        """
        if total is not None and not total > 0:
            raise BalanceError(f"total is {total}: a mean needs samples or tokens")
        self._weighed = True
        weighed = loss * (self._ranks / (self.samples if total is None else total))
        if self._stopwatch is not None and weighed.requires_grad:
            self._stopwatch.end_with(weighed)
        return weighed
