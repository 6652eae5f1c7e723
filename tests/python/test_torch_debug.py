"""TORCH_DISTRIBUTED_DEBUG=DETAIL, in which torch checks every call, and monitored barriers."""

from datetime import timedelta

import pytest
from test_torch_fsdp import meshes, shard
from test_torch_training import batches, data_parallel
from torch_ranks import FOREVER, run, tell, wait_for

import hetccl

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

MISMATCHES = {
    "shape": lambda rank: dist.all_reduce(torch.ones(3 + rank)),
    "type": lambda rank: dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.int32)[rank])),
    "call": lambda rank: (
        dist.all_reduce(torch.ones(3)) if rank else dist.broadcast(torch.ones(3), 0)
    ),
}


def detail(rank, size):
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    wrapper = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert "Wrapper" in type(wrapper).__name__
    data_parallel(rank, size)
    model = shard(meshes(size)[0])
    model(batches()[0, :, :33]).sum().backward()
    encoded = nn.parallel.DistributedDataParallel(nn.Linear(200, 200))
    hetccl.compress_gradients(encoded, "int8", residuals=hetccl.Residuals())
    encoded(torch.ones(3, 200)).sum().backward()
    gathered = [None] * size
    dist.all_gather_object(gathered, rank)
    parts = [torch.empty(3) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank)), parts)
    for how, call in MISMATCHES.items():
        with pytest.raises(RuntimeError, match="mismatch between collectives"):
            call(rank)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)  # the group goes on: hetccl was not called
        assert (tensor == size).all(), how
    dist.group.WORLD.monitored_barrier(FOREVER)


def monitored(rank, size):
    group = dist.group.WORLD
    group.monitored_barrier(FOREVER)
    every = ", ".join(f"rank {r}" for r in range(1, size))
    for name_all, missing in ((False, "rank 1"), (True, every)):
        dist.barrier()
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match=f"{missing} did not come"):
                group.monitored_barrier(timedelta(milliseconds=200), wait_all_ranks=name_all)
            tell(f"missed {name_all}")
        else:
            wait_for(f"missed {name_all}")
            with pytest.raises(dist.DistBackendError, match="rank 1"):  # what rank 0 decided
                group.monitored_barrier(FOREVER, wait_all_ranks=name_all)
    dist.barrier()
    if rank != 0:
        with pytest.raises(dist.DistBackendError, match="rank 0 did not come within 100 ms"):
            group.monitored_barrier(timedelta(milliseconds=100))
        tell(f"{rank} has gone")
    else:
        for other in range(1, size):
            wait_for(f"{other} has gone")
        group.monitored_barrier(FOREVER)
    group.monitored_barrier(FOREVER)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == size).all()


def test_detail(tmp_path):
    run(2, detail, folder=tmp_path, labels="ab", env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def test_monitored_barrier(tmp_path):
    run(3, monitored, folder=tmp_path)
