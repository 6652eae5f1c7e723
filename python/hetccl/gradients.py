"""Gradients of DistributedDataParallel in fewer bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hetccl.torch_backend import backend_of, quantized

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class Residuals:
    """The rounding errors of the encoded gradients of one model on this rank.

    There is a tensor for each of the model's buckets; together they are as large as its gradients.
    Not thread-safe.
    """

    def __init__(self) -> None:
        # By the bucket's index: its parameters' ids, and its residual.
        self._buckets: dict[int, tuple[list[int], torch.Tensor]] = {}
        self._parts: dict[int, torch.Tensor] = {}  # views of those, by the parameter's id
        self._is_taken = False

    def take(self) -> None:
        """Raises ValueError if they belong to a model already, because those of two models would
        mix.
        """
        if self._is_taken:
            raise ValueError("residuals were given to a model before: make new ones for this one")
        self._is_taken = True

    def find(self, bucket: Any) -> torch.Tensor:
        """Returns the residual of a dist.GradBucket. If torch has put parameters into other
        buckets, their parts go with them.
        """
        import torch

        ids = [id(parameter) for parameter in bucket.parameters()]
        known = self._buckets.get(bucket.index())
        if known is not None and known[0] == ids:
            return known[1]
        buffer: torch.Tensor = bucket.buffer()
        residual = torch.zeros_like(buffer)
        for key, gradient in zip(ids, bucket.gradients(), strict=True):
            first = gradient.storage_offset() - buffer.storage_offset()
            part = residual[first : first + gradient.numel()]
            if key in self._parts:
                part.copy_(self._parts[key])
            self._parts[key] = part
        others = {at: one for at, one in self._buckets.items() if not {*one[0]} & {*ids}}
        self._buckets = {**others, bucket.index(): (ids, residual)}
        return residual

    def scale(self, factor: float) -> None:
        """Multiplies all residuals by `factor`. Call it when a torch.amp.GradScaler changes its
        scale, by the same factor, because residuals are of scaled gradients. Raises ValueError
        unless it is positive and finite.
        """
        if not 0 < factor < math.inf:
            raise ValueError(f"factor is {factor}: it must be positive and finite")
        for part in self._parts.values():
            part *= factor

    @property
    def n_bytes(self) -> int:
        """The memory that they take."""
        return sum(part.nbytes for part in self._parts.values())


def _is_line(parameter: torch.Tensor) -> bool:
    return parameter.dim() < 2


def compress_gradients(
    model: Any,
    wire: str = "int8",
    exact: Callable[[torch.Tensor], bool] = _is_line,
    residuals: Residuals | None = None,
) -> dist.ProcessGroup:
    """Makes `model`, a DistributedDataParallel, average its gradients encoded between clusters.

    Call it before the first backward pass. Collective over the model's group, whose ranks must have
    made the same groups so far, because it makes two more. `wire` is as in `hetccl.quantized`.
    `exact`, which is called once, here, tells the parameters whose gradients are averaged as they
    are (by default those of one dimension: biases, norms). With `residuals`, the rounding errors of
    a step are added to the next step's gradients. Returns the group that encodes.

    Raises ValueError if the residuals belong to a model already, or if ranks keep other parameters
    exact (on all of them), and TypeError for arguments of other types.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"model is a {type(model).__name__}, but must be a DistributedDataParallel")
    if not isinstance(wire, str):
        raise TypeError(f'wire is {wire!r}, but must be a text, such as "int8"')
    if not callable(exact):
        raise TypeError(f"exact is {exact!r}, but must be a function of a parameter")
    if residuals is not None and not isinstance(residuals, Residuals):
        raise TypeError("residuals must be hetccl.Residuals(), or None")
    if residuals is not None:
        residuals.take()

    def make_group(wire: str) -> dist.ProcessGroup:
        everybody = model.process_group is dist.group.WORLD
        group: dist.ProcessGroup = dist.new_group(
            dist.get_process_group_ranks(model.process_group), backend="hetccl",
            pg_options=quantized(wire), use_local_synchronization=not everybody,
        )  # fmt: skip
        return group

    kept = {name: parameter for name, parameter in model.named_parameters() if exact(parameter)}
    _check_kept([*kept], model.process_group)
    averages = _Averages(
        make_group(wire), make_group(""), {id(parameter) for parameter in kept.values()}, residuals
    )

    # torch compares annotations with its types, which they are not here, but text.
    def hook(_, bucket):  # type: ignore[no-untyped-def]
        return averages.start(bucket)

    model.register_comm_hook(None, hook)
    return averages.encoding


def _check_kept(names: list[str], group: dist.ProcessGroup) -> None:
    """Raises ValueError on all ranks if they keep different parameters exact. Collective."""
    from hetccl.agreement import gather

    every = gather(names, group)
    for rank, its_names in enumerate(every):
        unlike = sorted({*its_names} ^ {*every[0]})
        if unlike:
            raise ValueError(
                f"exact: rank {rank} of the model's group and rank 0 differ in {unlike[0]}: all "
                "ranks must keep the same parameters exact"
            )


class _Averages:
    """The averages of a model's buckets. Those of the parameters with ids in `kept` are exact."""

    def __init__(
        self,
        encoding: dist.ProcessGroup,
        plain: dist.ProcessGroup,
        kept: set[int],
        residuals: Residuals | None,
    ) -> None:
        self.encoding = encoding
        self._plain = plain
        self._kept = kept
        self._residuals = residuals

    def start(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Starts the average of a dist.GradBucket, in its buffer."""
        import torch

        buffer: torch.Tensor = bucket.buffer()
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        kept = [gradient for parameter, gradient in pairs if id(parameter) in self._kept]
        works = []
        if kept:
            flat = torch.cat([gradient.flatten() for gradient in kept])
            for gradient in kept:
                gradient.zero_()  # no part of the scales of others
            works.append(_average(flat, self._plain))
        works.append(self._average_encoded(bucket))
        averages: list[torch.futures.Future[Any]] = [work.get_future() for work in works]

        def finish(_: Any) -> torch.Tensor:
            for one in averages:
                one.wait()  # raises what went wrong; on a GPU its stream waits
            sizes = [gradient.numel() for gradient in kept]
            parts = torch.split(flat, sizes) if kept else ()
            for gradient, part in zip(kept, parts, strict=True):
                gradient.copy_(part.view_as(gradient))
            return buffer

        # A GPU's future is complete at once, and its callback's stream waits for it. That of
        # collect_all waits for nothing.
        if buffer.is_cuda:
            return averages[-1].then(finish)
        return torch.futures.collect_all(averages).then(finish)

    def _average_encoded(self, bucket: Any) -> dist.Work:
        import torch.distributed as dist

        if self._residuals is None:
            return _average(bucket.buffer(), self.encoding)
        residual = self._residuals.find(bucket)
        backend: Any = backend_of(self.encoding)
        work: dist.Work = backend.all_reduce_with_residual(
            bucket.buffer(), residual, dist.ReduceOp.AVG
        )
        return work


def _average(tensor: torch.Tensor, group: dist.ProcessGroup) -> dist.Work:
    import torch.distributed as dist

    work: dist.Work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
    return work
