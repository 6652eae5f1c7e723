"""Registers the backend; refuses a torch that does not fit."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from patience import HANG, mostly_long

torch = pytest.importorskip("torch")
from hetccl.torch_backend import libraries  # noqa: E402


def python(code, **env):
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True,
        timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SINGLE = """
dist.init_process_group("hetccl", store=dist.HashStore(), rank=0, world_size=1)
t = torch.ones(3); dist.all_reduce(t); print(t.tolist())
"""


@pytest.mark.parametrize(
    "imports",
    mostly_long(
        [
            "import hetccl; import torch, torch.distributed as dist",
            "import torch, torch.distributed as dist; import hetccl",
            # By entry point alone, which does not load the library before a group is made.
            "import torch, torch.distributed as dist; assert 'hetccl_torch' not in "
            "open('/proc/self/maps').read()",
        ],
        1,
    ),
)
def test_registers(imports):
    assert python(f"{imports}\n{SINGLE}") == "[1.0, 1.0, 1.0]"


@pytest.mark.long
def test_registers_without_autoload():
    order = "import torch, torch.distributed as dist; import hetccl"
    assert python(f"{order}\n{SINGLE}", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[1.0, 1.0, 1.0]"


def test_entry_points():
    for group in ("torch.backends", "torch.distributed.backends"):
        (entry,) = (e for e in entry_points(group=group) if e.name == "hetccl")
        entry.load()()


ANOTHER_TORCH = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch, torch.distributed as dist
    import hetccl
print(*{str(w.message) for w in caught if "hetccl" in str(w.message)}, sep="; ")
assert torch.ones(2).sum() == 2
try:
    dist.init_process_group("hetccl", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    print(error)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
data = bytearray(8)
with hetccl.Communicator(hetccl.unique_id(), 0, 1) as comm:
    comm.all_reduce(data, dtype="uint8")
"""


def copy_package(folder, keep):
    """A copy of the package with the libraries for torch that `keep` renames, and no others."""
    import hetccl

    package = folder / "hetccl"
    ignore = shutil.ignore_patterns("libhetccl_torch-*", "__pycache__")
    shutil.copytree(Path(hetccl.__file__).parent, package, ignore=ignore)
    (library,) = [
        path for series, path in libraries().items() if torch.__version__.startswith(series)
    ]
    for series in keep:
        shutil.copy(library, package / "lib" / f"libhetccl_torch-{series}.so")
    return package


@pytest.mark.long
def test_a_wheel_for_other_torches(tmp_path):
    copy_package(tmp_path, ["2.10", "2.9"])
    warned, raised = python(ANOTHER_TORCH, PYTHONPATH=str(tmp_path)).splitlines()
    for text in (warned, raised):
        assert f"built for torch 2.9, 2.10, but this is torch {torch.__version__}" in text
        assert f"{sys.executable} -m pip install torch==2.10.*" in text
        assert "-m pip install --force-reinstall --no-deps " in text
        assert not text.endswith(" hetccl")  # no package index has it


@pytest.mark.long
def test_of_several_libraries_the_one_for_this_torch_is_loaded(tmp_path):
    series = ".".join(torch.__version__.split(".")[:2])
    package = copy_package(tmp_path, ["2.9", series, "99.1"])
    for other in ("2.9", "99.1"):
        (package / "lib" / f"libhetccl_torch-{other}.so").write_text("not a library")
    code = f"import torch, torch.distributed as dist; import hetccl\n{SINGLE}"
    assert python(code, PYTHONPATH=str(tmp_path)) == "[1.0, 1.0, 1.0]"


@pytest.mark.long
def test_a_library_that_does_not_load(tmp_path):
    series = ".".join(torch.__version__.split(".")[:2])
    package = copy_package(tmp_path, [series])
    (package / "lib" / f"libhetccl_torch-{series}.so").write_text("not a library")
    raised = python(ANOTHER_TORCH, PYTHONPATH=str(tmp_path)).splitlines()[-1]
    assert raised.startswith(
        f"hetccl's PyTorch backend (libhetccl_torch-{series}.so) does not load"
    )
    assert "-m pip install --force-reinstall --no-deps " in raised


@pytest.mark.long
def test_a_wheel_without_the_backend(tmp_path):
    copy_package(tmp_path, [])
    raised = python(ANOTHER_TORCH, PYTHONPATH=str(tmp_path))  # and has not warned
    assert raised.startswith("hetccl was installed without its PyTorch backend")
    assert "-m pip install --force-reinstall --no-deps " in raised
    assert not raised.endswith(" hetccl")


GLOO = """
import torch.distributed as dist, hetccl
dist.init_process_group("hetccl", store=dist.HashStore(), rank=0, world_size=1)
gloo = dist.new_group(backend="gloo")._get_backend(torch.device("cpu"))
print(hasattr(gloo, "perform_nocolor_split"), type(gloo.options).__name__)
"""


@pytest.mark.long
def test_backends_of_others_get_no_attributes_of_ours():
    assert python(f"import torch\n{GLOO}") == "False _Options"


def test_autoload_never_raises(monkeypatch):
    from hetccl import torch_backend

    def broken():
        raise ImportError("broken")

    monkeypatch.setattr(torch_backend, "register", broken)
    with pytest.warns(UserWarning, match="broken"):
        torch_backend.autoload()
