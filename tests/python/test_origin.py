"""The command that installs hetccl again: from where it was installed, and one that works."""

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from hetccl import origin

ROOT = Path(__file__).parents[2]


class Installed:
    """A distribution with that record of where it came from, or none."""

    def __init__(self, direct_url):
        self.direct_url = direct_url

    def read_text(self, name):
        assert name == "direct_url.json"
        return json.dumps(self.direct_url) if self.direct_url else None


@pytest.fixture
def remedy(monkeypatch):
    def of(direct_url):
        monkeypatch.setattr(metadata, "distribution", lambda name: Installed(direct_url))
        return origin.how_to_reinstall()

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


@pytest.mark.parametrize(
    "direct_url",
    [
        None,
        {"url": "file:///gone", "dir_info": {}},
        {"url": "file:///dist/hetccl-0.1.0-py3-none-linux_x86_64.whl", "archive_info": {}},
    ],
)
def test_where_the_origin_is_unknown_or_gone_it_says_where_to_run(remedy, direct_url):
    text = remedy(direct_url)
    assert text.startswith("run in hetccl's sources: ")
    assert command(text)[-1] == "."


def test_a_repository_is_named_with_its_commit(remedy):
    record = {"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert command(remedy(record))[-1] == "git+https://example.org/h.git@abc"


def test_this_installation_names_something_that_pip_can_install():
    source = Path(command(origin.how_to_reinstall())[-1])
    assert source == Path() or (source / "pyproject.toml").is_file()
