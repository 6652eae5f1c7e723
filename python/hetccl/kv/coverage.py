"""Cells that have arrived: each exactly once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from hetccl.kv.errors import KvError
from hetccl.kv.shares import Share
from hetccl.kv.wire import Segment


class Coverage:
    """Counts the cells of some shares of one request as they arrive. Not thread-safe."""

    def __init__(self, shares: Sequence[Share], tokens: tuple[int, int], n_parts: int) -> None:
        self._heads: dict[int, list[tuple[int, int]]] = {}
        for share in shares:
            self._heads.setdefault(share.layer, []).append((share.first, share.last))
        self._tokens = tokens
        self._n_parts = n_parts
        n_heads = sum(share.last - share.first for share in shares)
        self.expected = n_heads * (tokens[1] - tokens[0]) * n_parts
        self.cells = 0
        self._held: dict[tuple[int, int], list[Segment]] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all cells have arrived."""
        return self.cells == self.expected

    def check(self, segments: Iterable[Segment]) -> None:
        """Raises KvError for cells outside the shares, and for those that are there already."""
        for one in segments:
            heads = self._heads.get(one.layer, [])
            inside = any(a <= one.first_head < one.last_head <= b for a, b in heads)
            first, last = self._tokens
            if (
                not (inside and first <= one.first_token < one.last_token <= last)
                or not 0 <= one.part < self._n_parts
            ):
                raise KvError(f"cells outside the offer: {one}")
            for held in self._held.get((one.layer, one.part), []):
                if _overlaps(held, one):
                    raise KvError(f"cells arrive twice: {one}")

    def add(self, segments: Iterable[Segment]) -> None:
        """Counts cells. Raises KvError as `check` does."""
        for one in segments:
            self.check([one])
            self.cells += one.n_cells
            held = self._held.setdefault((one.layer, one.part), [])
            joined = one
            for other in list(held):
                if _continues(other, joined):
                    held.remove(other)
                    joined = dataclasses.replace(
                        joined,
                        first_token=min(other.first_token, joined.first_token),
                        last_token=max(other.last_token, joined.last_token),
                    )
            held.append(joined)


class Ranges:
    """Tokens of each layer that a prefill has announced. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[int, list[tuple[int, int]]] = {}

    def add(self, layer: int, tokens: tuple[int, int]) -> None:
        """Adds tokens, [first, last). Raises KvError if one was added before."""
        first, last = tokens
        held = self._held.setdefault(layer, [])
        if any(first < b and a < last for a, b in held):
            raise KvError(f"tokens {first} to {last - 1} of layer {layer} were sent before")
        for one in list(held):
            if one[1] == first or one[0] == last:
                held.remove(one)
                first, last = min(first, one[0]), max(last, one[1])
        held.append((first, last))

    def covers(self, layer: int, tokens: tuple[int, int]) -> bool:
        """Returns whether all of `tokens` were added."""
        first, last = tokens
        return first >= last or any(a <= first and last <= b for a, b in self._held.get(layer, []))


def _overlaps(one: Segment, other: Segment) -> bool:
    return (
        one.first_token < other.last_token
        and other.first_token < one.last_token
        and one.first_head < other.last_head
        and other.first_head < one.last_head
    )


def _continues(one: Segment, other: Segment) -> bool:
    """Returns whether both hold the same heads, of tokens that are neighbours."""
    same = (one.first_head, one.last_head) == (other.first_head, other.last_head)
    return same and (one.last_token == other.first_token or other.last_token == one.first_token)
