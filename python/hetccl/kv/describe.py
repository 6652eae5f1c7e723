"""Descriptions of caches that are tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hetccl.kv.description import Description, Layer, Region
from hetccl.kv.errors import KvError
from hetccl.kv.layout import Layout, Splits, count_of

if TYPE_CHECKING:
    import torch

Caches = Mapping[int, "torch.Tensor | Sequence[torch.Tensor]"]
_LETTERS = set("SBNHDC")


def describe(
    caches: Caches,
    order: str | Sequence[str],
    *,
    name: str,
    n_layers: int,
    n_heads: int,
    heads: tuple[int, int] | None = None,
    model: str = "",
    head_size: int | None = None,
    dtype: str | None = None,
    scales: Mapping[int, tuple[float, ...]] | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Description:
    """Describes the caches of the layers that this end holds, from their shapes and strides.

    `caches` maps a layer's number in the model to its tensor, or to those of K and of V. `order`
    names the dimensions as they are indexed, a letter each: B block, N token, H head, D element of
    a head, S (2 entries) K or V, C elements of K and then of V. A letter twice is a split
    dimension, the outer part first. A pair of orders serves pairs of tensors:

    * "SBNHD", "BSNHD": K and V in one tensor;
    * "BHNC": fused, `head_size` elements of K (default: half of C), then those of V;
    * ("BHDND", "BHDN"): x-packed K, and V beside it;
    * "BND": MLA's latent, without S, C and H.

    Strides come from the tensors, so a permuted view gives its true order. `heads` is [first,
    last) of the model's KV heads and defaults to all. `dtype` replaces the tensors' type, for fp8
    in uint8 tensors. `scales` gives (K, V) of each layer of an fp8 cache. Regions are the tensors'
    storages, in the order of `storages`; their ids are indexes until an endpoint has registered
    them (`Description.at_regions`). Makes no copy. Raises KvError that names the field.
    """
    import torch

    orders = (order,) if isinstance(order, str) else tuple(order)
    for one in orders:
        _check_order(one, len(orders))
    tensors = {number: _tensors_of(one) for number, one in caches.items()}
    flat = storages(caches)
    layers = _layers_of(tensors, orders, flat, head_size, scales or {})
    n_blocks, tensor_type = _common(name, tensors, orders)
    found, first = dtype or str(tensor_type).removeprefix("torch."), layers[0].parts
    sizes = tuple(count_of(part.dim) for part in first)
    held_heads = (0, n_heads) if heads is None else (heads[0], heads[1])
    n_found = _n_heads(next(iter(tensors.values()))[0], orders[0])
    if n_found != held_heads[1] - held_heads[0]:
        raise KvError(f"heads is {held_heads}, but {name}'s tensors have {n_found} heads")
    if torch.empty(0, dtype=tensor_type).element_size() != _size_of(found):
        raise KvError(f"dtype is {found!r}, which does not fit tensors of {tensor_type}")
    return Description(
        name=name, model=model, dtype=found, n_layers=n_layers, n_heads=n_heads, heads=held_heads,
        head_sizes=sizes, block_size=count_of(first[0].token), n_blocks=n_blocks,
        rank=rank, ranks=ranks,
        regions=tuple(Region(i, one.numel()) for i, one in enumerate(flat)),
        layers=tuple(layers),
    )  # fmt: skip


def storages(caches: Caches) -> list[torch.Tensor]:
    """Returns the caches' whole storages as uint8 tensors [bytes], each storage once, layer by
    layer. They share memory with the caches."""
    import torch

    found: dict[int, torch.Tensor] = {}
    for _, held in sorted(caches.items()):
        for tensor in _tensors_of(held):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in found:
                flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                found[storage.data_ptr()] = flat.set_(storage)
    return [*found.values()]


def _layers_of(
    tensors: Mapping[int, tuple[torch.Tensor, ...]],
    orders: tuple[str, ...],
    flat: list[torch.Tensor],
    head_size: int | None,
    scales: Mapping[int, tuple[float, ...]],
) -> list[Layer]:
    """Returns the layers by number, their regions as indexes in `flat`."""
    indexes = {one.data_ptr(): index for index, one in enumerate(flat)}
    layers = []
    for number, held in sorted(tensors.items()):
        if len(held) != len(orders):
            raise KvError(f"layer {number}: {len(held)} tensors, but `order` names {len(orders)}")
        parts: list[Layout] = []
        for tensor, order in zip(held, orders, strict=True):
            region = indexes[tensor.untyped_storage().data_ptr()]
            parts += _parts_of(f"layer {number}", tensor, order, region, head_size)
        layers.append(Layer(number, tuple(parts), scales.get(number, (1.0,) * len(parts))))
    return layers


def _common(
    name: str, tensors: Mapping[int, tuple[torch.Tensor, ...]], orders: tuple[str, ...]
) -> tuple[int, torch.dtype]:
    """Returns the number of blocks and the type that all tensors share."""
    facts = {
        (tensor.shape[order.index("B")], tensor.dtype)
        for held in tensors.values() for tensor, order in zip(held, orders, strict=True)
    }  # fmt: skip
    if len(facts) != 1:
        raise KvError(f"caches: {name}'s layers must be alike in type and blocks, not {facts}")
    return facts.pop()


def _size_of(dtype: str) -> int:
    from hetccl.kv.description import DTYPES

    return DTYPES.get(dtype, 0)


def _tensors_of(one: torch.Tensor | Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    import torch

    return (one,) if isinstance(one, torch.Tensor) else tuple(one)


def _check_order(order: str, n_tensors: int) -> None:
    letters = set(order)
    if not letters <= _LETTERS or not {"B", "N"} <= letters:
        raise KvError(f"order is {order!r}: it has letters of S, B, N, H and D or C")
    if ("D" in letters) == ("C" in letters) or any(order.count(one) > 1 for one in "SBHC"):
        raise KvError(f"order is {order!r}: it takes either D or C; only N and D may be split")
    if "S" in letters and ("C" in letters or n_tensors > 1):
        raise KvError(f"order is {order!r}: S does not go with C, nor with a second tensor")
    if n_tensors > 2 or (n_tensors == 2 and "C" in letters):
        raise KvError(f"order is {order!r}: pairs are of K and of V, by D")


def _n_heads(tensor: torch.Tensor, order: str) -> int:
    return tensor.shape[order.index("H")] if "H" in order else 1


def _parts_of(
    name: str, tensor: torch.Tensor, order: str, region: int, head_size: int | None
) -> list[Layout]:
    """Returns the layouts of one tensor: of K and V, or of the one part that it holds."""
    if tensor.dim() != len(order):
        raise KvError(f"{name}: a tensor of {tensor.dim()} dimensions, but order is {order!r}")
    size = tensor.element_size()

    def pick(letter: str) -> Splits:
        dims = zip(order, tensor.shape, tensor.stride(), strict=True)
        return tuple((n, stride * size) for at, n, stride in dims if at == letter)

    def place(offset: int, dim: Splits) -> Layout:
        head = pick("H")[0][1] if "H" in order else 0
        start = int(tensor.storage_offset()) * size + offset
        return Layout(region, start, pick("B")[0][1], pick("N"), head, dim)

    if "S" in order:
        ((n, stride),) = pick("S")
        if n != 2:
            raise KvError(f"{name}: S has {n} entries, not those of K and of V")
        return [place(0, pick("D")), place(stride, pick("D"))]
    if "C" in order:
        ((n, stride),) = pick("C")
        first = n // 2 if head_size is None else head_size
        if not 0 < first < n:
            raise KvError(f"{name}: head_size is {first}, but K and V have {n} elements together")
        return [place(0, ((first, stride),)), place(first * stride, ((n - first, stride),))]
    return [place(0, pick("D"))]
