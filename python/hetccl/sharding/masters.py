"""The rank's own part of a flat buffer of weights, which the optimizer updates.

It is float32, or float64 where the model is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hetccl import encoded_bytes
from hetccl.sharding.groups import Groups, begin_gather, world_backend
from hetccl.sharding.layout import CODES_ALIGNMENT, Flat, Piece, round_up, version_of
from hetccl.sharding.pipeline import Steps, TensorSteps

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


class Masters:
    """The masters of one flat buffer. An optimizer takes `parameters`, one for each piece."""

    def __init__(self, flat: Flat, groups: Groups, update_wire: str) -> None:
        self._flat = flat
        self._groups = groups
        self._wire = update_wire
        self._type = torch.promote_types(flat.dtype, torch.float32)
        self.values = flat.read(self._type, flat.begin, flat.end)
        self.parameters: list[tuple[Piece, nn.Parameter]] = [
            (piece, nn.Parameter(self.values[piece.begin : piece.end])) for piece in flat.pieces()
        ]
        self._versions = self._find_versions()

    def _find_versions(self) -> dict[str, tuple[int, int]]:
        return {slot.name: version_of(slot.parameter) for slot in self._flat.slots}

    def adopt_changes(self) -> None:
        """Copies weights that somebody else has changed in the model."""
        now = self._find_versions()
        for piece, parameter in self.parameters:
            if now[piece.name] != self._versions[piece.name]:
                begin = self._flat.begin
                values = self._flat.read(self._type, begin + piece.begin, begin + piece.end)
                parameter.detach().copy_(values)
        self._versions = now

    @property
    def names(self) -> list[str]:
        """The names of all parameters of the flat buffer: this rank may own nothing of some."""
        return [slot.name for slot in self._flat.slots]

    @property
    def model_parameters(self) -> dict[str, DTensor]:
        """The model's parameters, by name."""
        return {slot.name: slot.parameter for slot in self._flat.slots}

    def add_gradients(self, gradients: torch.Tensor) -> None:
        """Adds gradients of the whole part to those that the parameters have."""
        gradients = gradients.to(self.values.dtype)
        for piece, parameter in self.parameters:
            gradient = gradients[piece.begin : piece.end]
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient

    def update_weights(self, exactly: bool = False) -> Steps:
        """Gathers the weights from those who own them into the model.

        With an encoding their differences to the model's are gathered, so that what rounding loses
        is part of the next difference; `exactly` gathers the weights all the same.
        """
        if self._wire and not exactly and self._is_shared:
            return self._gather_differences()
        return self._gather_weights()

    @property
    def _is_shared(self) -> bool:
        return self._flat.shard < self._flat.length

    def _gather_weights(self) -> Steps:
        whole = yield from self._gather(self.values.to(self._flat.dtype))
        self._write(whole)

    def _gather_differences(self) -> Steps:
        flat = self._flat
        weights = flat.read(self._type, 0, flat.length)
        own = (self.values - weights[flat.begin : flat.end]).float()
        size = encoded_bytes(flat.shard, self._wire)
        codes = torch.empty(round_up(size, CODES_ALIGNMENT), dtype=torch.uint8, device=own.device)
        backend = world_backend()
        backend.encode(own, codes[:size], self._wire)
        whole = yield from self._gather(codes)
        rows = whole.view(-1, codes.numel())
        difference = torch.empty_like(own)
        for row, part in zip(rows, weights.view(-1, flat.shard), strict=True):
            backend.decode(row[:size], difference, self._wire)
            part += difference
        self._write(weights)

    def _write(self, whole: torch.Tensor) -> None:
        self._flat.write(whole)
        self._versions = self._find_versions()

    def _gather(self, part: torch.Tensor) -> TensorSteps:
        for name in ("optimizer_states", "gradients"):
            part, work = begin_gather(part, self._groups.exact[name])
            if work is not None:
                yield work
        return part
