"""A model trained by a strategy: its stages on torch.distributed.pipelining, hetccl in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from hetccl.agreement import check_alike, digest
from hetccl.parallel.models import ParallelError
from hetccl.parallel.stage import RoutedStage, find_place
from hetccl.parallel.strategies import Strategy

_SCHEDULES = {
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero-bubble": "ScheduleInterleavedZeroBubble",
}
_CAUSE_SECONDS = 10.0  # for the loss of a rank to become known in the whole job
_BUCKET_BYTES = 32 << 20  # of gradients that are reduced in one call

Layer = nn.Module | Callable[[], nn.Module]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Parallelize = Callable[[nn.Module, DeviceMesh], nn.Module | None]


class Part(nn.Module):
    """The layers of one stage. Names are the whole model's: "layers.12.weight"."""

    def __init__(
        self, layers: dict[int, nn.Module], first: nn.Module | None, last: nn.Module | None
    ) -> None:
        super().__init__()
        self.first = first
        self.layers = nn.ModuleDict({str(number): layer for number, layer in layers.items()})
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes rows of samples, and returns as many."""
        if self.first is not None:
            x = self.first(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.last is None else self.last(x)


class Pipeline:
    """One rank's part of a model, and the steps of its training. Not thread-safe::

        pipeline = Pipeline(layers, strategy, loss, first=embedding, last=head)
        optimizer = torch.optim.AdamW(pipeline.parameters())
        for inputs, targets in batches:
            loss = pipeline.step(inputs, targets)
            optimizer.step()
            optimizer.zero_grad()

    All ranks of the default process group make one, with the same arguments. `layers` are the
    model's layers in order, or functions that make them; a rank makes and keeps its own only.
    `first` (an embedding) belongs to the first stage and `last` (a head) to the last. Each takes
    and returns one tensor whose first dimension are samples. `loss` is the mean over the samples
    that it is given. Replicas start from the weights of the first one. With tensor parallelism
    `parallelize(layer, mesh)` applies it to each layer, as `parallelize_module` of torch does.

    Raises ParallelError on all ranks where they differ, or where the model cannot be cut so.
    """

    def __init__(
        self, layers: Sequence[Layer], strategy: Strategy, loss: Loss, *,
        first: Layer | None = None, last: Layer | None = None,
        parallelize: Parallelize | None = None, device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.strategy = strategy
        self.device = torch.device(device)
        self._loss = loss
        ranks = dist.get_world_size()
        reason = _find_fault(layers, strategy, ranks, first, last, parallelize)
        facts = {"strategy": digest(repr(strategy).encode()), "layers": len(layers)}
        check_alike(facts, reason, ParallelError)
        self.place = find_place(strategy, dist.get_rank())
        self._make_groups()
        self._stage_class = getattr(pipelining, _SCHEDULES[strategy.schedule])
        own = strategy.stages[self.place.position].layers
        self.modules = [
            self._make_part(layers, part, first, last, parallelize).to(self.device) for part in own
        ]
        self._align_replicas()
        self._schedule: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this rank is in the first stage, which reads inputs."""
        return self.place.position == 0

    @property
    def is_last(self) -> bool:
        """Whether this rank is in the last stage, which reads targets."""
        return self.place.position == len(self.strategy.stages) - 1

    def parameters(self) -> Iterator[nn.Parameter]:
        """Returns the parameters of this rank's layers."""
        for part in self.modules:
            yield from part.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Returns this rank's parameters, with the whole model's names: "first.weight",
        "layers.12.weight".
        """
        for part in self.modules:
            yield from part.named_parameters()

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, with the whole model's names."""
        return {name: value for part in self.modules for name, value in part.state_dict().items()}

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Runs forward and backward passes of one batch; returns its mean loss, on every rank.

        `inputs` are the whole batch on ranks of the first stage, `targets` on those of the last;
        others ignore them. Gradients, which add up until `zero_grad`, are afterwards those of the
        mean over the batch, as one process has them. Collective. A rank that is lost is a
        DistBackendError with its name on every other rank.
        """
        self._check_batch("inputs", inputs, self.is_first)
        self._check_batch("targets", targets, self.is_last)
        if self._schedule is None:
            self._schedule = self._make_schedule(inputs)
        before = [parameter.grad for parameter in self.parameters()]
        for parameter in self.parameters():
            parameter.grad = None
        arguments = (self._own_rows(inputs),) if self.is_first else ()
        losses: list[torch.Tensor] = []
        target = self._own_rows(targets) if self.is_last else None
        try:
            self._schedule.step(*arguments, target=target, losses=losses, return_outputs=False)
            self._reduce_gradients()
        except dist.DistBackendError as error:
            raise self._find_cause(error) from error
        for parameter, earlier in zip(self.parameters(), before, strict=True):
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else parameter.grad.add_(earlier)
        return self._add_losses(losses)

    def _check_batch(self, name: str, batch: torch.Tensor, needed: bool) -> None:
        if needed and len(batch) != self.strategy.batch:
            raise ParallelError(
                f"{name} has {len(batch)} samples, but the strategy has batches of "
                f"{self.strategy.batch}: give the whole batch, on every rank"
            )

    def _own_rows(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns this replica's rows of every micro-batch, one micro-batch after another.
        Contiguous, because the stages of torch 2.11 compare strides.
        """
        count, size = self.strategy.micro_batches, self.strategy.micro_batch
        begin = self.place.first_row
        split = batch.reshape(count, size, *batch.shape[1:])
        rows = split[:, begin : begin + self.place.rows]
        return rows.flatten(0, 1).to(self.device).contiguous()

    def _make_groups(self) -> None:
        """Makes all groups on every rank, in the same order, as torch requires."""
        self.data_group: dist.ProcessGroup | None = None
        self.tensor_group: dist.ProcessGroup | None = None
        for stage in self.strategy.stages:
            for index in range(self.strategy.tensor if stage.width > 1 else 0):
                ranks = stage.sharers(index)
                made = dist.new_group(list(ranks))
                self.data_group = made if self.place.rank in ranks else self.data_group
            for replica in range(stage.width if self.strategy.tensor > 1 else 0):
                ranks = stage.replica(replica)
                made = dist.new_group(list(ranks))
                self.tensor_group = made if self.place.rank in ranks else self.tensor_group
        self._alone = dist.new_group([self.place.rank], use_local_synchronization=True)

    def _make_part(
        self, layers: Sequence[Layer], part: tuple[int, int], first: Layer | None,
        last: Layer | None, parallelize: Parallelize | None,
    ) -> Part:  # fmt: skip
        begin, end = part
        made = Part(
            {number: _make(layers[number]) for number in range(begin, end)},
            _make(first) if first is not None and begin == 0 else None,
            _make(last) if last is not None and end == self.strategy.layers else None,
        )
        if self.tensor_group is not None:
            assert parallelize is not None
            mesh = DeviceMesh.from_group(self.tensor_group, self.device.type)
            for module in (made.first, *made.layers.values(), made.last):
                if module is not None:
                    parallelize(module, mesh)
        return made

    def _align_replicas(self) -> None:
        """Gives all replicas of a stage the weights of the first one."""
        if self.data_group is None:
            return
        stage = self.strategy.stages[self.place.position]
        source = stage.sharers(self.place.index)[0]
        for part in self.modules:
            for tensor in (*part.parameters(), *part.buffers()):
                dist.broadcast(_local(tensor.detach()), source, self.data_group)

    def _make_schedule(self, inputs: torch.Tensor) -> Any:
        shapes = self._infer_shapes(inputs)
        stages = []
        for chunk, part in enumerate(self.modules):
            index = chunk * len(self.strategy.stages) + self.place.position
            takes, gives = (
                torch.empty(self.place.rows, *shape, dtype=dtype, device="meta")
                .requires_grad_(dtype.is_floating_point and (index, one) != (0, 0))
                for one, (shape, dtype) in enumerate(shapes[index : index + 2])
            )  # fmt: skip
            stages.append(RoutedStage(
                part, index, self.strategy, self.place, self.device, takes, gives, self._alone
            ))  # fmt: skip
        weight = self.place.rows / self.strategy.batch

        def weigh(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self._loss(output, target) * weight

        first = stages[0] if self.strategy.schedule == "1f1b" else stages
        return self._stage_class(
            first, self.strategy.micro_batches, loss_fn=weigh, scale_grads=False
        )

    def _infer_shapes(self, inputs: torch.Tensor) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Returns the shape of a sample, and the type, before each of torch's stages and after the
        last.

        The first replica of each stage runs one sample, and all ranks get the result.
        """
        found: list[Any] = [(tuple(inputs.shape[1:]), inputs.dtype)] if self.is_first else [None]
        for index, part in enumerate(self.strategy.parts):
            chunk, position = divmod(index, len(self.strategy.stages))
            stage = self.strategy.stages[position]
            told: list[Any] = [None]
            if self.place.rank in stage.replica(0):
                sample = inputs[:1].to(self.device) if index == 0 else torch.zeros(
                    1, *found[-1][0], dtype=found[-1][1], device=self.device
                )  # fmt: skip
                told = [_try(self.modules[chunk], sample, part)]
            dist.broadcast_object_list(told, stage.ranks[0])
            if isinstance(told[0], str):
                raise ParallelError(told[0])
            found.append(told[0])
        return found

    def _reduce_gradients(self) -> None:
        """Adds up the gradients of a stage's replicas. The loss is weighed, so the sum is the mean
        over the batch."""
        if self.data_group is None:
            return
        buckets: dict[torch.dtype, list[torch.Tensor]] = {}
        works = []
        for parameter in self.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:  # other replicas may have used it
                parameter.grad = torch.zeros_like(parameter)
            gradient = _local(parameter.grad)
            bucket = buckets.setdefault(gradient.dtype, [])
            bucket.append(gradient)
            if sum(one.nbytes for one in bucket) >= _BUCKET_BYTES:
                works.append(self._reduce(buckets.pop(gradient.dtype)))
        works += [self._reduce(bucket) for bucket in buckets.values()]
        for work, flat, bucket in works:
            work.wait()
            parts = torch.split(flat, [one.numel() for one in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def _reduce(self, bucket: list[torch.Tensor]) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        return dist.all_reduce(flat, group=self.data_group, async_op=True), flat, bucket

    def _find_cause(self, error: dist.DistBackendError) -> dist.DistBackendError:
        """Returns the error of the whole job, if there is one by now. A stage's group may only know
        that one of its ranks has left, which may have left because a rank of another stage was
        lost.
        """
        try:
            # No other call of a step has this type, so ranks that go on fail, too.
            work = dist.all_reduce(
                torch.zeros(3, dtype=torch.int8, device=self.device), async_op=True
            )
            end = time.monotonic() + _CAUSE_SECONDS
            while not work.is_completed() and time.monotonic() < end:
                time.sleep(0.01)
            if work.is_completed():
                work.wait()
        except dist.DistBackendError as cause:
            return cause
        return error

    def _add_losses(self, losses: list[torch.Tensor]) -> torch.Tensor:
        """Returns the batch's mean loss. All ranks take part, so that all learn of a lost rank."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        if self.place.index == 0:
            for loss in losses:
                total += loss.detach()
        dist.all_reduce(total)
        return total


def _find_fault(
    layers: Sequence[Layer], strategy: Strategy, ranks: int, first: Layer | None,
    last: Layer | None, parallelize: Parallelize | None,
) -> str:  # fmt: skip
    """Returns the fault of the arguments; "" if there is none."""
    if strategy.size != ranks:
        return f"the strategy is for {strategy.size} ranks, and the job has {ranks}"
    if len(layers) != strategy.layers:
        return f"the strategy is for {strategy.layers} layers, and the model has {len(layers)}"
    kind = _SCHEDULES[strategy.schedule]
    if not hasattr(pipelining, kind):
        return f"schedule: torch {torch.__version__} has no {kind}: plan with another schedule"
    if strategy.tensor > 1 and parallelize is None:
        return (
            f"the strategy shares layers among {strategy.tensor} ranks: give parallelize=, which "
            "applies tensor parallelism to a layer"
        )
    owners: dict[int, int] = {}
    last_part = len(strategy.parts) - 1
    named = [("first", first, 0), ("last", last, last_part)]
    for stage, (begin, end) in enumerate(strategy.parts):
        named += [(f"layer {number}", layers[number], stage) for number in range(begin, end)]
    for name, layer, stage in named:
        for parameter in layer.parameters() if isinstance(layer, nn.Module) else ():
            if owners.setdefault(id(parameter), stage) != stage:
                return (
                    f"{name} of stage {stage} shares a parameter with stage "
                    f"{owners[id(parameter)]}: the model cannot be cut between them; give each "
                    "its own"
                )
    return ""


def _make(layer: Layer) -> nn.Module:
    return layer if isinstance(layer, nn.Module) else layer()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's part of a parameter that tensor parallelism shards."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _try(module: Part, sample: torch.Tensor, part: tuple[int, int]) -> Any:
    """Returns the shape of a sample after a stage, and its type; or a text with the reason why
    there is none.
    """
    modes = [(one, one.training) for one in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            output = module(sample)
    except Exception as error:  # a user's layer may raise any: all ranks hear of it
        return f"layers {part[0]} to {part[1] - 1}: {type(error).__name__}: {error}"
    finally:
        for one, was_training in modes:
            one.training = was_training
    if not isinstance(output, torch.Tensor) or output.dim() < 1 or len(output) != 1:
        kind = (f"a tensor of shape {tuple(output.shape)} for one sample"
                if isinstance(output, torch.Tensor) else f"a {type(output).__name__}")  # fmt: skip
        return (
            f"layers {part[0]} to {part[1] - 1} return {kind}: the model cannot be cut there, "
            "since a stage hands on one tensor whose first dimension are samples"
        )
    return tuple(output.shape[1:]), output.dtype
