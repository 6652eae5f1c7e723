"""Work in several steps, each of which begins a collective and waits for it later."""

from __future__ import annotations

import collections
from collections.abc import Generator, Iterable

import torch
import torch.distributed as dist

# Yields what it waits for: a collective that it has begun. TensorSteps return a tensor.
Steps = Generator[dist.Work, None, None]
TensorSteps = Generator[dist.Work, None, torch.Tensor]


class Pipeline:
    """Runs several of them in an order that is the same on all ranks.

    When one begins, the one before it goes on to its second step, whose collective then runs
    beside the first one's. Not thread-safe.
    """

    def __init__(self) -> None:
        self._running: collections.deque[tuple[Steps, dist.Work]] = collections.deque()
        self._begun: tuple[Steps, dist.Work] | None = None

    def begin(self, steps: Steps) -> None:
        """Takes the first step."""
        self._take_begun()
        self._begun = _advance(steps)

    def _take_begun(self) -> None:
        if self._begun is None:
            return
        steps, work = self._begun
        self._begun = None
        work.wait()
        if following := _advance(steps):
            self._running.append(following)

    def finish(self) -> None:
        """Takes all steps that are left."""
        self._take_begun()
        while self._running:
            _finish(*self._running.popleft())


def _advance(steps: Steps) -> tuple[Steps, dist.Work] | None:
    work = next(steps, None)
    return None if work is None else (steps, work)


def _finish(steps: Steps, work: dist.Work) -> None:
    work.wait()
    for following in steps:
        following.wait()


def run_all(work: Iterable[Steps], depth: int) -> None:
    """Runs all, of which at most `depth` have begun at any time."""
    running: collections.deque[tuple[Steps, dist.Work]] = collections.deque()
    for steps in work:
        if begun := _advance(steps):
            running.append(begun)
        if len(running) == depth:
            _finish(*running.popleft())
    while running:
        _finish(*running.popleft())
