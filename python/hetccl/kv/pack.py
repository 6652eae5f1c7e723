"""Gathers cells of a cache into the wire order, and scatters them from it."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hetccl.kv.codes import BITS, TORCH_TYPES, convert, decode, encode
from hetccl.kv.describe import Caches, storages
from hetccl.kv.description import Description
from hetccl.kv.errors import KvError
from hetccl.kv.layout import Layout, Splits
from hetccl.kv.plan import place_tokens
from hetccl.kv.wire import Segment, Wire

Blocks = Sequence[int] | NDArray[np.int64]


class Cache:
    """One end's cache: its description, and the memory that it describes.

    `caches` are the tensors given to `describe`. Gathers and scatters run as torch operations on
    the tensors' device, on its current stream. Thread-safe as far as callers use different cells.
    Raises KvError where the memory is smaller than described.
    """

    def __init__(self, description: Description, caches: Caches) -> None:
        self.description = description
        self.storages = storages(caches)
        sizes = [one.numel() for one in self.storages]
        if len(sizes) != len(description.regions) or any(
            size < region.bytes for size, region in zip(sizes, description.regions, strict=True)
        ):
            raise KvError(f"{description.name}: the tensors are not those that it describes")
        # Integers stand for elements: bits are moved, whatever the type.
        bits = BITS[description.item_bytes]
        whole = [one[: one.numel() // bits.itemsize * bits.itemsize] for one in self.storages]
        self._elements = [one.view(bits) for one in whole]

    @property
    def device(self) -> torch.device:
        """The device of the cache."""
        return self.storages[0].device

    def gather(self, blocks: Blocks, segment: Segment) -> torch.Tensor:
        """Returns the cells of `segment` as [tokens, heads, head size] of the cache's type.
        `blocks` is the request's table, as in `hetccl.kv.plan.plan`."""
        return self.gather_alike(blocks, [segment])[0]

    def gather_alike(self, blocks: Blocks, segments: Sequence[Segment]) -> torch.Tensor:
        """Returns the cells of segments of equal tokens, heads and head sizes as [segments, tokens,
        heads, head size]. Segments that lie evenly in one region take one gather together."""
        first = segments[0]
        shape = (first.n_tokens, first.n_heads, self.description.head_sizes[first.part])
        tokens = _Tokens(self, blocks, first)
        found = [
            tokens.read(self._view(run), self._layout(run[0])).reshape(len(run), *shape)
            for run in self._runs(segments)
        ]
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return whole.view(TORCH_TYPES[self.description.dtype])

    def scatter(self, blocks: Blocks, segment: Segment, values: torch.Tensor) -> None:
        """Writes `values`, [tokens, heads, head size] of the cache's type, to the cells of
        `segment`."""
        self.scatter_alike(blocks, [segment], values.unsqueeze(0))

    def scatter_alike(
        self, blocks: Blocks, segments: Sequence[Segment], values: torch.Tensor
    ) -> None:
        """Writes `values`, as `gather_alike` returns them."""
        bits = values.contiguous().view(BITS[self.description.item_bytes]).to(self.device)
        tokens = _Tokens(self, blocks, segments[0])
        at = 0
        for run in self._runs(segments):
            tokens.write(self._view(run), self._layout(run[0]), bits[at : at + len(run)])
            at += len(run)

    def _runs(self, segments: Sequence[Segment]) -> Iterator[list[Segment]]:
        """Yields neighbours of equal strides that lie in one region at equal distances."""
        run: list[Segment] = []
        for segment in segments:
            if run and not self._continues(run, segment):
                yield run
                run = []
            run.append(segment)
        yield run

    def _continues(self, run: list[Segment], segment: Segment) -> bool:
        before, one = self._layout(run[-1]), self._layout(segment)
        step = one.offset - before.offset
        is_even = step >= 0 and (len(run) == 1 or step == self._step(run))
        return is_even and (before.region, before.strides) == (one.region, one.strides)

    def _step(self, run: list[Segment]) -> int:
        return self._layout(run[1]).offset - self._layout(run[0]).offset if len(run) > 1 else 0

    def _layout(self, segment: Segment) -> Layout:
        return self.description.layer(segment.layer).parts[segment.part]

    def _view(self, run: list[Segment]) -> torch.Tensor:
        """Returns the segments' layouts as one view [segment, block, token..., head, dim...], of
        the heads of the first."""
        one, segment = self.description, run[0]
        first = segment.first_head - one.heads[0]
        if not 0 <= first < first + segment.n_heads <= one.n_held:
            raise KvError(f"{one.name} does not hold all heads of {segment}")
        layout = self._layout(segment)
        dims = [(len(run), self._step(run)), *layout.dims(one.n_blocks, segment.n_heads)]
        return self._elements[layout.region].as_strided(
            [count for count, _ in dims],
            [stride // one.item_bytes for _, stride in dims],
            (layout.offset + first * layout.head) // one.item_bytes,
        )


class _Tokens:
    """A segment's tokens of a request in views of `Cache._view`."""

    def __init__(self, cache: Cache, blocks: Blocks, segment: Segment) -> None:
        self._device = cache.device
        size, first, last = cache.description.block_size, segment.first_token, segment.last_token
        self._size = size
        self._table, self._places = place_tokens(cache.description, blocks, (first, last))
        begin, end = first // size, -(-last // size)
        self._kept = slice(first - begin * size, last - begin * size)
        # Whole blocks are gathered several times as fast as tokens, unless most would be dropped.
        self._blocks: torch.Tensor | None = None
        if segment.n_tokens * 2 >= (end - begin) * size:
            self._blocks = self._send(np.array(blocks[begin:end], np.int64))
        self._indexes: dict[Splits, tuple[slice | torch.Tensor, ...]] = {}

    def read(self, view: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Returns the tokens as [segments, tokens, heads, dim...]."""
        if self._blocks is None:
            return view[self._index(layout)]
        found = view.index_select(1, self._blocks)
        return found.flatten(1, 1 + len(layout.token))[:, self._kept]

    def write(self, view: torch.Tensor, layout: Layout, values: torch.Tensor) -> None:
        """Writes the tokens, [segments, tokens, heads, head size]."""
        shape = (*values.shape[:3], *view.shape[3 + len(layout.token) :])
        view[self._index(layout)] = values.reshape(shape)

    def _index(self, layout: Layout) -> tuple[slice | torch.Tensor, ...]:
        """Returns an index of all segments, the tokens' blocks, and their place in each dimension
        of a token."""
        if layout.token not in self._indexes:
            index, step = [self._table], self._size
            for count, _ in layout.token:
                step //= count
                index.append(self._places // step % count)
            self._indexes[layout.token] = (slice(None), *self._send(np.stack(index)).unbind(0))
        return self._indexes[layout.token]

    def _send(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)


def pack(
    cache: Cache,
    blocks: Blocks,
    segments: Sequence[Segment],
    wire: Wire,
    target: Description,
    out: torch.Tensor,
) -> int:
    """Gathers `segments` of a source into `out`, uint8 [bytes], one behind the other.

    Converts to the wire's type, with the scales of both ends where that is fp8. Returns the bytes.
    `out` may be on another device than the cache. Raises KvError if it is too small.
    """
    source = cache.description
    at = 0
    for alike in _group(segments, wire):
        size = wire.bytes_of(alike[0])
        if at + size * len(alike) > out.numel():
            raise KvError(f"staging has {out.numel()} bytes, and a chunk takes more")
        rows = out[at : at + size * len(alike)].view(len(alike), size)
        values = cache.gather_alike(blocks, alike)
        if wire.encoding:
            scales, codes = encode(values, wire.encoding)
            _put(rows, 0, scales)
            _put(rows, 4 * alike[0].n_cells, codes)
        else:
            _put(rows, 0, _convert(values, alike, (source, target), wire))
        at += size * len(alike)
    return at


def _convert(
    values: torch.Tensor,
    segments: list[Segment],
    ends: tuple[Description, Description],
    wire: Wire,
) -> torch.Tensor:
    """Converts segments to the wire's type, those with equal scales together."""
    types = (ends[0].dtype, wire.dtype)
    scales = [
        tuple(end.layer(one.layer).scales[one.part] for end in ends) for one in segments
    ]  # fmt: skip
    if len({*scales}) == 1:
        return convert(values, *types, *scales[0])
    return torch.stack(
        [convert(one, *types, *pair) for one, pair in zip(values, scales, strict=True)]
    )


def unpack(
    cache: Cache, blocks: Blocks, segments: Sequence[Segment], wire: Wire, data: torch.Tensor
) -> None:
    """Scatters `segments`, which `pack` has written to `data`, uint8 [bytes], into a target's
    blocks, converted from the wire's type. Raises KvError if `data` is too short."""
    target = cache.description
    # Staging is free once the device's work is settled: a copy is made for another device only.
    data = data.to(cache.device)
    at = 0
    for alike in _group(segments, wire):
        size, first = wire.bytes_of(alike[0]), alike[0]
        if at + size * len(alike) > data.numel():
            raise KvError(f"a chunk has {data.numel()} bytes, and its cells take more")
        rows = data[at : at + size * len(alike)].view(len(alike), size)
        shape = (first.n_tokens, first.n_heads, wire.head_sizes[first.part])
        if wire.encoding:
            scales = _take(rows, 0, shape[:2], torch.float32)
            codes = _take(rows, 4 * first.n_cells, shape, torch.uint8)
            found = decode(scales, codes, wire.encoding, target.dtype)
        else:
            found = _take(rows, 0, shape, TORCH_TYPES[wire.dtype])
            if wire.dtype != target.dtype:
                found = convert(found, wire.dtype, target.dtype)
        cache.scatter_alike(blocks, alike, found)
        at += size * len(alike)


def _group(segments: Sequence[Segment], wire: Wire) -> Iterator[list[Segment]]:
    """Yields neighbours that are alike: their rows in staging have one size."""
    for _, group in itertools.groupby(
        segments,
        lambda one: (
            one.first_token, one.last_token, one.first_head, one.last_head,
            wire.head_sizes[one.part],
        ),
    ):  # fmt: skip
        yield list(group)


def checksum(data: torch.Tensor, start: int = 0) -> int:
    """Returns the CRC-32 of a tensor's bytes, continued from `start`. Copies device memory to the
    host."""
    flat: Any = data.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
    return zlib.crc32(flat, start)


def _put(rows: torch.Tensor, at: int, values: torch.Tensor) -> None:
    """Copies values [segments, ...] to byte `at` of each segment's row in staging."""
    flat = values.contiguous().view(len(rows), -1).view(torch.uint8)
    rows[:, at : at + flat.shape[1]].copy_(flat)


def _take(rows: torch.Tensor, at: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns values of each segment's row in staging as [segments, *shape], a view."""
    size = dtype.itemsize * math.prod(shape)
    return rows[:, at : at + size].view(dtype).view(len(rows), *shape)
