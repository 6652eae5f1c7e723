"""tools/setup without root: a clear list of what is missing, and nothing half done."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import HANG

ROOT = Path(__file__).parents[2]
NOBODY = 65534
# A dpkg-query that knows all packages but two.
DPKG_QUERY = """#!/bin/sh
for package; do :; done
case $package in libsodium-dev|doctest-dev) exit 1 ;; esac
echo installed
"""


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "tools/setup", tmp_path / "tools/setup")
    (tmp_path / "bin/dpkg-query").write_text(DPKG_QUERY)
    (tmp_path / "bin/dpkg-query").chmod(0o755)
    if os.geteuid() == 0:
        made = [path for path in tmp_path.parents if path.name.startswith(("pytest-", "popen-"))]
        for path in (tmp_path, tmp_path / "tools", *made):
            path.chmod(0o755)
        os.chown(tmp_path, NOBODY, NOBODY)
    return tmp_path


def setup(tree, *arguments, path="/usr/bin:/bin"):
    return subprocess.run(
        ["/bin/bash", tree / "tools/setup", *arguments],
        user=NOBODY if os.geteuid() == 0 else None,
        env={"PATH": f"{tree}/bin:{path}"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


def test_missing_packages_are_listed(tree):
    done = setup(tree)
    assert done.returncode == 1
    assert "apt-get install libsodium-dev doctest-dev" in done.stderr
    assert not (tree / ".venv").exists()


def test_nothing_is_said_when_nothing_is_missing(tree):
    (tree / "bin/dpkg-query").write_text("#!/bin/sh\necho installed\n")
    done = setup(tree, "--system")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_old_python_is_refused(tree):
    (tree / "bin/dpkg-query").write_text("#!/bin/sh\necho installed\n")
    (tree / "bin/python3").write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.1 || exit 1\n')
    (tree / "bin/python3").chmod(0o755)
    done = setup(tree)
    assert done.returncode == 1
    assert "3.8.1" in done.stderr
    assert "3.10" in done.stderr


def test_without_a_browser_it_says_what_is_not_tested(tree):
    for tool in ("dirname", "mkdir", "flock"):
        (tree / "bin" / tool).symlink_to(shutil.which(tool))
    done = setup(tree, "--browser", path="/nowhere")
    assert done.returncode == 0
    assert "no Chromium" in done.stderr
    (tree / "bin/chromium").symlink_to(shutil.which("true"))
    assert setup(tree, "--browser", path="/nowhere").stderr == ""
