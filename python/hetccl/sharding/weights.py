"""Gathering a unit's weights: encoded, and from a secondary partition of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hetccl import encoded_bytes
from hetccl.sharding.groups import (
    Group,
    Groups,
    begin_gather,
    gather_into,
    scatter_sum,
    world_backend,
)
from hetccl.sharding.layout import CODES_ALIGNMENT, elements_of_part, round_up, version_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def _aligned(size: int) -> int:
    return round_up(size, CODES_ALIGNMENT)


def find_slices(parameters: Mapping[str, DTensor], exact: Set[str]) -> list[slice]:
    """Returns the places of the exact parameters in a rank's part of all parameters, one after the
    other.
    """
    slices, offset = [], 0
    for name, parameter in parameters.items():
        elements = elements_of_part(parameter)
        if name in exact and elements:
            slices.append(slice(offset, offset + elements))
        offset += elements
    return slices


class _Allocating:
    """Allocates the memory of each call, in the interface that FSDP2 asks for. (FSDP2's own
    abstract class is not public.)
    """

    def allocate(
        self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class WeightGather(_Allocating):
    """FSDP2's all-gather of one unit.

    A rank's part is sent as the codes of all its elements, then the exact parameters as they are.
    With a secondary partition each rank keeps its share of all bytes that the first gather after
    an update brings, and later gathers bring those of the secondary group. So all gathers between
    two updates give the same bits.
    """

    def __init__(
        self,
        parameters: Mapping[str, DTensor],
        exact: Set[str],
        groups: Groups,
        wire: str,
        has_secondary: bool,
    ) -> None:
        self._parameters = list(parameters.values())
        self._wire = "" if parameters.keys() <= exact else wire
        self._exact = find_slices(parameters, exact)
        self._groups = groups
        self._has_secondary = has_secondary
        self._kept: torch.Tensor | None = None
        self._versions: list[tuple[int, int]] = []

    def drop_secondary(self) -> None:
        """Has the next gather be one of the weights themselves."""
        self._kept = None

    @property
    def secondary_bytes(self) -> int:
        """The memory of the secondary partition, as it is now."""
        return 0 if self._kept is None else self._kept.nbytes

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> None:
        """Gathers. On a GPU in stream order, so that there is nothing to wait for."""
        versions = [version_of(parameter) for parameter in self._parameters]
        if self._kept is not None and versions == self._versions:
            size = self._message_bytes(input_tensor) * self._groups.weights.size
            self._unpack(_gather(self._kept, self._groups.secondary)[:size], output_tensor)
            return
        self._kept = None
        if not self._wire and not self._has_secondary:
            gather_into(output_tensor, input_tensor, group=group)
            return
        message = self._pack(input_tensor)
        messages = _gather(message, self._groups.exact["weights"])
        if self._has_secondary:
            self._kept, self._versions = self._share_of(messages), versions
        self._unpack(messages, output_tensor)

    def _share_of(self, messages: torch.Tensor) -> torch.Tensor:
        secondary = self._groups.secondary
        share = _aligned(-(-messages.numel() // secondary.size))
        kept = messages.new_zeros(share)
        mine = messages[secondary.index * share : (secondary.index + 1) * share]
        kept[: mine.numel()] = mine
        return kept

    def _code_bytes(self, part: torch.Tensor) -> int:
        return _aligned(encoded_bytes(part.numel(), self._wire))

    def _message_bytes(self, part: torch.Tensor) -> int:
        if not self._wire:
            return _aligned(part.nbytes)
        exact = sum(one.stop - one.start for one in self._exact)
        return self._code_bytes(part) + _aligned(exact * part.element_size())

    def _pack(self, part: torch.Tensor) -> torch.Tensor:
        """Encodes `part`, whose exact parameters become zeros: no part of their neighbours'
        scales."""
        size = self._message_bytes(part)
        message = torch.empty(size, dtype=torch.uint8, device=part.device)
        if not self._wire:
            message[: part.nbytes] = part.view(torch.uint8)
            return message
        codes = self._code_bytes(part)
        if self._exact:
            kept = torch.cat([part[one] for one in self._exact])
            message[codes : codes + kept.nbytes] = kept.view(torch.uint8)
            for one in self._exact:
                part[one] = 0
        world_backend().encode(part, message[: encoded_bytes(part.numel(), self._wire)], self._wire)
        return message

    def _unpack(self, messages: torch.Tensor, output: torch.Tensor) -> None:
        ranks = self._groups.weights.size
        rows = messages.view(ranks, -1)
        parts = output.view(ranks, -1)
        if not self._wire:
            parts.copy_(rows[:, : parts[0].nbytes].view(parts.dtype))
            return
        codes = encoded_bytes(parts.size(1), self._wire)
        backend = world_backend()
        for row, part in zip(rows, parts, strict=True):
            backend.decode(row[:codes], part, self._wire)
        begin = self._code_bytes(parts[0])
        for one in self._exact:
            size = (one.stop - one.start) * output.element_size()
            parts[:, one] = rows[:, begin : begin + size].view(output.dtype)
            begin += size


def _gather(message: torch.Tensor, group: Group) -> torch.Tensor:
    messages, work = begin_gather(message, group)
    if work is not None:
        work.wait()
    return messages


class GradientScatter(_Allocating):
    """FSDP2's reduce-scatter of one unit, which leaves the gradients of exact parameters as they
    are. Where some parameters have no gradient FSDP2 does not tell which: then all are exact."""

    def __init__(self, parameters: Mapping[str, DTensor], exact: Set[str], groups: Groups) -> None:
        self._exact = find_slices(parameters, exact)
        self._elements = sum(map(elements_of_part, parameters.values()))
        self._groups = groups

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduces. On a GPU in stream order, so that there is nothing to wait for."""
        plain = self._groups.exact["weights"].process_group
        if output_tensor.numel() != self._elements:
            scatter_sum(output_tensor, input_tensor, op=op, group=plain)
            return
        work = None
        if self._exact:
            rows = input_tensor.view(self._groups.weights.size, -1)
            whole = torch.cat([rows[:, one] for one in self._exact], dim=1).view(-1)
            part = whole.new_empty(whole.numel() // rows.size(0))
            work = scatter_sum(part, whole, op=op, group=plain, async_op=True)
            for one in self._exact:
                rows[:, one] = 0  # no part of their neighbours' scales
        scatter_sum(output_tensor, input_tensor, op=op, group=group)
        if work is not None:
            work.wait()
            parts = torch.split(part, [one.stop - one.start for one in self._exact])
            for one, values in zip(self._exact, parts, strict=True):
                output_tensor[one] = values
