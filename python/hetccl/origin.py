"""Finds the source from which hetccl was installed, to say how to install it again: no package
index has it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def how_to_reinstall() -> str:
    """The words and the command that build hetccl again, for the torch that is there."""
    source = _source(_direct_url())
    if source is not None:
        return f"run: {_command(shlex.quote(source))}"
    return f"run in hetccl's sources: {_command('.')}"


def commit() -> str | None:
    """The commit that hetccl was installed from, where pip noted one; else that of the folder."""
    origin = _direct_url()
    if "vcs_info" in origin:
        return str(origin["vcs_info"]["commit_id"])
    path = _source(origin) if "dir_info" in origin else None
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


def _source(origin: dict[str, Any]) -> str | None:
    """Returns the sources that pip installed, if it can build them again; None for a wheel."""
    url: str = origin.get("url", "")
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "dir_info" not in origin or not url.startswith("file:"):
        return None
    path = Path(unquote(urlparse(url).path))
    return str(path) if (path / "pyproject.toml").is_file() else None


def _direct_url() -> dict[str, Any]:
    """pip's record (PEP 610) of a folder, an archive or a repository; empty without one."""
    try:
        text = metadata.distribution("hetccl").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
