"""Finds the torch that a version means, and virtual environments that have it.

Used by tools/wheel and tools/torch-matrix. pip decides where torch comes from: PIP_EXTRA_INDEX_URL
or PIP_FIND_LINKS gives an index or folder with smaller builds than PyPI's.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build/matrix"
REQUIREMENTS = ROOT / "tools/requirements.txt"
NEWEST = "newest"
# Packages that an environment has besides torch, to test hetccl; REQUIREMENTS pins them.
TOOLS = ("numpy", "pytest", "pytest-timeout")
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")


class UnavailableError(Exception):
    """A torch that cannot be installed; the text is pip's reason."""


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise LookupError(f"{path} has no line like {pattern}")
    return match[1]


def defaults() -> list[str]:
    """The oldest torch that hetccl supports, the one that CI runs, the newest that there is."""
    oldest = _found(r'^torch = \["torch>=([\d.]+)', ROOT / "pyproject.toml")
    return [oldest, _found(r"^torch==(\S+)$", REQUIREMENTS), NEWEST]


def supported() -> list[str]:
    """Returns every series of torch that hetccl supports, as pyproject.toml lists them: 2.11, 2.12,
    ...
    """
    low, high = (
        tuple(int(number) for number in _found(pattern, ROOT / "pyproject.toml").split("."))
        for pattern in (r'^torch = \["torch>=([\d.]+),', r'^torch = \["torch>=[\d.]+,<([\d.]+)"')
    )
    return [f"{low[0]}.{minor}" for minor in range(low[1], high[1])]


def public(version: str) -> str:
    """Returns `version` without its local part: torch reports 2.15.0+cu130, its wheel is 2.15.0."""
    return version.partition("+")[0]


def series(version: str) -> str:
    """The major.minor of `version`, within which torch keeps its C++ interface."""
    return ".".join(public(version).split(".")[:2])


def asked(text: str) -> str:
    """Returns `text` if it is a version or NEWEST. For argparse."""
    if text != NEWEST and not re.fullmatch(r"\d+\.\d+([.+]?[a-z0-9]+)*", text):
        raise argparse.ArgumentTypeError(
            f"{text} is no version of torch: give one like 2.11 or 2.11.0, or {NEWEST}"
        )
    return text


def requirement(version: str) -> str:
    """Returns the requirement for pip: for 2.11 its newest patch, for 2.11.0 itself."""
    if version == NEWEST:
        return "torch"
    return f"torch=={version}.*" if series(version) == version else f"torch=={version}"


def resolve(version: str) -> str:
    """The full version that pip would install, as 2.13.0+cpu. Raises UnavailableError."""
    report = _pip(
        sys.executable, "install", "--dry-run", "--no-deps", "--ignore-installed", "--report=-",
        requirement(version),
    )  # fmt: skip
    return str(json.loads(report)["install"][0]["metadata"]["version"])


def package(version: str) -> Path:
    """The folder of torch `version`'s package, which is enough to build for it: its dependencies,
    those for CUDA among them, are not installed. Raises UnavailableError."""
    folder = ENVIRONMENTS / "packages" / version
    with turn():
        if not (folder / "stamp").is_file():
            say(f"unpacking torch {version} into {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            target = ("install", "--no-deps", "--no-compile", "--target", folder)
            _pip(sys.executable, *target, f"torch=={version}")
            (folder / "stamp").touch()
    return folder / "torch"


def environment(version: str) -> Path:
    """The Python of an environment that has torch `version` and TOOLS; makes it where need be.

    Raises UnavailableError.
    """
    folder = ENVIRONMENTS / version
    python, stamp = folder / "bin/python", folder / "stamp"
    want = hashlib.sha256(repr((TOOLS, REQUIREMENTS.read_text())).encode()).hexdigest()
    with turn():
        if not stamp.is_file():
            say(f"installing torch {version} into {folder} (several GB if it is a build for CUDA)")
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            # Most of torch is never imported here: python compiles what is.
            _pip(python, "install", "--no-compile", f"torch=={version}")
            stamp.touch()
        if stamp.read_text() != want:  # a new pin is no reason to fetch torch again
            _pip(python, "install", "--no-compile", "-c", REQUIREMENTS, *TOOLS)
            stamp.write_text(want)
    return python


@contextmanager
def turn() -> Iterator[None]:
    """Two commands at once take turns with what lies in build."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENTS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """Tells on stderr what goes on."""
    print(f"torch: {text}", file=sys.stderr, flush=True)


def _pip(python: Path | str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [python, *PIP, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        errors = re.findall(r"^ERROR: (.*)", done.stderr, re.MULTILINE)
        raise UnavailableError(errors[-1] if errors else f"pip fails: {done.stderr.strip()}")
    return done.stdout
