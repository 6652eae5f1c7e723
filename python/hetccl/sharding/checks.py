"""Finds the arguments that shard() refuses, and the modules whose weights are gathered together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from hetccl.agreement import gather
from hetccl.sharding.degrees import Sharding, ShardingError
from hetccl.sharding.state import plain_name
from hetccl.sharding.wires import check_wire

# They mix the elements of a parameter, so parts of it cannot be stepped on their own.
_WHOLE = ("Adafactor", "LBFGS", "Muon", "SparseAdam")
_ENCODED = (torch.float32, torch.float16, torch.bfloat16)


def find_units(model: nn.Module, given: Sequence[nn.Module] | None) -> list[nn.Module]:
    """The units, by default the elements of outermost ModuleLists; then the model, for the rest.

    Elements without a forward, such as inner ModuleLists, are replaced by their children. Raises
    ShardingError for units that FSDP2 cannot shard, or of which it would make two copies of one
    parameter.
    """
    if given is not None and not isinstance(given, Iterable):
        raise ShardingError(f"units={given!r} is no list of modules")
    units = list(dict.fromkeys(_elements_of_lists(model)) if given is None else given)
    unit_of = dict.fromkeys(map(id, model.modules()), -1)
    for number, unit in enumerate(units):
        if not isinstance(unit, nn.Module):
            raise ShardingError(f"units: {unit!r} is no module")
        if unit is model:
            raise ShardingError("units: leave out the model itself, whose rest is always one")
        if not _has_forward(unit):
            raise ShardingError(f"units: {type(unit).__name__} has no forward of its own")
        for module in unit.modules():
            if unit_of.get(id(module)) != -1:
                raise ShardingError(
                    f"units: a {type(module).__name__} is in two units, or not in the model"
                )
            unit_of[id(module)] = number
    holders: dict[int, tuple[str, int]] = {}
    types: dict[int, tuple[str, torch.dtype]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        module = model.get_submodule(name.rpartition(".")[0])
        number = unit_of[id(module)]
        first, its_unit = holders.setdefault(id(parameter), (name, number))
        if its_unit != number:
            raise ShardingError(
                f"units: {first} and {name} are the same parameter, in two units; give units that "
                "do not share parameters"
            )
        other, dtype = types.setdefault(number, (name, parameter.dtype))
        if dtype != parameter.dtype or not dtype.is_floating_point:
            raise ShardingError(
                f"{name} is {parameter.dtype}, {other} {dtype}: a unit's parameters must have one "
                "type of floats"
            )
    return [*units, model]


def _elements_of_lists(module: nn.Module, is_in_list: bool = False) -> Iterator[nn.Module]:
    for child in module.children():
        if is_in_list and _has_forward(child):
            yield child
        else:
            yield from _elements_of_lists(child, is_in_list or isinstance(child, nn.ModuleList))


def _has_forward(module: nn.Module) -> bool:
    """FSDP2 gathers a unit's weights when its forward is called, so a unit must have one."""
    return getattr(module.forward, "__func__", None) is not nn.Module.forward


def check_wires(sharding: Sharding, model: nn.Module) -> None:
    """Raises ShardingError for an encoding that does not exist, or not for such elements."""
    for argument in ("weight_wire", "gradient_wire", "update_wire"):
        wire: str = getattr(sharding, argument)
        check_wire(argument, wire)
        if wire and any(p.dtype == torch.float64 for p in model.parameters()):
            raise ShardingError(f'{argument}={wire!r}: float64 has no encoding; give ""')


def check_gradient_dtype(dtype: object, wire: str) -> None:
    """Raises ShardingError for a type that cannot hold gradients, or that has no encoding."""
    if not isinstance(dtype, torch.dtype | None):
        raise ShardingError(f"gradient_dtype={dtype!r} is no torch.dtype")
    if dtype not in (None, *_ENCODED, torch.float64):
        raise ShardingError(
            f"gradient_dtype={dtype}: gradients are torch.float32, float16, bfloat16 or float64"
        )
    if wire and dtype == torch.float64:
        raise ShardingError(
            f"gradient_dtype={dtype} has no encoding, so gradient_wire={wire!r} cannot be: give "
            'torch.float32, or gradient_wire=""'
        )


