"""The layout of a unit's parameters in flat buffers, and the part of them that this rank owns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from hetccl.sharding.groups import Groups

# Parts of flat buffers begin at multiples of so many elements, codes at multiples of so many bytes,
# for the kernels' sake.
_ALIGNMENT = 64
CODES_ALIGNMENT = 16


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `size`."""
    return math.ceil(size / unit) * unit


def local_of(parameter: DTensor) -> torch.Tensor:
    """This rank's part of a parameter: the memory itself, flat, of which autograd knows nothing."""
    with torch.no_grad():
        local: torch.Tensor = parameter.to_local()
        return local.view(-1)


def version_of(parameter: DTensor) -> tuple[int, int]:
    """Differs when the weights have been changed in place, through the parameter or its memory.
    Changes by `parameter.data` go unnoticed."""
    with torch.no_grad():
        return parameter._version, parameter.to_local()._version


@dataclasses.dataclass(frozen=True)
class Slot:
    """A parameter in a flat buffer. FSDP2 splits it along its first dimension into parts of equal
    size, of which the last ones may be cut short; `elements` is the size of one that is not."""

    name: str
    parameter: DTensor
    offset: int
    elements: int

    @property
    def own_elements(self) -> int:
        """The size of this rank's part."""
        return int(self.parameter.to_local().numel())

    @property
    def first_element(self) -> int:
        """The element of the whole parameter, seen flat, with which this rank's part begins."""
        return int(self.parameter.device_mesh.get_local_rank()) * self.elements


def elements_of_part(parameter: DTensor) -> int:
    """The size of a rank's part, padded."""
    rows, *rest = parameter.shape
    return math.ceil(rows / parameter.device_mesh.size()) * math.prod(rest)


@dataclasses.dataclass(frozen=True)
class Piece:
    """The part of one parameter that a rank owns: elements [begin, end) of the rank's part of the
    flat buffer, which are [first, first + end - begin) of the whole parameter, seen flat.
    """

    name: str
    parameter: DTensor
    begin: int
    end: int
    first: int


class Flat:
    """Parameters of one unit that are reduced and gathered together, as one flat buffer.

    The buffer holds one rank's part of each (see Slot), padded so that it splits evenly: first
    among the ranks of a gradients group, then among those of an optimizer states group.
    """

    def __init__(self, parameters: Sequence[tuple[str, DTensor]], groups: Groups) -> None:
        self.slots: list[Slot] = []
        offset = 0
        for name, parameter in parameters:
            elements = elements_of_part(parameter)
            self.slots.append(Slot(name, parameter, offset, elements))
            offset += elements
        parts = groups.gradients.size * groups.optimizer_states.size
        self.length = round_up(offset, parts * _ALIGNMENT)
        self.shard = self.length // parts
        of_gradients = self.length // groups.gradients.size
        self.begin = (
            groups.gradients.index * of_gradients + groups.optimizer_states.index * self.shard
        )
        self.end = self.begin + self.shard

    def pieces(self) -> Iterator[Piece]:
        """Yields the part of each parameter that this rank owns, in the order of the buffer."""
        for slot in self.slots:
            begin = max(slot.offset, self.begin)
            end = min(slot.offset + slot.own_elements, self.end)
            if begin < end:
                first = slot.first_element + begin - slot.offset
                yield Piece(slot.name, slot.parameter, begin - self.begin, end - self.begin, first)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters, which FSDP2 wants to be the same."""
        return self.slots[0].parameter.dtype

    def read(self, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        """Returns a copy of elements [begin, end) of the flat buffer, with zeros for padding."""
        device = self.slots[0].parameter.device
        flat = torch.zeros(end - begin, dtype=dtype, device=device)
        for slot in self.slots:
            own = local_of(slot.parameter)
            first, last = max(begin, slot.offset), min(end, slot.offset + own.numel())
            if first < last:
                flat[first - begin : last - begin] = own[first - slot.offset : last - slot.offset]
        return flat

    def write(self, flat: torch.Tensor) -> None:
        """Copies a flat buffer into the parameters' parts."""
        for slot in self.slots:
            part = flat[slot.offset : slot.offset + slot.own_elements]
            local_of(slot.parameter).copy_(part)


def boxes(shape: Sequence[int], begin: int, end: int) -> Iterator[tuple[list[int], list[int]]]:
    """Elements [begin, end) of a tensor seen flat, as boxes in order: offsets and sizes.

    There are at most two for each dimension but the first.
    """
    if not shape or begin >= end:
        return
    row = math.prod(shape[1:])
    while begin < end:
        index, start = divmod(begin, row)
        rows = (end - begin) // row if start == 0 else 0
        if rows:
            yield [index, *(0 for _ in shape[1:])], [rows, *shape[1:]]
            begin += rows * row
            continue
        stop = min(row, start + end - begin)
        for offsets, sizes in boxes(shape[1:], start, stop):
            yield [index, *offsets], [1, *sizes]
        begin += stop - start
