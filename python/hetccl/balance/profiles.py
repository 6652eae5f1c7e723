"""Profiles: how long one rank computes for a micro-batch of each size."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from typing import Any

MOST_SAMPLES = 1 << 40
UNITS = ("", "samples", "tokens")


class BalanceError(ValueError):
    """A batch cannot be divided into shares, or ranks differ in something that must be equal."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """The compute time of one rank's micro-batches.

    `seconds` holds pairs: a micro-batch's size in samples or tokens, and the seconds of its forward
    and backward pass without any wait for other ranks. Sizes increase. `most` is the largest
    micro-batch that the rank may get, None for no limit. `device` names the device in texts. `unit`
    is "samples" or "tokens", whichever sizes count; "" if either may be meant. Without
    `is_measured` times are only in proportion to those of other ranks.

    Raises BalanceError for sizes and times that are not positive, or not in order.
    """

    seconds: tuple[tuple[int, float], ...]
    most: int | None = None
    device: str = ""
    unit: str = ""
    is_measured: bool = True

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.seconds]
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in itertools.pairwise(sizes)):
            raise BalanceError(f"profile: sizes are {sizes}: they must be positive and increase")
        for size, time in self.seconds:
            if not 0 < time < math.inf:
                raise BalanceError(
                    f"profile: {size} samples take {time} s: times must be positive and finite"
                )
        if self.unit not in UNITS:
            raise BalanceError(f"profile: unit is {self.unit!r}, but must be one of {UNITS}")
        if self.most is not None and self.most < 1:
            raise BalanceError(f"profile: most is {self.most}: a rank must fit one sample")

    def time(self, size: int) -> float:
        """Returns the seconds of a micro-batch. It never decreases with the size.

        Between the sizes that were measured it is linear, beyond the largest proportional.
        """
        if size <= 0:
            return 0.0
        points = self._points
        at = bisect.bisect_left(points, (size,))
        if at == len(points):
            last, its_time = points[-1]
            return its_time * size / last
        (left, earlier), (right, later) = points[at - 1], points[at]
        return earlier + (later - earlier) * (size - left) / (right - left)

    @property
    def best_rate(self) -> float:
        """Samples per second of the fastest micro-batch that was measured."""
        return max(size / time for size, time in self.seconds)

    @functools.cached_property
    def _points(self) -> list[tuple[int, float]]:
        """Returns the points from (0, 0) on. If a measured time falls, the smaller size's was
        noise.
        """
        highest = itertools.accumulate((time for _, time in self.seconds), max)
        return [(0, 0.0), *zip((size for size, _ in self.seconds), highest, strict=True)]

    def slower(self, factor: float) -> Profile:
        """Returns the profile of a device that takes `factor` times as long."""
        return dataclasses.replace(
            self, seconds=tuple((size, time * factor) for size, time in self.seconds)
        )

    def in_tokens(self, length: int) -> Profile:
        """Returns this profile, of samples of `length` tokens, as one that counts tokens."""
        seconds = tuple((size * length, time) for size, time in self.seconds)
        most = self.most and self.most * length
        return dataclasses.replace(self, seconds=seconds, most=most, unit="tokens")

    def in_samples(self, length: int) -> Profile:
        """Returns this profile, which counts tokens, as one of samples of `length` tokens. `most`
        must be at least that."""
        if length == 1:
            return self
        sizes = sorted({max(1, size // length) for size, _ in self.seconds})
        seconds = tuple((size, self.time(size * length)) for size in sizes)
        most = self.most and self.most // length
        return dataclasses.replace(self, seconds=seconds, most=most, unit="samples")

    def to_values(self) -> dict[str, Any]:
        """Returns the profile as values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_values(cls, values: Any) -> Profile:
        """Reads the result of `to_values`. Raises BalanceError for anything else."""
        try:
            seconds = tuple((_integer(size), float(time)) for size, time in values["seconds"])
            most = values.get("most")
            most = None if most is None else _integer(most)
            texts = str(values["device"]), str(values.get("unit", ""))
            return cls(seconds, most, *texts, bool(values.get("is_measured", True)))
        except BalanceError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BalanceError(f"no profile of hetccl.balance: {error!r}") from None


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BalanceError(f"profile: {value!r} must be an integer")
    if value > MOST_SAMPLES:
        raise BalanceError("profile: a size is larger than 2^40")
    return value
