"""Fixtures and helpers that all tests share."""

import fcntl
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import server
from patience import lengthen_timeouts

lengthen_timeouts()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempts from garbage collection what all tests need."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Starts one server for all of pytest-xdist's processes, so that torch is imported once."""
    if getattr(config.option, "numprocesses", None) and not config.option.collectonly:
        server.ensure_running()


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a `python` whose processes are forked from the server (forked_python.py)."""
    server.ensure_running()
    path = tmp_path_factory.mktemp("bin") / "python"
    program = Path(__file__).parent / "forked_python.py"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`once(name, fill)`: a folder that `fill(folder)` has filled, in one of xdist's processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = shared / name, shared / f"{name}.filled"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                filled.touch()
        return folder

    return folder_of
