"""Fully sharded training and DTensors over hetccl: what one process computes."""

import pytest
from patience import share
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)

STEPS = 3
LAYOUTS = ["", "aabb", "abab"]  # each runs a third of the cases
HALF = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
BRAIN = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
BRAIN_WIDE = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def network():
    """Odd sizes, so that no parameter divides evenly among the ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(33, 50), nn.ReLU(), nn.Linear(50, 51), nn.LayerNorm(51))


def batches():
    return torch.randn(STEPS, 8, 33, generator=torch.Generator().manual_seed(3))


def train(model, inputs, gradient_scale=1.0):
    """The parameters after STEPS steps; `gradient_scale` undoes what the model did to gradients."""
    rate = 0.1 * gradient_scale
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for batch in inputs:
        model(batch).float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in whole])


def meshes(size):
    grid = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (size,)), grid


def shard(mesh, divide_by=None, only_sum=False, **options):
    model = network()
    parts = [part for part in model if isinstance(part, nn.Linear)] + [model]
    for part in parts:
        fully_shard(part, mesh=mesh, **options)
        if divide_by is not None:
            part.set_gradient_divide_factor(divide_by)
        if only_sum:
            part.set_force_sum_reduction_for_comms(True)
    return model


def accumulated(mesh, inputs):
    """Gradients of two backward passes, reduced with the second."""
    want, got = network(), shard(mesh)
    for step in range(2):
        want(batches()[step]).square().mean().backward()
        got.set_requires_gradient_sync(step == 1)
        got(inputs[step]).square().mean().backward()
    for theirs, ours in zip(want.parameters(), got.parameters(), strict=True):
        assert torch.allclose(theirs.grad, ours.grad.full_tensor(), rtol=1e-4, atol=1e-6)


def sharded(rank, size, layout):
    want = train(network(), batches())
    moved = (want - train(network(), [])).norm()
    rows = 8 // size
    mine = batches()[:, rank * rows : (rank + 1) * rows]
    flat, hybrid = meshes(size)
    accumulated(hybrid, mine)
    cases = [  # mesh, tolerance relative to how far training moved, options
        (flat, 1e-5, {}),
        (hybrid, 1e-5, {}),
        (flat, 1e-5, {"reshard_after_forward": False}),
        (flat, 1e-5, {"offload_policy": CPUOffloadPolicy(pin_memory=False)}),
        (flat, 1e-5, {"divide_by": float(size)}),
        (flat, 1e-5, {"only_sum": True}),
        (flat, 1e-5, {"only_sum": True, "divide_by": 1.0}),
        (hybrid, 1e-5, {"only_sum": True, "divide_by": 2.0}),
        (flat, 2e-2, {"mp_policy": BRAIN_WIDE}),
        (hybrid, 2e-2, {"mp_policy": BRAIN}),
        (flat, 5e-3, {"mp_policy": HALF}),
    ]
    for mesh, tolerance, options in share(cases, layout, len(LAYOUTS)):
        scale = options.get("divide_by", size) / size
        got = train(shard(mesh, **options), mine, scale)
        error = ((got - want).norm() / moved).item()
        assert error < tolerance, f"{mesh} {options}: {error}"
        every = [torch.empty_like(got) for _ in range(size)]
        dist.all_gather(every, got)
        assert all(torch.equal(other, got) for other in every), f"{mesh} {options}"


@pytest.mark.parametrize("labels", LAYOUTS)
def test_fully_sharded(labels, tmp_path):
    run(4, sharded, LAYOUTS.index(labels), folder=tmp_path, labels=labels)


def dtensors(rank, size):
    line, grid = meshes(size)
    true = torch.arange(4.0 * size * 3).reshape(4 * size, 3)
    rows = distribute_tensor(true * (rank + 1), line, [Shard(0)])  # rank 0's values count
    assert torch.equal(rows.to_local(), true[4 * rank : 4 * rank + 4])
    assert torch.equal(rows.redistribute(line, [Replicate()]).to_local(), true)
    assert torch.equal(rows.redistribute(line, [Shard(1)]).full_tensor(), true)
    assert rows.sum().full_tensor() == true.sum()
    assert rows.max().full_tensor() == true.max()
    uneven = distribute_tensor(torch.ones(size + 1, 3), line, [Shard(0)])
    assert uneven.full_tensor().sum() == 3 * (size + 1)
    cells = distribute_tensor(true.clone(), grid, [Shard(0), Shard(1)])
    assert torch.equal(cells.full_tensor(), true)
    sums = DTensor.from_local(true, line, [Partial()])
    assert torch.equal(sums.redistribute(line, [Shard(0)]).full_tensor(), size * true)
    copied = distribute_module(network(), line)
    assert torch.equal(copied[0].weight.full_tensor(), network()[0].weight)


@pytest.mark.parametrize("labels", ["aabb", "abab"])
def test_dtensors(labels, tmp_path):
    run(4, dtensors, folder=tmp_path, labels=labels)
