"""tools/wheel and tools/torch-matrix but for the building: versions, names, the table, verdicts."""

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from patience import HANG

ROOT = Path(__file__).parents[2]


def load(name):
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "tools" / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # dataclasses look there
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tools():
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # none beside commands
    sys.path.insert(0, str(ROOT / "tools"))
    yield {name: load(name) for name in ("wheel", "torch-matrix")}
    sys.path.remove(str(ROOT / "tools"))
    sys.dont_write_bytecode = before


@pytest.fixture
def torches(tools):
    return sys.modules["torches"]  # which they import


@pytest.fixture
def matrix(tools):
    return tools["torch-matrix"]


def write_wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def write_torch(folder, version):
    info = f"torch-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    write_wheel(folder / f"torch-{version}-py3-none-any.whl", files)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """All that pip finds: a few versions of a torch that is empty."""
    for version in ("2.11.0", "2.11.2", "2.13.0", "2.13.0+cpu", "2.16.0rc1", "2.15.1"):
        write_torch(tmp_path, version)
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_the_default_versions(torches):
    oldest, pinned, newest = torches.defaults()
    assert (oldest, newest) == ("2.11", torches.NEWEST)
    assert f"torch=={pinned}\n" in (ROOT / "tools/requirements.txt").read_text()


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        ("2.11", "2.11.2"),  # the newest patch
        ("2.11.0", "2.11.0"),
        ("2.13", "2.13.0+cpu"),  # which version sorting prefers
        ("newest", "2.15.1"),  # a release
        ("2.16.0rc1", "2.16.0rc1"),
    ],
)
def test_versions_are_resolved(torches, index, asked, means):
    assert torches.resolve(torches.asked(asked)) == means


@pytest.mark.parametrize("text", ["2", "two", "", "2.11,<3", "--pre", "2.11; true", "2.*"])
def test_what_is_no_version_is_refused(torches, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no version of torch"):
        torches.asked(text)


def test_the_pins_have_every_tool(torches):
    pinned = torches.REQUIREMENTS.read_text().splitlines()
    for tool in torches.TOOLS:
        assert any(line.startswith(f"{tool}==") for line in pinned), tool


def test_torch_is_installed_once(torches, tmp_path, monkeypatch):
    installed = []
    pins = tmp_path / "requirements.txt"
    pins.write_text("ninja==1\n")
    monkeypatch.setattr(torches, "ENVIRONMENTS", tmp_path / "matrix")
    monkeypatch.setattr(torches, "REQUIREMENTS", pins)
    monkeypatch.setattr(torches, "_pip", lambda python, *what: installed.append(what[-1]))
    monkeypatch.setattr(torches.subprocess, "run", lambda command, check: command[-1].mkdir())
    for _ in range(2):
        python = torches.environment("2.11.0")
        assert python == tmp_path / "matrix/2.11.0/bin/python"
    assert installed == ["torch==2.11.0", torches.TOOLS[-1]]
    pins.write_text("ninja==2\n")
    torches.environment("2.11.0")
    assert installed[2:] == [torches.TOOLS[-1]]


def command(name, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / name, *arguments],
        capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip


@pytest.mark.parametrize("extra", [[], ["--allow-missing"]])
def test_a_version_that_does_not_exist_never_passes(index, extra):
    done = command("torch-matrix", "9.9", *extra)
    assert done.returncode == 1
    line = done.stdout.splitlines()[-1]
    assert line.startswith("9.9 ")
    assert "not available: No matching distribution found for torch==9.9.*" in line


def test_there_is_no_wheel_for_a_version_that_does_not_exist(index):
    done = command("wheel", "--torch", "9.9", "--output", index / "dist")
    assert done.returncode == 1
    assert "No matching distribution found for torch==9.9.*" in done.stderr
    assert not (index / "dist").exists()


def test_a_failed_test_fails_the_matrix(matrix, tmp_path):
    report = tmp_path / "tests.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="t" name="a"/><testcase classname="t" name="b"><skipped/></testcase>'
        '<testcase classname="t" name="c"><failure/></testcase>'
        '<testcase classname="t" name="d"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    row = matrix.Row("2.13.0", built=True, completed=True)
    matrix.count(report, row)
    assert (row.passed, row.failed, row.skipped) == (1, 2, 1)
    assert row.complaints == ["failed: t::c", "failed: t::d"]
    assert matrix.verdict([row], allow_missing=True) == 1


def rows(matrix):
    good = matrix.Row("2.13.0", built=True, completed=True, passed=90, skipped=2, seconds=61.4)
    return good, matrix.Row("2.99", missing="No matching distribution found for torch==2.99.*")


def test_the_table(matrix):
    good, missing = rows(matrix)
    unbuilt = matrix.Row("2.15.0", seconds=8)
    assert matrix.table([good, missing, unbuilt]).splitlines() == [
        "torch          built passed failed skipped seconds",
        "2.13.0           yes     90      0       2      61",
        "2.99           not available: No matching distribution found for torch==2.99.*",
        "2.15.0            no      0      0       0       8",
    ]


def test_the_verdict(matrix):
    good, missing = rows(matrix)
    assert matrix.verdict([good], allow_missing=False) == 0
    assert matrix.verdict([good, missing], allow_missing=False) == 1
    assert matrix.verdict([good, missing], allow_missing=True) == 0
    for bad in (
        matrix.Row("2.13.0"),  # has not been built
        matrix.Row("2.13.0", built=True, passed=3),  # died on the way
        matrix.Row("2.13.0", built=True, completed=True, skipped=9),  # tested nothing
    ):
        assert matrix.verdict([good, bad], allow_missing=True) == 1


METADATA = """Metadata-Version: 2.1
Name: hetccl
Version: 0.1.0
Requires-Dist: typer>=0.19
Provides-Extra: torch
Requires-Dist: torch<2.16,>=2.11; extra == "torch"

