"""The times of one setting beside the default's, pair by pair, and what they say."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

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
        """How many pairs there are."""
        return len(self.tried)

    @property
    def us(self) -> float:
        """The setting's median."""
        return statistics.median(self.tried)

    @property
    def default_us(self) -> float:
        """The default's median."""
        return statistics.median(self.default)

    def _logarithms(self) -> list[float]:
        pairs = zip(self.tried, self.default, strict=True)
        return [math.log(max(tried, 1e-3) / max(default, 1e-3)) for tried, default in pairs]

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return math.exp(statistics.median(self._logarithms()))

    @property
    def error(self) -> float:
        """Standard error of the ratio's logarithm, from the median distance to the median."""
        logarithms = self._logarithms()
        middle = statistics.median(logarithms)
        distance = statistics.median(abs(one - middle) for one in logarithms)
        # 1.4826 and 1.25: of normally distributed values, from distance to deviation, and from a
        # mean's error to a median's.
        return 1.4826 * distance * 1.25 / math.sqrt(len(logarithms))
