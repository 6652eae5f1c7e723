"""Plans of transfers between unlike caches: which bytes go straight, which cells are packed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetccl.kv.description import Description, Layer, check_joinable
from hetccl.kv.errors import KvError
from hetccl.kv.pieces import Pieces, join_pieces, make_pieces, merge_parts
from hetccl.kv.shares import Share, overlap
from hetccl.kv.wire import Segment, Wire, choose_wire

LEAST_PIECE = 2048  # bytes: shorter pieces cost more than a copy through staging
_NO_PIECES = np.empty((0, 5), np.int64)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A transfer of some layers, heads and tokens from one source to one target.

    `pieces`, int64 [n, 5], are source region, offset, target region, offset and bytes of copies
    without staging; regions are the descriptions' ids. `direct` are the cells that they carry.
    `packed` are the cells that travel in the wire order, in that order, encoded as `wire` says.
    """

    pieces: Pieces
    direct: tuple[Segment, ...]
    packed: tuple[Segment, ...]
    wire: Wire

    @property
    def direct_bytes(self) -> int:
        """Bytes of the pieces."""
        return int(self.pieces[:, 4].sum())

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed cells on the wire."""
        return sum(self.wire.bytes_of(segment) for segment in self.packed)


def plan(
    source: Description,
    target: Description,
    source_blocks: Sequence[int] | NDArray[np.int64],
    target_blocks: Sequence[int] | NDArray[np.int64],
    tokens: tuple[int, int],
    layers: Iterable[int] | None = None,
    *,
    shares: Sequence[Share] | None = None,
    encoding: str = "",
    least_bytes: int = LEAST_PIECE,
) -> Plan:
    """Plans the transfer of `tokens`, [first, last), of one request.

    Pure: both ends make the same plan from the same arguments. Entry i of a block table is the
    block of tokens [i * block_size, (i + 1) * block_size); entries that hold none of `tokens` may
    be -1. `shares` are the layers and heads to send (see `hetccl.kv.divide`), by default all that
    both ends hold; `layers` restricts them.

    A layer goes direct if its elements have the same bytes at both ends and its pieces, neighbours
    joined, have `least_bytes` on average. Otherwise it is packed. With `encoding` ("int8" or
    "e4m3") all is packed. Raises KvError for ends that cannot be joined, and names a block that is
    missing, out of range or listed twice.
    """
    planner = Planner(
        source, target, source_blocks, target_blocks, tokens,
        encoding=encoding, least_bytes=least_bytes,
    )  # fmt: skip
    wanted = overlap(source, target) if shares is None else tuple(shares)
    if layers is not None:
        chosen = {*layers}
        wanted = tuple(share for share in wanted if share.layer in chosen)
    return planner.plan(wanted)


def _check_share(share: Share, *ends: Description) -> None:
    for end in ends:
        if not end.heads[0] <= share.first < share.last <= end.heads[1]:
            raise KvError(
                f"heads {share.first} to {share.last - 1} of layer {share.layer}: {end.name} holds "
                f"{end.heads[0]} to {end.heads[1] - 1}"
            )


def place_tokens(
    end: Description, blocks: Sequence[int] | NDArray[np.int64], tokens: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the block and the place in it of each token, int64 [tokens]. Raises KvError that
    names a block which the table or the cache lacks."""
    first, last = tokens
    table = np.asarray(blocks, np.int64)
    numbers = np.arange(first, last, dtype=np.int64)
    entries = numbers // end.block_size
    if last > first and entries[-1] >= len(table):
        raise KvError(
            f"{end.name}: token {last - 1} needs {int(entries[-1]) + 1} blocks of "
            f"{end.block_size}, and the table has {len(table)}"
        )
    found = table[entries]
    if len(found) and (found.min() < 0 or found.max() >= end.n_blocks):
        wrong = found[(found < 0) | (found >= end.n_blocks)][0]
        raise KvError(f"{end.name}: block {wrong} of {end.n_blocks} in the table")
    return found, numbers - entries * end.block_size


