"""Messages between GPUs of one cluster, which NCCL carries once it has connected them."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from cuda_load import collectives_under
from cuda_ranks import SCALE, Rank, raises, total, vanish


def partner_of(where: Rank) -> int:
    """A rank of the same cluster: ranks 2k and 2k + 1 share one."""
    return where.rank ^ 1


def exchange(where: Rank, tensor: torch.Tensor, got: torch.Tensor, one_call: bool) -> None:
    """Sends one and receives the other: the partner's, in the current stream's order."""
    peer = partner_of(where)
    ops = [(dist.isend, tensor), (dist.irecv, got)]
    works = (
        dist.batch_isend_irecv([dist.P2POp(op, data, peer) for op, data in ops])
        if one_call
        else [op(data, peer) for op, data in ops]
    )
    for work in works:
        work.wait()


def until_connected(where: Rank) -> None:
    """The first messages go by a channel, later ones by NCCL, and all arrive: a graph can hold
    nothing else, and waits until NCCL has connected both."""
    for count in (0, 1, 1000, 300_007, 4_000_001):
        for one_call in (True, False):
            if count > 100_000 and not one_call:
                continue  # they may wait for each other: docs/gpus.md
            got = where.full(99, count)
            exchange(where, where.full(where.rank, count), got, one_call)
            assert (got == partner_of(where)).all()
    tensor, got = where.full(where.rank, 1000), where.full(99, 1000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exchange(where, tensor, got, one_call=True)
        got += 1
    for value in (0, 10, 20):
        tensor.fill_(where.rank + value)
        graph.replay()
        assert (got == partner_of(where) + value + 1).all()


def connected_beside_collectives(where: Rank) -> None:
    """NCCL connects two ranks while both launch collectives, not at the same moments: its first
    messages share queues of the hardware with them, where they may wait for each other."""
    dist.all_reduce(where.full(1, 10))
    got = where.full(99, 10)
    exchange(where, where.full(where.rank, 10), got, one_call=True)
    collectives_under(where, lambda *_: [], 300 * SCALE, torch.int32)
    assert (got == partner_of(where)).all()


def graph_of_single_messages(where: Rank) -> None:
    tensor, got = where.full(0, 1000), where.full(99, 1000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exchange(where, tensor, got, one_call=False)
        got.mul_(2)
    for value in (1, 2):
        tensor.fill_(where.rank + value)
        graph.replay()
        assert (got == 2 * (partner_of(where) + value)).all()


def by_library(where: Rank) -> None:
    """All sizes and types, late streams, and collectives between them."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn):
        for count in (0, 1, 1001, 2_000_003):
            got = where.full(1, count).to(dtype)
            where.pass_time(5)
            one_call = count % 2 == 0 or count > 100_000
            exchange(where, where.full(where.rank + 2, count).to(dtype), got, one_call)
            assert (got.to(torch.float32) == partner_of(where) + 2).all(), (dtype, count)
        reduced = where.full(where.rank + 1, 1000)
        dist.all_reduce(reduced)
        assert (reduced == total(where)).all()


def late_message(where: Rank) -> None:
    """One message is late at its other end, and those of the other way go on."""
    got, tensor = where.full(99, 1000), where.full(where.rank, 1000)
    late = dist.irecv(got, partner_of(where), tag=7) if where.rank % 2 == 0 else None
    for _ in range(3):
        if where.rank % 2 == 0:
            dist.send(tensor, partner_of(where))
        else:
            other = where.full(99, 1000)
            dist.recv(other, partner_of(where))
            assert (other == partner_of(where)).all()
    if late is None:
        dist.send(tensor, partner_of(where), tag=7)
    else:
        late.wait()
        assert (got == partner_of(where)).all()


def outside(where: Rank) -> None:
    """A graph refuses messages to another cluster, and nothing else is harmed."""
    if where.size < 4 or len(set(where.labels)) < 2:
        return
    other = (where.rank + 2) % where.size
    tensor = where.full(where.rank, 10)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        with raises(RuntimeError, "outside the graph", f"messages with rank {other}"):
            dist.isend(tensor, other)
        tensor.add_(1)
    got = where.full(99, 10)
    ops = [dist.P2POp(dist.isend, tensor, other), dist.P2POp(dist.irecv, got, other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (got == other + 1).all() or (got == other).all()


def mismatched(where: Rank) -> None:
    """Ends that disagree: both counts are told, and nothing hangs."""
    tensor = where.full(1, 20)
    with raises(dist.DistBackendError, "float32"):
        dist.barrier()  # the communicator fails on all ranks: none may be in what ran before
        if where.rank % 2 == 0:
            dist.send(tensor[:12], partner_of(where))
        else:
            dist.recv(tensor[:10], partner_of(where))
        torch.cuda.synchronize()
        for _ in range(1000):
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
            time.sleep(0.01)


def lose_partner(where: Rank) -> None:
    """A rank dies while its partner waits for its message in NCCL."""
    until_connected(where)
    lost = where.size - 1
    start = time.monotonic()
    with raises(dist.DistBackendError, f"rank {lost}"):
        dist.barrier()  # none is still in what ran before
        if where.rank == lost:
            vanish()
        got = where.full(99, 1000)
        if partner_of(where) == lost:
            dist.recv(got, lost)
        while True:
            torch.cuda.synchronize()
            dist.all_reduce(got)
            time.sleep(0.01)
    assert time.monotonic() - start < 20


def leaving_sender(where: Rank) -> None:
    """A rank that has sent leaves, and its message comes all the same, when it is received."""
    until_connected(where)
    tensor = where.full(where.rank, 1000)
    if where.rank % 2 == 1:
        dist.send(tensor, partner_of(where))
        torch.cuda.synchronize()
    else:
        where.pass_time(7000)  # longer than the others' patience with who has left
        dist.recv(tensor, partner_of(where))
        assert (tensor == partner_of(where)).all()


PAIRS = [until_connected, graph_of_single_messages, by_library, late_message, outside]
NEED_NCCL = [until_connected, graph_of_single_messages]
CONNECTING = [connected_beside_collectives, until_connected]
UNDER_SETTINGS = [until_connected, graph_of_single_messages, by_library]
