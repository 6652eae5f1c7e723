"""Gradients of DistributedDataParallel in fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hetccl.torch_backend import quantized

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class Residuals:
    """What the codes of one model's gradients have lost on this rank: a tensor for each bucket.

    Together they are as large as the gradients. Not thread-safe.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[list[int], torch.Tensor]] = {}

    def find(self, bucket: Any) -> torch.Tensor:
        """That of a dist.GradBucket: zeros where torch has put other parameters into it."""
        import torch

        parameters = [id(parameter) for parameter in bucket.parameters()]
        before = self._kept.get(bucket.index())
        if before is not None and before[0] == parameters:
            return before[1]
        zeros = torch.zeros_like(bucket.buffer())
        self._kept[bucket.index()] = (parameters, zeros)
        return zeros

    @property
    def n_bytes(self) -> int:
        """The memory that they take."""
        return sum(residual.nbytes for _, residual in self._kept.values())


def _is_line(parameter: torch.Tensor) -> bool:
    return parameter.dim() < 2


def compress_gradients(
    model: Any,
    wire: str = "int8",
    exact: Callable[[torch.Tensor], bool] = _is_line,
    residuals: Residuals | None = None,
) -> dist.ProcessGroup:
    """Has `model`, a DistributedDataParallel, average its gradients encoded between clusters.

    Collective over the model's group, whose ranks must have made the same groups so far, since it
    makes two more; before the first backward pass. `wire` is as in `hetccl.quantized`. Gradients of
    parameters for which `exact` is true (those of one dimension: biases, norms) are averaged as
    they are. With `residuals`, which are this model's alone, what the codes of a step lose is part
    of the next step's gradients. Returns the group that encodes.
    """
    import torch.distributed as dist

    def make_group(wire: str) -> dist.ProcessGroup:
        everybody = model.process_group is dist.group.WORLD
        group: dist.ProcessGroup = dist.new_group(
            dist.get_process_group_ranks(model.process_group), backend="hetccl",
            pg_options=quantized(wire), use_local_synchronization=not everybody,
        )  # fmt: skip
        return group

    averages = _Averages(make_group(wire), make_group(""), exact, residuals)

    # torch compares annotations with its types, which they are not here, but text.
    def hook(_, bucket):  # type: ignore[no-untyped-def]
        return averages.start(bucket)

    model.register_comm_hook(None, hook)
    return averages.encoding


class _Averages:
    """The averages of a model's buckets."""

    def __init__(
        self,
        encoding: dist.ProcessGroup,
        plain: dist.ProcessGroup,
        exact: Callable[[torch.Tensor], bool],
        residuals: Residuals | None,
    ) -> None:
        self.encoding = encoding
        self._plain = plain
        self._exact = exact
        self._residuals = residuals

    def start(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """That of a dist.GradBucket, in its buffer."""
        import torch

        buffer: torch.Tensor = bucket.buffer()
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        kept = [gradient for parameter, gradient in pairs if self._exact(parameter)]
        averages = []
        if kept:
            flat = torch.cat([gradient.flatten() for gradient in kept])
            for gradient in kept:
                gradient.zero_()  # no part of the scales of others
            averages.append(_average(flat, self._plain))
        averages.append(self._average_encoded(bucket))

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

    def _average_encoded(self, bucket: Any) -> torch.futures.Future[Any]:
        import torch.distributed as dist

        buffer: torch.Tensor = bucket.buffer()
        if self._residuals is None:
            return _average(buffer, self.encoding)
        backend: Any = self.encoding._get_backend(buffer.device)
        work = backend.all_reduce_with_residual(
            buffer, self._residuals.find(bucket), dist.ReduceOp.AVG
        )
        future: torch.futures.Future[Any] = work.get_future()
        return future


def _average(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.futures.Future[Any]:
    import torch.distributed as dist

    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
    future: torch.futures.Future[Any] = work.get_future()
    return future
