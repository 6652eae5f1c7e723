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


def train(model, inputs, optimiser=None):
    optimiser = optimiser or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in inputs:
        model(batch).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def batches():
    return torch.randn(5, 8, 64, generator=torch.Generator().manual_seed(3))


def same_on_all_ranks(tensor):
    every = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(every, tensor)
    return all(torch.equal(other, tensor) for other in every)


def data_parallel(rank, size):
    inputs = batches()
    want = train(network(), inputs)
    share = 8 // size
    mine = inputs[:, rank * share : (rank + 1) * share]
    for options in ({}, {"gradient_as_bucket_view": True, "static_graph": True}):
        model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.1, **options)
        got = train(model, mine)
        assert (got - want).norm() / want.norm() < 1e-5
        assert same_on_all_ranks(got)
    return True


@pytest.mark.parametrize("labels", [pytest.param("aabb", marks=pytest.mark.smoke), "abab"])
def test_data_parallel(labels, tmp_path):
    run(4, data_parallel, folder=tmp_path, labels=labels)


def halving(_, bucket):
    """A hook as users write them: a future of another value than the collective's."""
    half = bucket.buffer().bfloat16().div_(dist.get_world_size())
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def gathering(_, bucket):
    every = [torch.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
    future = dist.all_gather(every, bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: torch.stack(done.value()).mean(0))


def hooked(rank, size):
    # Slow to import, so not for the other tests' ranks.
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
    from torch.distributed.optim import ZeroRedundancyOptimizer

    inputs = batches()
    want = train(network(), inputs)
    moved = (want - train(network(), [])).norm()
    share = 8 // size
    mine = inputs[:, rank * share : (rank + 1) * share]
    compressed = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    state = power_sgd.PowerSGDState(None, matrix_approximation_rank=64, start_powerSGD_iter=2)
    cases = [  # name, tolerance relative to how far training moved, bucket size in MB, set-up
        (
            "all-reduce",
            1e-5,
            0.1,
            lambda m: m.register_comm_hook(None, default_hooks.allreduce_hook),
        ),
        ("fp16", 1e-2, 0.1, lambda m: m.register_comm_hook(None, default_hooks.fp16_compress_hook)),
        ("fp16 wrapper", 1e-2, 0.1, lambda m: m.register_comm_hook(None, compressed)),
        ("bf16", 5e-2, 0.1, lambda m: m.register_comm_hook(None, halving)),
        ("all-gather", 1e-5, 0.1, lambda m: m.register_comm_hook(None, gathering)),
        # Its callbacks run collectives, which several buckets would start in no agreed order.
        ("PowerSGD", 5e-2, 25, lambda m: m.register_comm_hook(state, power_sgd.powerSGD_hook)),
    ]
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        cases.append((kind, 1e-2, 0.1, lambda m, kind=kind: m._register_builtin_comm_hook(kind)))
    for name, tolerance, megabytes, register in cases:
        model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=megabytes)
        register(model)
        got = train(model, mine)
        error = ((got - want).norm() / moved).item()
        assert error < tolerance, f"{name}: {error}"
        assert same_on_all_ranks(got), name

    model = nn.parallel.DistributedDataParallel(network())
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    assert (train(model, mine, optimiser) - want).norm() / moved < 1e-5
    optimiser.consolidate_state_dict(0)
    if rank == 0:
        assert len(optimiser.state_dict()["state"]) == len(list(model.parameters()))


@pytest.mark.parametrize("labels", ["ab"])
def test_hooks_and_sharded_optimiser(labels, tmp_path):
    run(2, hooked, folder=tmp_path, labels=labels)


def uneven(rank, size):
    model = nn.parallel.DistributedDataParallel(network())
    with model.join():
        train(model, batches()[: 2 + rank])
    assert same_on_all_ranks(torch.cat([p.detach().flatten() for p in model.parameters()]))


def nested(rank, size):
    """Callbacks that wait for collectives of their own, while later work completes."""
    tensors = [torch.ones(1000) for _ in range(4)]

    def again(future, depth=3):
        tensor = future.value()[0]
        if depth == 0:
            return tensor
        inner = dist.all_reduce(tensor, async_op=True).get_future()
        return inner.then(lambda done: again(done, depth - 1)).wait()

    for tensor in tensors:
        outer = dist.all_reduce(tensor, async_op=True).get_future()
        assert outer.then(again).wait()[0].item() == size**4
    uneven(rank, size)


@pytest.mark.smoke
def test_callbacks_that_wait(tmp_path):
    run(3, nested, folder=tmp_path, labels="aab")


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


@pytest.mark.smoke
def test_destroy_and_init_again(tmp_path):
    run(2, again, str(tmp_path), folder=tmp_path)


def leave(rank, size):
    dist.all_reduce(torch.ones(1000), async_op=True)
    held = dist.all_reduce(torch.ones(1000), async_op=True)
    held.get_future().then(lambda future: None)
    dist.destroy_process_group = lambda: None  # exits as it is


def test_exit_without_destroy(tmp_path):
    run(2, leave, folder=tmp_path)
