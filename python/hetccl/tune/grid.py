"""The settings that a sweep tries for one key: a thinned grid of the library's tuning space."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

Setting = dict[str, Any]  # {"algorithm": name, parameter: value}
Space = dict[str, Any]  # what Communicator.tuning_space returns


def identity(value: dict[str, Any]) -> str:
    """A key or a setting as text: equal for equal ones, whatever the order of their fields."""
    return json.dumps(value, sort_keys=True)


def thin(values: list[int], most: int, keep: int) -> list[int]:
    """At most `most` of the ascending `values`: the ends, `keep`, and others evenly between."""
    if len(values) <= most:
        return values
    kept = values.index(keep)
    last = len(values) - 1
    chosen = {round(i * last / (most - 1)) for i in range(most)} if most > 1 else set()
    if kept not in chosen:
        chosen -= {min(chosen - {0, last}, key=lambda i: abs(i - kept), default=kept)}
        chosen.add(kept)
    return [values[i] for i in sorted(chosen)]


def default_of(space: Space) -> Setting:
    """The setting that the cost model chooses."""
    start: Setting = space["subspaces"][0]["start"]
    return start


def _subspace(subspace: dict[str, Any], points: int) -> Iterator[tuple[int, Setting]]:
    """Yields each setting, with the number of axes on which it differs from the start."""
    start = subspace["start"]
    axes = {name: thin(values, points, start[name]) for name, values in subspace["axes"].items()}
    for values in itertools.product(*axes.values()):
        changed = dict(zip(axes, values, strict=True))
        yield sum(start[name] != value for name, value in changed.items()), {**start, **changed}


def settings(space: Space, points: int) -> list[Setting]:
    """The thinned grid, `points` values an axis; the default first, then what differs least.

    A sweep whose time runs out has then measured along each axis, before combinations of them.
    """
    near = [pair for subspace in space["subspaces"] for pair in _subspace(subspace, points)]
    return [setting for _, setting in sorted(near, key=lambda pair: pair[0])]
