"""Runs a function as the ranks of one communicator, each a process, with a deadline."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import hetccl

_CONTEXT = multiprocessing.get_context("spawn")


def _rank(
    body: Callable[..., Any],
    rank: int,
    size: int,
    options: dict,
    environment: Mapping[str, str],
    pipe: Connection,
) -> None:
    os.environ.update(environment)
    try:
        if rank == 0:
            pipe.send(hetccl.unique_id())
        uid = pipe.recv()
        with hetccl.Communicator(uid, rank, size, **options) as comm:
            result = body(comm)
        pipe.send((True, result))
    except Exception:
        pipe.send((False, traceback.format_exc()))


def run_ranks(
    size: int,
    body: Callable[..., Any],
    labels: Sequence[str] = (),
    timeout: float = 60,
    environments: Sequence[Mapping[str, str]] = (),
    **more: Any,
) -> list[Any]:
    """What `body(communicator)`, a function of a module, returned on each rank, by rank.

    The communicators have the options `more`, the processes the variables of `environments`.
    """
    pipes, processes = [], []
    for rank in range(size):
        options = {"cluster": labels[rank] if labels else None, "timeout": 30.0, **more}
        mine, theirs = _CONTEXT.Pipe()
        environment = environments[rank] if environments else {}
        arguments = (body, rank, size, options, environment, theirs)
        processes.append(_CONTEXT.Process(target=_rank, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        pipes.append(mine)
    try:
        uid = _receive(pipes[0], timeout)
        for pipe in pipes:
            pipe.send(uid)
        outcomes = [_receive(pipe, timeout) for pipe in pipes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    for rank, (fine, result) in enumerate(outcomes):
        assert fine, f"rank {rank}:\n{result}"
    return [result for _, result in outcomes]


def _receive(pipe: Connection, timeout: float) -> Any:
    assert wait([pipe], timeout), f"a rank has not answered within {timeout} s"
    received = pipe.recv()
    if isinstance(received, tuple) and received[0] is False:
        raise AssertionError(received[1])
    return received
