"""The build backend: scikit-build-core's, with lines on the terminal about the progress of
compiling.

pip shows a backend's output only if it fails, and compiling takes minutes. If the process has a
terminal, this backend writes a line there every ten seconds.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from scikit_build_core import build as scikit
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

_SECONDS = 10
_TEXTS = re.compile(rb"(?:-- )?(hetccl: .*)")
_STEPS = re.compile(rb"\[(\d+)/(\d+)\] ")


def build_wheel(*arguments: Any, **settings: Any) -> str:
    """As PEP 517 describes it."""
    with progress():
        return str(scikit.build_wheel(*arguments, **settings))


def build_editable(*arguments: Any, **settings: Any) -> str:
    """As PEP 660 describes it."""
    with progress():
        return str(scikit.build_editable(*arguments, **settings))


@contextmanager
def progress() -> Iterator[None]:
    """Tells on the terminal what CMake and ninja write to this process's standard output."""
    try:
        terminal = Path("/dev/tty").open("w", encoding="utf-8")  # noqa: SIM115 # _forward closes it
    except OSError:  # none
        yield
        return
    reader, writer = os.pipe()
    output = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    thread = threading.Thread(target=_forward, args=(reader, output, terminal), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(output, 1)
        thread.join(_SECONDS)  # longer only if a process that the build left holds the pipe


def _forward(reader: int, output: int, terminal: TextIO) -> None:
    due = 0.0
    with os.fdopen(reader, "rb") as lines, os.fdopen(output, "wb", 0) as out, terminal:
        for line in lines:
            out.write(line)
            text, steps = _TEXTS.match(line), _STEPS.match(line)
            if text:
                _say(terminal, text[1].decode().strip())
            elif steps and (steps[1] == steps[2] or time.monotonic() >= due):
                _say(terminal, f"hetccl: compiling: {int(steps[1])} of {int(steps[2])} steps done")
                due = time.monotonic() + _SECONDS


def _say(terminal: TextIO, text: str) -> None:
    """Writes a line of its own, whatever pip's spinner has written."""
    terminal.write(f"\r\x1b[K  {text}\n")
    terminal.flush()
