"""Adaptors (hetccl/adaptor.h): those over real MPIs and over Intel oneCCL, and refused ones."""

from __future__ import annotations

import ctypes.util
import json
import math
import operator
import os
import random
import socket
import struct
import subprocess
import sys
import time
import warnings
from array import array
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from compiled import ADAPTORS, ROOT, compile_to
from patience import COLLECTIVE, HANG, PROMPT, selected
from ranks import run_ranks

import hetccl

sys.path.insert(0, str(ROOT / "bench"))
from mpis import MPIS, Mpi

BY_OWN_HEADER = [mpi for mpi in MPIS if mpi.package == mpi.header_of]
STEPS = 3
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


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


def compile_adaptor(mpi: Mpi, folder: Path) -> Path:
    source = [str(ADAPTORS / "mpi/mpi_adaptor.c"), *mpi.compiling()]
    warn = ("-Wall", "-Wextra", "-Werror")
    shared = ("-shared", "-fPIC", "-pthread")
    return compile_to(folder / "mpi_adaptor.so", "gcc", "-std=gnu11", *shared, *warn, *source)


@pytest.fixture(scope="module")
def adaptor(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adaptor by this MPI."""
    return compile_adaptor(mpi, tmp_path_factory.mktemp("adaptor"))


# Errors that the conformance program must report for a library that breaks a rule, by
# files_library.cc.
FAULTS = {
    "broadcast": "a broadcast of pieces of int16 is right",
    "exchange": "an exchange of int64 is right",
    "two messages": "an exchange of uint8 is right",
    "in place": "an exchange of int8 is right",
    "order": "all ranks get the same bits of sums of float32",
    "rooted": "reduce of int32 by prod is right",
}


def start_conformance(
    command: list[str], ranks: int, folder: Path, **environment: str
) -> list[subprocess.Popen[str]]:
    """A process for each rank; they meet in the folder."""
    return [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def first_end(processes: list[subprocess.Popen[str]]) -> tuple[int, str]:
    """The status and the output of the process that ends first. The others are killed."""
    end = time.monotonic() + HANG
    try:
        while time.monotonic() < end:
            for process in processes:
                if process.poll() is not None:
                    return process.returncode, process.communicate()[0]
            time.sleep(0.01)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    raise AssertionError("no rank ends")


def test_conformance_finds_what_is_broken(conformance: Path, tmp_path: Path) -> None:
    source = str(Path(__file__).parent / "files_library.cc")
    target = tmp_path / "files_library.so"
    library = compile_to(target, "g++", "-std=c++17", "-shared", "-fPIC", source)
    command = [str(conformance), str(library)]
    for fault, rule in FAULTS.items():
        folder = tmp_path / fault
        folder.mkdir()
        ranks = start_conformance(command, 3, folder, FAULT=fault, FILES_FOLDER=str(folder))
        status, output = first_end(ranks)
        assert status == 1, (fault, output)
        assert f"broken rule: {rule}" in output, (fault, output)
    status, output = first_end(start_conformance(command, 1, tmp_path, FAULT="device"))
    assert status == 2
    assert "hetccl selftest --devices threads:0,threads:1" in output


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment_of(mpi: Mpi, ranks: int, **more: str) -> dict[str, str]:
    return {**os.environ, **AS_ROOT, **mpi.env(ranks), **more}


@pytest.mark.long
def test_the_adaptor_by_mpi_conforms(
    mpi: Mpi, adaptor: Path, conformance: Path, tmp_path: Path
) -> None:
    ranks = 3
    ran = subprocess.run(
        mpi.argv(ranks, [str(conformance), str(adaptor), str(tmp_path)]),
        env=environment_of(mpi, ranks),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"conforms: {ranks} ranks" in ran.stdout


def run_jobs(
    mpi: Mpi, adaptor: Path, folder: Path, size: int, *jobs: list[str], launcher: str = ""
) -> tuple[list[str], str]:
    """Returns the sorted output of MPI jobs' ranks with one communicator, and their errors."""
    program = [sys.executable, str(ROOT / "tests/python/mpi_program.py"), str(folder), str(size)]
    processes = []
    for job in jobs:
        command = mpi.argv(len(job), [*program, *job])
        if launcher:
            command = [str(mpi.prefix / "bin" / launcher), "-n", str(len(job)), *program, *job]
        # More ranks than cores, lest two jobs take the same ones.
        environment = environment_of(mpi, 64, HETCCL_ADAPTORS=str(adaptor))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, env=environment, **pipes))
    try:
        outputs = [process.communicate(timeout=HANG) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return sorted("".join(out for out, _ in outputs).splitlines()), "".join(e for _, e in outputs)


def test_two_mpi_jobs_are_two_clusters(mpi: Mpi, adaptor: Path, tmp_path: Path) -> None:
    """Each has an MPI_COMM_WORLD of its own. Their forked children end, without MPI_Finalize."""
    lines, errors = run_jobs(mpi, adaptor, tmp_path, 4, ["0", "1"], ["2", "3"])
    seen = "sum 10 clusters [[0, 1], [2, 3]] library mpi"
    assert lines == ["child: ends"] * 4 + [f"rank {rank}: {seen}" for rank in range(4)], errors


def test_two_ranks_in_an_mpi_process_are_refused(mpi: Mpi, adaptor: Path, tmp_path: Path) -> None:
    """Their threads still wait for the leader in MPI when the process ends: nothing aborts."""
    lines, errors = run_jobs(mpi, adaptor, tmp_path, 3, ["0", "1,2"])
    assert len(lines) == 5, errors
    for line in lines[2:]:
        assert "two ranks of a cluster are in one MPI process" in line
    assert "MPI_Test" not in errors
    assert "signal" not in errors.replace("by signals sent by", "")


def test_mpi_jobs_that_nothing_tells_apart_are_an_error(tmp_path: Path) -> None:
    """mpiexec.gforker names its job nowhere."""
    mpich = next(mpi for mpi in MPIS if mpi.name == "MPICH")
    if reason := mpich.missing():
        pytest.skip(f"{reason}: tools/setup --mpi installs it")
    adaptor = compile_adaptor(mpich, tmp_path)
    lines, errors = run_jobs(
        mpich, adaptor, tmp_path, 4, ["0", "1"], ["2", "3"], launcher="mpiexec.gforker"
    )
    assert len(lines) == 8, errors
    for line in lines[4:]:
        assert "belong to different MPI jobs: give each job a HETCCL_CLUSTER of its own" in line


# With one MPI: two_mpi_jobs above shows for every MPI that jobs become clusters.
@pytest.mark.long
@pytest.mark.parametrize(
    "mpi",
    selected(BY_OWN_HEADER, 1, lambda mpi: mpi.name == "MPICH"),
    indirect=True,
    ids=lambda mpi: mpi.name,
)
def test_the_demo_trains_with_one_cluster_by_mpi(
    mpi: Mpi, adaptor: Path, forked_python: str, tmp_path: Path
) -> None:
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
    program = [forked_python, "-c", train]
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
        assert [process.wait(timeout=HANG) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    told = json.loads(result.read_text())
    ranks = json.loads(told["topology"])["ranks"]
    assert [rank["library"] for rank in ranks] == ["mpi", "mpi", "host", "host"]
    assert told["gradient_error"] < 1e-5


@pytest.fixture(scope="module")
def oneccl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the environment of a process whose ranks use the oneCCL adaptor."""
    if ctypes.util.find_library("fabric") is None:
        if os.environ.get("CI"):
            pytest.fail("no libfabric: tools/setup --mpi installs it")
        pytest.skip("no libfabric: tools/setup --mpi installs it")
    folder = ROOT / "build/oneccl"
    fetched = subprocess.run(
        [str(ADAPTORS / "oneccl/fetch"), str(folder)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    if fetched.returncode == 3:
        warnings.warn(f"NOT TESTED: the adaptor by oneCCL. {fetched.stderr}", stacklevel=1)
        pytest.skip("PyPI does not give oneCCL")
    assert fetched.returncode == 0, fetched.stderr
    target = tmp_path_factory.mktemp("oneccl") / "oneccl_adaptor.so"
    source = str(ADAPTORS / "oneccl/oneccl_adaptor.c")
    warn = ("-Wall", "-Wextra", "-Werror")
    compile_to(target, "gcc", "-std=gnu11", "-shared", "-fPIC", "-pthread", *warn, source, "-ldl")
    return {"HETCCL_ADAPTORS": str(target), "ONECCL_LIBRARY": str(folder / "libccl.so.2")}


@pytest.mark.long
@pytest.mark.parametrize("ranks", selected([2, 3], 1, lambda ranks: ranks == 2))
def test_the_adaptor_by_oneccl_conforms(
    ranks: int, oneccl: dict[str, str], conformance: Path, tmp_path: Path
) -> None:
    command = [str(conformance), oneccl["HETCCL_ADAPTORS"]]
    processes = start_conformance(command, ranks, tmp_path, **oneccl)
    try:
        outputs = [process.communicate(timeout=HANG)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * ranks, outputs
    assert f"conforms: {ranks} ranks" in outputs[0]


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "max": max,
    "min": min,
}


def check_call(comm: hetccl.Communicator, chance: random.Random) -> None:
    """Makes a random call, the same on all ranks."""
    me, size, root = comm.rank, comm.size, chance.randrange(comm.size)
    kind, op = chance.choice("fdiqB"), chance.choice(list(OPERATORS))
    n = chance.choice((1, 7, chance.randrange(4000)))
    inputs = [[chance.randint(1, 3) for _ in range(n * size)] for _ in range(size)]
    mine, part = array(kind, inputs[me]), slice(me * n, me * n + n)
    reduced = [reduce(OPERATORS[op], column) for column in zip(*inputs, strict=True)]
    out, short = array(kind, [0] * (n * size)), array(kind, [0] * n)
    match chance.choice(("all_reduce", "reduce", "broadcast", "gather", "scatter", "all_to_all")):
        case "all_reduce":
            comm.all_reduce(mine, out, op)
            assert list(out) == reduced
        case "reduce":
            comm.reduce(mine, out, op, root)
            assert me != root or list(out) == reduced
        case "broadcast":
            comm.broadcast(mine, root=root)
            assert list(mine) == inputs[root]
        case "gather":
            comm.all_gather(mine[:n], out)
            assert list(out) == [value for values in inputs for value in values[:n]]
        case "scatter":
            comm.reduce_scatter(mine, short, op)
            assert list(short) == reduced[part]
        case "all_to_all":
            comm.all_to_all(mine, out)
            assert list(out) == [value for values in inputs for value in values[part]]


def check_extremes(comm: hetccl.Communicator) -> None:
    """Every pair of special values: a NaN wins, whatever its sign."""
    special = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -1.5, 2.0]
    pairs = [(a, b) for a in special for b in special]
    mine = [pair[comm.rank] if comm.rank < 2 else pair[0] for pair in pairs]
    for dtype, code in (("float16", "e"), ("bfloat16", ""), ("float32", "f"), ("float64", "d")):
        for name in ("max", "min"):
            words = [struct.pack(f"<{code or 'f'}", value) for value in mine]
            memory = bytearray(b"".join(word if code else word[2:] for word in words))
            comm.all_reduce(memory, op=name, dtype=dtype)
            each = len(memory) // len(pairs)
            for i, (a, b) in enumerate(pairs):
                word = bytes(memory[i * each : i * each + each])
                got = struct.unpack(f"<{code or 'f'}", word if code else b"\0\0" + word)[0]
                lost = math.isnan(a) or math.isnan(b)
                assert math.isnan(got) if lost else got == OPERATORS[name](a, b), (dtype, a, b)


def check_two_communicators(comm: hetccl.Communicator) -> None:
    """Ranks begin the calls of two communicators in opposite orders."""
    other = comm.split(0, comm.rank)
    assert other is not None
    streams = hetccl.Stream(), hetccl.Stream()
    values = [array("i", [i] * 3000) for i in range(20)]
    for first in range(0, len(values), 2):
        pair = [(comm, values[first], streams[0]), (other, values[first + 1], streams[1])]
        for one, value, stream in pair if comm.rank % 2 else reversed(pair):
            one.all_reduce(value, stream=stream)
    for stream in streams:
        stream.synchronize(timeout=COLLECTIVE)
        stream.close()
    assert [value[-1] for value in values] == [i * comm.size for i in range(len(values))]
    other.destroy()


def calls_of_every_kind(comm: hetccl.Communicator) -> list[str]:
    chance = random.Random(5)
    for _ in range(40):
        check_call(comm, chance)
    check_extremes(comm)
    check_two_communicators(comm)
    return [rank["library"] for rank in comm.topology()["ranks"]]


@pytest.mark.long
@pytest.mark.parametrize("others", [0, 2])
def test_collectives_by_oneccl(others: int, oneccl: dict[str, str]) -> None:
    """One cluster by oneCCL, alone or beside another whose ranks use hetccl's own library."""
    environments: list[dict[str, str]] = [oneccl] * 2 + [{}] * others
    libraries = run_ranks(2 + others, calls_of_every_kind, environments=environments)
    assert libraries == [["oneccl"] * 2 + ["host"] * others] * (2 + others)


def abort_beside_a_call(comm: hetccl.Communicator) -> float:
    value = array("f", [1.0] * 1000)
    comm.all_reduce(value)
    start = time.monotonic()
    if comm.rank == 1:
        time.sleep(0.5)  # the other rank is in its second call by then
        comm.abort()
        return 0.0
    with pytest.raises(hetccl.HetcclError):
        comm.all_reduce(value)
    comm.abort()
    return time.monotonic() - start


def test_a_call_by_oneccl_ends_when_a_rank_is_lost(oneccl: dict[str, str]) -> None:
    """oneCCL's own call never ends: its thread is left behind."""
    start = time.monotonic()
    waits = run_ranks(2, abort_beside_a_call, environments=[oneccl] * 2)
    assert waits[0] < PROMPT
    assert time.monotonic() - start < 2 * PROMPT


def test_oneccl_that_is_missing_leaves_the_process_to_hetccl(oneccl: dict[str, str]) -> None:
    missing = {**oneccl, "ONECCL_LIBRARY": "/nonexistent/libccl.so.2"}
    program = (
        "import hetccl\n"
        "comm = hetccl.Communicator(hetccl.unique_id(), 0, 1)\n"
        "print(comm.topology()['ranks'][0]['library'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **missing},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert ran.stdout == "host\n", ran.stderr
    assert "cannot serve this process: /nonexistent/libccl.so.2" in ran.stderr


@pytest.mark.smoke
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
        timeout=HANG,
    )
    assert f"the adaptor {path} is refused" in ran.stdout
    assert reason in ran.stdout
