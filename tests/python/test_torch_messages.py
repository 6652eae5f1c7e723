"""Send and receive, their batches, and pipelines over them."""

import time
from datetime import timedelta

import pytest
from patience import PROMPT
from torch_ranks import run, tell, wait_for

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64)


def letter(source, to, count=1000, dtype=torch.float32):
    """Returns the message from `source` to `to`, different for each pair."""
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
    (work,) = dist.batch_isend_irecv(operations)
    work.wait()
    for peer in others:
        assert torch.equal(got[peer], letter(peer, rank, 100 + rank))


def refused_batch(rank, size):
    """None of its messages starts: half of a batch would meet later receives."""
    to, source = (rank + 1) % size, (rank - 1) % size
    stale = dist.P2POp(dist.isend, torch.full((5,), -1.0), to)
    got = torch.empty(5)
    with pytest.raises(ValueError, match="tag -1 is negative"):
        dist.batch_isend_irecv([stale, dist.P2POp(dist.irecv, got, source, tag=-1)])
    sent = dist.isend(letter(rank, to, 5), to)
    dist.recv(got, source)
    sent.wait()
    assert torch.equal(got, letter(source, rank, 5))
    total = torch.ones(3)
    dist.all_reduce(total)
    assert torch.equal(total, torch.full((3,), float(size)))


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
    for body in (
        pipeline_by_hand,
        ring_unbatched,
        batch,
        refused_batch,
        beside_collectives,
        futures,
        objects,
    ):
        body(rank, size)
        dist.barrier()
    subgroup(rank, size)


@pytest.mark.parametrize("labels", ["", pytest.param("abba", marks=pytest.mark.smoke)])
def test_messages(labels, tmp_path):
    run(4, everything, folder=tmp_path, labels=labels)


def served(rank, size):
    """Rank 0 answers whoever asks; each asks several times, with its rank in what it asks."""
    if rank == 0:
        asked = [0] * size
        for _ in range(5 * (size - 1)):
            question = torch.empty(3)
            source = dist.recv(question, tag=1)
            assert question.tolist() == [source, asked[source], 7.0]
            asked[source] += 1
            dist.send(question * 2, source, tag=2)
        assert asked == [0] + [5] * (size - 1)
        questions = [torch.empty(1000) for _ in range(size - 1)]
        works = [dist.irecv(question) for question in questions]
        for work in works:
            work.wait()
        sources = [work._source_rank() for work in works]
        assert sorted(sources) == list(range(1, size))
        assert all((q == s).all() for q, s in zip(questions, sources, strict=True))
    else:
        for number in range(5):
            dist.send(torch.tensor([rank, number, 7.0]), 0, tag=1)
            answer = torch.empty(3)
            dist.recv(answer, 0, tag=2)
            assert answer.tolist() == [2 * rank, 2 * number, 14]
        dist.send(torch.full((1000,), float(rank)), 0)
    group = dist.new_group([0, 2])
    if rank == 2:
        dist.send(torch.full((4,), 2.0), 0, group=group)
        dist.send_object_list(["a", {"b": 3}], 0, group=group)
    if rank == 0:
        tensor = torch.empty(2, 2).t()
        assert dist.recv(tensor, group=group) == 2  # of the default group
        assert (tensor == 2).all()
        objects = [None, None]
        assert dist.recv_object_list(objects, 2, group=group) == 2
        assert objects == ["a", {"b": 3}]
    dist.barrier()


@pytest.mark.parametrize("labels", ["", "aab"])
def test_any_source(labels, tmp_path):
    run(3, served, folder=tmp_path, labels=labels)


def unasked(rank, size):
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=r"from any rank timed out.*no rank has se"):
            dist.recv(torch.empty(3))
        tell("time is up")
    else:
        wait_for("time is up")


@pytest.mark.smoke
def test_nobody_sends(tmp_path):
    run(2, unasked, folder=tmp_path)


def refusals(rank, size):
    one = torch.ones(4)
    if rank == 0:
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
    group = dist.new_group()
    if rank == 0:  # the first to lose patience
        group._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=2))
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1 has not sent it"):
            dist.recv(torch.ones(4), 1, group)
        assert time.monotonic() - begin < PROMPT
    else:
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


def to_oneself(rank, size):
    """A ring of one, and each way in which a message meets its other end."""
    received, sent = torch.zeros(1000), torch.arange(1000.0) + rank
    for first, second in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
        received.zero_()
        works = [call(sent if call is dist.isend else received, rank) for call in (first, second)]
        for work in works:
            work.wait()
            assert work.is_completed()
        assert torch.equal(received, sent)
    received.zero_()
    operations = [dist.P2POp(dist.irecv, received, rank), dist.P2POp(dist.isend, sent, rank)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.equal(received, sent)
    # The other way round, beside a message to another rank, and not side by side in memory.
    wide, other = torch.zeros(30, 20).t(), torch.empty(5)
    operations = [
        dist.P2POp(dist.isend, torch.full((20, 30), 7.0), rank),
        dist.P2POp(dist.isend, torch.full((5,), float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, wide, rank),
        dist.P2POp(dist.irecv, other, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert (wide == 7).all() and (other == (rank - 1) % size).all()


@pytest.mark.parametrize("size", [1, 2])
def test_messages_to_oneself(size, tmp_path):
    run(size, to_oneself, folder=tmp_path)


def tags_to_oneself(rank, size):
    sent = torch.zeros(3)
    for tag in (1, 2, 1):
        work = dist.isend(sent, 0, tag=tag)
        work.wait()
        sent += 1  # what was sent is sent
    received = [torch.empty(3) for _ in range(3)]
    for tensor, tag in zip(received, (2, 1, 1), strict=True):
        dist.irecv(tensor, 0, tag=tag).wait()
    assert [tensor[0].item() for tensor in received] == [1, 0, 2]
    # A receive that came first, its future, and one of another length or type.
    early = torch.empty(3)
    work = dist.irecv(early, 0)
    future = work.get_future()
    assert not work.is_completed() and not future.done()
    for wrong in (torch.ones(4), torch.ones(3, dtype=torch.int32)):
        with pytest.raises((ValueError, TypeError), match="the tensor received"):
            dist.isend(wrong, 0)
    dist.isend(torch.ones(3), 0)
    future.wait()
    work.wait()
    assert (early == 1).all() and work.is_success()


def test_messages_to_oneself_meet_by_their_tags(tmp_path):
    run(1, tags_to_oneself, folder=tmp_path)


def nothing_to_oneself(rank, size):
    group = dist.new_group(timeout=timedelta(milliseconds=300))
    with pytest.raises(dist.DistBackendError, match="has not sent itself the message within 300"):
        dist.irecv(torch.empty(3), 0, group).wait()
    with pytest.raises(ValueError, match="put the send into the batch, or call it before"):
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.empty(3), 0)])
    work = dist.irecv(torch.empty(3), 0)
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="destroyed before this rank sent itself"):
        work.wait()


def test_a_receive_from_oneself_that_nobody_sends(tmp_path):
    run(1, nothing_to_oneself, folder=tmp_path)
