"""One process of bench/gpu_balance.py: a rank that profiles a model, and trains it by shares."""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.distributed as dist
from gpu_training_worker import Training, training_arguments
from gpu_worker import Answer, serve
from models import Model
from torch import Tensor
from torch.utils.data import Dataset

from hetccl import balance

WARM_UPS = 3


class Rows(Dataset[Tensor]):
    """A data set of `samples` samples, of which a few are in the device's memory."""

    def __init__(self, rows: Tensor, samples: int) -> None:
        self._rows, self._samples = rows, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Tensor:
        return self._rows[index % len(self._rows)]


class Balanced(Training):
    """One rank. Sizes are in samples, each as long as the model's context."""

    profiles: list[balance.Profile]

    def profile(self, limit: int) -> Answer:
        """Profiles the model unsharded, for micro-batches of up to so many samples."""
        begin = time.perf_counter()
        with self.device:
            network = Model(self.shape, recompute=self.recompute)
        rows = self.read(0, limit * self.shape.context)

        def run(size: int) -> None:
            with torch.autocast(self.device.type, dtype=self.type):
                loss = network(rows[:size])
            loss.backward()

        self.profiles = balance.profile(network, run, limit)
        told = [profile.to_values() for profile in self.profiles]
        return self.rested({"seconds": time.perf_counter() - begin, "profiles": told})

    def train(self, batch: int, shares: str, times: int, count: int = 1) -> Answer:
        """Returns the median seconds of a step of `batch` samples, and the shares: those of
        "profiles", or "equal" ones in so many micro-batches.
        """
        plan = balance.divide_evenly(dist.get_world_size(), batch, count)
        if shares == "profiles":
            plan = balance.plan(self.profiles, batch)
        rows = self.read(0, 4 * self.shape.context)
        loader = balance.Loader(Rows(rows, batch * (times + WARM_UPS)), plan, self.model)
        seconds, begin = [], time.perf_counter()
        for step in loader:
            for text in step:
                self.backward(step.weigh(self.forward(text) * len(text)))
            self.update()
            self.synchronize()
            now = time.perf_counter()
            seconds.append(now - begin)
            begin = now
        taken = statistics.median(seconds[WARM_UPS:])
        return self.rested({"seconds": taken, "shares": plan.shares, "count": plan.accumulation})


def main() -> int:
    """A rank."""
    return serve(Balanced, training_arguments().parse_args())


if __name__ == "__main__":
    sys.exit(main())
