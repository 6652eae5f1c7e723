"""Layers divided among the stages of a pipeline, so that the slowest takes the least time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from hetccl.parallel.models import ParallelError

_NARROW = 1e-9  # times are the same that differ by less


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of a layer on a stage, and of the embedding and the head, should they lie there."""

    layer: float
    embedding: float = 0.0
    head: float = 0.0


Fits = Callable[[int, int, int], bool]  # stage, first layer, end


def split_layers(layers: int, costs: Sequence[Cost], fits: Fits | None = None) -> list[int] | None:
    """Returns how many layers each stage gets, in the pipeline's order, at least one each.

    No other numbers make the slowest stage faster. Among equally fast ones, neighbours are as even
    as moves of single layers make them. The first stage has the embedding and the last the head
    (paper 001, section 6.2.1: one layer less for each). `fits` tells whether a stage has memory for
    its layers. Returns None if no numbers fit. Raises ParallelError if there are fewer layers than
    stages.
    """
    if not costs:
        raise ParallelError("a pipeline has at least one stage")
    if layers < len(costs):
        raise ParallelError(
            f"a model of {layers} layers cannot be cut into {len(costs)} stages: each needs a layer"
        )
    search = _Search(layers, costs, fits or (lambda stage, first, end: True))
    high = max(search.seconds(stage, 0, layers) for stage in range(len(costs)))
    best = search.divide(high)
    if best is None:
        return None
    low, high = search.least(), search.slowest(best)
    while high > low * (1 + _NARROW):
        found = search.divide(high * (1 - _NARROW))
        if found is None:
            break
        best, high = found, search.slowest(found)
        middle = (low + high) / 2
        found = search.divide(middle)
        if found is None:
            low = middle
        else:
            best, high = found, search.slowest(found)
    return search.even_out(best)


class _Search:
    def __init__(self, layers: int, costs: Sequence[Cost], fits: Fits) -> None:
        self._layers = layers
        self._costs = costs
        self._fits = fits

    def seconds(self, stage: int, first: int, end: int) -> float:
        cost = self._costs[stage]
        taken = (end - first) * cost.layer
        taken += cost.embedding if first == 0 else 0.0
        return taken + (cost.head if end == self._layers else 0.0)

    def least(self) -> float:
        """A lower bound of the time: that of layers which can be cut anywhere."""
        return self._layers / sum(1 / max(cost.layer, 1e-300) for cost in self._costs)

    def slowest(self, counts: Sequence[int]) -> float:
        ends = [0, *itertools.accumulate(counts)]
        return max(self.seconds(stage, *part) for stage, part in enumerate(pairwise(ends)))

    def _may(self, stage: int, first: int, end: int, seconds: float) -> bool:
        return self.seconds(stage, first, end) <= seconds and self._fits(stage, first, end)

    def divide(self, seconds: float) -> list[int] | None:
        """The earlier stages get as many as they can within the time, so the later have least."""
        counts, first = [], 0
        stages = len(self._costs)
        for stage in range(stages):
            low, high = first, self._layers - (stages - 1 - stage)
            while low < high:
                middle = (low + high + 1) // 2
                if self._may(stage, first, middle, seconds):
                    low = middle
                else:
                    high = middle - 1
            if low == first:
                return None
            counts.append(low - first)
            first = low
        return counts if first == self._layers else None

    def even_out(self, counts: list[int]) -> list[int]:
        """Moves one cut after another while that lowers the sum of the times' squares."""
        limit = self.slowest(counts)
        cuts = [0, *itertools.accumulate(counts)]

        def weight(stage: int, cut: int) -> float:
            """The squares of two neighbours cut there; infinite where one may not have its part."""
            parts = ((stage, cuts[stage], cut), (stage + 1, cut, cuts[stage + 2]))
            if not all(first < end and self._may(one, first, end, limit)
                       for one, first, end in parts):  # fmt: skip
                return math.inf
            return sum(self.seconds(*part) ** 2 for part in parts)

        changed = True
        while changed:
            changed = False
            for stage in range(len(counts) - 1):
                now = weight(stage, cuts[stage + 1])
                for step in (1, -1):
                    while (then := weight(stage, cuts[stage + 1] + step)) < now * (1 - _NARROW):
                        cuts[stage + 1] += step
                        now, changed = then, True
        return [end - first for first, end in pairwise(cuts)]
