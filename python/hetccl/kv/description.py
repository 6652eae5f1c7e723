"""The canonical description of a key-value cache: the parts that one end holds, and where."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from hetccl.kv.errors import KvError, check_integer, check_list, check_text, read_object
from hetccl.kv.layout import Layout, check_apart, count_of

VERSION = 1
MOST_BYTES = 1 << 20  # of an encoded description
# Bytes of an element, by the names that descriptions use.
DTYPES = {
    "bfloat16": 2, "float16": 2, "float32": 4,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1,
}  # fmt: skip
# Types of one set convert into each other (hetccl.kv.codes); others only into themselves.
CONVERTIBLE = ({"bfloat16", "float16", "float32"}, {"float8_e4m3fn", "float8_e4m3fnuz"})
_MOST_LAYERS, _MOST_REGIONS, _MOST_HEADS, _MOST_HEAD_SIZE = 4096, 4096, 1 << 16, 1 << 16
_PARTS = ("K", "V")


@dataclasses.dataclass(frozen=True)
class Region:
    """Registered memory: the endpoint's id of it, and its bytes."""

    id: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer that this end holds. `number` is the model's. `parts` are the layouts of K and V, or
    of MLA's latent alone. An element's value is its code times `scales[part]`; scales other than 1
    exist in fp8 caches only."""

    number: int
    parts: tuple[Layout, ...]
    scales: tuple[float, ...] = (1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Description:
    """One end's cache. Immutable, so safe in all threads.

    `name` appears in errors. `model` is any text that both ends must share. `n_layers` and
    `n_heads` (KV heads) are the model's; `layers` and `heads`, [first, last), are what this end
    holds, replicated heads included. `head_sizes` are elements of K and V, or of the latent alone.
    `block_size` is in tokens. `rank` of `ranks` is the tensor-parallel place, which spreads load
    over replicas. Raises KvError that names a wrong field.
    """

    name: str
    model: str
    dtype: str
    n_layers: int
    n_heads: int
    heads: tuple[int, int]
    head_sizes: tuple[int, ...]
    block_size: int
    n_blocks: int
    rank: int
    ranks: int
    regions: tuple[Region, ...]
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        _check_fields(self)
        for layer in self.layers:
            _check_layer(self, layer)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype]

    @property
    def n_held(self) -> int:
        """The number of heads that this end holds."""
        return self.heads[1] - self.heads[0]

    @property
    def is_latent(self) -> bool:
        """Whether a token has one latent (MLA) instead of K and V."""
        return len(self.head_sizes) == 1

    def layer(self, number: int) -> Layer:
        """Returns a layer by its number. Raises KvError if this end does not hold it."""
        for layer in self.layers:
            if layer.number == number:
                return layer
        raise KvError(f"{self.name} does not hold layer {number}")

    def at_regions(self, ids: list[int]) -> Description:
        """Returns the description with the ids that an endpoint gave to its regions."""
        pairs = zip(ids, self.regions, strict=True)
        regions = tuple(Region(number, region.bytes) for number, region in pairs)
        return dataclasses.replace(self, regions=regions)

    def to_bytes(self) -> bytes:
        """Returns JSON of at most 1 MiB. Raises KvError if it would be longer."""
        values = {"version": VERSION, **dataclasses.asdict(self)}
        values["regions"] = [[region.id, region.bytes] for region in self.regions]
        values["layers"] = [
            [layer.number, [part.to_values() for part in layer.parts], layer.scales]
            for layer in self.layers
        ]
        data = json.dumps(values, separators=(",", ":")).encode()
        if len(data) > MOST_BYTES:
            raise KvError(f"{self.name}: its description takes {len(data)} bytes of {MOST_BYTES}")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Description:
        """Reads the result of `to_bytes`, from a peer that is not trusted. Raises KvError that
        names the wrong field."""
        values = read_object("a description", data, MOST_BYTES)
        if values.get("version") != VERSION:
            raise KvError(
                f"a description of version {str(values.get('version'))[:20]}: this hetccl reads "
                f"version {VERSION}; run the same hetccl at both ends"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        if unlike := names ^ (values.keys() - {"version"}):
            raise KvError(f"a description lacks or does not know the field {min(unlike)[:80]}")
        heads = check_list("heads", values["heads"], 2, 2)
        sizes = check_list("head_sizes", values["head_sizes"], 1, 2)
        regions = check_list("regions", values["regions"], 1, _MOST_REGIONS)
        layers = check_list("layers", values["layers"], 1, _MOST_LAYERS)
        rest = {name: values[name] for name in names - {"heads", "head_sizes"}}
        rest["regions"] = tuple(Region(*check_list("regions", one, 2, 2)) for one in regions)
        rest["layers"] = tuple(_read_layer(one) for one in layers)
        return cls(heads=tuple(heads), head_sizes=tuple(sizes), **rest)


def converts(source: str, target: str) -> bool:
    """Returns whether elements of one type can become elements of the other."""
    return source == target or any({source, target} <= types for types in CONVERTIBLE)


def check_joinable(source: Description, target: Description) -> None:
    """Raises KvError, which names both ends and the field, unless a cache like `source` can fill
    one like `target`: both are of one model, and the types convert."""
    for field in ("model", "n_layers", "n_heads", "head_sizes"):
        mine, its = getattr(source, field), getattr(target, field)
        if mine != its:
            raise KvError(
                f"{source.name} and {target.name} cannot be joined: {field} is {mine!r} at "
                f"{source.name} and {its!r} at {target.name}"
            )
    if not converts(source.dtype, target.dtype):
        raise KvError(
            f"{source.name} and {target.name} cannot be joined: {source.name} holds "
            f"{source.dtype}, {target.name} {target.dtype}, and there is no conversion"
        )


def _read_layer(values: Any) -> Layer:
    number, parts, scales = check_list("layers", values, 3, 3)
    check_integer("layers: number", number, 0)
    name = f"layer {number}"
    for scale in check_list(f"{name}: scales", scales, 1, 2):
        if not isinstance(scale, int | float):
            raise KvError(f"{name}: scales hold {scale!r:.80}")
    read = [
        Layout.from_values(f"{name}, {_PARTS[i]}", part)
        for i, part in enumerate(check_list(f"{name}: parts", parts, 1, 2))
    ]
    return Layer(number, tuple(read), tuple(float(scale) for scale in scales))


def _check_fields(one: Description) -> None:
    check_text("name", one.name)
    check_text("model", one.model)
    if not isinstance(one.dtype, str) or one.dtype not in DTYPES:
        raise KvError(f"dtype is {one.dtype!r:.80}: it must be one of {', '.join(DTYPES)}")
    check_integer("n_layers", one.n_layers, 1, _MOST_LAYERS)
    check_integer("n_heads", one.n_heads, 1, _MOST_HEADS)
    check_integer("heads: first", one.heads[0], 0, one.n_heads - 1)
    check_integer("heads: last", one.heads[1], one.heads[0] + 1, one.n_heads)
    for size in one.head_sizes:
        check_integer("head_sizes", size, 1, _MOST_HEAD_SIZE)
    if one.is_latent and one.n_heads != 1:
        raise KvError(f"n_heads is {one.n_heads}: a cache of latents has 1")
    check_integer("block_size", one.block_size, 1, 1 << 16)
    check_integer("n_blocks", one.n_blocks, 1, 1 << 31)
    check_integer("ranks", one.ranks, 1, 1 << 16)
    check_integer("rank", one.rank, 0, one.ranks - 1)
    for region in one.regions:
        check_integer("regions: id", region.id, 0, (1 << 63) - 1)
        check_integer("regions: bytes", region.bytes, 1)
    numbers = [layer.number for layer in one.layers]
    for number in numbers:
        check_integer("layers: number", number, 0, one.n_layers - 1)
    if len({*numbers}) < len(numbers) or not numbers:
        raise KvError("layers: there is none, or one is listed twice")


def _check_layer(one: Description, layer: Layer) -> None:
    name = f"layer {layer.number}"
    if not len(layer.parts) == len(layer.scales) == len(one.head_sizes):
        raise KvError(f"{name}: parts, scales and head_sizes differ in number")
    for scale in layer.scales:
        if not (math.isfinite(scale) and scale > 0):
            raise KvError(f"{name}: scales hold {scale}: they must be positive and finite")
        if scale != 1 and one.item_bytes > 1:
            raise KvError(f"{name}: scales hold {scale}, but {one.dtype} has none")
    for i, (part, size) in enumerate(zip(layer.parts, one.head_sizes, strict=True)):
        _check_part(one, f"{name}, {_PARTS[i]}", part, size)
    if not one.is_latent:
        _check_parts_apart(one, name, *layer.parts)


def _check_part(one: Description, name: str, part: Layout, size: int) -> None:
    if part.region >= len(one.regions):
        raise KvError(f"{name}: region {part.region} of {len(one.regions)}")
    if count_of(part.token) != one.block_size:
        raise KvError(f"{name}: token counts {part.token} do not make block_size {one.block_size}")
    if count_of(part.dim) != size:
        raise KvError(f"{name}: dim counts {part.dim} do not make the head size {size}")
    dims = part.dims(one.n_blocks, one.n_held)
    if any(value % one.item_bytes for value in (part.offset, *(stride for _, stride in dims))):
        raise KvError(f"{name}: offset or a stride is no multiple of {one.item_bytes} bytes")
    check_apart(name, dims, one.item_bytes)
    end = part.offset + part.extent(one.n_blocks, one.n_held, one.item_bytes)
    if end > one.regions[part.region].bytes:
        raise KvError(
            f"{name}: it ends at byte {end} of a region of {one.regions[part.region].bytes}"
        )


def _check_parts_apart(one: Description, name: str, first: Layout, second: Layout) -> None:
    """Raises KvError if V's elements could share bytes with K's."""
    if first.region != second.region:
        return
    low, high = sorted((first, second), key=lambda part: part.offset)
    if low.offset + low.extent(one.n_blocks, one.n_held, one.item_bytes) <= high.offset:
        return
    between = high.offset - low.offset
    outer = [(one.n_blocks, low.block), *low.token, (one.n_held, low.head)]
    dims: list[tuple[int, int]] | None = None
    if len(low.dim) == len(high.dim) == 1 and low.dim[0][1] == high.dim[0][1]:
        (n_low, stride), n_high = low.dim[0], high.dim[0][0]
        if between == n_low * stride:  # K and V of a head are neighbours
            dims = [(n_low + n_high, stride)]
        else:
            dims = [(max(n_low, n_high), stride), (2, between)]
    elif low.dim == high.dim:
        dims = [*low.dim, (2, between)]
    if dims is None or low.strides[:3] != high.strides[:3]:
        _check_parts_alternate(one, name, low, high)
        return
    check_apart(f"{name}, K and V", [*outer, *dims], one.item_bytes)


def _check_parts_alternate(one: Description, name: str, low: Layout, high: Layout) -> None:
    """Raises KvError unless K and V alternate: a run of K's elements, then a run of V's, repeated
    along the dimensions that both share. The order within a run is free.
    """
    between = high.offset - low.offset
    outer, sizes = [], []
    for part in (low, high):
        dims = [(n, stride) for n, stride in part.dims(one.n_blocks, one.n_held) if n > 1]
        outer.append(sorted(dim for dim in dims if dim[1] > between))
        inner = [(n - 1) * stride for n, stride in dims if stride <= between]
        sizes.append(one.item_bytes + sum(inner))
    if outer[0] != outer[1] or sizes[0] > between:
        raise KvError(f"{name}: K and V overlap, or interleave in a way that is not known")
    check_apart(f"{name}, K and V", outer[0], between + sizes[1])
