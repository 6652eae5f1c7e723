"""Programs for NCCL over hetccl's stand-in, on ranks of the host: they know NCCL alone."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from patience import HANG

from hetccl import nccl

HOST_ALONE = {"HETCCL_NCCL_LIBRARY": "none", "HETCCL_RCCL_LIBRARY": "none"}

OWN_NAMES = ("nccl", "pnccl", "msccl", "pmsccl", "hetccl_nccl", "_Z12ncclCommDumpP8ncclComm")

# In the manner of vLLM's pynccl: NCCL by ctypes, one rank.
CTYPES_RANK = """
import ctypes, os, sys
nccl = ctypes.CDLL(os.environ["NCCL_SO_PATH"])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
uid = Id()
if rank == 0 or "NCCL_COMM_ID" in os.environ:
    assert nccl.ncclGetUniqueId(ctypes.byref(uid)) == 0
    if rank == 0:
        with open(path + ".draft", "wb") as file:
            file.write(bytes(uid))
        os.rename(path + ".draft", path)
else:
    import time
    while not os.path.exists(path):
        time.sleep(0.01)
    ctypes.memmove(ctypes.byref(uid), open(path, "rb").read(), 128)
comm = ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
assert nccl.ncclCommInitRank(ctypes.byref(comm), size, uid, rank) == 0
data = (ctypes.c_float * 4)(*[rank + 1.0] * 4)
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                               ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
assert nccl.ncclAllReduce(data, data, 4, 7, 0, comm, None) == 0
print(data[3], flush=True)
nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]
assert nccl.ncclCommDestroy(comm) == 0
"""


def exported(library: Path) -> set[str]:
    """The functions that a library gives to programs."""
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {line.split()[-1] for line in lines}


def recorded(name: str) -> set[str]:
    folder = Path(__file__).parent.parent / "nccl"
    lines = (folder / name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_stands_in_for_every_function_of_nccl_and_rccl() -> None:
    """A program that is linked with a vendor's library finds all of its symbols here."""
    for library in (nccl.LIBRARY, nccl.STAND_INS / "libnccl.so.2", nccl.STAND_INS / "librccl.so.1"):
        own = exported(library)
        for name in ("nccl-2.32.3.txt", "rccl-2.21.5.txt"):
            missing = recorded(name) - own
            assert not missing, f"{library.name} lacks {sorted(missing)}"
        foreign = {name for name in own if not name.startswith(OWN_NAMES)}
        assert not foreign, f"{library.name} also exports {sorted(foreign)}"


def test_sonames_let_programs_find_it() -> None:
    for name in ("libnccl.so.2", "librccl.so.1"):
        dynamic = subprocess.run(
            ["readelf", "-d", str(nccl.STAND_INS / name)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"[{name}]" in dynamic


def run_by_ctypes(folder: Path, **settings: str) -> list[subprocess.CompletedProcess[str]]:
    """Three ranks that open the stand-in by its path."""
    environment = {
        **os.environ,
        **HOST_ALONE,
        **settings,
        "NCCL_SO_PATH": str(nccl.STAND_INS / "libnccl.so.2"),
        "NCCL_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", CTYPES_RANK, str(rank), "3", str(folder / "id")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    done = []
    for rank in ranks:
        out, err = rank.communicate(timeout=HANG)
        done.append(subprocess.CompletedProcess(rank.args, rank.returncode, out, err))
    return done


def test_a_program_that_opens_nccl_by_ctypes_runs(tmp_path: Path) -> None:
    for rank in run_by_ctypes(tmp_path):
        assert rank.returncode == 0, rank.stderr
        assert rank.stdout.split() == ["6.0"]


def test_ranks_meet_at_a_known_place(tmp_path: Path) -> None:
    """With NCCL_COMM_ID every rank makes the id for itself; the secret is a file's."""
    secret = tmp_path / "secret"
    secret.write_text("for this test alone\n" * 3)
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    settings = {"NCCL_COMM_ID": f"127.0.0.1:{port}", "HETCCL_SECRET_FILE": str(secret)}
    for rank in run_by_ctypes(tmp_path, **settings):
        assert rank.returncode == 0, rank.stderr
        assert rank.stdout.split() == ["6.0"]


def test_a_known_place_needs_a_secret(tmp_path: Path) -> None:
    for rank in run_by_ctypes(tmp_path, NCCL_COMM_ID="127.0.0.1:4711"):
        assert rank.returncode != 0
        assert "need HETCCL_SECRET_FILE" in rank.stderr


def test_info_tells_which_nccl_a_process_uses() -> None:
    assert "no library with NCCL's functions" in nccl.loaded_by(os.getpid()).describe()
    script = "import sys; print('here', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **HOST_ALONE, "LD_PRELOAD": str(nccl.LIBRARY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        said = commands.run("info", "--pid", str(process.pid)).stdout
        assert said.startswith("hetccl (")
        assert "libhetccl_nccl.so), before no vendor's library" in said
        process.communicate("")
    assert commands.run("info", "--pid", "999999999").returncode == 1


@pytest.mark.parametrize("arguments", [(), ("--stand-in",)])
def test_nccl_lib_prints_what_is_there(arguments: tuple[str, ...]) -> None:
    path = Path(commands.run("nccl-lib", *arguments).stdout.strip())
    assert path.exists()
    if path.is_file():
        assert ctypes.CDLL(str(path)).ncclGroupStart() == 0
