"""Collectives inside torch.compile: functional ones, those in place, and DDP."""

import pytest
from patience import WHOLE
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402

# Without these, inductor compiles a probe for each vector extension, and torch's headers.
SPARING = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}
BACKEND = "inductor" if WHOLE else "aot_eager"


def functional(x, group):
    doubled = funcol.all_reduce(x * 2, "sum", group)
    gathered = funcol.all_gather_tensor(doubled + 1, 0, group)
    parts = funcol.all_reduce_coalesced([gathered, x], "max", group)
    return funcol.reduce_scatter_tensor(parts[0], "avg", 0, group) + parts[1]


def in_place(x, group):
    x = x * 2
    dist.all_reduce(x, group=group)
    gathered = torch.empty(x.numel() * dist.get_world_size(group))
    dist.all_gather_into_tensor(gathered, x, group=group)
    return gathered + 1


def small(x, group):
    """Leaves inductor one kernel to compile: each starts the C++ compiler."""
    gathered = funcol.all_gather_tensor(funcol.all_reduce(x, "sum", group), 0, group)
    return funcol.reduce_scatter_tensor(gathered, "avg", 0, group)


def compiled(rank, size):
    from torch._inductor import config

    x = torch.arange(4.0) + rank
    for body, backend in (
        (functional, BACKEND),
        (in_place, BACKEND),
        (small, "inductor"),
    ):
        want = body(x.clone(), dist.group.WORLD)
        with config.patch(SPARING):
            got = torch.compile(body, fullgraph=True, backend=backend)(x.clone(), dist.group.WORLD)
        assert torch.equal(got, want), body.__name__
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    torch.compile(model, backend=BACKEND)(x + 1).sum().backward()
    mean = sum(torch.arange(4.0) + r + 1 for r in range(size)) / size
    assert torch.allclose(model.module.weight.grad, mean.expand(4, 4))


@pytest.mark.long
def test_compiled(tmp_path):
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_DEBUG_COMPILE": "1",  # without optimisation
    }
    run(2, compiled, folder=tmp_path, labels="ab", env=env)
