"""The process from which ranks and commands are forked. It has imported what they need.

An import of torch takes seconds of processor time, and hundreds of tests need a new process. The
server calls neither hetccl's library nor torch, so it has no threads that a fork would lose.
"""

import contextlib
import multiprocessing
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_MODULES = [
    "pytest",
    "hetccl.cli",
    "hetccl.bench.launch",
    "hetccl.demo.launch",
    "hetccl.mpi",
    "hetccl.plan.svg",
    "hetccl.plan.text",
    "hetccl.sharding.planner",
    "hetccl.sharding.text",
    "hetccl.topology.svg",
    "hetccl.topology.text",
    "hetccl.tune.mpi",
    "pydantic.fields",
    "rich.markdown",
    "typer._adapters",  # which the first command imports
    "typer.rich_utils",
    "commands",
]
_WITH_TORCH = [
    "torch",
    "torch._dynamo",  # which DistributedDataParallel imports when it is made
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "torch.nn",
    "hetccl.sharding.builder",
    "torch_ranks",
]
_LAST = ["frozen"]
_ADDRESS = "TEST_FORK_SERVER"
Pipe = _CONTEXT.Pipe


class _Descriptor:
    """A file descriptor that the child gets as one of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.methodcaller("detach"), (reduction.DupFd(self._number),)


@contextlib.contextmanager
def _path_of_tests() -> Iterator[None]:
    """Python 3.11's server does not get sys.path, and leaves out modules that it does not find."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _child(
    body: Callable[..., Any],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    folder: str,
    output: Sequence[int],
) -> None:
    for target, source in enumerate(output, start=1):
        os.dup2(source, target)
        os.close(source)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    body(*arguments)


def _ensure_running() -> None:
    modules = _MODULES + (_WITH_TORCH if find_spec("torch") else []) + _LAST
    _CONTEXT.set_forkserver_preload(modules)
    with _path_of_tests():
        forkserver.ensure_running()


def share() -> None:
    """Starts the server for all processes of pytest-xdist, which this process starts later."""
    if sys.version_info < (3, 14):  # later ones have a secret for each server
        _ensure_running()
        os.environ[_ADDRESS] = str(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]


def adopt() -> None:
    """Uses the server that the process which started this one shares, if it does."""
    address = os.environ.pop(_ADDRESS, None)
    if address is not None:
        own: Any = forkserver._forkserver  # type: ignore[attr-defined]
        own._forkserver_address = address
        own._forkserver_alive_fd = os.pipe()[1]  # forked processes get a copy; nobody reads it
        own.ensure_running = resource_tracker.ensure_running
        globals()["_ensure_running"] = resource_tracker.ensure_running


def start(
    body: Callable[..., Any],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
    output: tuple[int, int] = (1, 2),
    daemon: bool = True,
) -> ForkServerProcess:
    """A process that calls `body(*arguments)`; `body` is a function of a module.

    It has this process's environment, folder, stdout and stderr, or those that are given. A daemon
    may have no children.
    """
    _ensure_running()
    given = dict(os.environ if environment is None else environment)
    descriptors = [_Descriptor(number) for number in output]
    process = _CONTEXT.Process(
        target=_child,
        args=(body, arguments, given, os.path.abspath(folder), descriptors),  # noqa: PTH100
        daemon=daemon,
    )
    process.start()
    return process
