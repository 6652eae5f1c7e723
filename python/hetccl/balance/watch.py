"""A running job's compute time, and new shares that follow from it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from hetccl.balance.agreement import gather
from hetccl.balance.models import is_fsdp, module_of
from hetccl.balance.online import Balancer, Report
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError
from hetccl.balance.stopwatch import Stopwatch


class Watch:
    """Measures this rank's steps, and agrees with the other ranks on new shares. Not thread-safe.

    Raises BalanceError where the computation of `model` cannot be measured.
    """

    def __init__(self, plan: Plan, model: Any, group: dist.ProcessGroup | None) -> None:
        self.stopwatch = Stopwatch(_device_of(model))
        self._balancer = Balancer(plan)
        self._group = group
        self._steps: list[list[Any]] = []  # the passes of each, where all had an end
        self._taken = 0
        self._begin = time.perf_counter()  # of the window
        self._cost = 0.0

    def end_step(self, ahead: int) -> tuple[Plan, int] | None:
        """Returns the plan to change to, and after how many steps; None for no change.

        `ahead` is the number of steps whose samples this rank has drawn already. Collective.
        """
        passes = self.stopwatch.take()
        if passes is not None:
            self._steps.append(passes)
        self._taken += 1
        if self._taken < self._balancer.window:
            return None
        reports = self._exchange(ahead)
        for rank, one in enumerate(reports):
            if one.compute <= 0:
                raise BalanceError(
                    f"online: rank {rank} has called backward() of no step.weigh(loss) lately, so "
                    "its computation cannot be measured"
                )
        plan = self._balancer.hear(reports)
        return None if plan is None else (plan, max(one.ahead for one in reports))

    def _exchange(self, ahead: int) -> list[Report]:
        """The reports of all ranks on the window that ends now. Collective."""
        self.stopwatch.synchronize()  # a GPU is behind the host: its work is no cost of this
        now = time.perf_counter()
        times = [self.stopwatch.seconds(passes) for passes in self._steps]
        compute = statistics.median(times) if times else 0.0
        report = Report(compute, (now - self._begin) / self._taken, self._cost, ahead)
        reports = gather(report, self._group)
        self._begin = time.perf_counter()
        self._cost = self._begin - now
        self._steps, self._taken = [], 0
        return reports


def _device_of(model: Any) -> torch.device:
    module = module_of(model)
    if module is None:
        raise BalanceError("online: give the model whose computation is to be measured")
    device = next(module.parameters()).device
    if device.type != "cpu" and is_fsdp(module):
        raise BalanceError(
            "online: FSDP2 on a GPU waits for other ranks in the middle of its computation, which "
            "cannot be told apart: profile the model before it is sharded"
        )
    return device
