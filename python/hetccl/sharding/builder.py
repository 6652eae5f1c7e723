"""Shards a model and its optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from hetccl.sharding.checks import (
    check_agreement,
    check_gradient_dtype,
    check_modules,
    check_wires,
    find_units,
    warn_of_optimizer,
)
from hetccl.sharding.degrees import (
    PRESETS,
    Degree,
    Sharding,
    ShardingError,
    find_degrees,
    find_place,
)
from hetccl.sharding.gradients import GradientFlow, Gradients
from hetccl.sharding.groups import Groups, make_groups, read_tree, world_backend
from hetccl.sharding.layout import Flat
from hetccl.sharding.masters import Masters
from hetccl.sharding.sharded import Sharded
from hetccl.sharding.state import TrainingState, plain_name, split_state
from hetccl.sharding.weights import GradientScatter, WeightGather


def _is_line(parameter: torch.Tensor) -> bool:
    return parameter.dim() < 2


def shard(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    preset: str | Sharding = "exact",
    *,
    weights: Degree | None = None,
    gradients: Degree | None = None,
    optimizer_states: Degree | None = None,
    secondary: Degree | None = None,
    weight_wire: str | None = None,
    gradient_wire: str | None = None,
    update_wire: str | None = None,
    units: Sequence[nn.Module] | None = None,
    exact: Callable[[torch.Tensor], bool] = _is_line,
    mp_policy: MixedPrecisionPolicy | None = None,
    gradient_dtype: torch.dtype | None = None,
) -> Sharded:
    """Shards `model` by FSDP2, and `optimizer`, which is of its parameters, over the default group.

    Collective. Degrees and encodings are those of the preset (a name in `PRESETS`, or a Sharding),
    unless given: None leaves an argument to the preset, "" switches an encoding off, secondary=0 a
    second partition. "exact" encodes nothing; "three-level" has its degrees, and sends weights in 8
    bits and gradients in 4. `units` are the modules whose weights are gathered at once, by default
    the elements of the model's outermost `nn.ModuleList`s; the rest is one more. Parameters for
    which `exact` is true (those of one dimension) are never encoded. `mp_policy` is FSDP2's.
    `gradient_dtype` is the type in which gradients are added up between ranks and passes, by
    default that of the parameters. All ranks get rank 0's weights and buffers.

    Afterwards `optimizer.step()`, `zero_grad()` and schedulers work as before, on float32 masters
    of this rank's part (float64 where the model is). Raises ShardingError, on all ranks, and
    TypeError for another model or optimizer than torch's.
    """
    given = {
        "weights": weights, "gradients": gradients, "optimizer_states": optimizer_states,
        "secondary": secondary, "weight_wire": weight_wire, "gradient_wire": gradient_wire,
        "update_wire": update_wire,
    }  # fmt: skip
    changes = {key: value for key, value in given.items() if value is not None}
    _check_types(model, optimizer)
    world_backend()
    own = _Arguments(preset, changes, units, exact, mp_policy, gradient_dtype)
    sharding, found, exact_names, names = _agree(model, optimizer, own)
    rank = dist.get_rank()
    if rank == 0:
        warn_of_optimizer(optimizer)
    tree = read_tree(next(model.parameters()).device)
    degrees = find_degrees(sharding, tree)
    groups = make_groups(find_place(rank, degrees, tree), rank, sharding.gradient_wire)
    _take_values_of_first_rank(model)
    builder = _Builder(model, groups, sharding, exact_names, gradient_dtype)
    before = dict(model.named_parameters())
    for unit in found:
        builder.shard_unit(unit, mp_policy or MixedPrecisionPolicy())
    include_unused = getattr(model, "set_reduce_scatter_unused_params", None)  # torch 2.13
    if include_unused is not None:
        include_unused(True)
    _rewire(optimizer, before, builder.masters)
    state = TrainingState(model, optimizer, builder.masters, names)
    return Sharded(model, optimizer, degrees, builder.flow, builder.masters, builder.gathers, state)


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """Those of `shard`, by their names there. `changes` are the preset's."""

    preset: str | Sharding
    changes: dict[str, Any]
    units: Sequence[nn.Module] | None
    exact: Callable[[torch.Tensor], bool]
    mp_policy: MixedPrecisionPolicy | None
    gradient_dtype: torch.dtype | None


def _agree(
    model: nn.Module, optimizer: torch.optim.Optimizer, own: _Arguments
) -> tuple[Sharding, list[nn.Module], set[str], list[list[str]]]:
    """Returns what all ranks have agreed on: the sharding, the units, the names of exact
    parameters, and the names in each of the optimizer's groups. All ranks raise ShardingError if
    one of them is wrong or differs.
    """
    sharding, found, error = Sharding(1, 1, 1), [], ""
    exact: set[str] = set()
    try:
        check_modules(model, optimizer)
        sharding = _change(own.preset, own.changes)
        check_wires(sharding, model)
        check_gradient_dtype(own.gradient_dtype, sharding.gradient_wire)
        found = find_units(model, own.units)
        exact = {name for name, parameter in model.named_parameters() if own.exact(parameter)}
    except ShardingError as wrong:
        error = str(wrong)
    except Exception as wrong:  # whatever a user's code raises: the others wait for this rank
        error = f"{type(wrong).__name__}: {wrong}"
    name_of = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    names = [[name_of.get(id(p), "") for p in g["params"]] for g in optimizer.param_groups]
    of_units = [[plain_name(name) for name, _ in unit.named_parameters()] for unit in found]
    facts = {
        "units": of_units,
        "exact": sorted(exact),
        "gradient_dtype": str(own.gradient_dtype),
        "mp_policy": str(own.mp_policy),
        "the optimizer": type(optimizer).__qualname__,
        "the optimizer's groups": names,
        "the optimizer's options": [_options_of(group) for group in optimizer.param_groups],
    }
    check_agreement(model, sharding, facts, error)
    return sharding, found, exact, names


