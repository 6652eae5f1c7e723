"""NCCL of pip's wheels is found, unless the process has another one or a setting names one.

The wheel's library is an empty one of NCCL's name.
"""

import shutil
import subprocess
import sys

import pytest
from compiled import compile_to

LOAD = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
from hetccl import wheels
wheels.load_nccl()
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libnccl.so.2" in line})
"""


@pytest.fixture
def wheel(tmp_path):
    """A folder for PYTHONPATH with a package nvidia.nccl, and its library."""
    library = tmp_path / "site/nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    compile_to(library, "gcc", "-shared", f"-Wl,-soname,{library.name}", str(source))
    return tmp_path / "site", library


def loaded(site, *first, **settings):
    """Returns the paths of the process's NCCL after the call, `first` loaded before."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, first)], text=True, capture_output=True, timeout=60,
        env={"PATH": "", "PYTHONPATH": str(site), **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_wheels_library_is_loaded(wheel):
    site, library = wheel
    assert loaded(site) == [str(library)]


def test_a_setting_and_a_loaded_library_come_first(wheel, tmp_path):
    site, library = wheel
    assert loaded(site, HETCCL_NCCL_LIBRARY="none") == []
    own = tmp_path / "libnccl.so.2"
    shutil.copy(library, own)
    assert loaded(site, own) == [str(own)]


@pytest.mark.parametrize("content", [None, b"no library"])
def test_without_a_library_that_loads_nothing_happens(tmp_path, content):
    folder = tmp_path / "nvidia/nccl/lib"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / "libnccl.so.2").write_bytes(content)
    assert loaded(tmp_path) == []
