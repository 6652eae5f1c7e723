"""One process of bench/gpu_tuning.py: a rank that trains a GPT step by step, and tells each step's
time and loss, and what hetccl's tuning has found.

It joins its group when it is asked to begin: what tuning may lose counts from its first call on,
and what it knows is read before that. Needs torch and hetccl.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from gpu_training_worker import Training, training_arguments
from gpu_worker import Answer, serve, wait_until
from torch import Tensor

TEXTS = 16  # that are read in turns, so that no step waits for a copy


class Marks:
    """Moments of the device's stream, or of the host."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.marks: list[Any] = []

    def add(self) -> None:
        """Now; on a GPU, when it comes to here."""
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def spans(self) -> list[float]:
        """Milliseconds between each and the next, all of which have passed."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        if self.on_gpu:
            return [a.elapsed_time(b) for a, b in pairs]
        return [1e3 * (b - a) for a, b in pairs]


class Tuned:
    """A rank."""

    training: Training
    texts: list[Tensor]

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.steps = 0

    def ready(self) -> Answer:
        """There is nothing to tell yet."""
        return {}

    def begin(self, tokens: int) -> Answer:
        """Joins, makes the model, and tells what the parent prints."""
        self.training = Training(self.options)
        self.texts = [self.training.read(i, tokens) for i in range(TEXTS)]
        return self.training.rested(self.training.ready())

    def train(self, times: int, at: float) -> Answer:
        """Milliseconds and this rank's loss of each of the next steps."""
        training = self.training
        losses = []
        training.synchronize()
        wait_until(at)
        marks = Marks(training.on_gpu)
        marks.add()
        for _ in range(times):
            losses.append(training.step(self.texts[self.steps % TEXTS]))
            self.steps += 1
            marks.add()
        training.synchronize()
        return training.rested({"ms": marks.spans(), "losses": torch.stack(losses).tolist()})

    def tuning(self) -> Answer:
        """What rank 0 knows of it."""
        group: Any = dist.group.WORLD
        known: Answer = json.loads(group._get_backend(self.training.device).tuning())
        return known

    def end(self) -> Answer:
        """Leaves the process group, if it is in one."""
        return self.training.end() if dist.is_initialized() else {}


def main() -> int:
    """A rank of hetccl's."""
    return serve(Tuned, training_arguments().parse_args())


if __name__ == "__main__":
    sys.exit(main())
