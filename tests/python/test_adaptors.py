"""Adaptors (hetccl/adaptor.h): the one by MPI, under real MPIs, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ADAPTORS = ROOT / "adaptors"
sys.path.insert(0, str(ROOT / "bench"))
from mpis import MPIS, Mpi  # noqa: E402

BY_OWN_HEADER = [mpi for mpi in MPIS if mpi.package == mpi.header_of]
STEPS = 3
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def compile_to(target: Path, *arguments: str) -> Path:
    """Builds a program or library of adaptors/."""
    built = subprocess.run(
        [*arguments, f"-I{ROOT / 'include'}", "-O1", "-o", str(target)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="module")
def conformance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that tests an adaptor."""
    target = tmp_path_factory.mktemp("conformance") / "conformance"
    source = str(ADAPTORS / "conformance.cc")
    return compile_to(target, "g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-ldl")


@pytest.fixture(scope="module", params=BY_OWN_HEADER, ids=lambda mpi: mpi.name)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI that is here."""
    found: Mpi = request.param
    if reason := found.missing():
        if os.environ.get("CI"):
            pytest.fail(f"{reason}: tools/setup --mpi installs it")
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def adaptor(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adaptor by this MPI."""
    target = tmp_path_factory.mktemp("adaptor") / "mpi_adaptor.so"
    source = str(ADAPTORS / "mpi/mpi_adaptor.c")
    return compile_to(target, "gcc", "-std=gnu11", "-shared", "-fPIC", source, *mpi.compiling())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment_of(mpi: Mpi, ranks: int, **more: str) -> dict[str, str]:
    return {**os.environ, **AS_ROOT, **mpi.env(ranks), **more}


def test_the_adaptor_by_mpi_conforms(
    mpi: Mpi, adaptor: Path, conformance: Path, tmp_path: Path
) -> None:
    ranks = 3
    ran = subprocess.run(
        mpi.argv(ranks, [str(conformance), str(adaptor), str(tmp_path)]),
        env=environment_of(mpi, ranks),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"conforms: {ranks} ranks" in ran.stdout


def test_the_demo_trains_with_one_cluster_by_mpi(mpi: Mpi, adaptor: Path, tmp_path: Path) -> None:
    """Two ranks of an MPI job, whose cluster reduces by MPI, and two processes without MPI."""
    pytest.importorskip("torch")
    result = tmp_path / "result.json"
    train = (
        "import os, runpy, sys\n"
        "rank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))\n"
        "os.environ.setdefault('RANK', rank or '')\n"
        f"sys.argv = ['train', '--backend', 'hetccl', '--steps', '{STEPS}', '--clusters', '2',"
        f" '--result', '{result}']\n"
        "runpy.run_module('hetccl.demo.train', run_name='__main__')\n"
    )
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "4"}
    program = [sys.executable, "-c", train]
    own = {**meeting, "HETCCL_CLUSTER": "a", "HETCCL_ADAPTORS": str(adaptor)}
    processes = [
        subprocess.Popen(mpi.argv(2, program), env=environment_of(mpi, 4, **own)),
        *(
            subprocess.Popen(
                program,
                env={**os.environ, **meeting, "HETCCL_CLUSTER": "b", "RANK": str(rank)},
            )
            for rank in (2, 3)
        ),
    ]
    try:
        assert [process.wait(timeout=180) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    told = json.loads(result.read_text())
    ranks = json.loads(told["topology"])["ranks"]
    assert [rank["library"] for rank in ranks] == ["mpi", "mpi", "host", "host"]
    assert told["gradient_error"] < 1e-5


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nonexistent/adaptor.so", "cannot open"), ("libc.so.6", "it exports no hetcclAdaptor")],
)
def test_a_communicator_says_which_adaptor_is_refused(path: str, reason: str) -> None:
    program = (
        "import hetccl\n"
        "try:\n"
        "    hetccl.Communicator(hetccl.unique_id(), 0, 1)\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HETCCL_ADAPTORS": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"the adaptor {path} is refused" in ran.stdout
    assert reason in ran.stdout
