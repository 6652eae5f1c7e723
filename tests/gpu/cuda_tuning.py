"""NCCL is told how to run the calls of a cluster, by a search that goes on while they run."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from cuda_ranks import SCALE, Rank, total

CALLS = 500
ELEMENTS = 1 << 18
CHECKED = 40  # calls in a row between two looks at the values


def environment() -> dict[str, str]:
    """Settings of ranks that search regardless of the cost, and know nothing yet."""
    folder = tempfile.mkdtemp(prefix="hetccl-tuning-")
    return {
        "HETCCL_TUNE": "online",
        "HETCCL_TUNE_BUDGET": "10000",
        "HETCCL_TUNE_FILE": f"{folder}/tuning.json",
    }


def search(where: Rank) -> None:
    """Values stay right whatever is tried; in one cluster NCCL's own parameters are."""
    whole, part = where.full(0, ELEMENTS), where.full(0, ELEMENTS // where.size)
    for call in range(CALLS * SCALE):
        whole.fill_(where.rank + 1)
        dist.all_reduce(whole)
        dist.reduce_scatter_tensor(part, whole)
        dist.all_gather_into_tensor(whole, part)
        if call % CHECKED == CHECKED - 1:
            assert (whole == total(where) * where.size).all()
    torch.cuda.synchronize()
    if where.rank > 0:
        return
    from hetccl.torch_backend import backend_of

    backend: Any = backend_of(dist.group.WORLD)
    known = json.loads(backend.tuning())
    tried = [each["setting"] for key in known["keys"] for each in key.get("tried", [])]
    print(f"   {known['rounds']} rounds, {len(tried)} settings", flush=True)
    assert len(tried) > len(known["keys"])
    if where.in_one_cluster:
        assert any("nccl_algorithm" in setting for setting in tried), tried
