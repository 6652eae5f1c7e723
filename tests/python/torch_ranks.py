"""Runs a function as the ranks of one torch process group, each a process, with a deadline.

Processes are forked from a server that has torch loaded, so that a test costs no import of it.
"""

import os
import signal
import time
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest
import server
from patience import COLLECTIVE, HANG

pytest.importorskip("torch")

TIMEOUT = timedelta(seconds=COLLECTIVE)
FOREVER = timedelta(seconds=HANG)


def join(path: str, rank: int, size: int, timeout: timedelta = TIMEOUT, store: Any = None) -> None:
    """Makes the default process group, over `store`, or one in the file `path`."""
    import torch
    import torch.distributed as dist

    from hetccl import torch_backend

    torch_backend.register()
    torch.set_num_threads(1)
    if os.environ.get("HETCCL_TEST_DEVICE") == "cuda":
        torch.cuda.set_device(rank)
    where = {"init_method": f"file://{path}"} if store is None else {"store": store}
    dist.init_process_group("hetccl", **where, rank=rank, world_size=size, timeout=timeout)


def tell(event: str) -> None:
    """Tells the ranks that `wait_for` the event, through the default process group's store."""
    import torch.distributed as dist

    dist.distributed_c10d._get_default_store().set(f"event/{event}", "1")


def wait_for(event: str) -> None:
    """Waits until a rank tells of the event: progress, where time would depend on the machine."""
    import torch.distributed as dist

    dist.distributed_c10d._get_default_store().wait([f"event/{event}"], FOREVER)


def _rank(
    body: Callable[..., Any],
    rank: int,
    size: int,
    path: str,
    args: tuple[Any, ...],
    pipe: Connection,
) -> None:
    try:
        import torch.distributed as dist

        dist.set_debug_level_from_env()  # torch has read it once, in the server
        join(path, rank, size)
        result = body(rank, size, *args)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def run(
    size: int,
    body: Callable[..., Any],
    *args: Any,
    folder: Any,
    labels: str = "",
    hosts: str = "",
    env: dict[str, str] | None = None,
    lost: Collection[int] = (),
) -> list[Any]:
    """Runs `body(rank, size, *args)` on each rank; returns the results by rank, None for ranks in
    `lost`.

    `labels` has one letter a rank: its cluster; `hosts`, too: what it takes for its host. `folder`
    is the test's tmp_path.
    """
    pipes, processes = [], []
    path = str(folder / "store")
    deadline = time.monotonic() + HANG
    for rank in range(size):
        mine, theirs = server.Pipe()
        cluster = {"HETCCL_CLUSTER": labels[rank]} if labels else {}
        host = {"HETCCL_HOSTID": hosts[rank]} if hosts else {}
        environment = {**os.environ, **(env or {}), **cluster, **host}
        arguments = (body, rank, size, path, args, theirs)
        processes.append(server.start(_rank, *arguments, environment=environment))
        theirs.close()
        pipes.append(mine)
    try:
        outcomes: list[Any] = [
            (True, None) if rank in lost else _receive(rank, pipes[rank], deadline)
            for rank in range(size)
        ]
        for rank, process in enumerate(processes):
            if rank not in lost:
                process.join(max(0.1, deadline - time.monotonic()))
                assert process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
    finally:
        for process in processes:
            process.kill()
            process.join(5)
    failed = [f"rank {r}:\n{text}" for r, (fine, text) in enumerate(outcomes) if not fine]
    assert not failed, "\n".join(failed)
    return [result for _, result in outcomes]


def _receive(rank: int, pipe: Connection, deadline: float) -> Any:
    assert pipe.poll(max(0.0, deadline - time.monotonic())), f"rank {rank} has not answered in time"
    try:
        return pipe.recv()
    except EOFError:
        return False, "the process died"


def vanish() -> None:
    """Dies as by the out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Stops, as under a debugger. The test kills it in the end."""
    os.kill(os.getpid(), signal.SIGSTOP)
