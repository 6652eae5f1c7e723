"""Runs a function as the ranks of one communicator, each a process, with a deadline."""

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import server
from patience import COLLECTIVE, HANG

import hetccl


def _rank(
    body: Callable[..., Any], rank: int, size: int, options: dict[str, Any], pipe: Connection
) -> None:
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
    environments: Sequence[Mapping[str, str]] = (),
    **more: Any,
) -> list[Any]:
    """Runs `body(communicator)`, a function of a module, on each rank; returns the results by rank.

    The communicators have the options `more`, the processes the variables of `environments`.
    """
    pipes, processes = [], []
    for rank in range(size):
        options = {"cluster": labels[rank] if labels else None, "timeout": COLLECTIVE, **more}
        mine, theirs = server.Pipe()
        environment = {**os.environ, **(environments[rank] if environments else {})}
        arguments = (body, rank, size, options, theirs)
        processes.append(server.start(_rank, *arguments, environment=environment))
        theirs.close()
        pipes.append(mine)
    try:
        uid = _receive(pipes[0])
        for pipe in pipes:
            pipe.send(uid)
        outcomes = [_receive(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    for rank, (fine, result) in enumerate(outcomes):
        assert fine, f"rank {rank}:\n{result}"
    return [result for _, result in outcomes]


def _receive(pipe: Connection) -> Any:
    assert wait([pipe], HANG), f"a rank has not answered within {HANG} s"
    received = pipe.recv()
    if isinstance(received, tuple) and received[0] is False:
        raise AssertionError(received[1])
    return received
