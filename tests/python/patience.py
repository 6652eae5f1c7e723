"""Decides by the environment how long tests wait, and how much of a matrix they run.

HETCCL_TEST_PATIENCE (1 or more) says how many times slower than usual this machine is; tools/test
measures it. HETCCL_TEST_SCALE (10 or more) runs matrices whole, as `make soak` does.
"""

import os
import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

FACTOR = max(1.0, float(os.environ.get("HETCCL_TEST_PATIENCE", "1")))
HANG = 300.0  # seconds: only a test that hangs takes so long
COLLECTIVE = 120.0  # seconds that a collective may take, so that ranks tell of a hang themselves
PROMPT = 60.0  # seconds within which ranks learn of a failure: before a collective's time is up
WHOLE = float(os.environ.get("HETCCL_TEST_SCALE", "1")) >= 10


def seconds(short: float) -> float:
    """A time that must pass in a test: `short` on a usual machine, longer on a slower one."""
    return short * FACTOR


def milliseconds(short: float) -> str:
    """The same for a setting."""
    return str(round(short * FACTOR))


def lengthen_timeouts() -> None:
    """Lets ranks on a slower machine wait longer for each other."""
    if FACTOR > 1:
        for name, usual in (("HETCCL_LIVENESS_MS", 5000), ("HETCCL_INIT_TIMEOUT_MS", 60_000)):
            os.environ.setdefault(name, milliseconds(usual))


def sample(cases: Iterable[Case], count: int, seed: int = 1) -> list[Case]:
    """`count` of the cases in their order, the same ones in each run; all of them at full scale."""
    every = list(cases)
    if WHOLE or count >= len(every):
        return every
    chosen = set(random.Random(seed).sample(range(len(every)), count))
    return [case for place, case in enumerate(every) if place in chosen]


def mostly_long(cases: Iterable[Case], count: int) -> list[Any]:
    """All cases, of which the first `count` belong to `make test` and the others to `make long`."""
    every = list(cases)
    later = [
        pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.long)
        for case in every[count:]
    ]
    return every[:count] + later


def selected(cases: Iterable[Case], count: int, is_kept: Callable[[Case], bool]) -> list[Case]:
    """The `count` cases that `is_kept` keeps; all of them at full scale."""
    every = list(cases)
    kept = [case for case in every if is_kept(case)]
    assert len(kept) == count, kept
    return every if WHOLE else kept


def share(cases: Iterable[Case], index: int, parts: int) -> list[Case]:
    """One of `parts` shares, which together are all the cases; all of them at full scale."""
    every = list(cases)
    return every if WHOLE else every[index % parts :: parts]