def _check_types(model: object, optimizer: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r}, which is no nn.Module")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {optimizer!r}, which is no torch.optim.Optimizer")


def _options_of(group: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in group.items() if key != "params"}


def _change(preset: str | Sharding, changes: dict[str, Any]) -> Sharding:
    if isinstance(preset, Sharding):
        return dataclasses.replace(preset, **changes)
    if preset not in PRESETS:
        raise ShardingError(f"preset={preset!r} is none of {', '.join(PRESETS)}")
    return dataclasses.replace(PRESETS[preset], **changes)


@torch.no_grad()
def _take_values_of_first_rank(model: nn.Module) -> None:
    """Copies rank 0's values to all ranks, as DistributedDataParallel does, because ranks may have
    made the model with different seeds.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        values = tensor.detach().contiguous()
        dist.broadcast(values, 0)
        if values.data_ptr() != tensor.data_ptr():
            tensor.copy_(values)


def _in_order_of_fsdp(module: nn.Module, seen: set[int]) -> Iterator[nn.Parameter]:
    """The parameters of a unit in the order in which FSDP2 lays them out: children come first."""
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from _in_order_of_fsdp(child, seen)
    for parameter in module.parameters(recurse=False):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter


class _Builder:
    """Shards units, one after the other."""

    def __init__(
        self,
        model: nn.Module,
        groups: Groups,
        sharding: Sharding,
        exact: set[str],
        gradient_dtype: torch.dtype | None,
    ) -> None:
        self._model = model
        self._groups = groups
        self._sharding = sharding
        self._exact = exact
        self._gradient_dtype = gradient_dtype
        self._has_secondary = bool(sharding.secondary)
        device = next(model.parameters()).device.type
        assert groups.weights.process_group is not None
        self._mesh = DeviceMesh.from_group(groups.weights.process_group, device)
        self.flow = GradientFlow()
        self.masters: list[Masters] = []
        self.gathers: list[WeightGather] = []

    def shard_unit(self, unit: nn.Module, mp_policy: MixedPrecisionPolicy) -> None:
        """Shards the parameters of `unit` that no other unit has."""
        name_of = {id(p): name for name, p in self._model.named_parameters()}
        own = [name_of[id(parameter)] for parameter in _in_order_of_fsdp(unit, set())]
        module = fully_shard(unit, mesh=self._mesh, mp_policy=mp_policy)
        now = {name: cast("DTensor", p) for name, p in self._model.named_parameters()}
        trained = [name for name in own if now[name].requires_grad]
        if self._groups.weights.size > 1:
            self._set_gather(module, {name: now[name] for name in own})
            self._set_scatter(module, {name: now[name] for name in trained})
        for is_exact in (False, True):
            names = [name for name in trained if self._is_exact(name) == is_exact]
            if names:
                self._add([(plain_name(name), now[name]) for name in names], is_exact)

    def _set_gather(self, module: FSDPModule, parameters: dict[str, DTensor]) -> None:
        wire = self._sharding.weight_wire
        if parameters and (wire or self._has_secondary):
            gather = WeightGather(parameters, self._exact, self._groups, wire, self._has_secondary)
            module.set_custom_all_gather(cast("Any", gather))
            self.gathers.append(gather)

    def _set_scatter(self, module: FSDPModule, parameters: dict[str, DTensor]) -> None:
        if parameters and self._sharding.gradient_wire:
            scatter = GradientScatter(parameters, self._exact, self._groups)
            module.set_custom_reduce_scatter(cast("Any", scatter))

    def _is_exact(self, name: str) -> bool:
        """Whether a parameter goes into a buffer of its unit that is never encoded."""
        encodes = self._sharding.gradient_wire or self._sharding.update_wire
        return bool(encodes) and name in self._exact

    def _add(self, parameters: list[tuple[str, DTensor]], is_exact: bool) -> None:
        flat = Flat(parameters, self._groups)
        masters = Masters(flat, self._groups, "" if is_exact else self._sharding.update_wire)
        dtype = self._gradient_dtype or parameters[0][1].dtype
        Gradients(
            flat, self._groups, is_exact, dtype, self.flow, masters.add_gradients
        ).register_hooks()
        self.masters.append(masters)


def _rewire(
    optimizer: torch.optim.Optimizer, before: dict[str, nn.Parameter], masters: list[Masters]
) -> None:
    """Makes the optimizer step on the masters instead of the model's parameters."""
    pieces = {piece.name: (piece, part) for one in masters for piece, part in one.parameters}
    whole = {id(parameter): plain_name(name) for name, parameter in before.items()}
    for group in optimizer.param_groups:
        names = [(parameter, whole[id(parameter)]) for parameter in group["params"]]
        group["params"] = [pieces[name][1] for _, name in names if name in pieces]
        for parameter, name in names:
            if name in pieces:
                split_state(optimizer, parameter, *pieces[name])
            optimizer.state.pop(parameter, None)
