"""Building from source: missing parts are named at once, and the terminal shows the progress."""

import os
import pty
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from patience import HANG

ROOT = Path(__file__).parents[2]
LIBRARIES = {
    "libsodium": "libsodium-dev",
    "OpenSSL 3": "libssl-dev",
    "zlib": "zlib1g-dev",
    "nlohmann-json": "nlohmann-json3-dev",
}
# The search for libraries sees nothing of the system.
NO_LIBRARIES = [
    f"-DCMAKE_FIND_USE_{place}=OFF"
    for place in ("CMAKE_SYSTEM_PATH", "SYSTEM_ENVIRONMENT_PATH", "CMAKE_ENVIRONMENT_PATH")
]
cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(not (cmake and ninja), reason="needs cmake and ninja")


def configure(folder, *options, **env):
    return subprocess.run(
        [cmake, "-S", ROOT, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}",
         "-DHETCCL_BUILD_TORCH=OFF", *options],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip


def commands_in(text):
    """The line that installs what is missing, as words."""
    (line,) = [line for line in text.splitlines() if "apt-get install" in line]
    return line.split()


def test_all_missing_libraries_are_named_at_once(tmp_path):
    done = configure(tmp_path, *NO_LIBRARIES)
    assert done.returncode != 0
    for name, package in LIBRARIES.items():
        assert f"{name}: " in done.stderr
        assert package in commands_in(done.stderr)
    assert "a C++20 compiler" not in done.stderr
    assert "g++" not in commands_in(done.stderr)


def test_only_what_is_missing_is_named(tmp_path):
    there = ("-DZLIB_INCLUDE_DIR=/usr/include", "-DZLIB_STATIC=/usr/lib/libz.a")
    done = configure(tmp_path, *NO_LIBRARIES, *there)
    assert "zlib1g-dev" not in commands_in(done.stderr)
    assert "libsodium-dev" in commands_in(done.stderr)


def test_without_a_compiler_the_libraries_are_named_too(tmp_path):
    (tmp_path / "bin").mkdir()
    done = configure(tmp_path, *NO_LIBRARIES, PATH=str(tmp_path / "bin"))
    assert done.returncode != 0
    assert "a C++20 compiler: none was found" in done.stderr
    assert commands_in(done.stderr)[2:] == ["g++", *LIBRARIES.values()]


def test_without_a_compiler_libraries_that_are_there_are_found(tmp_path):
    (tmp_path / "bin").mkdir()
    done = configure(tmp_path, PATH=str(tmp_path / "bin"))
    assert commands_in(done.stderr)[2:] == ["g++"]


def test_a_compiler_without_cxx20_is_named(tmp_path):
    old = tmp_path / "old-g++"
    # As a compiler whose newest standard is C++14.
    old.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -std=c++14\n')
    old.chmod(0o755)
    done = configure(tmp_path, *NO_LIBRARIES, CXX=str(old))
    assert done.returncode != 0
    assert f"a C++20 compiler: {old} (GNU " in done.stderr
    assert commands_in(done.stderr)[2:] == ["g++", *LIBRARIES.values()]


BUILD = """
import os, sys
sys.path.insert(0, "tools")
import build_backend
with build_backend.progress():
    os.write(1, b"-- hetccl: building the PyTorch backend for torch 2.13.0\\n")
    os.write(1, b"-- Configuring done (0.1s)\\n")
    for step in range(1, 6):
        os.write(1, b"[%d/5] Building CXX object src/a.o\\n" % step)
"""


def on_a_terminal(code, output):
    """Returns what `code` writes to the terminal, its standard output being the file `output`."""
    child, terminal = pty.fork()
    if child == 0:
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", code])
    text = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the child has ended
            break
        if not read:
            break
        text += read
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
    return text.decode()


def test_the_terminal_shows_what_is_compiled(tmp_path):
    pytest.importorskip("scikit_build_core")
    shown = on_a_terminal(BUILD, tmp_path / "output")
    lines = [line.strip() for line in shown.replace("\x1b[K", "").splitlines() if line.strip()]
    assert lines == [
        "hetccl: building the PyTorch backend for torch 2.13.0",
        "hetccl: compiling: 1 of 5 steps done",
        "hetccl: compiling: 5 of 5 steps done",
    ]
    written = (tmp_path / "output").read_text().splitlines()  # for pip, and `pip install -v`
    assert len(written) == 7
    assert written[-1] == "[5/5] Building CXX object src/a.o"


def test_without_a_terminal_the_output_is_as_it_was():
    pytest.importorskip("scikit_build_core")
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=ROOT, start_new_session=True, capture_output=True,
        text=True, check=False, timeout=HANG,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 7


@pytest.mark.long
def test_the_source_distribution_has_what_a_build_needs(tmp_path):
    pytest.importorskip("build")
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True, capture_output=True, timeout=HANG,
    )  # fmt: skip
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    needed = ("src/", "include/", "compat/", "cmake/", "python/", "adaptors/", "CMakeLists.txt")
    missing = [
        name for name in [*listed.stdout.splitlines(), "tools/build_backend.py"]
        if name.startswith(needed) and (ROOT / name).is_file() and name not in names
    ]  # fmt: skip
    assert missing == []
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/"))]