class _Tokens:
    """The places of a plan's tokens at one end."""

    def __init__(
        self,
        end: Description,
        blocks: Sequence[int] | NDArray[np.int64],
        tokens: tuple[int, int],
        is_written: bool = False,
    ) -> None:
        self.first, self.last = tokens
        self.blocks, self.places = place_tokens(end, blocks, tokens)
        if is_written:
            entries = np.asarray(blocks, np.int64)
            used = entries[tokens[0] // end.block_size : -(-tokens[1] // end.block_size)]
            if len(np.unique(used)) < len(used):
                raise KvError(f"{end.name}: the table lists a block twice: {used.tolist()[:20]}")

    def offsets(self, layer: Layer, part: int) -> NDArray[np.int64]:
        """Returns the offset of each token from the layout's, in bytes."""
        layout = layer.parts[part]
        return self.blocks * layout.block + layout.token_offsets()[self.places]


class Planner:
    """Plans the same tokens of one request layer by layer: layers with equal strides share the
    work. The arguments are those of `plan`, and so are the errors. Not thread-safe."""

    def __init__(
        self,
        source: Description,
        target: Description,
        source_blocks: Sequence[int] | NDArray[np.int64],
        target_blocks: Sequence[int] | NDArray[np.int64],
        tokens: tuple[int, int],
        *,
        encoding: str = "",
        least_bytes: int = LEAST_PIECE,
    ) -> None:
        check_joinable(source, target)
        first, last = tokens
        if not 0 <= first <= last:
            raise KvError(f"tokens are {tokens}: they must be [first, last)")
        self.tokens = tokens
        self._wire = choose_wire(source, target, encoding)
        self._ends = (source, target)
        self._tables = (source_blocks, target_blocks)
        self._places: tuple[_Tokens, _Tokens] | None = None  # until they are needed
        self._least = least_bytes
        self._has_equal_bytes = source.dtype == target.dtype and not encoding
        self._known: dict[object, Pieces | None] = {}

    def plan(self, shares: Sequence[Share]) -> Plan:
        """Returns the plan of these shares."""
        if self.tokens[0] == self.tokens[1] or not shares:
            return Plan(_NO_PIECES, (), (), self._wire)
        self._place()
        pieces: list[Pieces] = []
        direct: list[Segment] = []
        packed: list[Segment] = []
        for share in sorted(shares, key=lambda one: (one.layer, one.first)):
            source, target = self._ends
            _check_share(share, source, target)
            pair = (source.layer(share.layer), target.layer(share.layer))
            cells = [
                Segment(share.layer, part, *self.tokens, share.first, share.last)
                for part in range(len(source.head_sizes))
            ]
            found = None
            if self._has_equal_bytes and pair[0].scales == pair[1].scales:
                found = self._pieces_of(share, pair)
            if found is None:
                packed += cells
            else:
                pieces.append(found)
                direct += cells
        joined = pieces[0] if len(pieces) == 1 else _NO_PIECES
        if len(pieces) > 1:
            joined = join_pieces(np.concatenate(pieces))
        return Plan(joined, tuple(direct), tuple(packed), self._wire)

    def _place(self) -> None:
        if self._places is not None:
            return
        source, target = self._ends
        if source is target:
            raise KvError(f"{source.name}: source and target are one cache")
        self._places = (
            _Tokens(source, self._tables[0], self.tokens),
            _Tokens(target, self._tables[1], self.tokens, is_written=True),
        )

    def _pieces_of(self, share: Share, pair: tuple[Layer, Layer]) -> Pieces | None:
        """Returns the pieces of a share of a layer, or None if they are too short."""
        key = (share.first, share.last, *map(_shape_of, pair))
        if key not in self._known:
            self._known[key] = self._make(share, pair)
        found = self._known[key]
        if found is None:
            return None
        moved: Pieces = found.copy()
        for column, end, layer in zip((0, 2), self._ends, pair, strict=True):
            moved[:, column + 1] += layer.parts[0].offset
            ids = np.array([end.regions[part.region].id for part in layer.parts], np.int64)
            moved[:, column] = ids[found[:, column]]
        return moved

    def _make(self, share: Share, pair: tuple[Layer, Layer]) -> Pieces | None:
        """Returns pieces from the offset of the first part, neighbours joined, with the first part
        that lies in a region in its place."""
        assert self._places is not None
        item = self._ends[0].item_bytes
        n_heads = share.last - share.first
        made: list[Pieces] = []
        total = 0
        for part, group in merge_parts(pair, item):
            if group is None:
                return None  # split dimensions that have no common refinement
            offsets = [
                tokens.offsets(layer, part)
                + (layer.parts[part].offset - layer.parts[0].offset)
                + (share.first - end.heads[0]) * layer.parts[part].head
                for layer, tokens, end in zip(pair, self._places, self._ends, strict=True)
            ]
            heads = (n_heads, pair[0].parts[part].head, pair[1].parts[part].head)
            inner = [layer.parts[part].token_stride for layer in pair]
            found, n_bytes = make_pieces(offsets, inner, [heads, *group], item, self._least)
            if found is None:
                return None
            for column, layer in zip((0, 2), pair, strict=True):
                regions = [one.region for one in layer.parts]
                found[:, column] = regions.index(regions[part])
            made.append(found)
            total += n_bytes
        joined = join_pieces(np.concatenate(made))
        return joined if total >= len(joined) * self._least else None


def _shape_of(layer: Layer) -> object:
    """Returns the strides of a layer and how its parts lie to each other."""
    first = layer.parts[0]
    return tuple(
        (part.strides, part.offset - first.offset, part.region == first.region)
        for part in layer.parts
    )
