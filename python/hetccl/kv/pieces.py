"""Pieces of memory that are contiguous at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hetccl.kv.description import Layer
from hetccl.kv.layout import Splits

Offsets = NDArray[np.int64]
Pieces = NDArray[np.int64]  # [n, 5]: source region, offset, target region, offset, bytes
Dim = tuple[int, int, int]  # count, stride at the source, stride at the target
# Joined across blocks, pieces may grow. Below 1 / 4 of the least length none is even listed.
_MOST_GROWTH = 4


def join_pieces(pieces: Pieces) -> Pieces:
    """Returns the pieces by source region and offset, neighbours at both ends joined."""
    if len(pieces) < 2:
        return pieces
    ordered = pieces[np.lexsort((pieces[:, 1], pieces[:, 2], pieces[:, 0]))]
    before, after = ordered[:-1], ordered[1:]
    is_next = (
        (before[:, 0] == after[:, 0])
        & (before[:, 2] == after[:, 2])
        & (before[:, 1] + before[:, 4] == after[:, 1])
        & (before[:, 3] + before[:, 4] == after[:, 3])
    )
    starts = np.flatnonzero(np.concatenate(([True], ~is_next)))
    joined = ordered[starts]
    joined[:, 4] = np.add.reduceat(ordered[:, 4], starts)
    return joined


def merge_parts(pair: tuple[Layer, Layer], item: int) -> Iterator[tuple[int, list[Dim] | None]]:
    """Yields each part (0: K or the latent, 1: V) with the dimensions within a head.

    If V lies at the same distances from K at both ends, both become one part with one more
    dimension, so fused caches give whole runs. The dimensions are None if the ends' splits have no
    common refinement.
    """
    if len(pair[0].parts) == 2:
        merged = _merge_pair(pair, item)
        if merged is not None:
            yield 0, merged
            return
    for part in range(len(pair[0].parts)):
        yield part, refine(pair[0].parts[part].dim, pair[1].parts[part].dim)


def _merge_pair(pair: tuple[Layer, Layer], item: int) -> list[Dim] | None:
    between = []
    for layer in pair:
        first, second = layer.parts
        if first.region != second.region or first.strides[:3] != second.strides[:3]:
            return None
        between.append(second.offset - first.offset)
    whole = [part.dim for layer in pair for part in layer.parts]
    if all(len(dim) == 1 and dim[0][1] == item for dim in whole):
        n_first, n_second = whole[0][0][0], whole[1][0][0]
        if between == [n_first * item] * 2:
            return [(n_first + n_second, item, item)]
    if whole[0] != whole[1] or whole[2] != whole[3] or min(between) < 0:
        return None
    dims = refine(whole[0], whole[2])
    return None if dims is None else [*dims, (2, between[0], between[1])]


def refine(source: Splits, target: Splits) -> list[Dim] | None:
    """Returns the coarsest split of a dimension that both ends have, innermost first; None if one
    count divides no other."""
    left, right = list(source), list(target)
    dims: list[Dim] = []
    while left and right:
        (n_left, s_left), (n_right, s_right) = left.pop(), right.pop()
        count = min(n_left, n_right)
        if n_left % count or n_right % count:
            return None
        dims.append((count, s_left, s_right))
        if n_left > count:
            left.append((n_left // count, s_left * count))
        if n_right > count:
            right.append((n_right // count, s_right * count))
    return dims


def make_pieces(
    offsets: Sequence[Offsets], inner: Sequence[int], dims: list[Dim], item: int, least: int
) -> tuple[Pieces | None, int]:
    """Returns the pieces of tokens at `offsets` (source, target; int64 [tokens], in bytes), each of
    which has `dims`, and their bytes together. Columns of regions are 0. Returns no pieces where
    they are far shorter than `least`."""
    source, target = offsets
    is_run = (np.diff(source) == inner[0]) & (np.diff(target) == inner[1])
    starts = np.flatnonzero(np.concatenate(([True], ~is_run)))
    lengths = np.diff(np.append(starts, len(source)))
    n_bytes = len(source) * item
    for count, _, _ in dims:
        n_bytes *= count
    made: list[Pieces] = []
    for length in np.unique(lengths):
        runs = starts[lengths == length]
        rest, size = _merge([*dims, (int(length), inner[0], inner[1])], item)
        if size * _MOST_GROWTH < least and len(runs) > 1:
            return None, n_bytes
        inside = np.zeros((1, 2), np.int64)
        for count, *strides in rest:
            steps = np.arange(count, dtype=np.int64)[:, None] * np.array(strides, np.int64)
            inside = (inside[:, None, :] + steps).reshape(-1, 2)
        pieces = np.zeros((len(runs), len(inside), 5), np.int64)
        pieces[:, :, 1] = source[runs][:, None] + inside[:, 0]
        pieces[:, :, 3] = target[runs][:, None] + inside[:, 1]
        pieces[:, :, 4] = size
        made.append(pieces.reshape(-1, 5))
    return np.concatenate(made), n_bytes


def _merge(dims: list[Dim], item: int) -> tuple[list[Dim], int]:
    """Returns the dimensions that do not continue a run at both ends, and the run's bytes."""
    rest, size = [dim for dim in dims if dim[0] > 1], item
    while True:
        found = next((dim for dim in rest if dim[1] == dim[2] == size), None)
        if found is None:
            return rest, size
        rest.remove(found)
        size *= found[0]
