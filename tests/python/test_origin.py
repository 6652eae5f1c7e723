"""The command that installs hetccl again: from where it was installed, and one that works."""

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from hetccl import origin

ROOT = Path(__file__).parents[2]
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


class Installed:
    """A distribution with that record of where it came from, or none."""

    def __init__(self, direct_url):
        self.direct_url = direct_url

    def read_text(self, name):
        assert name == "direct_url.json"
        return json.dumps(self.direct_url) if self.direct_url else None


@pytest.fixture
def remedy(monkeypatch):
    def of(direct_url, torch="2.14.1+cpu"):
        monkeypatch.setattr(metadata, "distribution", lambda name: Installed(direct_url))
        return origin.how_to_reinstall(torch)

    return of


def command(text):
    """The arguments of the command that a sentence ends with."""
    return shlex.split(text.partition("run: ")[2] or text.partition("sources: ")[2])


def test_sources_are_installed_from_their_folder(remedy):
    words = command(remedy({"url": ROOT.as_uri(), "dir_info": {}}))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[-1] == str(ROOT)
    assert "hetccl" not in words  # which no index has
    assert "--no-build-isolation" not in words  # which takes scikit-build-core


def test_a_folder_with_spaces_is_quoted(remedy, tmp_path):
    folder = tmp_path / "my sources"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    assert command(remedy({"url": folder.as_uri(), "dir_info": {}}))[-1] == str(folder)


@pytest.mark.parametrize("direct_url", [None, {"url": "file:///gone", "dir_info": {}}])
def test_where_the_origin_is_unknown_or_gone_it_says_where_to_run(remedy, direct_url):
    text = remedy(direct_url)
    assert text.startswith("run in hetccl's sources: ")
    assert command(text)[-1] == "."


def test_a_wheel_for_this_torch_beside_the_present_one_is_taken(remedy, tmp_path):
    old = tmp_path / f"hetccl-0.1.0+torch2.13-{PYTHON}-{PYTHON}-linux_x86_64.whl"
    new = tmp_path / f"hetccl-0.1.0+torch2.14-{PYTHON}-{PYTHON}-linux_x86_64.whl"
    old.touch()
    (tmp_path / "hetccl-0.1.0+torch2.14-cp27-cp27-linux_x86_64.whl").touch()
    record = {"url": old.as_uri(), "archive_info": {}}
    assert "tools/wheel --torch 2.14 && " in remedy(record)
    assert remedy(record).endswith(" dist/hetccl-*+torch2.14-*.whl")
    new.touch()
    assert command(remedy(record))[-1] == str(new)


def test_a_repository_is_named_with_its_commit(remedy):
    record = {"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert command(remedy(record))[-1] == "git+https://example.org/h.git@abc"


def test_this_installation_names_something_that_pip_can_install():
    source = Path(command(origin.how_to_reinstall("2.13.0"))[-1])
    assert source == Path() or (source / "pyproject.toml").is_file() or source.suffix == ".whl"
