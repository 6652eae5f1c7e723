"""How the backend gets registered, and what a torch that does not fit does."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

torch = pytest.importorskip("torch")


def python(code, **env):
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True,
        timeout=60, check=False,
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
        "import torch, torch.distributed as dist",  # by entry point alone
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


def test_importing_torch_does_not_load_the_extension():
    assert python("import torch, sys; print('hetccl._torch' in sys.modules)") == "False"


def test_another_torch_is_refused_clearly(monkeypatch):
    from hetccl import torch_backend

    build = pytest.importorskip("hetccl._torch_build")
    monkeypatch.setattr(build, "TORCH_VERSION", "2.9.1+cpu")
    with pytest.raises(ImportError, match=r"built for torch 2\.9\.1\+cpu, but this is torch.*pip"):
        torch_backend.extension.__wrapped__()


def test_autoload_never_raises(monkeypatch):
    from hetccl import torch_backend

    def broken():
        raise ImportError("broken")

    monkeypatch.setattr(torch_backend, "register", broken)
    with pytest.warns(UserWarning, match="broken"):
        torch_backend.autoload()
