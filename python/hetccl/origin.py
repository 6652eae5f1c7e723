"""Where hetccl was installed from, and so how to install it again: no package index has it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def how_to_reinstall(torch_version: str | None) -> str:
    """The words and the command that install hetccl again, for that torch, or for one to come."""
    series = ".".join(torch_version.split("+")[0].split(".")[:2]) if torch_version else "VERSION"
    origin = _direct_url()
    if (source := _source(origin, series)) is not None:
        return f"run: {_command(shlex.quote(source))}"
    if "archive_info" in origin:
        wheel = f"dist/hetccl-*+torch{series}-*.whl"
        return f"run in hetccl's sources: tools/wheel --torch {series} && {_command(wheel)}"
    return f"run in hetccl's sources: {_command('.')}"


def commit() -> str | None:
    """The commit that hetccl was installed from, where pip noted one; else that of the folder."""
    origin = _direct_url()
    if "vcs_info" in origin:
        return str(origin["vcs_info"]["commit_id"])
    path = _source(origin, "") if "dir_info" in origin else None
    if path is None:
        return None
    try:
        done = subprocess.run(
            ["git", "-C", path, "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _command(source: str) -> str:
    """With build isolation, so that the environment needs no build tools of its own."""
    pip = shlex.join([sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps"])
    return f"{pip} {source}"


def _source(origin: dict[str, Any], series: str) -> str | None:
    """What pip can install again: sources, or the wheel for torch `series` beside this one."""
    url: str = origin.get("url", "")
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    path = Path(unquote(urlparse(url).path))
    if not url.startswith("file:"):
        return None
    if "dir_info" in origin:
        return str(path) if (path / "pyproject.toml").is_file() else None
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = sorted(path.parent.glob(f"hetccl-*+torch{series}-{python}-*.whl"))
    return str(wheels[-1]) if wheels else None


def _direct_url() -> dict[str, Any]:
    """pip's record (PEP 610) of a folder, an archive or a repository; empty without one."""
    try:
        text = metadata.distribution("hetccl").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
