"""Latency and bandwidth of an operation, from the times of its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_SIZES = 3  # of a fit that two points would always pass


@dataclass(frozen=True)
class Fit:
    """The line time = latency + size / bandwidth, as in HetCCL's figure 11 (paper 001)."""

    seconds: float  # latency
    bandwidth: float  # bytes per second; infinite where times do not grow
    r_squared: float
    sizes: int


def fit(points: Sequence[tuple[int, float]]) -> Fit | None:
    """The line through (bytes, seconds); None of less than three sizes.

    Least squares of relative errors: with absolute ones the largest size alone would decide the
    latency. R² is that of the weighted fit.
    """
    used = [(size, seconds) for size, seconds in points if size > 0 and seconds > 0]
    if len({size for size, _ in used}) < LEAST_SIZES:
        return None
    weights = [1 / seconds**2 for _, seconds in used]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, used, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, used, strict=True)) / total
    rows = [(w, x - mean_x, y - mean_y) for w, (x, y) in zip(weights, used, strict=True)]
    slope = sum(w * x * y for w, x, y in rows) / sum(w * x * x for w, x, _ in rows)
    spread = sum(w * y * y for w, _, y in rows)
    left = sum(w * (y - slope * x) ** 2 for w, x, y in rows)
    r_squared = 1 - left / spread if spread > 0 else 1.0
    bandwidth = 1 / slope if slope > 0 else float("inf")
    return Fit(mean_y - slope * mean_x, bandwidth, r_squared, len(used))
