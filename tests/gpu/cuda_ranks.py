"""Runs functions as the ranks of one torch process group, some of them on GPUs, with a deadline.

Processes are forked from a server that has torch loaded but has not touched a GPU. Plain Python:
where GPUs are there may be no pytest.
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
    """What a test's body knows of where it runs."""

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


def _rank(
    bodies: Sequence[Callable[[Rank], None]],
    where: Rank,
    bind: bool,
    env: dict[str, str],
    pipe: Connection,
) -> None:
    os.environ.update(env)
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
        pipe.send(("", None))
    except BaseException:
        pipe.send((name, traceback.format_exc()))


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
) -> list[str]:
    """Runs `bodies` one after the other as every rank; what failed, and who.

    `labels` has one letter a rank: its cluster. `env` is set before a rank touches its GPU.
    """
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        deadline = time.monotonic() + timeout
        pipes, processes = [], []
        for rank in range(len(devices)):
            mine, theirs = _CONTEXT.Pipe()
            own = {**env, **({"HETCCL_CLUSTER": labels[rank]} if labels else {})}
            if _shares_gpu(rank, devices, labels):
                own |= {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo"}
            where = Rank(rank, len(devices), tuple(devices), labels, folder)
            arguments = (bodies, where, bind, own, theirs)
            processes.append(_CONTEXT.Process(target=_rank, args=arguments, daemon=True))
            processes[-1].start()
            theirs.close()
            pipes.append(mine)
        try:
            for rank, pipe in enumerate(pipes):
                if rank not in lost:
                    failures += _follow(rank, pipe, deadline, len(bodies))
                if failures:  # the others cannot go on; what they say by now is worth knowing
                    deadline = min(deadline, time.monotonic() + 3)
            for rank, process in enumerate(processes):
                if rank in lost:
                    continue
                process.join(max(0.1, deadline - time.monotonic()))
                if process.exitcode != 0 and not failures:
                    failures.append(f"rank {rank} ended with {process.exitcode}")
        finally:
            for process in processes:
                process.kill()
                process.join(5)
    return failures


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
