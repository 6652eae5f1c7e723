"""Decides when the shares of a running job change, and to which values."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from hetccl.balance.planner import Plan, plan

WINDOW = 10  # steps whose times are compared
GAIN = 1.03  # at least so much faster must new shares be
_LONGEST = 1000  # steps of a window
_COST = 0.01  # of a step's time, at most, for agreeing
_WEIGHT = 0.5  # of the newest window
_JUMP = 1.25  # a time that differs so much from the mean is a new state of the device


@dataclasses.dataclass(frozen=True)
class Report:
    """The times that a rank reports to the others after a window of steps.

    `slowness` is the median of the steps' seconds of computation over what the rank's profile says
    for its share of that step; None if no step was measured. `step` is the mean of the steps' whole
    seconds, `cost` the seconds that the last exchange of reports took. `ahead` counts the steps
    whose samples the rank's DataLoader has drawn already.
    """

    slowness: float | None
    step: float
    cost: float
    ahead: int


class Balancer:
    """Moving averages of the ranks' compute time, and the plan that follows from them.

    Pure: all ranks add the same reports, so all of them decide alike.
    """

    def __init__(self, start: Plan) -> None:
        self.plan = start
        self.window = WINDOW
        self._profiles = start.profiles
        self._factors: list[float] = []  # how many times as long as its profile a rank takes

    def add_reports(self, reports: Sequence[Report]) -> Plan | None:
        """Takes in the reports of a window, by rank. Returns the plan to change to, or None."""
        newest = [report.slowness or 0.0 for report in reports]
        if min(newest) <= 0:
            return None
        self._average(newest)
        step = max(statistics.median(report.step for report in reports), 1e-9)
        cost = min(report.cost for report in reports)  # whoever came last has waited for nobody
        self.window = min(max(WINDOW, math.ceil(cost / (_COST * step))), _LONGEST)
        pairs = zip(self._profiles, self._factors, strict=True)
        profiles = [profile.slower(factor) for profile, factor in pairs]
        now = dataclasses.replace(self.plan, profiles=tuple(profiles))
        then = plan(profiles, now.batch, now.accumulation)
        if now.slowest < GAIN * then.slowest:
            return None
        self.plan = then
        return then

    def _average(self, newest: list[float]) -> None:
        if not self._factors:
            self._factors = newest
            return
        for rank, (mean, value) in enumerate(zip(self._factors, newest, strict=True)):
            jumped = not 1 / _JUMP < value / mean < _JUMP
            self._factors[rank] = value if jumped else mean + _WEIGHT * (value - mean)
