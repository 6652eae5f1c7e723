"""Ranks that are lost, abort, or do not come."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from cuda_ranks import Rank, join, raises, total, vanish


def lose(where: Rank) -> None:
    dist.all_reduce(where.full(1, 4))
    if where.rank == where.size - 1:
        time.sleep(1)  # the others have that one
        vanish()
    start = time.monotonic()
    with raises(dist.DistBackendError, f"rank {where.size - 1}"):
        while True:
            tensor = where.full(1, 100_000)
            dist.all_reduce(tensor, async_op=True).wait()
            tensor.sum().item()  # ends though nothing was reduced
    assert time.monotonic() - start < 20
    with raises(dist.DistBackendError):
        dist.all_reduce(where.full(1, 4))


def lose_inside(where: Rank) -> None:
    """A rank dies amid large messages: the others learn it, and a new group of them works."""
    tensor = where.full(1, 16 << 20)
    dist.all_reduce(tensor)
    if where.rank == where.size - 1:
        threading.Timer(1, vanish).start()
    start = time.monotonic()
    with raises(dist.DistBackendError):
        while time.monotonic() - start < 30:
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(4)]
            for work in works:
                work.wait()
            if where.on_gpu:
                torch.cuda.synchronize()
    assert time.monotonic() - start < 20
    if where.on_gpu:
        torch.cuda.synchronize()
    dist.destroy_process_group()
    left = where.size - 1
    rest = replace(where, size=left, devices=where.devices[:left], labels=where.labels[:left])
    join(rest, "the rest", bind=False)
    for _ in range(2):
        tensor.fill_(rest.rank + 1)
        dist.all_reduce(tensor)
        assert (tensor == total(rest)).all()


def abort(where: Rank) -> None:
    dist.all_reduce(where.full(1, 4))
    if where.rank == 0:
        time.sleep(1)  # the others have that one
        work = dist.all_reduce(where.full(1, 100_000), async_op=True)
        dist.group.WORLD.abort()
        with raises(dist.DistBackendError, "abort"):
            work.wait()
            if where.on_gpu:
                torch.cuda.synchronize()
            dist.all_reduce(where.full(1, 4))
        return
    with raises(dist.DistBackendError):
        while True:
            tensor = where.full(1, 100_000)
            dist.all_reduce(tensor)
            tensor.sum().item()


def miss(where: Rank) -> None:
    """A rank that does not come: the operation's deadline ends the others' wait."""
    dist.all_reduce(where.full(1, 4))
    backend = dist.group.WORLD._get_backend(where.device)
    backend.set_timeout(timedelta(seconds=2))
    if where.rank == where.size - 1:
        time.sleep(8)
        return
    with raises(dist.DistBackendError, "timed out"):
        dist.barrier()
