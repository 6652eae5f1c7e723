"""Which device a rank communicates from, as far as that can be seen without a GPU."""

import threading
from datetime import timedelta

import pytest
from patience import HANG
from torch_ranks import TIMEOUT, run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from hetccl.torch_backend import Backend  # noqa: E402

CPU = torch.device("cpu")


def elsewhere(rank, size):
    # Not through torch.distributed, for which collectives of such tensors do nothing.
    backend = dist.group.WORLD._get_backend(CPU)
    tensor, here = torch.ones(4, device="meta"), torch.ones(4)
    for call in (
        lambda: backend.allreduce(tensor),
        lambda: backend.allgather([[here] * size], [tensor]),
        lambda: backend.send([tensor], 1 - rank, 0),
    ):
        with pytest.raises(ValueError, match=r"a tensor is on meta, but .* \(cpu\)"):
            call()
    dist.barrier()


def test_tensors_elsewhere(tmp_path):
    run(2, elsewhere, folder=tmp_path)


def both(rank, size, folder):
    dist.destroy_process_group()
    for names in ("cpu:hetccl,cuda:hetccl", "cpu:hetccl"):
        where = f"file://{folder}/{len(names)}"
        dist.init_process_group(names, init_method=where, rank=rank, world_size=size)
        devices = [torch.device(name.split(":")[0]) for name in names.split(",")]
        backends = {dist.group.WORLD._get_backend(device) for device in devices}
        assert len(backends) == 1
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        assert (tensor == size).all()
        dist.destroy_process_group()


def test_registered_for_both(tmp_path):
    assert dist.Backend.backend_capability["hetccl"] == ["cpu", "cuda"]
    run(2, both, str(tmp_path), folder=tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(tmp_path):
    with pytest.raises((ValueError, RuntimeError), match="device"):
        dist.init_process_group(
            "hetccl", store=dist.HashStore(), rank=0, world_size=1,
            device_id=torch.device("cuda:0"),
        )  # fmt: skip
    assert not dist.is_initialized()


def backend_of(store, rank, size, timeout=TIMEOUT):
    from hetccl import torch_backend

    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id = timeout, "later"
    return torch_backend._create(options)


class SomebodyHasAGpu(dist.Store):
    """A Store in which rank 0 says that it has a GPU."""

    def __init__(self):
        super().__init__()
        self.store = dist.HashStore()

    def set(self, key, value):
        mark = key == "hetccl/made/0"
        self.store.set(key, b"m" + value[1:] if mark else value)

    def get(self, key):
        return self.store.get(key)

    def add(self, key, value):
        return self.store.add(key, value)

    def check(self, keys):
        return self.store.check(keys)

    def delete_key(self, key):
        return self.store.delete_key(key)

    def wait(self, keys, timeout=TIMEOUT):
        self.store.wait(keys, timeout)

    def clone(self):
        return self


def as_threads(size, body):
    """`body(rank)` on each; a group's ranks may be threads where nothing else of torch is used."""
    errors = []

    def guarded(rank):
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("first", ["all_reduce", "barrier"])
def test_joins_with_the_first_call_where_a_rank_has_a_gpu(first):
    store = SomebodyHasAGpu()
    for _ in range(2):  # the second finds nothing that the first has left

        def body(rank):
            backend = backend_of(store, rank, 3)
            with pytest.raises(dist.DistBackendError, match="has not joined"):
                Backend(backend).stats()
            if first == "barrier":
                backend.barrier().wait()
            tensor = torch.full((100,), float(rank))
            backend.allreduce(tensor).wait()
            assert (tensor == 3).all()
            assert Backend(backend).stats()["operations"] == 1 + (first == "barrier")
            backend.shutdown()

        as_threads(3, body)


def test_ends_without_a_first_call():
    store = SomebodyHasAGpu()

    def body(rank):
        backend = backend_of(store, rank, 2)
        backend.abort()
        with pytest.raises(dist.DistBackendError, match="has been destroyed"):
            backend.allreduce(torch.ones(4))

    as_threads(2, body)


def test_ranks_that_do_not_come():
    store = dist.HashStore()
    with pytest.raises(dist.DistBackendError, match="not all of its 2 ranks have come"):
        backend_of(store, 0, 2, timedelta(milliseconds=300))

    def body(rank):
        backend = backend_of(store, rank, 2)
        backend.allreduce(torch.ones(4)).wait()
        backend.shutdown()

    as_threads(2, body)  # who went is not counted
