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

from hetccl import encoded_bytes
from hetccl.sharding.degrees import (
    PRESETS,
    Degree,
    Sharding,
    ShardingError,
    find_degrees,
    find_place,
)
from hetccl.sharding.gradients import GradientFlow, Gradients
from hetccl.sharding.groups import Groups, make_groups, read_tree
from hetccl.sharding.layout import Flat
from hetccl.sharding.masters import Masters
from hetccl.sharding.sharded import Sharded
from hetccl.sharding.state import TrainingState, plain_name, split_state
from hetccl.sharding.weights import GradientScatter, WeightGather

# They mix the elements of a parameter, so parts of it cannot be stepped on their own.
_WHOLE = ("Adafactor", "LBFGS", "Muon", "SparseAdam")


def _is_line(parameter: torch.Tensor) -> bool:
    return parameter.dim() < 2


def shard(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    preset: str = "three-level",
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

    Collective. Degrees and encodings are those of the preset (`PRESETS`), unless given; see
    `Sharding`. `units` are the modules whose weights are gathered at once, by default the elements
    of the model's `nn.ModuleList`s; the rest is one more. Parameters for which `exact` is true
    (those of one dimension) are never encoded. `mp_policy` is FSDP2's. `gradient_dtype` is the type
    in which gradients are added up between ranks and passes, by default that of the parameters.

    Afterwards `optimizer.step()`, `zero_grad()` and schedulers work as before, on float32 masters
    of this rank's part (float64 where the model is). Raises ShardingError.
    """
    given = {
        "weights": weights, "gradients": gradients, "optimizer_states": optimizer_states,
        "secondary": secondary, "weight_wire": weight_wire, "gradient_wire": gradient_wire,
        "update_wire": update_wire,
    }  # fmt: skip
    if preset not in PRESETS:
        raise ShardingError(f"preset={preset!r} is none of {', '.join(PRESETS)}")
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    sharding = dataclasses.replace(PRESETS[preset], **changes)
    names = _check_modules(model, optimizer)
    tree = read_tree(next(model.parameters()).device)
    degrees = find_degrees(sharding, tree)
    _check_wires(sharding)
    _check_agreement(model, sharding)
    rank = dist.get_rank()
    groups = make_groups(find_place(rank, degrees, tree), rank, sharding.gradient_wire)
    exact_names = {name for name, parameter in model.named_parameters() if exact(parameter)}
    builder = _Builder(model, groups, sharding, exact_names, gradient_dtype, degrees.secondary > 0)
    before = dict(model.named_parameters())
    for unit in [*(_default_units(model) if units is None else units), model]:
        builder.shard_unit(unit, mp_policy or MixedPrecisionPolicy())
    include_unused = getattr(model, "set_reduce_scatter_unused_params", None)  # torch 2.13
    if include_unused is not None:
        include_unused(True)
    masters = builder.masters
    _rewire(optimizer, before, masters)
    state = TrainingState(model, optimizer, masters, names)
    return Sharded(model, optimizer, degrees, builder.flow, masters, builder.gathers, state)


def _default_units(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


def _check_wires(sharding: Sharding) -> None:
    for argument in ("weight_wire", "gradient_wire", "update_wire"):
        wire: str = getattr(sharding, argument)
        if not wire:
            continue
        try:
            encoded_bytes(1, wire.removesuffix(":stochastic"))
        except Exception as error:
            raise ShardingError(f"{argument}={wire!r}: {error}") from None
        if argument != "gradient_wire" and wire.endswith(":stochastic"):
            raise ShardingError(
                f"{argument}={wire!r}: weights are rounded to nearest, so that all ranks and all "
                "gathers get the same; leave :stochastic to gradient_wire"
            )


def _check_modules(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """The names of the parameters of each of the optimizer's groups."""
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        raise ShardingError("model: fully_shard has sharded it; give the plain model")
    whole = [base.__name__ for base in type(optimizer).__mro__ if base.__name__ in _WHOLE]
    if whole:
        raise ShardingError(
            f"optimizer: {whole[0]} needs whole matrices or gradients, but a rank has only a part "
            "of their elements; take one that treats elements alone, such as AdamW"
        )
    name_of = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    strange = sum(id(p) not in name_of for g in optimizer.param_groups for p in g["params"])
    if strange:
        raise ShardingError(
            f"optimizer: it has {strange} parameters that are not the model's; make it of "
            "model.parameters() before sharding"
        )
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta":
            raise ShardingError(
                f"model: {name} has no memory (device meta); call model.to_empty() and set its "
                "values first"
            )
    return [[name_of[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def _check_agreement(model: nn.Module, sharding: Sharding) -> None:
    shapes = [(n, tuple(p.shape), str(p.dtype)) for n, p in model.named_parameters()]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (sharding, shapes))
    for rank, (its_sharding, its_shapes) in enumerate(every):
        if its_sharding != every[0][0]:
            raise ShardingError(
                f"rank {rank} shards by {its_sharding}, but rank 0 by {every[0][0]}: give all "
                "ranks the same"
            )
        if its_shapes != every[0][1]:
            unlike = set(its_shapes) ^ set(every[0][1])
            raise ShardingError(
                f"rank {rank} has another model than rank 0: they differ in {min(unlike)[0]}"
            )


class _Builder:
    """Shards units, one after the other."""

    def __init__(
        self,
        model: nn.Module,
        groups: Groups,
        sharding: Sharding,
        exact: set[str],
        gradient_dtype: torch.dtype | None,
        has_secondary: bool,
    ) -> None:
        self._model = model
        self._groups = groups
        self._sharding = sharding
        self._exact = exact
        self._gradient_dtype = gradient_dtype
        self._has_secondary = has_secondary
        device = next(model.parameters()).device.type
        assert groups.weights.process_group is not None
        self._mesh = DeviceMesh.from_group(groups.weights.process_group, device)
        self.flow = GradientFlow()
        self.masters: list[Masters] = []
        self.gathers: list[WeightGather] = []

    def shard_unit(self, unit: nn.Module, mp_policy: MixedPrecisionPolicy) -> None:
        """Shards the parameters of `unit` that no other unit has."""
        own = [
            name
            for name, parameter in self._model.named_parameters()
            if not isinstance(parameter, DTensor)
            and any(parameter is one for one in unit.parameters())
        ]
        module = fully_shard(unit, mesh=self._mesh, mp_policy=mp_policy)
        now = {name: cast("DTensor", p) for name, p in self._model.named_parameters()}
        trained = [name for name in own if now[name].requires_grad]
        if self._groups.weights.size > 1:
            if own:
                self._set_gather(module, {name: now[name] for name in own})
            if trained:
                self._set_scatter(module, {name: now[name] for name in trained})
        for is_exact in (False, True):
            names = [name for name in trained if self._is_exact(name) == is_exact]
            if names:
                self._add([(plain_name(name), now[name]) for name in names], is_exact)

    def _set_gather(self, module: FSDPModule, parameters: dict[str, DTensor]) -> None:
        wire = self._sharding.weight_wire
        if wire or self._has_secondary:
            exact = [name in self._exact for name in parameters]
            values = [*parameters.values()]
            gather = WeightGather(values, exact, self._groups, wire, self._has_secondary)
            module.set_custom_all_gather(cast("Any", gather))
            self.gathers.append(gather)

    def _set_scatter(self, module: FSDPModule, parameters: dict[str, DTensor]) -> None:
        if self._sharding.gradient_wire:
            exact = [name in self._exact for name in parameters]
            scatter = GradientScatter([*parameters.values()], exact, self._groups)
            module.set_custom_reduce_scatter(cast("Any", scatter))

    def _is_exact(self, name: str) -> bool:
        """Whether a parameter goes into a buffer of its unit that is never encoded."""
        encodes = self._sharding.gradient_wire or self._sharding.update_wire
        return bool(encodes) and name in self._exact

    def _add(self, parameters: list[tuple[str, DTensor]], is_exact: bool) -> None:
        flat = Flat(parameters, self._groups)
        masters = Masters(flat, self._groups, "" if is_exact else self._sharding.update_wire)
        dtype = self._gradient_dtype or parameters[0][1].dtype
        Gradients(flat, self._groups, is_exact, dtype, self.flow, masters.deliver).watch()
        self.masters.append(masters)


def _rewire(
    optimizer: torch.optim.Optimizer, before: dict[str, nn.Parameter], masters: list[Masters]
) -> None:
    """Has the optimizer step on the masters instead of the model's parameters."""
    pieces = {piece.name: (piece, part) for one in masters for piece, part in one.parameters}
    whole = {id(parameter): plain_name(name) for name, parameter in before.items()}
    for group in optimizer.param_groups:
        names = [(parameter, whole[id(parameter)]) for parameter in group["params"]]
        group["params"] = [pieces[name][1] for _, name in names if name in pieces]
        for parameter, name in names:
            if name in pieces:
                split_state(optimizer, parameter, *pieces[name])
            optimizer.state.pop(parameter, None)
