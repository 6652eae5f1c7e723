"""tools/wheel and tools/torch-matrix but for the building: versions, names, the table, verdicts."""

import argparse
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


def test_every_supported_series_gets_a_backend(torches):
    first, *_, last = torches.supported()
    pins = (ROOT / "pyproject.toml").read_text()
    assert first == torches.defaults()[0]
    major, minor = last.split(".")
    assert f'torch = ["torch>={first},<{major}.{int(minor) + 1}"]' in pins


def built(folder, series, tags="py3-none-linux_x86_64"):
    libraries = {f"hetccl/lib/libhetccl_torch-{one}.so": "" for one in series}
    return write_wheel(folder / f"hetccl-0.1.0-{tags}.whl", {"hetccl/__init__.py": "", **libraries})


def test_a_wheel_with_the_backends_asked_for_is_good(tools, tmp_path):
    tools["wheel"].check(built(tmp_path, ["2.11", "2.13"]), ["2.13.0+cpu", "2.11.2"])


@pytest.mark.parametrize("series", [["2.11"], ["2.11", "2.13", "2.14"], []])
def test_a_wheel_with_other_backends_is_refused(tools, tmp_path, series):
    with pytest.raises(tools["wheel"].BuildError, match=r"instead of .*2\.11.*2\.13"):
        tools["wheel"].check(built(tmp_path, series), ["2.13.0+cpu", "2.11.2"])


def test_a_wheel_for_one_python_is_refused(tools, tmp_path):
    wheel = built(tmp_path, ["2.13"], "cp311-cp311-linux_x86_64")
    with pytest.raises(tools["wheel"].BuildError, match="for one Python alone"):
        tools["wheel"].check(wheel, ["2.13.0"])


def test_one_wheel_serves_every_torch_of_the_matrix(torches, matrix, tmp_path, monkeypatch):
    calls = []

    def run(log, *command):
        calls.append([str(word) for word in command])
        if "--quick" in command:
            (tmp_path / "dist").mkdir()
            built(tmp_path / "dist", ["2.11", "2.13"])
        return True

    monkeypatch.setattr(torches, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(matrix, "run", run)
    wheel = matrix.build(["2.11.2", "2.13.0"])
    for version in ("2.11.2", "2.13.0"):
        (tmp_path / version).mkdir()
        assert matrix.examine(version, Path(f"python-{version}"), wheel).built
    assert calls[0][2:] == [
        "--quick",
        "--torch=2.11.2",
        "--torch=2.13.0",
        "--output",
        str(tmp_path / "dist"),
    ]
    assert [call[0] for call in calls if "install" in call] == ["python-2.11.2", "python-2.13.0"]
    assert all(call[-1] == str(wheel) for call in calls if "install" in call)
    assert matrix.examine("2.11.2", Path("python"), None).complaints  # no wheel was built