def check_modules(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises ShardingError for a model or an optimizer that cannot be sharded."""
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        raise ShardingError("model: fully_shard has sharded it; give the plain model")
    if isinstance(model, DistributedDataParallel):
        raise ShardingError("model: give the module in DistributedDataParallel, model.module")
    whole = [base.__name__ for base in type(optimizer).__mro__ if base.__name__ in _WHOLE]
    if whole:
        raise ShardingError(
            f"optimizer: {whole[0]} needs whole matrices or gradients, but a rank has only a part "
            "of their elements; take one that treats elements alone, such as AdamW"
        )
    has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    strange = has - {id(parameter) for parameter in model.parameters()}
    if strange:
        raise ShardingError(
            f"optimizer: it has {len(strange)} parameters that are not the model's; make it of "
            "model.parameters() before sharding"
        )
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta":
            raise ShardingError(
                f"model: {name} has no memory (device meta); call model.to_empty() and set its "
                "values first"
            )
        if parameter.requires_grad and id(parameter) not in has:
            raise ShardingError(
                f"optimizer: it lacks {name}; add it, or freeze it by requires_grad_(False)"
            )
        _check_parameter(name, parameter)


def warn_of_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Warns of one that may mix elements, for all that hetccl knows."""
    kinds = (kind for kind in type(optimizer).__mro__ if kind is not torch.optim.Optimizer)
    if not any(k.__module__.startswith("torch.optim") for k in kinds):
        warnings.warn(
            f"{type(optimizer).__name__} is none of torch's optimizers: it must treat each element "
            "alone. One that takes norms of whole parameters, as LAMB does, trains otherwise here",
            stacklevel=3,
        )


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    """Raises ShardingError for a parameter that FSDP2 refuses after it has sharded others, or with
    which its first backward fails."""
    if parameter.dim() == 0:
        raise ShardingError(f"model: {name} has no dimension to split; give it the shape [1]")
    if not parameter.is_contiguous():
        raise ShardingError(
            f"model: {name} is not contiguous; before sharding set parameter.data = "
            "parameter.data.contiguous()"
        )
    if parameter.requires_grad and parameter.numel() == 0:
        raise ShardingError(
            f"model: {name} has no elements, so FSDP2 cannot reduce its gradient; freeze it by "
            "requires_grad_(False), or remove it"
        )


def check_agreement(
    model: nn.Module, sharding: Sharding, facts: dict[str, Any], error: str
) -> None:
    """Raises ShardingError where ranks differ, on all of them. `error` is what is wrong with this
    rank's arguments; `facts` is what else must be the same. Collective."""
    parameters = {
        plain_name(name): f"{[*p.shape]}, {p.dtype}, {'trained' if p.requires_grad else 'frozen'}"
        for name, p in model.named_parameters()
    }
    every = gather((error, sharding, parameters, facts))
    _, first_sharding, first_parameters, first_facts = every[0]
    for rank, (its_error, *_) in enumerate(every):
        if its_error:
            raise ShardingError(f"rank {rank} cannot shard: {its_error}")
    for rank, (_, its_sharding, its_parameters, its_facts) in enumerate(every):
        if its_sharding != first_sharding:
            raise ShardingError(
                f"rank {rank} shards by {its_sharding}, but rank 0 by {first_sharding}: give all "
                "ranks the same"
            )
        if [*its_parameters.items()] != [*first_parameters.items()]:
            raise ShardingError(
                f"rank {rank} has another model than rank 0: "
                + _find_difference(its_parameters, first_parameters)
            )
        unlike = [name for name, value in first_facts.items() if its_facts[name] != value]
        if unlike:
            raise ShardingError(
                f"rank {rank} and rank 0 differ in {', '.join(unlike)}: give all ranks the same"
            )


def _find_difference(its: dict[str, str], first: dict[str, str]) -> str:
    for name in {**first, **its}:
        one, other = its.get(name, "missing"), first.get(name, "missing")
        if one != other:
            return f"{name} is {one} there, and {other} on rank 0"
    return "its parameters are in another order"
