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

    Collective over the model's group, of the backend "hetccl"; before the first backward pass.
    `wire` is as in `hetccl.quantized`. Gradients of parameters for which `exact` is true (those of
    one dimension: biases, norms) are averaged as they are, on the model's own group. Returns the
    group that encodes.
    """
    import torch
    import torch.distributed as dist

    own = model.process_group
    encoding: dist.ProcessGroup = dist.new_group(
        dist.get_process_group_ranks(own), backend="hetccl", pg_options=quantized(wire),
        use_local_synchronization=True,
    )  # fmt: skip

    def average(tensor: torch.Tensor, group: Any) -> torch.futures.Future[Any]:
        work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
        future: torch.futures.Future[Any] = work.get_future()
        return future

    # torch compares annotations with its types, which they are not here, but text.
    def hook(_, bucket):  # type: ignore[no-untyped-def]
        buffer: torch.Tensor = bucket.buffer()
        kept = [
            gradient
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
            if exact(parameter)
        ]
        copies = [gradient.clone() for gradient in kept]
        averages = [average(copy, own) for copy in copies]
        averages.append(average(buffer, encoding))

        def finish(all_done: Any) -> torch.Tensor:
            for one in all_done.value():
                one.value()  # raises what went wrong
            for gradient, copy in zip(kept, copies, strict=True):
                gradient.copy_(copy)
            return buffer

        done: torch.futures.Future[torch.Tensor] = torch.futures.collect_all(averages).then(finish)
        return done

    model.register_comm_hook(None, hook)
    return encoding
