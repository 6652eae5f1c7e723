"""Caches of random layouts, and the places of their elements found without hetccl's arithmetic.

An array of the numbers 0, 1, ... goes through the same reshapes as the cache: where it holds k,
element k of the storage lies. Tests compare plans and packing with copies by these numbers.
"""

import itertools

import numpy as np
import torch

from hetccl.kv import Description, describe

ORDERS = [
    "SBNHD", "BSNHD", "SBHND", "BSHND", "BNSHD", "BNHSD", "BHNC", "BNHC", "HBNC",
    ("BNHD", "BNHD"), ("BHND", "BHND"), ("BHDND", "BHDN"), ("BNHD", "BHDN"), ("BHNDN", "BNHD"),
]  # fmt: skip
LATENT_ORDERS = ["BND", "NBD", "BDND"]
TYPES = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn, "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
}  # fmt: skip


class Model:
    """The facts that both ends share."""

    def __init__(self, n_layers=2, n_heads=4, sizes=(4, 4)):
        self.n_layers, self.n_heads, self.sizes = n_layers, n_heads, sizes


class End:
    """One end: its tensors, their description, and `places[layer][part]`, int64 [block, token,
    head, dim], of elements in `elements`, all tensors' memory as integers [n]."""

    def __init__(
        self, name, model, order, *, layers=None, heads=None, block_size=4, n_blocks=6,
        dtype="float16", chance=None, layer_at=None, scales=None, rank=0, ranks=1,
    ):  # fmt: skip
        self.layers = list(range(model.n_layers)) if layers is None else list(layers)
        self.heads = heads or (0, model.n_heads)
        self._sizes = model.sizes
        self._counts = {
            "S": 2, "B": n_blocks, "N": block_size, "H": self.heads[1] - self.heads[0],
            "C": sum(model.sizes),
        }  # fmt: skip
        orders = (order,) if isinstance(order, str) else order
        self._bits = {4: np.int32, 2: np.int16, 1: np.uint8}[TYPES[dtype].itemsize]
        made = [
            self._make(one, model.sizes[min(i, len(model.sizes) - 1)], dtype, layer_at)
            for i, one in enumerate(orders)
        ]
        self.storages = [storage for storage, _, _ in made]
        starts = np.cumsum([0, *(len(one) for one in self.storages)])
        self.caches, self.places = {}, {}
        for layer in self.layers:
            tensors = [views[layer] for _, views, _ in made]
            self.caches[layer] = tensors[0] if len(tensors) == 1 else tensors
            places = [numbers[layer] + starts[i] for i, (_, _, numbers) in enumerate(made)]
            found = [self._part(p, o) for p, o in zip(places, orders, strict=True)]
            self.places[layer] = [part for parts in found for part in parts]
        if chance is not None:
            for storage in self.storages:
                raw = chance.integers(0, 256, storage.nbytes, np.uint8)
                storage.view(np.uint8)[:] = raw
        self.description: Description = describe(
            self.caches, order if isinstance(order, str) else tuple(order), name=name,
            n_layers=model.n_layers, n_heads=model.n_heads, heads=self.heads, dtype=dtype,
            head_size=model.sizes[0], scales=scales, rank=rank, ranks=ranks,
        )  # fmt: skip

    def _make(self, order, size, dtype, layer_at):
        """A storage, and the views and numbers of each layer's tensor."""
        shape, seen = [], {"N": 0, "D": 0}
        for letter in order:
            count = size if letter == "D" else self._counts[letter]
            if order.count(letter) > 1:  # a split: the inner part is 2, or 1
                inner = 2 if count % 2 == 0 else 1
                count = inner if seen[letter] else count // inner
                seen[letter] += 1
            shape.append(count)
        at = 0 if layer_at is None else layer_at % (len(order) + 1)
        shape.insert(at, len(self.layers))
        storage = np.zeros(int(np.prod(shape)), self._bits)
        tensor = torch.from_numpy(storage.view(np.uint8)).view(TYPES[dtype]).view(shape)
        numbers = np.arange(len(storage)).reshape(shape)
        views = {layer: tensor.select(at, i) for i, layer in enumerate(self.layers)}
        return storage, views, {n: numbers.take(i, at) for i, n in enumerate(self.layers)}

    def _part(self, numbers, order):
        """The numbers as [block, token, head, dim], of each part that the tensor holds."""
        if "H" not in order:
            numbers, order = numbers[..., None], order + "H"
        wanted = ("S" if "S" in order else "") + "BNH" + ("C" if "C" in order else "D")
        axes = [i for letter in wanted for i, one in enumerate(order) if one == letter]
        shape = [-1] if "S" in order else []
        shape += [self._counts["B"], self._counts["N"], self._counts["H"], -1]
        whole = numbers.transpose(axes).reshape(shape if "S" not in order else [2, *shape[1:]])
        if "S" in order:
            return list(whole)
        if "C" in order:
            return [whole[..., : self._sizes[0]], whole[..., self._sizes[0] :]]
        return [whole]

    @property
    def elements(self):
        """A copy of all elements, as integers."""
        return np.concatenate(self.storages)

    def write(self, elements):
        """Sets all elements."""
        at = 0
        for storage in self.storages:
            storage[:] = elements[at : at + len(storage)]
            at += len(storage)

    def cells(self, blocks, tokens, layer, part, heads):
        """The numbers of the elements of tokens and heads, [token, head, dim]."""
        places = self.places[layer][part]
        numbers = np.arange(*tokens)
        size = places.shape[1]
        found = places[np.asarray(blocks)[numbers // size], numbers % size]
        return found[:, heads[0] - self.heads[0] : heads[1] - self.heads[0]]


def table_of(chance, n_blocks, block_size, n_tokens, first=0):
    """A random block table of a request; entries before token `first`'s are -1."""
    count = -(-n_tokens // block_size)
    table = chance.permutation(n_blocks)[:count]
    table[: first // block_size] = -1
    return table


def split_evenly(count, parts):
    """Ranges of `parts` workers; with more workers than heads, heads are replicated."""
    if parts > count:
        return [(i * count // parts, i * count // parts + 1) for i in range(parts)]
    cuts = [i * count // parts for i in range(parts + 1)]
    return list(itertools.pairwise(cuts))
