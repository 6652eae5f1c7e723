"""Send and receive, their batches, and pipelines over them."""

import time
from datetime import timedelta

import pytest
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64)


def letter(source, to, count=1000, dtype=torch.float32):
    """What `source` sends to `to`, unlike what any other two exchange."""
    return (torch.arange(count) % 7 + 2 * source + 31 * to).to(dtype)


def pipeline_by_hand(rank, size):
    for dtype in DTYPES:
        data = letter(0, 1, dtype=dtype) if rank == 0 else torch.empty(1000, dtype=dtype)
        if rank > 0:
            assert dist.recv(data, rank - 1) == rank - 1
        assert torch.equal(data, letter(0, 1, dtype=dtype))
        if rank + 1 < size:
            dist.send(data, rank + 1)


def ring_unbatched(rank, size):
    """Everybody sends more than fits on the way before anybody receives."""
    to, source = (rank + 1) % size, (rank - 1) % size
    sent = [dist.isend(letter(rank, to, 500_000 + i), to) for i in range(3)]
    got = [torch.empty(500_000 + i) for i in range(3)]
    received = [dist.irecv(tensor, source) for tensor in got]
    for work in sent + received:
        work.wait()
    for i, tensor in enumerate(got):
        assert torch.equal(tensor, letter(source, rank, 500_000 + i))


def batch(rank, size):
    others = [peer for peer in range(size) if peer != rank]
    got = {peer: torch.empty(100 + rank) for peer in others}
    operations = [dist.P2POp(dist.irecv, got[peer], peer) for peer in others]
    operations += [
        dist.P2POp(dist.isend, letter(rank, peer, 100 + peer), peer) for peer in reversed(others)
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for peer in others:
        assert torch.equal(got[peer], letter(peer, rank, 100 + rank))


def beside_collectives(rank, size):
    """Ranks need not agree on the place of a message among their collectives."""
    peer = rank ^ 1
    got, total = torch.empty(300_000), torch.ones(1000)
    if rank < peer:
        out = dist.isend(letter(rank, peer, 300_000), peer)
        into = dist.irecv(got, peer)
        dist.all_reduce(total)
    else:
        dist.all_reduce(total)
        into = dist.irecv(got, peer)
        out = dist.isend(letter(rank, peer, 300_000), peer)
    out.wait()
    into.wait()
    assert torch.equal(got, letter(peer, rank, 300_000))
    assert torch.equal(total, torch.full((1000,), float(size)))


def futures(rank, size):
    """The future of a message that comes late holds up no other, nor does a dropped Work."""
    got = torch.empty(10)
    late = dist.irecv(got, (rank - 1) % size).get_future()
    total = torch.ones(5)
    dist.all_reduce(total, async_op=True).get_future().wait()
    assert not late.done()
    dist.barrier()
    dist.isend(letter(rank, (rank + 1) % size, 10), (rank + 1) % size)
    late.wait()
    assert torch.equal(got, letter((rank - 1) % size, rank, 10))


def objects(rank, size):
    if rank == 0:
        dist.send_object_list([{"text": "x" * 10_000}, 3], dst=size - 1)
    elif rank == size - 1:
        received = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == [{"text": "x" * 10_000}, 3]


def subgroup(rank, size):
    group = dist.new_group([size - 1, 1])
    if rank in (1, size - 1):
        got = torch.empty(8)
        peer = size - rank
        works = [dist.isend(letter(rank, peer, 8), peer, group=group), dist.irecv(got, peer, group)]
        for work in works:
            work.wait()
        assert torch.equal(got, letter(peer, rank, 8))


def everything(rank, size):
    for body in (pipeline_by_hand, ring_unbatched, batch, beside_collectives, futures, objects):
        body(rank, size)
        dist.barrier()
    subgroup(rank, size)


@pytest.mark.parametrize("labels", ["", "abba"])
def test_messages(labels, tmp_path):
    run(4, everything, folder=tmp_path, labels=labels)


def refusals(rank, size):
    one = torch.ones(4)
    if rank == 0:
        with pytest.raises(NotImplementedError, match="must name the rank that sends"):
            dist.recv(one)
        with pytest.raises(ValueError, match=r"itself|Invalid destination"):
            dist.send(one, 0)
        with pytest.raises(ValueError, match="not contiguous"):
            dist.send(torch.ones(4, 4)[:, ::2], 1)
    dist.barrier()
    if rank == 0:
        dist.send(one, 1, tag=3)
    else:
        dist.recv(one, 0, tag=3)
    dist.barrier()
    # Two ends that disagree, by their tags, fail on both ranks, by name.
    with pytest.raises(dist.DistBackendError, match=r"tag 5, where this rank receives.*tag 6"):
        if rank == 0:
            dist.send(one, 1, tag=5)
            dist.recv(one, 1)
        else:
            dist.recv(one, 0, tag=6)


def test_refusals(tmp_path):
    run(2, refusals, folder=tmp_path)


def nobody_sends(rank, size):
    group = dist.new_group(timeout=timedelta(seconds=2))
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1 has not sent it"):
            dist.recv(torch.ones(4), 1, group)
        assert time.monotonic() - begin < 10
    else:
        time.sleep(1)  # rank 0 is the first to lose patience
        with pytest.raises(dist.DistBackendError, match="rank 0: recv of 4 float32 from rank 1"):
            dist.recv(torch.ones(1), 0, group)


def test_receive_that_nobody_sends_to(tmp_path):
    run(2, nobody_sends, folder=tmp_path)


class Layers(torch.nn.Sequential):
    """A small network of equal layers, cut into stages."""

    def __init__(self, count, first=0):
        layers = []
        for i in range(first, first + count):
            torch.manual_seed(i)
            layers += [torch.nn.Linear(16, 16), torch.nn.Tanh()]
        super().__init__(*layers)


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target)


def pipelines(rank, size):
    """PyTorch's own pipelines give one process's gradients."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    torch.manual_seed(99)
    inputs, target = torch.randn(24, 16), torch.randn(24, 16)
    whole = Layers(2 * size)
    loss_of(whole(inputs), target).backward()
    for kind in (ScheduleGPipe, Schedule1F1B):
        mine = Layers(2, first=2 * rank)
        stage = PipelineStage(mine, rank, size, torch.device("cpu"))
        schedule = kind(stage, n_microbatches=6, loss_fn=loss_of)
        for _ in range(2):
            mine.zero_grad()
            arguments = (inputs,) if rank == 0 else ()
            losses = []
            if rank == size - 1:
                schedule.step(*arguments, target=target, losses=losses)
            else:
                schedule.step(*arguments)
        whole_parameters = list(whole.parameters())[4 * rank : 4 * rank + 4]
        for got, want in zip(mine.parameters(), whole_parameters, strict=True):
            assert torch.allclose(got.grad, want.grad, atol=1e-6)


@pytest.mark.parametrize("labels", ["", "aabb"])
def test_pipelines(labels, tmp_path):
    run(4, pipelines, folder=tmp_path, labels=labels)
