"""Survivors of a failure get an exception in time, and can make a new process group."""

import os
import resource
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import server
from patience import HANG, PROMPT, milliseconds, mostly_long, seconds
from torch_ranks import freeze, join, run, tell, vanish, wait_for

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402


def lose(rank, size, victim, end, folder):
    dist.barrier()
    if rank == victim:
        end()
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=rf"\brank {victim}\b"):
        while True:
            dist.all_reduce(torch.ones(100_000))
    assert time.monotonic() - start < PROMPT
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(1))  # later calls fail fast
    dist.destroy_process_group()
    survivors = [r for r in range(size) if r != victim]
    join(os.path.join(folder, "next"), survivors.index(rank), len(survivors))  # noqa: PTH118
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert (tensor == len(survivors)).all()


@pytest.mark.parametrize("labels", ["", "aabb"])
@pytest.mark.parametrize("end", [vanish, freeze])
@pytest.mark.parametrize("victim", mostly_long([0, 2], 1))
def test_lost_rank(victim, end, labels, tmp_path):
    env = {"HETCCL_LIVENESS_MS": milliseconds(3000)}
    run(4, lose, victim, end, str(tmp_path), folder=tmp_path, labels=labels, lost={victim}, env=env)


def lose_async(rank, size):
    dist.barrier()
    if rank == 1:
        vanish()
    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        future.wait()


@pytest.mark.smoke
def test_lost_rank_fails_futures(tmp_path):
    run(3, lose_async, folder=tmp_path, lost={1})


def lose_in_training(rank, size):
    torch.manual_seed(1)
    model = fully_shard(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = []
    if rank == 1:  # in the midst of the second step's backward pass
        model.register_full_backward_hook(
            lambda *_: gradients.append(None) or len(gradients) < 2 or vanish()
        )
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"\brank 1\b"):
        for _ in range(100):
            model(torch.ones(4, 64)).sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    assert time.monotonic() - start < PROMPT


@pytest.mark.parametrize("labels", ["", "abab"])
def test_lost_rank_of_a_sharded_model(labels, tmp_path):
    run(4, lose_in_training, folder=tmp_path, labels=labels, lost={1})


def come_late(rank, size, folder):
    dist.destroy_process_group()
    if rank == 1:
        time.sleep(seconds(4))
    join(os.path.join(folder, "late"), rank, size)  # noqa: PTH118
    dist.barrier()


def test_the_group_s_timeout_is_that_of_joining(tmp_path):
    env = {"HETCCL_INIT_TIMEOUT_MS": milliseconds(3000)}
    run(2, come_late, str(tmp_path), folder=tmp_path, env=env)


def join_or_tell(folder, rank):
    store = dist.FileStore(str(folder / "store"), 2)
    try:
        dist.init_process_group("hetccl", store=store, rank=rank, world_size=2)
    except dist.DistBackendError as error:
        (folder / f"error{rank}").write_text(str(error))


def errors_of_joining(folder, settings):
    """The error of each of two ranks, whose processes have these variables."""
    ranks = [
        server.start(join_or_tell, folder, rank, environment={**os.environ, **setting})
        for rank, setting in enumerate(settings)
    ]
    for rank in ranks:
        rank.join(HANG)
        assert rank.exitcode == 0
    return [(folder / f"error{rank}").read_text() for rank in range(2)]


@pytest.mark.smoke
def test_an_error_of_joining_names_each_rank_once(tmp_path):
    settings = [{"HETCCL_SLICE_BYTES": slice_bytes} for slice_bytes in ("0", "4096")]
    for text in errors_of_joining(tmp_path, settings):
        assert text.splitlines()[0] == (
            "hetccl: cannot join process group '0' from host memory: rank 0 has "
            "HETCCL_SLICE_BYTES=0, rank 1 has HETCCL_SLICE_BYTES=4096: set it equally everywhere "
            "[invalid usage]"
        )


# By which ranks have the wrong value: what ranks say. Rank 1 fails too where rank 0 has no id.
MISSET = {
    (0,): (
        " (rank 0 of process group '0' could not make a unique id)",
        " (rank 0 of process group '0' published no usable unique id)",
    ),
    (1,): (None, " (this rank cannot join process group '0' from host memory)"),
}


@pytest.mark.parametrize("wrong", MISSET)
def test_a_wrong_setting_is_what_the_error_begins_with(wrong, tmp_path):
    limit = "3000" if 0 in wrong else "500"  # rank 1 waits for the reason; rank 0 for nothing
    settings = [
        {"HETCCL_INIT_TIMEOUT_MS": limit, **({"HETCCL_SHM": "no"} if rank in wrong else {})}
        for rank in range(2)
    ]
    texts = errors_of_joining(tmp_path, settings)
    for text, ends in zip(texts, MISSET[wrong], strict=True):
        if ends is not None:
            assert text.splitlines()[0] == f"hetccl: HETCCL_SHM=no: takes 0 or 1{ends}"


