"""Transports of adaptors (hetccl/adaptor.h): the one by UCX, alone and between clusters."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path

import pytest
from compiled import ADAPTORS, compile_to
from patience import HANG
from ranks import run_ranks

import hetccl

STRICT = ("-Wall", "-Wextra", "-Werror")
UCX_HEADER = Path("/usr/include/ucp/api/ucp.h")
# Faults that the conformance program must find, by FAULT: a file, expressions in it with their
# replacements, and the rule.
FAULTS = {
    "any id": (
        "ucx_meeting.c",
        {
            "memcmp(guest->words.hello.id, peer->id, sizeof peer->id) == 0": "1",
            "memcmp(answer->hello.id, peer->id, sizeof peer->id) != 0": "0",
            "begin_proof(&proof, peer->key)": (
                'begin_proof(&proof, (const uint8_t*)"one key for all channels, 32 bytes")'
            ),
        },
        "join the ends of one id",
    ),
    "short messages": (
        "ucx_messages.c",
        {"post->bytes = bytes": "post->bytes = bytes > 20 << 20 ? 20 << 20 : bytes"},
        "arrive as they were sent",
    ),
}


def need_ucx() -> None:
    if UCX_HEADER.exists():
        return
    if os.environ.get("CI"):
        pytest.fail("there is no UCX: tools/setup --mpi installs libucx-dev")
    pytest.skip("there is no UCX: apt-get install libucx-dev")


def compile_ucx(target: Path, folder: Path) -> Path:
    """The adaptor of these sources, as the guide builds it."""
    need_ucx()
    sources = map(str, sorted(folder.glob("*.c")))
    return compile_to(
        target, "gcc", "-std=gnu11", *STRICT, "-shared", "-fPIC", *sources, "-lucp", "-lucs"
    )


@pytest.fixture(scope="module")
def ucx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adaptor by UCX."""
    return compile_ucx(tmp_path_factory.mktemp("ucx") / "ucx_adaptor.so", ADAPTORS / "ucx")


