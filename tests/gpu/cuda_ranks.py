"""Runs functions as the ranks of one torch process group, some of them on GPUs, with a deadline.

Processes are forked from a server that has torch loaded but has not touched a GPU. A process whose
job has ended well is kept for the next job with its device and environment, which saves loading the
GPU's driver, contexts and kernels again. Plain Python: where GPUs are there may be no pytest.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

import torch
import torch.distributed as dist

CPU = torch.device("cpu")
SCALE = int(os.environ.get("HETCCL_TEST_SCALE", "1"))
TIMEOUT = timedelta(seconds=30)

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed", "torch.distributed.fsdp", "cuda_ranks"]
)


@dataclass
class Rank:
    """A test body's knowledge of its rank and device."""

    rank: int
    size: int
    devices: tuple[str, ...]  # of all ranks
    labels: str  # of clusters, one letter a rank; or none
    folder: str

    @property
    def device(self) -> torch.device:
        return torch.device(self.devices[self.rank])

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def all_on_gpus(self) -> bool:
        return all(device != "cpu" for device in self.devices)

    @property
    def in_one_cluster(self) -> bool:
        return self.all_on_gpus and len(set(self.labels)) < 2

    def pass_time(self, milliseconds: float = 50) -> None:
        """Has the current stream be late."""
        if self.on_gpu:
            torch.cuda._sleep(int(milliseconds * 2e6))

    def full(self, value: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full(shape, value, dtype=dtype, device=self.device)


def total(where: Rank) -> int:
    """The sum of all ranks, counted from 1."""
    return where.size * (where.size + 1) // 2


def join(where: Rank, name: str, bind: bool) -> None:
    """Makes the default process group. `bind`: with device_id on ranks that have a GPU."""
    import hetccl  # noqa: F401

    options = {"device_id": where.device} if bind and where.on_gpu else {}
    dist.init_process_group(
        "hetccl",
        init_method=f"file://{where.folder}/{name}",
        rank=where.rank,
        world_size=where.size,
        timeout=TIMEOUT,
        **options,
    )


def _serve(env: dict[str, str], pipe: Connection) -> None:
    """Runs one job after the other, until one fails or there is no more."""
    os.environ.update(env)
    while (job := pipe.recv()) is not None and _run_job(*job, pipe):
        pass


def _run_job(
    bodies: Sequence[Callable[[Rank], None]], where: Rank, bind: bool, pipe: Connection
) -> bool:
    name = "joining"
    try:
        torch.set_num_threads(1)
        if where.on_gpu:
            torch.cuda.set_device(where.device)
        join(where, "store", bind)
        for body in bodies:
            name = body.__name__
            started = time.monotonic()
            body(where)
            if where.on_gpu:
                torch.cuda.synchronize()
            pipe.send((name, time.monotonic() - started))
        if dist.is_initialized():
            dist.destroy_process_group()
        if where.on_gpu:
            torch.cuda.empty_cache()
        pipe.send(("", None))
        return True
    except BaseException:
        pipe.send((name, traceback.format_exc()))
        return False


@dataclass
class Worker:
    """A process that runs a rank of one job after the other."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, env: dict[str, str]) -> Worker:
        """A new one, with `env` in its environment."""
        mine, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(env, theirs), daemon=True)
        process.start()
        theirs.close()
        return cls(process, mine)

    def leave(self, deadline: float) -> int | None:
        """Lets the interpreter end as it would by itself: its exit code."""
        self.pipe.send(None)
        self.process.join(max(0.1, deadline - time.monotonic()))
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join(5)
        self.pipe.close()


class Pool:
    """Idle workers by their device and environment. No more than two jobs' ranks are kept."""

    MOST = 8

    def __init__(self) -> None:
        self._idle: list[tuple[tuple[object, ...], Worker]] = []

    def take(self, device: str, env: dict[str, str]) -> Worker:
        """An idle worker, or a new one."""
        key = self._key(device, env)
        for place, (its, worker) in enumerate(self._idle):
            if its == key and worker.process.is_alive():
                del self._idle[place]
                return worker
        return Worker.start(env)

    def put(self, device: str, env: dict[str, str], worker: Worker) -> None:
        """Keeps a worker whose job has ended well."""
        self._idle.append((self._key(device, env), worker))
        while len(self._idle) > self.MOST:
            self._leave(self._idle.pop(0)[1])

    def close(self) -> None:
        """Ends all workers. Raises where one ends badly."""
        while self._idle:
            self._leave(self._idle.pop()[1])

    @staticmethod
    def _leave(worker: Worker) -> None:
        code = worker.leave(time.monotonic() + 30)
        worker.kill()
        if code != 0:
            raise RuntimeError(f"a rank that had finished its jobs ended with {code}")

    @staticmethod
    def _key(device: str, env: dict[str, str]) -> tuple[object, ...]:
        return (device, *sorted(env.items()))


pool = Pool()


def vanish() -> None:
    """Dies as by the out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def raises(kind: type[BaseException], *texts: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        for text in texts:
            assert text in str(error), f"{text!r} is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def run(
    bodies: Sequence[Callable[[Rank], None]],
    devices: Sequence[str],
    labels: str = "",
    bind: bool = False,
    lost: Sequence[int] = (),
    timeout: float = 60 * SCALE,
    env: Mapping[str, str] = MappingProxyType({}),
    fresh: bool = False,
) -> list[str]:
    """Runs `bodies` one after the other as every rank; what failed, and who.

    `labels` has one letter a rank: its cluster. `env` is set before a rank touches its GPU.
    `fresh`: in new processes, for bodies that count what a process has, or leave it changed.
    """
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        deadline = time.monotonic() + timeout
        environments = [_environment(rank, devices, labels, env) for rank in range(len(devices))]
        once = fresh or bool(lost)
        workers = [
            Worker.start(own) if once else pool.take(device, own)
            for device, own in zip(devices, environments, strict=True)
        ]
        for rank, worker in enumerate(workers):
            where = Rank(rank, len(devices), tuple(devices), labels, folder)
            worker.pipe.send((bodies, where, bind))
        try:
            for rank, worker in enumerate(workers):
                if rank not in lost:
                    failures += _follow(rank, worker.pipe, deadline, len(bodies))
                if failures:  # the others cannot go on; what they say by now is worth knowing
                    deadline = min(deadline, time.monotonic() + 3)
            for rank, worker in enumerate(workers):
                if failures or rank in lost:
                    continue
                if not once:
                    pool.put(devices[rank], environments[rank], worker)
                elif (code := worker.leave(deadline)) != 0:
                    failures.append(f"rank {rank} ended with {code}")
        finally:
            for worker in workers:
                if once or failures:
                    worker.kill()
    return failures


def _environment(
    rank: int, devices: Sequence[str], labels: str, env: Mapping[str, str]
) -> dict[str, str]:
    own = {**env, **({"HETCCL_CLUSTER": labels[rank]} if labels else {})}
    if _shares_gpu(rank, devices, labels):
        own |= {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    return own


def _shares_gpu(rank: int, devices: Sequence[str], labels: str) -> bool:
    """Whether NCCL would meet one GPU twice in a cluster, which it takes on different hosts."""
    alike = [r for r, device in enumerate(devices) if device == devices[rank] != "cpu"]
    return any(r != rank and (not labels or labels[r] == labels[rank]) for r in alike)


def _follow(rank: int, pipe: Connection, deadline: float, bodies: int) -> list[str]:
    passed = 0
    while True:
        if not pipe.poll(max(0.0, deadline - time.monotonic())):
            return [f"rank {rank} hangs after {passed} of {bodies} parts"]
        try:
            name, result = pipe.recv()
        except EOFError:
            return [f"rank {rank} died after {passed} of {bodies} parts"]
        if isinstance(result, str):
            return [f"rank {rank}, {name}:\n{result}"]
        if not name:
            return []
        passed += 1
        if rank == 0:
            print(f"   {name}: {result:.2f} s", flush=True)


def refuse_without_settings() -> None:
    """NVLink multicast can take the GPUs of a shared host out of service."""
    wanted = {
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
    }
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            sys.exit(f"{Path(sys.argv[0]).name}: refuses to start without {name}={value}")
