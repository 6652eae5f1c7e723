"""Compares one setting with the default by their times, pair by pair."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from hetccl import _lib

FIRST_PAIRS, MORE_PAIRS, CONFIRMING_PAIRS = 3, 6, 12
HOPELESS = 2.0  # a setting that takes so many times as long is measured no further


@dataclass
class Trial:
    """Pairs of times in microseconds, each the slowest rank's: the default's and the setting's.

    The two alternate, so that a load that comes and goes slows both.
    """

    default: list[float] = field(default_factory=list)
    tried: list[float] = field(default_factory=list)

    def add(self, times: list[float]) -> None:
        """Default's and setting's times in turn."""
        self.default += times[0::2]
        self.tried += times[1::2]

    @property
    def samples(self) -> int:
        """The number of pairs."""
        return len(self.tried)

    @property
    def us(self) -> float:
        """The setting's median."""
        return statistics.median(self.tried)

    @property
    def default_us(self) -> float:
        """The default's median."""
        return statistics.median(self.default)

    def compare(self) -> tuple[float, float]:
        """The ratio of the setting's time to the default's, and its logarithm's standard error."""
        return _lib.compare_times(self.tried, self.default)
