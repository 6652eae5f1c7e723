"""One rank of bench/wire.py: times of collectives, and their largest error."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

import hetccl  # noqa: F401

WARM, CALLS = 1, 4


def main() -> None:
    size, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("hetccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = size // dtype.itemsize // ranks * ranks

    def data(of: int) -> torch.Tensor:
        return torch.randn(count, generator=torch.Generator().manual_seed(of)).to(dtype)

    own = data(rank)
    part = count // ranks
    every = [data(of) for of in range(ranks)]
    total = torch.stack([one.float() for one in every]).sum(0)
    mine = own[:part].contiguous()
    wanted = {"all_reduce": total, "reduce_scatter": total[rank * part :][:part],
              "all_gather": torch.cat([one[:part] for one in every]).float()}  # fmt: skip
    result: dict[str, Any] = {}
    for collective, exact in wanted.items():
        times = []
        for _ in range(WARM + CALLS):
            got = (
                own.clone() if collective == "all_reduce" else torch.empty(exact.shape, dtype=dtype)
            )
            dist.barrier()
            started = time.perf_counter()
            if collective == "all_reduce":
                dist.all_reduce(got)
            elif collective == "reduce_scatter":
                dist.reduce_scatter_tensor(got, own)
            else:
                dist.all_gather_into_tensor(got, mine)
            dist.barrier()
            times.append(1000 * (time.perf_counter() - started))
        error = (got.float() - exact).abs().max() / exact.abs().max()
        result[collective] = {"ms": times[WARM:], "error": error.item()}
    if rank == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
