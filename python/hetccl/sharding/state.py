"""The state of a sharded training, in the names and shapes of the plain one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from hetccl.sharding.degrees import ShardingError
from hetccl.sharding.layout import Piece
from hetccl.sharding.masters import Masters
from hetccl.sharding.owned_tensor import OwnedTensor

# Wrappers put these into the names of parameters.
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")


def plain_name(name: str) -> str:
    """The name of a parameter in the model without wrappers."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


@dataclasses.dataclass(frozen=True)
class FittingState:
    """A state that has been checked: it fits the model and the optimizer."""

    model: Mapping[str, Any]
    states: Mapping[str, Mapping[str, Any]]  # of the optimizer, by the parameters' names
    groups: Sequence[Mapping[str, Any]]
    is_whole: bool  # of the plain model; else values are in place already


class TrainingState:
    """The state of a model and its optimizer. `groups` has the names of the parameters of each
    group of the optimizer."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        masters: Sequence[Masters],
        groups: Sequence[Sequence[str]],
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._owned: dict[str, tuple[Piece, nn.Parameter]] = {
            piece.name: (piece, parameter) for one in masters for piece, parameter in one.parameters
        }
        self._groups = [list(names) for names in groups]
        self._trained = {name for one in masters for name in one.names}

    def collect(self) -> dict[str, Any]:
        """The state dict. It has entries only for parameters of which this rank owns a part."""
        state: dict[str, dict[str, Any]] = {}
        for name, (piece, parameter) in self._owned.items():
            values = self._optimizer.state.get(parameter)
            if values:
                state[name] = {key: _own(piece, value) for key, value in values.items()}
        groups = [
            {**{key: value for key, value in group.items() if key != "params"}, "params": names}
            for group, names in zip(self._optimizer.param_groups, self._groups, strict=True)
        ]
        model = {}
        for name, (first, value) in self._named().items():
            if first not in self._trained:
                model[name] = value
            elif first in self._owned:
                piece, parameter = self._owned[first]
                model[name] = _own(piece, parameter.detach())
        return {"model": model, "optimizer": {"state": state, "param_groups": groups}}

    def _named(self) -> dict[str, tuple[str, torch.Tensor]]:
        """All that a state dict of the plain model has: by name, the first name of the same
        parameter, and the value."""
        first: dict[int, str] = {}
        names = {
            plain_name(name): first.setdefault(id(parameter), plain_name(name))
            for name, parameter in self._model.named_parameters(remove_duplicate=False)
        }
        return {
            plain_name(name): (names.get(plain_name(name), plain_name(name)), value)
            for name, value in self._model.state_dict().items()
        }

    def values(self) -> dict[str, Any]:
        """All values of the plain model's state dict, by name."""
        return {name: value for name, (_, value) in self._named().items()}

    def check(self, state: Mapping[str, Any]) -> FittingState:
        """Raises ShardingError if names, shapes or groups differ."""
        if not {"model", "optimizer"} <= state.keys():
            raise ShardingError('the state must be {"model": ..., "optimizer": ...}')
        model: Mapping[str, Any] = state["model"]
        named = self._named()
        trained = {name for name, (first, _) in named.items() if first in self._trained}
        # torch.distributed.checkpoint has loaded the values of an OwnedTensor in place.
        is_whole = any(
            not isinstance(model.get(name), OwnedTensor) for name in trained & model.keys()
        )
        unknown = sorted(set(model) - set(named))
        missing = sorted(set(named) - set(model) - (set() if is_whole else trained))
        if unknown or missing:
            raise ShardingError(
                f"the state is of another model: it has {unknown[:3] or 'nothing'} that the model "
                f"lacks, and lacks {missing[:3] or 'nothing'}"
            )
        for name, value in model.items():
            _check_shape(name, value, named[name][1].shape)
        optimizer = state["optimizer"]
        name_of = self.check_groups(optimizer["param_groups"])
        strange = [key for key in optimizer["state"] if key not in name_of]
        if strange:
            raise ShardingError(f"the state has parameters that are in no group: {strange[:3]}")
        states = {name_of[key]: values for key, values in optimizer["state"].items()}
        for name, values in states.items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and value.numel() != 1:
                    _check_shape(f"{name}'s {key}", value, named[name][1].shape)
        return FittingState(model, states, optimizer["param_groups"], is_whole)

    def check_groups(self, groups: Sequence[Mapping[str, Any]]) -> dict[Any, str]:
        """Returns the name of each parameter in the groups, which may have numbers. Raises
        ShardingError for other groups than the optimizer's.
        """
        if len(groups) != len(self._groups):
            raise ShardingError(
                f"the state has {len(groups)} groups of parameters, the optimizer "
                f"{len(self._groups)}"
            )
        name_of: dict[Any, str] = {}
        for group, names in zip(groups, self._groups, strict=True):
            if len(group["params"]) != len(names):
                raise ShardingError(
                    f"a group of the state has {len(group['params'])} parameters, the optimizer's "
                    f"{len(names)}"
                )
            # torch.optim numbers parameters; torch.distributed.checkpoint has names.
            name_of.update(
                (key, key if isinstance(key, str) else name)
                for key, name in zip(group["params"], names, strict=True)
            )
        return name_of

    def restore(self, state: FittingState) -> None:
        """Copies values that are not there yet into the optimizer's state. Parameters without state
        in `state` get none.
        """
        named = self._named()
        for name, value in state.model.items():
            first, target = named[name]
            if first not in self._trained:
                _copy(target, value)
            elif first in self._owned:
                piece, parameter = self._owned[first]
                _fill(parameter.detach(), value, piece)
        for group, options in zip(self._optimizer.param_groups, state.groups, strict=True):
            group.update({key: value for key, value in options.items() if key != "params"})
        for name, (piece, parameter) in self._owned.items():
            had = self._optimizer.state.pop(parameter, {})
            values = state.states.get(name)
            if not values:
                continue
            own = self._optimizer.state[parameter] = {}
            for key, value in values.items():
                target = had.get(key)
                if isinstance(value, torch.Tensor) and isinstance(target, torch.Tensor):
                    _fill(target, value, piece)
                    own[key] = target
                else:
                    own[key] = _share(piece, parameter, value)

    def make_optimizer_state(self) -> None:
        """Makes the optimizer create its missing state, to be overwritten, by a step with gradients
        and rates of 0. There must be no gradients. Collective.
        """
        parameters = [
            parameter
            for _, parameter in self._owned.values()
            if not self._optimizer.state.get(parameter)
        ]
        groups = self._optimizer.param_groups
        options = [dict(group) for group in groups]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        for group in groups:
            group.update({key: 0.0 for key in ("lr", "weight_decay") if key in group})
        try:
            self._optimizer.step()
        finally:
            for group, option in zip(groups, options, strict=True):
                group.update(option)
            for parameter in parameters:
                parameter.grad = None


