"""hetccl/runtime.h from C: the example of docs/runtime.md compiles, runs, and names what fails."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import HANG

import hetccl

ROOT = Path(__file__).parents[2]
LIBRARY = Path(hetccl.__file__).parent / "lib" / "libhetccl.so"
FAKE = """
int hipGetDeviceCount(int* n) { *n = 1; return 0; }
int hipDeviceGetAttribute(int* value, int attribute, int device) { return 1; }
int hipGetLastError(void) { return 0; }
const char* hipGetErrorString(int error) { return error ? "an error" : "no error"; }
int hipMalloc(void** memory, unsigned long bytes) { return 0; }
int hipMemset(void* memory, int byte, unsigned long bytes) { return 0; }
int hipFree(void* memory) { return 0; }
int hipRuntimeGetVersion(int* version) { *version = 60443484; return 0; }
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("runtime")
    page = (ROOT / "docs/runtime.md").read_text()
    (folder / "example.c").write_text(re.search(r"```c\n(.*?)```", page, re.DOTALL)[1])
    (folder / "fake.c").write_text(FAKE)
    warnings = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["gcc", *warnings, f"-I{ROOT}/include", folder / "example.c", LIBRARY,
         f"-Wl,-rpath,{LIBRARY.parent}", "-o", folder / "example"], check=True,
    )  # fmt: skip
    subprocess.run(
        ["gcc", "-shared", "-fPIC", folder / "fake.c", "-o", folder / "libamdhip64.so"], check=True
    )
    return folder / "example"


def run(example: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [example], env={**os.environ, **settings}, capture_output=True, text=True, timeout=HANG,
        check=False,
    )  # fmt: skip


def test_the_example_runs_on_the_library_that_settings_name(example):
    fake = example.parent / "libamdhip64.so"
    done = run(example, HETCCL_RUNTIME="hip", HETCCL_HIP_LIBRARY=str(fake))
    assert (done.returncode, done.stdout) == (0, f"{fake} 6.4: no error\n"), done.stderr


def test_without_a_library_it_says_what_was_tried(example):
    done = run(example, HETCCL_RUNTIME="hip", HETCCL_HIP_LIBRARY="/nowhere/libamdhip64.so")
    assert done.returncode == 1
    assert "no HIP runtime: no library found: /nowhere/libamdhip64.so" in done.stderr


def test_found_automatically_or_each_platforms_reason(example):
    done = run(example)
    if done.returncode == 0:  # there is a GPU
        assert re.search(r"libcudart|libamdhip64", done.stdout)
    else:
        assert re.search(r"no runtime shows a device: .*CUDA: .*HIP: ", done.stderr)


def test_a_wrong_setting_is_named(example):
    done = run(example, HETCCL_RUNTIME="rocm")
    assert done.returncode == 1
    assert "HETCCL_RUNTIME=rocm: takes cuda or hip" in done.stderr


def test_the_library_exports_what_the_header_declares():
    header = (ROOT / "include/hetccl/runtime.h").read_text()
    names = re.findall(r"HETCCL_API hetcclResult_t (\w+)\(", header)
    assert len(names) == 4
    loaded = ctypes.CDLL(str(LIBRARY))
    assert all(hasattr(loaded, name) for name in names)
