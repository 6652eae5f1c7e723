"""Groups of some ranks, as splits and device meshes make them, and training over a 2 x 2 mesh."""

from typing import Any

import torch
import torch.distributed as dist
from cuda_ranks import CPU, Rank, raises
from cuda_training import batches, check, network, train, wanted
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def grid(where: Rank, *names: str) -> DeviceMesh:
    return init_device_mesh(where.device.type, (2, where.size // 2), mesh_dim_names=names)


def sum_over(where: Rank, group: dist.ProcessGroup | None, ranks: list[int]) -> None:
    """Their ranks' numbers, by a call that blocks and by one that does not."""
    assert group is not None
    assert dist.get_process_group_ranks(group) == ranks
    for later in (False, True):
        tensor = where.full(where.rank, 300_007)
        where.pass_time(5)
        work = dist.all_reduce(tensor, group=group, async_op=later)
        if later:
            assert work is not None
            work.wait()
        assert (tensor == sum(ranks)).all(), (ranks, later)


def count_operations(backend: Any) -> int:
    """The operations that hetccl's backend has begun. Raises where it has not joined yet."""
    from hetccl.torch_backend import Backend

    return Backend(backend).stats()["operations"]


def splits(where: Rank) -> None:
    """split_group, of the default group and of one that was split itself."""
    every = list(range(where.size))
    if not where.all_on_gpus:  # torch splits where every rank has a device_id
        if not where.on_gpu:
            with raises(RuntimeError, "No device associated with the default pg"):
                dist.split_group(split_ranks=[every])
        return
    assert dist.group.WORLD.bound_device_id == where.device
    backend = dist.group.WORLD._get_backend(where.device)
    assert count_operations(backend) >= 0, "device_id has connected the default group"
    halves = [every[::2], every[1::2]]
    half = dist.split_group(split_ranks=halves)
    sum_over(where, half, halves[where.rank % 2])
    assert half._get_backend(where.device) is half._get_backend(CPU)
    without_first = dist.split_group(split_ranks=[every[1:]])
    if where.rank > 0:
        sum_over(where, without_first, every[1:])
    else:
        assert without_first is None
    alone = dist.split_group(parent_pg=half, split_ranks=[[r] for r in range(len(every) // 2)])
    sum_over(where, alone, [where.rank])
    dist.destroy_process_group(half)
    sum_over(where, alone, [where.rank])
    gathered = [None] * where.size
    dist.all_gather_object(gathered, where.rank)
    assert gathered == every


def new_groups(where: Rank) -> None:
    """Members and others of new groups, where some or all ranks are bound to a device."""
    for ranks in ([0, where.size - 1], [1, 2], list(range(where.size))):
        group = dist.new_group(ranks)
        if where.rank not in ranks:
            continue
        sum_over(where, group, ranks)
        if all(where.devices[rank] != "cpu" for rank in ranks):
            other = dist.new_group(ranks, use_local_synchronization=True)
            assert count_operations(other._get_backend(where.device)) == 0
        dist.barrier(group)


def meshes(where: Rank) -> None:
    """Also between ranks that torch has split, those with GPUs, and ranks that it has not."""
    half = where.size // 2
    for _ in range(2):
        mesh = grid(where, "rows", "columns")
        row, column = divmod(where.rank, half)
        sum_over(where, mesh.get_group("rows"), [column, column + half])
        sum_over(where, mesh.get_group("columns"), [row * half + c for c in range(half)])
    line = init_device_mesh(where.device.type, (1, where.size), mesh_dim_names=("one", "all"))
    sum_over(where, line.get_group("one"), [where.rank])
    sum_over(where, line.get_group("all"), list(range(where.size)))
    dist.barrier()
    sum_over(where, dist.new_group(), list(range(where.size)))


def full(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().full_tensor().cpu().flatten() for p in model.parameters()])


def part_of(where: Rank, index: int, parts: int) -> torch.Tensor:
    rows = batches().shape[1] // parts
    return batches()[:, index * rows : (index + 1) * rows].to(where.device)


def hybrid_sharded(where: Rank) -> None:
    """Sharded within a row of the mesh, replicated between rows."""
    want = wanted()
    mesh = grid(where, "replicate", "shard")
    for reshard in (True, False):
        model = network().to(where.device)
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh)
        train(model, part_of(where, where.rank, where.size))
        check(where, full(model), want, 1e-9)


def tensor_parallel(where: Rank) -> None:
    """Layers split within a row of the mesh, batches and parameters between rows."""
    want = wanted_of_pair()
    mesh = grid(where, "data", "tensor")
    model = pair().to(where.device)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    train(model, part_of(where, where.rank // mesh["tensor"].size(), 2))
    error = (full(model) - want).norm() / (want - flat_of(pair())).norm()
    assert error < 1e-9, error


def pair() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(33, 64), nn.ReLU(), nn.Linear(64, 48)).double()


def flat_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def wanted_of_pair() -> torch.Tensor:
    model = pair()
    train(model, batches())
    return flat_of(model)


# `new_groups` first: torch 2.11 names a group of use_local_synchronization by how many groups a
# rank is in, which differs once one rank was left out of a split.
GROUPS_OF_GROUPS = [new_groups, splits, meshes]
TRAINING_ON_MESHES = [hybrid_sharded, tensor_parallel]
