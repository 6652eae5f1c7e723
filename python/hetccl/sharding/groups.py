"""The process groups of a rank's place."""

from __future__ import annotations

import dataclasses
import json
import weakref
from typing import Any

import torch
import torch.distributed as dist

from hetccl.agreement import gather
from hetccl.sharding.degrees import Peers, ShardingError, Tree, tree_of
from hetccl.torch_backend import NAME, backend_of, quantized


@dataclasses.dataclass(frozen=True)
class Group:
    """Some ranks, and a process group of them where one is needed."""

    ranks: tuple[int, ...]
    index: int
    process_group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups of Peers. Their sums travel encoded. Those of the groups in `exact`, which have
    the same ranks, travel as they are."""

    weights: Group
    gradients: Group
    optimizer_states: Group
    replicas: Group
    secondary: Group
    exact: dict[str, Group]


# torch 2.13 has new names for them, and warns of the old ones.
gather_into = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
scatter_sum = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def world_backend() -> Any:
    """hetccl's backend of the default process group. Raises ShardingError."""
    backend = backend_of(dist.group.WORLD) if dist.is_initialized() else None
    if backend is None:
        raise ShardingError(
            f'the default process group is not hetccl\'s: call init_process_group("{NAME}")'
        )
    return backend


def raise_for_all(reason: str) -> None:
    """Raises ShardingError on all ranks where one has a reason; "" is none. Collective."""
    for rank, its_reason in enumerate(gather(reason)):
        if its_reason:
            raise ShardingError(f"rank {rank}: {its_reason}")


def read_tree(device: torch.device) -> Tree:
    """The tree of the default process group, whose ranks use such devices. Collective."""
    backend = world_backend()
    dist.all_reduce(torch.zeros(1, device=device))  # a group joins its GPUs with its first call
    return tree_of(json.loads(backend.topology()))


# By default group: models that are sharded alike share their groups.
_made: weakref.WeakKeyDictionary[Any, dict[tuple[tuple[int, ...], str], dist.ProcessGroup]]
_made = weakref.WeakKeyDictionary()


def _make_group(ranks: tuple[int, ...], wire: str) -> dist.ProcessGroup:
    known = _made.setdefault(dist.group.WORLD, {})
    if (ranks, wire) not in known:
        known[ranks, wire] = dist.new_group(
            list(ranks), backend=NAME, use_local_synchronization=True,
            pg_options=quantized(wire, "", wire_inside=bool(wire)),
        )  # fmt: skip
    return known[ranks, wire]


def make_groups(place: Peers, rank: int, gradient_wire: str) -> Groups:
    """The groups of `place`. Collective over the default group."""

    def make(ranks: tuple[int, ...], wire: str, least: int = 2) -> Group:
        process_group = _make_group(ranks, wire) if len(ranks) >= least else None
        return Group(ranks, ranks.index(rank) if ranks else 0, process_group)

    names = ("weights", "gradients", "optimizer_states", "replicas")
    encoding = {name: make(getattr(place, name), gradient_wire) for name in names[1:]}
    # FSDP2's mesh takes a process group of one rank, too.
    encoding["weights"] = make(place.weights, gradient_wire, least=1)
    exact = {name: make(getattr(place, name), "") for name in names}
    return Groups(**encoding, secondary=make(place.secondary, ""), exact=exact)


def begin_gather(part: torch.Tensor, group: Group) -> tuple[torch.Tensor, dist.Work | None]:
    """Starts to gather the parts of the group's ranks. Without others `part` is the whole."""
    if group.size == 1:
        return part, None
    whole = part.new_empty(part.numel() * group.size)
    return whole, gather_into(whole, part, group=group.process_group, async_op=True)


def average(tensor: torch.Tensor, group: Group) -> dist.Work:
    """Starts to replace `tensor` by its mean over the group."""
    work: dist.Work = dist.all_reduce(
        tensor, op=dist.ReduceOp.AVG, group=group.process_group, async_op=True
    )
    return work
