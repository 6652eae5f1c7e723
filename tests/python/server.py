"""The process from which ranks and commands are forked. It has imported what they need.

An import of torch takes seconds of processor time, and hundreds of tests need a new process. The
server calls neither hetccl's library nor torch, so it has no threads that a fork would lose.
"""

import contextlib
import multiprocessing
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
    "forked_python",
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
_ADDRESS, _MAKER = "TEST_FORK_SERVER", "TEST_FORK_SERVER_MAKER"
NAMESPACE = "TEST_FORK_SERVER_NAMESPACE"
Pipe = _CONTEXT.Pipe


class Descriptor:
    """A file descriptor that the child gets as one of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return Descriptor._received, (reduction.DupFd(self._number),)

    @staticmethod
    def _received(number: Any) -> "Descriptor":
        return Descriptor(number.detach())

    def take(self) -> int:
        """Its number in this process."""
        return self._number


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
    output: Sequence[Descriptor],
) -> None:
    for target, source in enumerate(output, start=1):
        os.dup2(source.take(), target)
        os.close(source.take())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    body(*arguments)


def preload(*modules: str) -> None:
    """Has the server import these modules, too; to be called before it starts."""
    _WITH_TORCH.extend(modules)


def ensure_running() -> None:
    """Starts the server for this process and all that it starts later, if there is none."""
    if adopt():
        return
    modules = _MODULES + (_WITH_TORCH if find_spec("torch") else []) + _LAST
    _CONTEXT.set_forkserver_preload(modules)
    with _path_of_tests():
        forkserver.ensure_running()
    if sys.version_info < (3, 14):  # later ones have a secret for each server
        os.environ[_ADDRESS] = str(_own()._forkserver_address)
        os.environ[_MAKER] = str(os.getpid())
        os.environ[NAMESPACE] = str(Path("/proc/self/ns/net").readlink())


def _own() -> Any:
    return forkserver._forkserver  # type: ignore[attr-defined]


def adopt() -> bool:
    """Uses the server that the environment names; False if it names none, or this process's own."""
    if _ADDRESS not in os.environ or os.environ[_MAKER] == str(os.getpid()):
        return False
    own = _own()
    if own._forkserver_address is None:
        own._forkserver_address = os.environ[_ADDRESS]
        own._forkserver_alive_fd = os.pipe()[1]  # goes with each request; nobody reads it
        own.ensure_running = resource_tracker.ensure_running
    return True


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
    ensure_running()
    given = dict(os.environ if environment is None else environment)
    descriptors = [Descriptor(number) for number in output]
    process = _CONTEXT.Process(
        target=_child,
        args=(body, arguments, given, os.path.abspath(folder), descriptors),  # noqa: PTH100
        daemon=daemon,
    )
    process.start()
    return process
