"""A model and its optimizer, sharded."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import FSDPModule

from hetccl.agreement import gather
from hetccl.sharding.checkpoints import load_checkpoint, read_metadata
from hetccl.sharding.degrees import Degrees, ShardingError
from hetccl.sharding.gradients import GradientFlow
from hetccl.sharding.groups import raise_for_all
from hetccl.sharding.layout import local_of
from hetccl.sharding.masters import Masters
from hetccl.sharding.pipeline import run_all
from hetccl.sharding.saved import Saved
from hetccl.sharding.state import FittingState, TrainingState, plain_name
from hetccl.sharding.weights import WeightGather

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_DEPTH = 4  # updates on their way at any time


class NonFiniteGradientsError(ArithmeticError):
    """Gradients have infinite or NaN elements: no rank has taken the step."""


class Sharded:
    """The model and optimizer that `shard` has sharded; train with them as before.

    `degrees` are the resulting numbers of ranks.

    Not thread-safe. Methods are collective unless they say otherwise.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        degrees: Degrees,
        flow: GradientFlow,
        masters: list[Masters],
        gathers: list[WeightGather],
        state: TrainingState,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.degrees = degrees
        self._flow = flow
        self._masters = masters
        self._trained = {
            name: parameter for one in masters for name, parameter in one.model_parameters.items()
        }
        self._units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._gathers = gathers
        self._state = state
        self._is_torn = False  # a load has ended midway
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        self._zero_grad = optimizer.zero_grad
        optimizer.zero_grad = self._drop_gradients  # type: ignore[method-assign]
        model.zero_grad = self._drop_gradients  # type: ignore[method-assign]
        optimizer.add_param_group = self._refuse_group  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"Sharded({self.degrees})"

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Marks backward passes that are not the last before the step: their gradients are added up
        in each gradients group, and nothing crosses between groups. Not collective by itself.
        """
        before, self._flow.crosses = self._flow.crosses, False
        try:
            yield
        finally:
            self._flow.crosses = before

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scales all gradients so that their norm is at most `max_norm`. Returns the norm before.

        Works as torch.nn.utils.clip_grad_norm_ of the plain model, which sees no gradients here.
        """
        self._flow.finish()
        held = [gradient for _, gradient in self._named_gradients()]
        norms = torch._foreach_norm(held, norm_type) if held else []
        own = torch.linalg.vector_norm(torch.stack([*norms]), norm_type) if norms else None
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        if own is not None:
            total += own.double() if norm_type == torch.inf else own.double() ** norm_type
        if norm_type == torch.inf:
            dist.all_reduce(total, op=dist.ReduceOp.MAX)
        else:
            dist.all_reduce(total)
            total = (total * self.degrees.optimizer_states / self.degrees.size) ** (1 / norm_type)
        if held and torch.isfinite(total):  # if not, step() says whose fault it is
            torch._foreach_mul_(held, float(torch.clamp(max_norm / (total + 1e-6), max=1.0)))
        return total.float()

    def _named_gradients(self) -> list[tuple[str, torch.Tensor]]:
        return [
            (piece.name, parameter.grad)
            for masters in self._masters
            for piece, parameter in masters.parameters
            if parameter.grad is not None
        ]

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _drop_gradients(self, set_to_none: bool = True) -> None:
        self._flow.drop()
        if self._has_failed and hasattr(self.model, "reset_iter_state"):  # torch 2.13
            for parameter in self.model.parameters():  # those that are still gathered
                parameter.grad = None
            cast("FSDPModule", self.model).reset_iter_state()
        self._zero_grad(set_to_none)

    def _refuse_group(self, param_group: dict[str, Any]) -> None:
        raise ShardingError("optimizer: give it all parameters before it is sharded")

    def _drop_gathered(self) -> None:
        """Frees the weights that FSDP2 keeps gathered after a forward without a backward pass."""
        for unit in self._units:
            unit.reshard()

    @property
    def _has_failed(self) -> bool:
        """Whether a pass has begun and not ended."""
        context = cast("FSDPModule", self.model)._get_fsdp_state()._state_ctx
        return context.iter_forward_root is not None or context.post_backward_final_callback_queued

    def _check_parameters(self) -> None:
        """Raises ShardingError if parameters have been frozen, unfrozen or replaced."""
        trained = self._trained
        for name, parameter in self.model.named_parameters():
            if trained.get(plain_name(name), parameter) is not parameter:
                raise ShardingError(
                    f"{plain_name(name)} is another parameter than when the model was sharded: "
                    "change weights in place, as load_state_dict(assign=False) does"
                )
            if parameter.requires_grad != (plain_name(name) in trained):
                state = "trained" if parameter.requires_grad else "frozen"
                raise ShardingError(
                    f"{plain_name(name)} is {state} now, but was not when the model was sharded: "
                    "set requires_grad before"
                )

    def _before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(callable(one) for one in (*args, *kwargs.values())):
            raise ShardingError("step(closure): call the model before the step, not in it")
        self._check_whole()
        if self._has_failed:
            raise ShardingError(
                "a forward or backward pass has failed: call zero_grad() to go on without it, or, "
                "with torch before 2.13, start again from a checkpoint"
            )
        self._drop_gathered()
        self._check_parameters()
        self._flow.finish()
        self._check_finite()
        for masters in self._masters:
            masters.adopt_changes()

    def _check_finite(self) -> None:
        """Raises NonFiniteGradientsError on all ranks alike. When it returns on one rank, all ranks
        have called it, so all take the step: the optimizer needs nothing of other ranks."""
        named = self._named_gradients()
        worst = torch.zeros((), device=self._device)
        if named:
            largest = torch._foreach_norm([gradient for _, gradient in named], torch.inf)
            worst += (~torch.isfinite(torch.stack([*largest]))).any()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        if not worst:
            return
        own = [name for name, gradient in named if not torch.isfinite(gradient).all()]
        names = sorted(set(itertools.chain.from_iterable(gather(own))))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise NonFiniteGradientsError(
            f"gradients of {', '.join(names[:3])}{more} have NaN or infinite elements: no rank has "
            "taken the step; call zero_grad() to go on without it"
        )

    @torch.no_grad()
    def _after_step(self, *_: Any) -> None:
        run_all((masters.update_weights() for masters in self._masters), _DEPTH)

    def memory(self) -> dict[str, int]:
        """The bytes that this rank has now: of weights, the secondary partition, gradients and
        optimizer states, masters included. Not collective."""
        weights = sum(
            local_of(cast("DTensor", parameter)).untyped_storage().nbytes()
            for parameter in self.model.parameters()
        )
        states = sum(
            value.nbytes
            for state in self.optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )
        return {
            "weights": weights,
            "secondary": sum(gather.secondary_bytes for gather in self._gathers),
            "gradients": self._flow.nbytes + sum(g.nbytes for _, g in self._named_gradients()),
            "optimizer_states": states + sum(masters.values.nbytes for masters in self._masters),
        }

    def _check_whole(self) -> None:
        if self._is_torn:
            raise ShardingError(
                "a load has ended midway, so values are partly its checkpoint's: load another one"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint of torch.distributed.checkpoint to the folder `path`."""
        self._check_whole()
        self._flow.finish()
        save(self.state_dict(), checkpoint_id=path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads a checkpoint of `save`, or one that torch has saved of a plain or an FSDP2 model as
        {"model": …, "optimizer": …}, with any degrees and any number of ranks.

        All ranks raise ShardingError for a checkpoint of another model or optimizer, and nothing
        has changed. If reading fails midway, all raise torch's CheckpointException; values are then
        partly the checkpoint's, and no step is taken before another one has been loaded.

        A checkpoint runs no code: one that names other classes than those of torch's metadata, or
        holds objects that torch's weights-only loader refuses, cannot be read.
        """
        with self._undoing():
            state = self._prepare_to_load(path)
        with self._taking():
            load_checkpoint(state, path)
            self.load_state_dict(state)

    def _prepare_to_load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """The state dict that a checkpoint is loaded into, which fits it."""
        saved, reason = Saved({}), ""
        try:
            saved = Saved(read_metadata(path).state_dict_metadata)
        except Exception as error:
            reason = f"{path} cannot be read: {error}"
        raise_for_all(reason)
        self.optimizer.zero_grad()
        if saved.has_states:
            self._state.make_optimizer_state()
        state = self.state_dict()
        states = state["optimizer"]["state"]
        for name in list(states):  # a parameter that never had a gradient has none
            if not saved.has_state(name):
                del states[name]
        groups = copy.deepcopy(state["optimizer"]["param_groups"])
        raise_for_all(saved.find_fault(self._state.values(), states, len(groups)))
        first = {"optimizer": {"param_groups": groups}}
        load_checkpoint(first, path)
        self._state.check_groups(first["optimizer"]["param_groups"])
        return state

    def _check_state(self, state: Mapping[str, Any]) -> FittingState:
        fitting, reason = FittingState({}, {}, [], False), ""
        try:
            fitting = self._state.check(state)
        except ShardingError as error:
            reason = str(error)
        raise_for_all(reason)
        return fitting

    @contextlib.contextmanager
    def _undoing(self) -> Iterator[None]:
        """Restores the optimizer's state if the body fails."""
        torn, self._is_torn = self._is_torn, False  # the optimizer makes its state by a step
        had = list(self.optimizer.state)
        try:
            yield
        except BaseException:
            self._is_torn = torn
            for parameter in set(self.optimizer.state) - set(had):
                del self.optimizer.state[parameter]
            raise

    @contextlib.contextmanager
    def _taking(self) -> Iterator[None]:
        """If the body fails, refuses further steps until a whole state has been loaded."""
        try:
            yield
        except BaseException:
            self._is_torn = True
            raise
        self._is_torn = False

    def state_dict(self) -> dict[str, Any]:
        """For torch.distributed.checkpoint: {"model": …, "optimizer": …}, with the plain model's
        names and shapes; float32 values of all that is trained. It shares memory with the training,
        so that loading writes to it. Before the first step the optimizer has no state to load to:
        see `load`. Not collective."""
        for masters in self._masters:
            masters.adopt_changes()
        return self._state.collect()

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state that was loaded into a `state_dict()`, or the plain model's and
        optimizer's state dicts, whole on every rank, as {"model": …, "optimizer": …}.

        All ranks raise ShardingError for a state of another model or optimizer, before anything is
        copied. Gradients are dropped.
        """
        self.optimizer.zero_grad()
        with self._undoing():
            fitting = self._check_state(state)
            if fitting.is_whole and fitting.states:
                self._state.make_optimizer_state()
        with self._taking():
            self._state.restore(fitting)
            for gather in self._gathers:
                gather.drop_secondary()
            run_all((masters.update_weights(exactly=True) for masters in self._masters), _DEPTH)