CALLS = {
    "count": lambda rank: dist.all_reduce(torch.ones(100 + rank)),
    "type": lambda rank: dist.all_reduce(
        torch.ones(100, dtype=(torch.float32, torch.int32)[rank % 2])
    ),
    "operation": lambda rank: (
        dist.broadcast(torch.ones(100), 0) if rank % 2 else dist.all_reduce(torch.ones(100))
    ),
    "barrier": lambda rank: dist.all_reduce(torch.ones(10)) if rank % 2 else dist.barrier(),
}


def disagree(rank, size, how, folder):
    texts = []
    for attempt in range(5):
        with pytest.raises(dist.DistBackendError) as caught:
            CALLS[how](rank)
        texts.append(str(caught.value))
        dist.destroy_process_group()
        join(os.path.join(folder, str(attempt)), rank, size)  # noqa: PTH118
    return texts


@pytest.mark.parametrize("how", sorted(CALLS))
@pytest.mark.parametrize("labels", ["aaaa", "aabb"])
def test_ranks_that_disagree(how, labels, tmp_path):
    for texts in run(4, disagree, how, str(tmp_path), folder=tmp_path, labels=labels):
        assert all("rank" in text for text in texts)


def time_out(rank, size):
    group = dist.distributed_c10d._get_default_group()
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        with pytest.raises(dist.DistBackendError, match="300 ms"):
            work.wait(timedelta(milliseconds=300))
        start = time.monotonic()
        tell("rank 0 has waited")
    if rank == 1:
        wait_for("rank 0 has waited")
        dist.all_reduce(torch.ones(10))
    else:
        work.wait()  # late is not dead
        assert time.monotonic() - start < PROMPT
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=r"rank.*1"):
            dist.all_reduce(torch.ones(10))
        tell("time is up")
    else:
        wait_for("time is up")


def test_timeouts(tmp_path):
    run(2, time_out, folder=tmp_path)


def abandon(rank, size):
    group = dist.distributed_c10d._get_default_group()
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        group.abort()
        with pytest.raises(dist.DistBackendError, match="abort"):
            work.wait()
    else:
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            while True:  # rank 0 may not have aborted yet, but nothing can complete without it
                dist.all_reduce(torch.ones(10))


@pytest.mark.smoke
def test_abort(tmp_path):
    run(2, abandon, folder=tmp_path)


def without_threads(rank, size):
    """The process may have no more threads, so the calling thread sees to the future."""
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), unlimited[1])
    )
    go_on, idle = threading.Event(), []
    with pytest.raises(RuntimeError, match="can't start new thread"):
        while True:  # those that use the stacks of threads that have ended
            idle.append(threading.Thread(target=go_on.wait))
            idle[-1].start()
    try:
        future = work.get_future()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        go_on.set()
    future.wait()
    assert (tensor == size).all()


def test_a_future_without_threads(tmp_path):
    run(2, without_threads, folder=tmp_path)


MOST_MESSAGES = 1024  # of one communicator that are in flight; the next waits for room


def overfill(rank, size):
    group = dist.distributed_c10d._get_default_group()
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(minutes=10))
    if rank > 0:
        if rank == 1:
            dist.send(torch.ones(1), dst=0)
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            dist.recv(torch.empty(1), src=0)
        return
    works, errors = [], []

    def receive():
        try:
            for number in range(MOST_MESSAGES + 2):  # one of them comes
                works.append(dist.irecv(torch.empty(1), src=1 + number % (size - 1)))
        except dist.DistBackendError as error:
            errors.append(str(error))

    receiver = threading.Thread(target=receive)
    receiver.start()
    while len(works) <= MOST_MESSAGES:
        time.sleep(0.01)
    time.sleep(0.2)
    works[0].wait()
    assert not works[1].is_completed()
    group.abort()
    receiver.join()
    assert len(works) == MOST_MESSAGES + 1
    assert "the process group was aborted" in errors[0]
    with pytest.raises(dist.DistBackendError, match="the process group was aborted"):
        works[1].wait()


def test_abort_reaches_a_call_that_waits_for_room(tmp_path):
    run(4, overfill, folder=tmp_path)


def leave(rank, size):
    group = dist.distributed_c10d._get_default_group()
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(minutes=10))
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            dist.recv(torch.empty(1), src=0)
        return
    work = dist.irecv(torch.empty(1), src=1)
    leaver = threading.Thread(target=group.shutdown)
    leaver.start()
    time.sleep(0.2)
    group.abort()
    leaver.join()
    with pytest.raises(dist.DistBackendError, match="the process group was aborted"):
        work.wait()


def test_abort_ends_a_shutdown(tmp_path):
    run(2, leave, folder=tmp_path)


def refuse(rank, size):
    del rank, size
    output = torch.zeros(4000, 3).t()
    torch.full((3, 4000), 7.0)  # whose memory is likely to be used again
    with pytest.raises(ValueError, match="rank"):  # its own block has two lengths
        dist.all_to_all_single(output, torch.ones(3, 4000), [1, 2], [2, 1])
    time.sleep(0.3)
    assert (output == 0).all()
    dist.barrier()


@pytest.mark.smoke
def test_a_refused_call_leaves_its_output_alone(tmp_path):
    run(2, refuse, folder=tmp_path)
