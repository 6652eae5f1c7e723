"""The process from which ranks and commands are forked. It has imported what they need.

An import of torch takes seconds of processor time, and hundreds of tests need a new process. The
server calls neither hetccl's library nor torch, so it has no threads that a fork would lose.
"""

import contextlib
import multiprocessing
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_MODULES = ["pytest", "hetccl.cli", "hetccl.bench.launch", "hetccl.sharding.planner", "commands"]
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
    _CONTEXT.set_forkserver_preload(_MODULES + (_WITH_TORCH if find_spec("torch") else []))
    with _path_of_tests():
        forkserver.ensure_running()
    given = dict(os.environ if environment is None else environment)
    descriptors = [_Descriptor(number) for number in output]
    process = _CONTEXT.Process(
        target=_child,
        args=(body, arguments, given, os.path.abspath(folder), descriptors),  # noqa: PTH100
        daemon=daemon,
    )
    process.start()
    return process
