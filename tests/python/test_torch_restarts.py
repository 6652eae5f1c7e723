"""The next attempt joins in the Store where others died: at any moment, on any rank."""

import multiprocessing
import threading
import time
from datetime import timedelta

import pytest
from torch_ranks import TIMEOUT, vanish

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

PATIENCE = 60  # seconds: only a hang takes longer


class Mortal(dist.Store):
    """One rank's view of a Store. The rank dies before its operation number `dies_at`."""

    def __init__(self, store, death, dies_at=None, deletes=True, die=None):
        super().__init__()
        self.store, self.death, self.left, self.deletes = store, death, dies_at, deletes
        self.die = die or death.set

    def live(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.die()
        if self.death.is_set():
            raise RuntimeError("this attempt has died")
        return self.store

    def set(self, key, value):
        self.live().set(key, value)

    def get(self, key):
        return self.live().get(key)

    def add(self, key, value):
        return self.live().add(key, value)

    def check(self, keys):
        return self.live().check(keys)

    def delete_key(self, key):
        store = self.live()
        if not self.deletes:
            raise RuntimeError("this Store cannot delete")
        return store.delete_key(key)

    def wait(self, keys, timeout=TIMEOUT):
        end = time.monotonic() + timeout.total_seconds()
        store = self.live()
        while not store.check(keys):
            if self.death.is_set() or time.monotonic() >= end:
                raise RuntimeError("wait timeout")
            time.sleep(0.002)

    def clone(self):
        return self


def backend_of(store, rank, size):
    from hetccl import torch_backend

    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id = timedelta(seconds=PATIENCE), "again"
    return torch_backend._create(options)


def attempt(store, size, deletes, victim=None, dies_at=None):
    """Ranks as threads that make a group over `store` and reduce once. Whether none has died."""
    death, errors, ended = threading.Event(), [], threading.Semaphore(0)

    def rank_of(rank):
        mine = dies_at if rank == victim else None
        try:
            backend = backend_of(Mortal(store, death, mine, deletes), rank, size)
            tensor = torch.full((10,), rank + 1.0)
            backend.allreduce(tensor).wait()
            assert (tensor == size * (size + 1) / 2).all()
            backend.shutdown()
        except BaseException as error:
            errors.append(error)
        ended.release()

    for rank in range(size):
        threading.Thread(target=rank_of, args=(rank,), daemon=True).start()
    for _ in range(size):  # ranks of a dead attempt may lag
        while not ended.acquire(timeout=0.05):
            if death.is_set():
                return False
    if death.is_set():
        return False
    assert not errors, errors
    return True


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("victim", [0, 1])
def test_an_attempt_may_die_before_any_operation_on_the_store(victim, deletes):
    store = dist.HashStore()
    dies_at = 0
    while not attempt(store, 2, deletes, victim, dies_at):
        dies_at += 1
        assert dies_at < 100
    assert dies_at > 5
    assert attempt(store, 2, deletes)


def test_a_monitored_barrier_needs_no_store_that_deletes():
    store, errors = dist.HashStore(), []

    def pass_twice(rank):
        view = Mortal(store, threading.Event(), deletes=False)  # torch does not keep it
        backend = backend_of(view, rank, 2)
        try:
            backend.monitored_barrier(timedelta(seconds=PATIENCE))
            backend.monitored_barrier(timedelta(seconds=PATIENCE))
        except BaseException as error:
            errors.append(error)
        backend.shutdown()

    ranks = [threading.Thread(target=pass_twice, args=(rank,), daemon=True) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(2 * PATIENCE)
        assert not rank.is_alive()
    assert not errors, errors


def restart(rank, dies_at, address, pipe):
    """A process that is killed in its operation number `dies_at`, or says that it has joined."""
    from hetccl import torch_backend

    torch_backend.register()
    store = dist.TCPStore(*address, is_master=False)
    mortal = Mortal(store, threading.Event(), dies_at, die=vanish)
    dist.init_process_group("hetccl", store=mortal, rank=rank, world_size=2, timeout=TIMEOUT)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    pipe.send(tensor[0].item())
    dist.destroy_process_group()


def test_a_killed_process_is_no_part_of_the_next_attempt():
    context = multiprocessing.get_context("forkserver")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = ("127.0.0.1", store.port)
    for dies_at in (2, 8, 12, None):
        pipe, theirs = context.Pipe()
        ranks = [
            context.Process(target=restart, args=(rank, (dies_at, None)[rank], address, theirs))
            for rank in range(2)
        ]
        for process in ranks:
            process.start()
        if dies_at is not None:  # as a launcher does it
            ranks[0].join(PATIENCE)
            assert ranks[0].exitcode == -9
            ranks[1].kill()
        else:
            assert [pipe.recv() for _ in ranks if pipe.poll(PATIENCE)] == [2, 2]
        for process in ranks:
            process.join(PATIENCE)
            assert process.exitcode is not None


def test_of_two_processes_that_call_themselves_one_rank_the_later_one_is_it():
    store, lagging = dist.HashStore(), []

    def lag():
        try:
            backend_of(store, 1, 2)
        except dist.DistBackendError as error:
            lagging.append(str(error))

    first = threading.Thread(target=lag)
    first.start()
    while not store.check(["hetccl/made/1"]):
        time.sleep(0.01)
    token = store.get("hetccl/made/1")
    backends = [None, None]

    def come(rank):
        backends[rank] = backend_of(store, rank, 2)

    second = threading.Thread(target=come, args=(1,))
    second.start()
    while store.get("hetccl/made/1") == token:
        time.sleep(0.01)
    come(0)
    for thread in (first, second):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert "another process has come as this rank" in lagging[0]
    for backend in backends:
        backend.abort()
