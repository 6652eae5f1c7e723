"""The programs in the documentation run as they are written."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import forked_python
import pytest
import server
from patience import HANG

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = re.compile(r"^```python\n((?:import|from) .*?)(?:^```|\Z)", re.MULTILINE | re.DOTALL)
PAGES = {"accelerate": 2, "deepspeed": 1, "lightning": 2}  # with the number of their programs
FOUND = {page: PROGRAM.findall((DOCS / f"{page}.md").read_text()) for page in PAGES}
PROGRAMS = [
    pytest.param(program, id=f"{page}-{number}")
    for page, programs in FOUND.items()
    for number, program in enumerate(programs)
]
CHECK = """
import torch.distributed
assert torch.distributed.get_backend() == "hetccl"
assert torch.distributed.get_world_size() == 4
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A `python` whose processes are forked from the server (forked_python.py)."""
    server.ensure_running()
    path = tmp_path_factory.mktemp("bin") / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{forked_python.__file__}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_every_page_has_its_programs():
    assert {page: len(programs) for page, programs in FOUND.items()} == PAGES


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_trains_over_hetccl(program, python, tmp_path):
    name = re.search(
        r"^(?:import|from) (accelerate|transformers|deepspeed|lightning)\b", program, re.M
    )[1]
    if not find_spec(name):
        pytest.skip(f"no {name}: use tests/frameworks/run")
    (tmp_path / "train.py").write_text(program + CHECK)
    done = subprocess.run(
        [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4",
         "-m", "train"],
        cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False,
        env={**os.environ, "PYTHON_EXEC": python},  # of torchrun's ranks
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
