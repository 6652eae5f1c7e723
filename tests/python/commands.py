"""`hetccl` as a command, in a process that is forked from one that has imported it."""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import server
from patience import HANG


def _run(arguments: list[str], prepare: Callable[[], Any] | None) -> None:
    from hetccl import cli

    sys.argv = ["hetccl", *arguments]
    if prepare is not None:
        prepare()
    try:
        cli.main()
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing runs none


def _new_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


class Command:
    """A command that runs. `env` is added to this process's environment.

    `prepare`, a function of a module, is called first, and may change what the command calls.
    """

    def __init__(
        self,
        *arguments: Any,
        env: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] = ".",
        prepare: Callable[[], Any] | None = None,
    ) -> None:
        self._arguments = [str(argument) for argument in arguments]
        self._output = [_new_file(), _new_file()]
        self._process = server.start(
            _run,
            self._arguments,
            prepare,
            environment={**os.environ, **(env or {})},
            folder=folder,
            output=(self._output[0].fileno(), self._output[1].fileno()),
            daemon=False,
        )

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Waits for its end. A command that hangs is killed, and fails the test."""
        self._process.join(HANG)
        hangs = self._process.is_alive()
        self._process.kill()
        self._process.join()
        texts = []
        for file in self._output:
            file.seek(0)
            texts.append(file.read())
            file.close()
        assert not hangs, f"hetccl {' '.join(self._arguments)} hangs:\n{texts[0]}{texts[1]}"
        return subprocess.CompletedProcess(self._arguments, self._process.exitcode, *texts)


def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs `hetccl ARGUMENTS`, and returns its status and output."""
    return Command(*arguments, **options).finish()


def run_to(status: int, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same; it must end with `status` and without a traceback."""
    done = run(*arguments, **options)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done
