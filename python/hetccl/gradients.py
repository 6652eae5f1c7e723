"""Gradients of DistributedDataParallel in fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hetccl.torch_backend import quantized

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


def _is_line(parameter: torch.Tensor) -> bool:
    return parameter.dim() < 2


def compress_gradients(
    model: Any, wire: str = "int8", exact: Callable[[torch.Tensor], bool] = _is_line
) -> dist.ProcessGroup:
    """Has `model`, a DistributedDataParallel, average its gradients encoded between clusters.

    Collective over the model's group, whose ranks must have made the same groups so far, since it
    makes two more; before the first backward pass. `wire` is as in `hetccl.quantized`. Gradients of
    parameters for which `exact` is true (those of one dimension: biases, norms) are averaged as
    they are. Returns the group that encodes.
    """
    import torch
    import torch.distributed as dist

    def make_group(wire: str) -> dist.ProcessGroup:
        everybody = model.process_group is dist.group.WORLD
        group: dist.ProcessGroup = dist.new_group(
            dist.get_process_group_ranks(model.process_group), backend="hetccl",
            pg_options=quantized(wire), use_local_synchronization=not everybody,
        )  # fmt: skip
        return group

    encoding, plain = make_group(wire), make_group("")

    def average(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.futures.Future[Any]:
        work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
        future: torch.futures.Future[Any] = work.get_future()
        return future

    # torch compares annotations with its types, which they are not here, but text.
    def hook(_, bucket):  # type: ignore[no-untyped-def]
        buffer: torch.Tensor = bucket.buffer()
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        kept = [gradient for parameter, gradient in pairs if exact(parameter)]
        averages = []
        if kept:
            flat = torch.cat([gradient.flatten() for gradient in kept])
            for gradient in kept:
                gradient.zero_()  # no part of the scales of others
            averages.append(average(flat, plain))
        averages.append(average(buffer, encoding))

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

    model.register_comm_hook(None, hook)
    return encoding