Version: 7 and Requires-Dist: of the description stay.
"""


def built(folder, version="2.13.0+cpu"):
    info = "hetccl-0.1.0.dist-info"
    files = {
        f"{info}/METADATA": METADATA,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "stale",
    }
    if version:
        files["hetccl/_torch_build.py"] = f'"""Facts."""\n\nTORCH_VERSION = "{version}"\n'
    return write_wheel(folder / "hetccl-0.1.0-py3-none-any.whl", files)


def test_a_wheel_says_which_torch_it_is_for(tools, tmp_path):
    wheel = tools["wheel"].relabel(built(tmp_path), "2.13.0+cpu", tmp_path / "dist")
    assert wheel == tmp_path / "dist/hetccl-0.1.0+torch2.13-py3-none-any.whl"
    info = "hetccl-0.1.0+torch2.13.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    expected = METADATA.replace("Version: 0.1.0", "Version: 0.1.0+torch2.13")
    expected = expected.replace("torch<2.16,>=2.11;", "torch==2.13.*;")
    assert contents[f"{info}/METADATA"].decode() == expected
    *recorded, last = contents[f"{info}/RECORD"].decode().splitlines()
    assert last == f"{info}/RECORD,,"
    assert len(recorded) == len(contents) - 1
    for line in recorded:
        name, digest, size = line.split(",")
        raw = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).decode()
        assert (digest, size) == (f"sha256={raw.rstrip('=')}", str(len(contents[name])))


def test_pip_takes_the_wheel(tools, tmp_path, index):
    wheel = tools["wheel"].relabel(built(tmp_path), "2.13.0+cpu", tmp_path / "dist")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    target = tmp_path / "target"
    subprocess.run([*pip, "install", "--no-deps", "-t", target, wheel], check=True, timeout=HANG)
    assert (target / "hetccl-0.1.0+torch2.13.dist-info/METADATA").is_file()


def test_a_build_for_cuda_says_so_in_torch_alone(tools, tmp_path):
    wheel = tools["wheel"].relabel(built(tmp_path, "2.15.0+cu130"), "2.15.0", tmp_path)
    assert wheel.name == "hetccl-0.1.0+torch2.15-py3-none-any.whl"


@pytest.mark.parametrize("built_for", ["2.11.0", "2.13.1+cpu", None])
def test_a_wheel_without_the_right_backend_is_refused(tools, tmp_path, built_for):
    with pytest.raises(tools["wheel"].BuildError, match=r"no backend for torch 2.13.0\+cpu"):
        tools["wheel"].relabel(built(tmp_path, built_for), "2.13.0+cpu", tmp_path / "dist")
    assert not (tmp_path / "dist").exists()
