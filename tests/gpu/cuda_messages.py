"""Messages between all ranks, on GPUs and hosts, whatever carries them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from cuda_ranks import Rank, raises


def batches(where: Rank, tensors: list[torch.Tensor]) -> None:
    """Each to the next rank and from the one before; all are under way at once."""
    after, before = (where.rank + 1) % where.size, (where.rank - 1) % where.size
    taken = [torch.full_like(tensor, 99) for tensor in tensors]
    works: list[dist.Work] = []
    for tensor, got in zip(tensors, taken, strict=True):
        pair = [dist.P2POp(dist.isend, tensor, after), dist.P2POp(dist.irecv, got, before)]
        works += dist.batch_isend_irecv(pair)
    for work in works:
        work.wait()
    for i, got in enumerate(taken):
        assert (got == before + i).all()


def uneven_batch(where: Rank) -> None:
    """Two messages each way, one into a tensor whose memory is not in the order of its indices."""
    after, before = (where.rank + 1) % where.size, (where.rank - 1) % where.size
    got, turned = where.full(99, 7), where.full(99, 6).reshape(2, 3).t()
    sent = (where.full(where.rank, 6) + torch.arange(6.0, device=got.device)).reshape(3, 2)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got, before),
            dist.P2POp(dist.isend, where.full(where.rank, 7), after),
            dist.P2POp(dist.isend, sent, after),
            dist.P2POp(dist.irecv, turned, before),
        ]
    )
    assert len(works) == 1
    for work in works:
        work.wait()
    assert (got == before).all()
    assert torch.equal(turned, sent - where.rank + before)


def refused_batch(where: Rank) -> None:
    """None of its messages starts, and what follows is as ever."""
    after, before = (where.rank + 1) % where.size, (where.rank - 1) % where.size
    tensor, got = where.full(where.rank, 10), where.full(99, 10)
    sent = dist.P2POp(dist.isend, tensor, after)
    with raises(ValueError, "tag -1 is negative"):
        dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, got, before, tag=-1)])
    for work in (dist.isend(tensor, after), dist.irecv(got, before)):
        work.wait()
    assert (got == before).all()
    dist.all_reduce(tensor)
    assert (tensor == sum(range(where.size))).all()


def messages(where: Rank) -> None:
    after, before = (where.rank + 1) % where.size, (where.rank - 1) % where.size
    if where.size < 2:
        return
    for count in (1, 1000, 250_000):  # longer ones may wait for each other: docs/gpus.md
        tensor, got = where.full(where.rank, count), where.full(99, count)
        works = [dist.isend(tensor, after), dist.irecv(got, before)]
        for work in works:
            work.wait()
        assert (got == before).all()
    for count in (1, 1000, 3_000_001):
        where.pass_time()
        batches(where, [where.full(where.rank + i, count) for i in range(3)])
    uneven_batch(where)
    refused_batch(where)
    if where.rank == 0 and where.on_gpu:
        with raises(NotImplementedError, "must name the rank that sends"):
            dist.recv(where.full(0, 10))
    if where.rank == 0:
        dist.send(where.full(7, 10), 1)
    elif where.rank == 1:
        got = where.full(0, 10)
        dist.recv(got, 0)
        assert (got == 7).all()
