"""Bounds of the errors that rounding and encodings may cause in a right result.

The bounds of encodings are those of docs/quantised.md; base/encoding.h proves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetccl._elements import unpack
from hetccl._lib import DataType

PERIOD = 61  # of the values that ranks send: prime, so that a misplaced region shows
# The unit roundoff, and the distance between the smallest numbers.
ROUNDING = {
    "float64": (2.0**-53, 0.0), "float32": (2.0**-24, 0.0), "float16": (2.0**-11, 2.0**-24),
    "bfloat16": (2.0**-8, 0.0), "float8_e4m3": (2.0**-4, 2.0**-9),
    "float8_e5m2": (2.0**-3, 2.0**-16),
}  # fmt: skip
# The error of one encoding, as parts of the element and of the largest in its block.
_OF_FORMAT = {
    "int8": (0.0, 1 / 254), "int4": (0.0, 1 / 14), "e4m3": (1 / 16, 1 / 458_752),
    "e5m2": (1 / 8, 1 / 7_516_192_768),
}  # fmt: skip
_ARITHMETIC = 1 + 2.0**-18  # of the few operations in float32 that encode and decode


@dataclass(frozen=True)
class Bound:
    """The error of values that are encoded `times` times. A sum is encoded twice: on the way to
    where it is added up, and on the way back.
    """

    of_element: float
    of_largest: float
    times: int

    def error(self, size: float, largest: float) -> float:
        """Returns the bound for an element of magnitude `size` in a block whose largest element is
        `largest`. For a sum, both are sums of the ranks' magnitudes.
        """
        error = worst = 0.0
        for _ in range(self.times):
            error += self.of_element * (size + error) + self.of_largest * (largest + worst)
            worst += (self.of_element + self.of_largest) * (largest + worst)
        return error * _ARITHMETIC


EXACT = Bound(0.0, 0.0, 0)


def find_bound(encoding: str, times: int) -> Bound:
    """The bound of an encoding by its name: "int8", "int4:64:stochastic"; "": EXACT."""
    if not encoding:
        return EXACT
    name, *options = encoding.split(":")
    scale = 2 if "stochastic" in options else 1
    of_element, of_largest = _OF_FORMAT[name]
    return Bound(scale * of_element, scale * of_largest, times)


def rounding(dtype: DataType, size: float, roundings: int) -> float:
    """The error of so many roundings to a type of floats, of numbers up to `size`."""
    roundoff, least = ROUNDING[dtype.name]
    return roundings * (roundoff * size + least)


def codes_of(elements: bytes | bytearray | memoryview, dtype: DataType) -> memoryview[int]:
    """Elements as unsigned integers of their size."""
    view = memoryview(elements).cast("B")
    if dtype.bytes == 1:
        return view
    return view.cast("H") if dtype.bytes == 2 else view.cast("I" if dtype.bytes == 4 else "Q")


@dataclass(frozen=True)
class Expected:
    """The expectation for `count` elements of a result, from position `first` of the values on:
    each must be within `slack` of the `exact` value of its position.
    """

    first: int
    count: int
    exact: Callable[[int], float]
    slack: Callable[[int], float]

    def count_wrong(self, got: bytes | bytearray | memoryview, dtype: DataType) -> int:
        """Counts the elements of `got` that are further away than allowed, or that are no numbers.

        Elements at the same place of the period have few different values, so only those are
        compared.
        """
        codes = codes_of(got, dtype)
        wrong = 0
        for phase in range(min(PERIOD, len(codes))):
            listed = codes[phase::PERIOD].tolist()
            exact, slack = self.exact(self.first + phase), self.slack(self.first + phase)
            distinct = list(set(listed))
            for code, value in zip(distinct, unpack(distinct, dtype), strict=True):
                if not abs(value - exact) <= slack:  # NaN is wrong
                    wrong += listed.count(code)
        return wrong
