"""DistributedDataParallel over hetccl computes what one process computes."""

import os

import pytest
from torch_ranks import join, run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.Linear(256, 8)
    )


def train(model, inputs, steps=5):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        model(inputs[step]).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def data_parallel(rank, size):
    inputs = torch.randn(5, 8, 64, generator=torch.Generator().manual_seed(3))
    want = train(network(), inputs)
    share = 8 // size
    mine = inputs[:, rank * share : (rank + 1) * share]
    for options in ({}, {"gradient_as_bucket_view": True, "static_graph": True}):
        model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.1, **options)
        got = train(model, mine)
        assert (got - want).norm() / want.norm() < 1e-5
        every = [torch.empty_like(got) for _ in range(size)]
        dist.all_gather(every, got)
        assert all(torch.equal(other, got) for other in every)
    return True


@pytest.mark.parametrize("labels", ["aabb", "abab"])
def test_data_parallel(labels, tmp_path):
    run(4, data_parallel, folder=tmp_path, labels=labels)


def profiled(rank, size):
    with torch.profiler.profile() as profile:
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        work.wait()
        dist.barrier()
    names = {event.name for event in profile.events()}
    assert "hetccl:all_reduce" in names
    assert "hetccl:barrier" in names


def test_profiler_shows_collectives(tmp_path):
    run(2, profiled, folder=tmp_path)


def again(rank, size, folder):
    # No stale id in a store that outlives the groups. (torch's own, of init_method, removes its
    # file when the last rank lets go of it, which the first may be using again.)
    store = dist.FileStore(os.path.join(folder, "kept"), size)  # noqa: PTH118
    for attempt in range(3):
        dist.destroy_process_group()
        join("", rank, size, store=store)
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        assert (tensor == size).all(), attempt


def test_destroy_and_init_again(tmp_path):
    run(2, again, str(tmp_path), folder=tmp_path)


def leave(rank, size):
    dist.all_reduce(torch.ones(1000), async_op=True)
    held = dist.all_reduce(torch.ones(1000), async_op=True)
    held.get_future().then(lambda future: None)
    dist.destroy_process_group = lambda: None  # exits as it is


def test_exit_without_destroy(tmp_path):
    run(2, leave, folder=tmp_path)
