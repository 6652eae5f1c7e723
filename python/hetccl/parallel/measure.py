"""Measures how fast the ranks of a job compute, and the links between them, for the planner."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hetccl.agreement import gather
from hetccl.balance import Profile, profile
from hetccl.balance.stopwatch import synchronize
from hetccl.parallel.models import ParallelError
from hetccl.topology import graph
from hetccl.torch_backend import backend_of

_CALLS = 3


def read_topology() -> dict[str, Any]:
    """The topology of the default process group, for `read_site`. Raises ParallelError where its
    backend is not hetccl."""
    backend = backend_of(dist.group.WORLD)
    if backend is None:
        raise ParallelError("the default process group's backend is not hetccl: it has no topology")
    found: dict[str, Any] = json.loads(backend.topology())
    return found


def measure(
    layer: nn.Module, sample: torch.Tensor, rows: int, *, seconds: float = 10.0
) -> list[Profile]:
    """Returns the seconds of a forward and backward pass by samples, by rank, for `read_site`.

    `layer` and `sample`, one sample as the layer takes it, are on the rank's device. 1, 2, 4 to
    `rows` samples are computed at once, or as many as the device holds, in at most about `seconds`.
    All ranks get the profiles of all. Collective. Raises BalanceError where a layer fails.
    """

    def run(size: int) -> None:
        batch = sample.expand(size, *sample.shape[1:]).clone()
        if batch.is_floating_point():  # as a stage in the middle, which hands gradients on
            batch.requires_grad_()
        layer(batch).sum().backward()

    found = profile(layer, run, rows, seconds=seconds)
    return [dataclasses.replace(one, most=None) for one in found]  # plans look at memory themselves


def measure_split(layer: nn.Module, sample: torch.Tensor, rows: int) -> float:
    """Returns a model's `split_backward`, the slowest rank's, to all ranks: the seconds of a
    backward pass that torch's zero-bubble schedule cuts in two, over those of a whole one.

    Arguments are those of `measure`. Collective. Raises ParallelError where torch cannot cut it.
    """
    try:
        from torch.distributed.pipelining import _backward
    except ImportError:
        raise ParallelError(f"torch {torch.__version__} cuts no backward passes in two") from None
    parameters = list(layer.parameters())

    def time_backward(run: Callable[[torch.Tensor, torch.Tensor], object]) -> float:
        taken = []
        for _ in range(1 + _CALLS):
            given = sample.expand(rows, *sample.shape[1:]).clone().requires_grad_()
            output = layer(given)
            synchronize(sample.device)
            begin = time.perf_counter()
            run(given, output)
            synchronize(sample.device)
            taken.append(time.perf_counter() - begin)
        return min(taken[1:])

    def cut(given: torch.Tensor, output: torch.Tensor) -> None:
        found = _backward.stage_backward_input(
            [output], [torch.ones_like(output)], [given], iter(parameters)
        )
        _backward.stage_backward_weight(iter(parameters), found[1])

    whole = time_backward(lambda _, output: torch.autograd.backward(output.sum()))
    ratio = max(1.0, time_backward(cut) / whole)
    for parameter in parameters:
        parameter.grad = None
    slowest: float = max(gather(ratio))
    return slowest


def measure_links(size: int = 8 << 20, device: torch.device | str = "cpu") -> dict[str, float]:
    """Returns bytes/s by level, for `read_site`, to all ranks of the default process group.

    "host" is that of a rank in an all-reduce of `size` bytes with others of its cluster and host,
    the slowest host's; "between" that of a message of `size` bytes from a host's first cluster to
    its other ones; "all" and "cluster" that of a message from the first host to another, the
    slowest one's. A level that the job does not have is left out. Collective.
    """
    described = graph.parse(json.dumps(read_topology()))
    cluster_of = {one: n for n, cluster in enumerate(described.clusters) for one in cluster.ranks}
    hosts: dict[str, dict[int, list[int]]] = {}
    for rank in described.ranks:
        clusters = hosts.setdefault(rank.host, {})
        clusters.setdefault(cluster_of[rank.rank], []).append(rank.rank)
    buffer = torch.ones(size // 4, device=device)
    rates: dict[str, float] = {}
    parts = [list(clusters.values()) for clusters in hosts.values()]
    inside = [_measure_host(ranks, buffer) for part in parts for ranks in part]
    between = [
        _measure_message(part[0][0], ranks[0], buffer) for part in parts for ranks in part[1:]
    ]
    outside = [_measure_message(parts[0][0][0], part[0][0], buffer) for part in parts[1:]]
    for level, found in (("host", inside), ("between", between), ("all", outside)):
        known = [rate for rate in gather([one for one in found if one]) for rate in rate]
        if known:
            rates[level] = min(known)
    if "all" in rates:
        rates["cluster"] = rates["all"]
    return rates


def measure_reduces(
    size: int = 32 << 20, device: torch.device | str = "cpu"
) -> list[tuple[int, float]]:
    """Returns bytes and seconds of all-reduces of all ranks, the slowest rank's, for `read_site`.

    Of `size` bytes, by default as many gradients as a `Pipeline` adds up in one call, and of a 16th
    of them. All ranks get them. Collective.
    """
    found = []
    for part in (size // 16, size):
        buffer = torch.ones(max(part // 4, 1), device=device)
        seconds = _time(functools.partial(dist.all_reduce, buffer), buffer)
        found.append((buffer.nbytes, max(gather(seconds))))
    return found


def _measure_host(ranks: list[int], buffer: torch.Tensor) -> float | None:
    """Measures the bytes/s of a rank with others of one host and cluster; None on other ranks."""
    if len(ranks) < 2:
        return None
    group = dist.new_group(ranks)
    if dist.get_rank() not in ranks:
        return None
    seconds = _time(lambda: dist.all_reduce(buffer, group=group), buffer)
    dist.destroy_process_group(group)
    return 2 * buffer.nbytes * (len(ranks) - 1) / len(ranks) / seconds


def _measure_message(source: int, target: int, buffer: torch.Tensor) -> float | None:
    """Measures the bytes/s of a message; None except on its receiver. Ranks send in turns."""
    found = None
    rank = dist.get_rank()
    if rank in (source, target):
        answer = torch.zeros(1, device=buffer.device)

        def exchange() -> None:
            if rank == source:
                dist.send(buffer, target)
                dist.recv(answer, target)
            else:
                dist.recv(buffer, source)
                dist.send(answer, source)

        seconds = _time(exchange, buffer)
        found = buffer.nbytes / seconds if rank == target else None
    dist.barrier()
    return found


def _time(call: Callable[[], object], buffer: torch.Tensor) -> float:
    """The median seconds of a call, after one that is not counted."""
    taken = []
    for _ in range(1 + _CALLS):
        begin = time.perf_counter()
        call()
        synchronize(buffer.device)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])
