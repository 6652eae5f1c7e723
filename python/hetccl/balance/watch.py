"""A running job's compute time, and new shares that follow from it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch.distributed as dist

from hetccl.agreement import gather
from hetccl.balance.models import device_of, module_of, waits_inside
from hetccl.balance.online import Balancer, Report
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError
from hetccl.balance.stopwatch import Stopwatch


class Watch:
    """Measures this rank's steps, and agrees with the other ranks on new shares. Not thread-safe.

    `why_not_measured(model, group)` must be "".
    """

    def __init__(self, plan: Plan, model: Any, group: dist.ProcessGroup | None) -> None:
        self.stopwatch = Stopwatch(device_of(model))
        self._balancer = Balancer(plan)
        self._group = group
        self._rank = dist.get_rank(group)
        self._start = plan
        self._steps: list[tuple[list[Any], float]] = []  # passes, and what the profile says of them
        self._taken = 0
        self._begin = time.perf_counter()  # of the window
        self._cost = 0.0

    def end_step(self, size: int, ahead: int) -> tuple[Plan, int] | None:
        """Returns the plan to change to, and after how many steps; None for no change.

        `size` is what this rank has computed in the step, in the samples or tokens that the plan
        counts; `ahead` the number of steps whose samples it has drawn already. Collective.
        """
        passes = self.stopwatch.take()
        if passes is not None:
            self._steps.append((passes, self._start.seconds_of(self._rank, size)))
        self._taken += 1
        if self._taken < self._balancer.window:
            return None
        reports = self._exchange(ahead)
        for rank, one in enumerate(reports):
            if one.slowness is None:
                raise BalanceError(
                    f"online: rank {rank} has called backward() of no step.weigh(loss) lately, so "
                    "its computation cannot be measured"
                )
        plan = self._balancer.add_reports(reports)
        return None if plan is None else (plan, max(one.ahead for one in reports))

    def _exchange(self, ahead: int) -> list[Report]:
        """Returns the reports of all ranks on the window that ends now. Collective."""
        self.stopwatch.synchronize()  # a GPU is behind the host: its work is no cost of this
        now = time.perf_counter()
        found = [self.stopwatch.seconds(passes) / usual for passes, usual in self._steps]
        slowness = statistics.median(found) if found else None
        report = Report(slowness, (now - self._begin) / self._taken, self._cost, ahead)
        reports = gather(report, self._group)
        self._begin = time.perf_counter()
        self._cost = self._begin - now
        self._steps, self._taken = [], 0
        return reports


def why_not_measured(model: Any, group: dist.ProcessGroup | None) -> str:
    """Returns why the computation of `model` cannot be measured, "" if it can."""
    module = module_of(model)
    if module is None or next(module.parameters(), None) is None:
        return "online: give the model whose computation is to be measured"
    on_host = device_of(model).type == "cpu"
    backend = dist.get_backend_config(group)
    if on_host and "hetccl" not in backend:
        return (
            f"online: the group's backend is {backend}, whose waits on hosts cannot be told from "
            "computation: make the group with hetccl"
        )
    if not on_host and waits_inside(module):
        return (
            "online: FSDP2 and ZeRO 2 and 3 on a GPU wait for other ranks in the middle of their "
            "computation, which cannot be told apart: profile the model before it is sharded"
        )
    return ""
