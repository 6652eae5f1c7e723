"""The workflows that a forge would run: valid, and of commands that the tree has."""

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from patience import HANG

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_there_are_workflows_for_lint_tests_and_wheels():
    assert [path.stem for path in WORKFLOWS] == ["lint", "test", "wheels"]


def test_they_follow_the_schema():
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows",
         *WORKFLOWS],
        capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def jobs():
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield f"{path.name}: {name}", job


def commands():
    for where, job in jobs():
        for step in job["steps"]:
            for command in re.split(r"&&|\n", step.get("run", "")):
                if command.strip():
                    yield where, command.split()


def unknown(words):
    """Returns why a command of a step is unknown, or None."""
    if words[0] == "sudo":
        words = words[1:]
    program, *arguments = words
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return next((f"no target {one}" for one in arguments if one not in targets), None)
    if program.startswith("tools/"):
        tool = ROOT / program
        if not tool.is_file() or not tool.stat().st_mode & 0o100:
            return f"no {program}"
        text = tool.read_text()
        options = [one for one in arguments if one.startswith("--")]
        return next((f"{program} has no {one}" for one in options if one not in text), None)
    return None if program in ("apt-get", "chown") else f"unknown program {program}"


def test_the_commands_exist():
    found = list(commands())
    assert {words[1] for _, words in found if words[0] == "make"} >= {"lint", "test", "wheels"}
    assert [(where, words) for where, words in found if unknown(words)] == []


@pytest.mark.parametrize(
    "command", ["make nothing", "tools/nothing", "tools/setup --nothing", "curl x", "sudo make x"]
)
def test_commands_that_do_not_exist_are_found(command):
    assert unknown(command.split())


def test_bare_roots_have_the_oldest_and_the_newest_supported_torch():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        loader = SourceFileLoader("torches_of_workflows", str(ROOT / "tools/torches.py"))
        torches = module_from_spec(spec_from_loader(loader.name, loader))
        loader.exec_module(torches)
    finally:
        sys.path.remove(str(ROOT / "tools"))
    (matrix,) = [job["strategy"]["matrix"] for where, job in jobs() if where.endswith(": bare")]
    supported = torches.supported()
    assert matrix["torch"] == [supported[0], supported[-1]]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert matrix["python"][0] == oldest[1]
