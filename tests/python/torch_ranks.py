"""Runs a function as the ranks of one torch process group, each a process, with a deadline.

Processes are forked from a server that has torch loaded, so that a test costs no import of it.
"""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest

pytest.importorskip("torch")

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torch._dynamo",  # which DistributedDataParallel imports when it is made
        "torch.distributed",
        "torch.distributed.fsdp",
        "torch.distributed.optim",
        "torch.distributed.tensor",
        "torch.nn",
        "torch_ranks",
    ]
)
TIMEOUT = timedelta(seconds=20)


def join(path: str, rank: int, size: int, timeout: timedelta = TIMEOUT, store: Any = None) -> None:
    """Makes the default process group, over `store`, or one in the file `path`."""
    import torch
    import torch.distributed as dist

    from hetccl import torch_backend

    torch_backend.register()
    torch.set_num_threads(1)
    where = {"init_method": f"file://{path}"} if store is None else {"store": store}
    dist.init_process_group("hetccl", **where, rank=rank, world_size=size, timeout=timeout)


def _rank(
    body: Callable[..., Any],
    rank: int,
    size: int,
    path: str,
    env: dict,
    args: tuple,
    pipe: Connection,
) -> None:
    os.environ.update(env)
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
    env: dict[str, str] | None = None,
    lost: Collection[int] = (),
    timeout: float = 60,
) -> list[Any]:
    """What `body(rank, size, *args)` returned on each rank, by rank; None from ranks in `lost`.

    `labels` has one letter a rank: its cluster. `folder` is the test's tmp_path.
    """
    pipes, processes = [], []
    path = str(folder / "store")
    deadline = time.monotonic() + timeout
    for rank in range(size):
        mine, theirs = _CONTEXT.Pipe()
        extra = {**(env or {}), **({"HETCCL_CLUSTER": labels[rank]} if labels else {})}
        arguments = (body, rank, size, path, extra, args, theirs)
        processes.append(_CONTEXT.Process(target=_rank, args=arguments, daemon=True))
        processes[-1].start()
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
    """Stops, as under a debugger; whoever started it kills it in the end."""
    os.kill(os.getpid(), signal.SIGSTOP)