def test_it_conforms_and_what_is_broken_does_not(ucx: Path, tmp_path: Path) -> None:
    source = str(ADAPTORS / "transport_conformance.cc")
    program = compile_to(
        tmp_path / "conformance", "g++", "-std=c++17", *STRICT, "-pthread", source, "-ldl"
    )
    ran = subprocess.run([program, ucx], capture_output=True, text=True, timeout=HANG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "conforms: scores 50 and 50" in ran.stdout
    shutil.copytree(ADAPTORS / "ucx", tmp_path / "broken")
    for fault, (name, changes, _) in FAULTS.items():
        file = tmp_path / "broken" / name
        text = "#include <stdlib.h>\n#include <string.h>\n" + file.read_text()
        for good, bad in changes.items():
            assert text.count(good) == 1
            chosen = f'strcmp(getenv("FAULT"), "{fault}") == 0'
            text = text.replace(good, f"({chosen} ? ({bad}) : ({good}))")
        file.write_text(text)
    broken = compile_ucx(tmp_path / "broken.so", tmp_path / "broken")
    for fault, (_, _, rule) in FAULTS.items():
        ran = subprocess.run(
            [program, broken], env={**os.environ, "FAULT": fault},
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert ran.returncode == 1, fault
        assert rule in ran.stderr


def test_strangers_are_no_ends_of_channels_and_take_no_processor(ucx: Path, tmp_path: Path) -> None:
    source = str(Path(__file__).parent / "ucx_strangers.cc")
    program = compile_to(
        tmp_path / "strangers", "g++", "-std=c++17", *STRICT, "-pthread", source, "-ldl"
    )
    ran = subprocess.run([program, ucx], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "strangers stay outside" in ran.stdout


def test_buffers_outlive_operations_that_ucx_does_not_cancel_in_time(tmp_path: Path) -> None:
    need_ucx()
    sources = (
        str(Path(__file__).parent / "ucx_stuck.c"),
        *(str(ADAPTORS / "ucx" / name) for name in ("ucx_channels.c", "ucx_messages.c")),
    )
    program = compile_to(
        tmp_path / "stuck", "gcc", "-std=gnu11", *STRICT, "-pthread", "-fsanitize=address", "-g",
        "-Dclock_gettime=fake_clock", f"-I{ADAPTORS / 'ucx'}", *sources,
    )  # fmt: skip
    ran = subprocess.run(
        [program], env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the worker ends before the posts" in ran.stdout


def test_its_proofs_are_those_of_blake2s(tmp_path: Path) -> None:
    source = tmp_path / "proof.c"
    source.write_text("""
#include "proof.h"
void prove(const uint8_t* key, const void* data, size_t bytes, size_t piece, uint8_t* code) {
  Proof proof;
  begin_proof(&proof, key);
  for (size_t at = 0; at < bytes; at += piece)
    add_to_proof(&proof, (const char*)data + at, bytes - at < piece ? bytes - at : piece);
  end_proof(&proof, code);
}
int same(const uint8_t* a, const uint8_t* b) { return is_same_proof(a, b); }
""")
    library = ctypes.CDLL(
        str(
            compile_to(
                tmp_path / "proof.so", "gcc", "-std=gnu11", *STRICT, "-shared", "-fPIC",
                f"-I{ADAPTORS / 'ucx'}", str(source),
            )
        )
    )  # fmt: skip
    key = random.Random(3).randbytes(32)
    for n in (0, 1, 63, 64, 65, 127, 128, 129, 1000, 2120):
        data = random.Random(n).randbytes(n)
        for piece in (1, 7, 64, 4096):
            code = ctypes.create_string_buffer(32)
            library.prove(key, data, ctypes.c_size_t(n), ctypes.c_size_t(piece), code)
            wanted = hashlib.blake2s(data, key=key).digest()
            assert code.raw == wanted
            assert library.same(code, wanted) == 1
            assert library.same(code, bytes([wanted[0] ^ 1]) + wanted[1:]) == 0


@pytest.fixture
def by_ucx(ucx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are made meet by UCX, and say so."""
    monkeypatch.setenv("HETCCL_ADAPTORS", str(ucx))
    monkeypatch.setenv("HETCCL_SHM", "0")
    monkeypatch.setenv("HETCCL_DEBUG", "info")


def random_calls(comm: hetccl.Communicator) -> str:
    """Collectives and messages of random kinds and sizes, with known results."""
    chance = random.Random(11)
    rank, size = comm.rank, comm.size
    for _ in range(60):
        count = chance.choice([1, 7, 1000, 30_000, 700_000])
        kind = chance.randrange(4)
        if kind == 0:
            values = array("i", [rank + 1]) * count
            comm.all_reduce(values)
            assert values == array("i", [size * (size + 1) // 2]) * count
        elif kind == 1:
            root = chance.randrange(size)
            values = array("i", [rank]) * count
            comm.broadcast(values, root=root)
            assert values == array("i", [root]) * count
        elif kind == 2:
            gathered = array("i", [-1]) * (count * size)
            comm.all_gather(array("i", [rank]) * count, gathered)
            assert all(gathered[r * count] == r for r in range(size))
            assert gathered[-1] == size - 1
        else:
            received = array("i", [-1]) * count
            sender = (rank - 1) % size
            if rank % 2 == 0:
                comm.send(array("i", [rank]) * count, (rank + 1) % size)
                comm.recv(received, sender)
            else:
                comm.recv(received, sender)
                comm.send(array("i", [rank]) * count, (rank + 1) % size)
            assert received == array("i", [sender]) * count
    return "right"


def test_two_clusters_meet_by_it(by_ucx: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_ranks(4, random_calls, ["a", "a", "b", "b"]) == ["right"] * 4
    log = capfd.readouterr().err
    assert re.search(r"rank \d and rank \d are connected over ucx-\d", log)


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def calls_under_fire(comm: hetccl.Communicator) -> str:
    """Collectives while somebody sends nonsense to all ports of the process."""
    stop = threading.Event()
    shots = [b"", b"\0" * 500, b"\xff" * 1000, os.urandom(40), os.urandom(5000)]

    def fire() -> None:
        while not stop.is_set():
            for port, shot in itertools.product(listening_ports(), shots):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port), timeout=1) as stranger,
                ):
                    stranger.sendall(shot)
                    time.sleep(0.001)

    shooter = threading.Thread(target=fire)
    shooter.start()
    try:
        return random_calls(comm)
    finally:
        stop.set()
        shooter.join()


def test_nonsense_at_its_ports_ends_nothing(by_ucx: None) -> None:
    assert run_ranks(2, calls_under_fire, ["a", "b"]) == ["right"] * 2


DYING = """
import os, sys, time
from array import array
import hetccl
path, rank = sys.argv[1], int(sys.argv[2])
if rank == 0:
    open(path + ".new", "wb").write(hetccl.unique_id())
    os.rename(path + ".new", path)
while not os.path.exists(path):
    time.sleep(0.01)
comm = hetccl.Communicator(open(path, "rb").read(), rank, 2, cluster=str(rank), timeout=120.0)
try:
    for call in range(1000):
        if rank == 1 and call == 5:
            os.kill(os.getpid(), 9)
        comm.all_reduce(array("i", [1]) * 1_000_000)
except hetccl.HetcclError as error:
    print(error)
"""


def test_a_rank_that_is_killed_is_named(by_ucx: None, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", DYING, str(tmp_path / "id"), str(rank)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told, _ = ranks[0].communicate(timeout=HANG)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert "rank 1" in told


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({}, None),
        ({"HETCCL_ENCRYPT": "1"}, "it does not encrypt, and HETCCL_ENCRYPT=1"),
        ({"UCX_TLS": "nothing"}, "ucx: open: "),
    ],
)
def test_info_shows_it_or_why_it_is_left_out(
    ucx: Path, setting: dict[str, str], reason: str | None
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from hetccl import _lib; print('INFO', _lib.info())"],
        env={**os.environ, "HETCCL_ADAPTORS": str(ucx), **setting},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    line = next(line for line in ran.stdout.splitlines() if line.startswith("INFO "))
    document = json.loads(line.removeprefix("INFO "))
    (found,) = (one for one in document["transports"] if one["name"].startswith("ucx-"))
    assert found["available"] is (reason is None)
    assert reason is None or reason in found["reason"]
    # It has no library, and is not asked for one.
    assert [library["name"] for library in document["libraries"]].count("ucx") == 0