def _check_shape(name: str, value: Any, shape: torch.Size) -> None:
    if isinstance(value, torch.Tensor) and value.shape != shape:
        raise ShardingError(f"{name} has the shape {[*shape]}, in the state {[*value.shape]}")


def _is_whole(value: Any, piece: Piece) -> bool:
    """Whether an optimizer's value has an element for each of the piece's."""
    elements = piece.end - piece.begin
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() == elements


def _own(piece: Piece, value: Any) -> Any:
    if not _is_whole(value, piece):
        return value
    return OwnedTensor(piece.parameter.shape, piece.first, value)


def _part_of(value: torch.Tensor, piece: Piece, like: torch.Tensor) -> torch.Tensor:
    """The elements of a whole value that this rank has in `like`."""
    return value.reshape(-1)[piece.first : piece.first + like.numel()]


def _fill(target: torch.Tensor, value: torch.Tensor, piece: Piece) -> None:
    if isinstance(value, OwnedTensor) or value is target:
        return
    target.copy_(_part_of(value, piece, target) if target.dim() > 0 else value)


def _share(piece: Piece, part: nn.Parameter, value: Any) -> Any:
    """Returns the part of a parameter's value in the optimizer's state that `part` holds."""
    if not isinstance(value, torch.Tensor) or value.shape != piece.parameter.shape:
        return value
    return _part_of(value, piece, part).to(part.device, copy=True)


def _copy(target: Any, value: Any) -> None:
    """Copies a value that is not trained. A value that was loaded in place may share the target's
    memory.
    """
    if not isinstance(target, torch.Tensor):
        return
    if isinstance(target, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(
            value.to(target.device), target.device_mesh, target.placements, src_data_rank=None
        )
    target.copy_(value)


def split_state(
    optimizer: torch.optim.Optimizer, whole: nn.Parameter, piece: Piece, part: nn.Parameter
) -> None:
    """Gives `part` its share of the state that the optimizer has for the whole parameter."""
    if whole not in optimizer.state:
        return
    optimizer.state[part] = {
        key: _share(piece, part, value) for key, value in optimizer.state[whole].items()
    }
