"""How the backend gets registered, and what a torch that does not fit does."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from patience import HANG

torch = pytest.importorskip("torch")


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
    [
        "import hetccl; import torch, torch.distributed as dist",
        "import torch, torch.distributed as dist; import hetccl",
        # By entry point alone, which does not load the extension before a group is made.
        "import torch, torch.distributed as dist, sys; assert 'hetccl._torch' not in sys.modules",
    ],
)
def test_registers(imports):
    assert python(f"{imports}\n{SINGLE}") == "[1.0, 1.0, 1.0]"


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


def test_a_wheel_for_another_torch(tmp_path):
    import hetccl

    package = tmp_path / "hetccl"
    shutil.copytree(Path(hetccl.__file__).parent, package)
    record = package / "_torch_build.py"
    assert torch.__version__ in record.read_text()
    record.write_text('TORCH_VERSION = "2.9.1+cpu"')
    warned, raised = python(ANOTHER_TORCH, PYTHONPATH=str(tmp_path)).splitlines()
    for text in (warned, raised):
        assert f"built for torch 2.9.1+cpu, but this is torch {torch.__version__}" in text
        assert "-m pip install --force-reinstall --no-deps " in text
        assert not text.endswith(" hetccl")  # no package index has it


def test_a_wheel_without_the_backend(tmp_path):
    import hetccl

    package = tmp_path / "hetccl"
    ignore = shutil.ignore_patterns("_torch.*", "_torch_build.py", "__pycache__")
    shutil.copytree(Path(hetccl.__file__).parent, package, ignore=ignore)
    raised = python(ANOTHER_TORCH, PYTHONPATH=str(tmp_path))  # and has not warned
    assert raised.startswith("hetccl was installed without its PyTorch backend")
    assert "-m pip install --force-reinstall --no-deps " in raised
    assert not raised.endswith(" hetccl")


def test_autoload_never_raises(monkeypatch):
    from hetccl import torch_backend

    def broken():
        raise ImportError("broken")

    monkeypatch.setattr(torch_backend, "register", broken)
    with pytest.warns(UserWarning, match="broken"):
        torch_backend.autoload()
