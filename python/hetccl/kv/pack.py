"""Gathers cells of a cache into the wire order, and scatters them from it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hetccl.kv.codes import BITS, TORCH_TYPES, convert, decode, encode
from hetccl.kv.describe import Caches, storages
from hetccl.kv.description import Description
from hetccl.kv.errors import KvError
from hetccl.kv.layout import Layout
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
        size = self.description.head_sizes[segment.part]
        found = self._gather_blocks(blocks, segment)
        if found is None:
            view, index, heads = self._find(blocks, segment)
            found = view[(slice(None),) * len(index) + (heads,)][index]
        return found.reshape(segment.n_tokens, segment.n_heads, size).view(
            TORCH_TYPES[self.description.dtype]
        )

    def _gather_blocks(self, blocks: Blocks, segment: Segment) -> torch.Tensor | None:
        """Gathers whole blocks, several times as fast as tokens, and drops the tokens outside.
        Returns None where most would be dropped."""
        one = self.description
        size, first, last = one.block_size, segment.first_token, segment.last_token
        begin, end = first // size, -(-last // size)
        if segment.n_tokens * 2 < (end - begin) * size:
            return None
        place_tokens(one, blocks, (first, last))  # checks the table
        layout, heads = self._place(segment)
        table = torch.from_numpy(np.array(blocks[begin:end], np.int64)).to(self.device)
        view = self._view(layout)[(slice(None),) * (1 + len(layout.token)) + (heads,)]
        found = view.index_select(0, table)
        tokens = found.reshape((end - begin) * size, *found.shape[1 + len(layout.token) :])
        return tokens[first - begin * size : last - begin * size]

    def scatter(self, blocks: Blocks, segment: Segment, values: torch.Tensor) -> None:
        """Writes `values`, [tokens, heads, head size] of the cache's type, to the cells of
        `segment`."""
        view, index, heads = self._find(blocks, segment)
        bits = values.contiguous().view(BITS[self.description.item_bytes])
        shape = (segment.n_tokens, segment.n_heads, *view.shape[len(index) + 1 :])
        selected = view[(slice(None),) * len(index) + (heads,)]
        selected[index] = bits.to(view.device).reshape(shape)

    def _find(
        self, blocks: Blocks, segment: Segment
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], slice]:
        """Returns the layout as a view [block, token..., head, dim...], the indexes of its blocks
        and tokens, and the heads."""
        one = self.description
        layout, heads = self._place(segment)
        tokens = (segment.first_token, segment.last_token)
        table, places = place_tokens(one, blocks, tokens)
        index: list[NDArray[np.int64]] = [table]
        step = one.block_size
        for count, _ in layout.token:
            step //= count
            index.append(places // step % count)
        device = self.device
        on_device = tuple(torch.from_numpy(np.ascontiguousarray(at)).to(device) for at in index)
        return self._view(layout), on_device, heads

    def _place(self, segment: Segment) -> tuple[Layout, slice]:
        """Returns the layout of a segment's part, and its heads as they are indexed."""
        one = self.description
        first = segment.first_head - one.heads[0]
        if not 0 <= first < first + segment.n_heads <= one.n_held:
            raise KvError(f"{one.name} does not hold all heads of {segment}")
        layout = one.layer(segment.layer).parts[segment.part]
        return layout, slice(first, first + segment.n_heads)

    def _view(self, layout: Layout) -> torch.Tensor:
        one = self.description
        dims = layout.dims(one.n_blocks, one.n_held)
        return self._elements[layout.region].as_strided(
            [count for count, _ in dims],
            [stride // one.item_bytes for _, stride in dims],
            layout.offset // one.item_bytes,
        )


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
    for segment in segments:
        size = wire.bytes_of(segment)
        if at + size > out.numel():
            raise KvError(f"staging has {out.numel()} bytes, and a chunk takes more")
        values = cache.gather(blocks, segment)
        if wire.encoding:
            scales, codes = encode(values, wire.encoding)
            _put(out, at, scales)
            _put(out, at + 4 * segment.n_cells, codes)
        else:
            ends = [one.layer(segment.layer).scales[segment.part] for one in (source, target)]
            _put(out, at, convert(values, source.dtype, wire.dtype, *ends))
        at += size
    return at


def unpack(
    cache: Cache, blocks: Blocks, segments: Sequence[Segment], wire: Wire, data: torch.Tensor
) -> None:
    """Scatters `segments`, which `pack` has written to `data`, uint8 [bytes], into a target's
    blocks, converted from the wire's type. Raises KvError if `data` is too short."""
    target = cache.description
    at = 0
    for segment in segments:
        size = wire.bytes_of(segment)
        if at + size > data.numel():
            raise KvError(f"a chunk has {data.numel()} bytes, and its cells take more")
        shape = (segment.n_tokens, segment.n_heads, wire.head_sizes[segment.part])
        if wire.encoding:
            scales = _take(data, at, shape[:2], torch.float32, cache.device)
            codes = _take(data, at + 4 * segment.n_cells, shape, torch.uint8, cache.device)
            values = decode(scales, codes, wire.encoding)
            found = convert(values, "float32", target.dtype)
        else:
            values = _take(data, at, shape, TORCH_TYPES[wire.dtype], cache.device)
            found = (
                values if wire.dtype == target.dtype else convert(values, wire.dtype, target.dtype)
            )
        cache.scatter(blocks, segment, found)
        at += size


def checksum(data: torch.Tensor, start: int = 0) -> int:
    """Returns the CRC-32 of a tensor's bytes, continued from `start`. Copies device memory to the
    host."""
    flat: Any = data.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
    return zlib.crc32(flat, start)


def _put(out: torch.Tensor, at: int, values: torch.Tensor) -> None:
    flat = values.contiguous().flatten().view(torch.uint8)
    out[at : at + flat.numel()].copy_(flat)


def _take(
    data: torch.Tensor, at: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    size = dtype.itemsize
    for count in shape:
        size *= count
    # A copy: staging is given back before the device has read it otherwise.
    return data[at : at + size].to(device, copy=True).view(dtype).view(shape)
