"""Promises to MPI programs that preload libhetccl_mpi.so: encryption or an end, the error of each
request, and that no exception ends the process."""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import mpi_jobs
import pytest
from mpi_jobs import (
    BY_HETCCL,
    MPIS,
    Mpi,
    Ran,
    launch,
    need,
    run,
)

from hetccl import mpi

built, each, rules = mpi_jobs.built, mpi_jobs.each, mpi_jobs.rules

PATTERN = b"this is the secret payload of a model, sixty-four bytes of it.."


@pytest.fixture
def mpich() -> Mpi:
    """The MPI whose launcher takes settings for each rank."""
    found = next(one for one in MPIS if one.name == "MPICH")
    need(found.missing())
    return found


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """A file for HETCCL_SECRET_FILE."""
    path = tmp_path / "secret"
    path.write_text("c2VjcmV0IG9mIGEgdGVzdCwgMzIgYnl0ZXMgbG9uZyE=")
    path.chmod(0o600)
    return str(path)


def run_ranks(which: Mpi, program: list[str], *ranks: dict[str, str]) -> Ran:
    """A job of one rank for each of `ranks`, its settings."""
    command = [str(which.prefix / "bin" / which.launcher[0])]
    for settings in ranks:
        given = {"LD_PRELOAD": str(mpi.LIBRARY), "HETCCL_SOCKET_IFNAME": "=lo", **settings}
        command += [":"] if len(command) > 1 else []
        command += [
            "-n",
            "1",
            *(part for one in given.items() for part in ("-env", *one)),
            *program,
        ]
    return run(command, which.env(len(ranks)))


def on_hosts(*names: str, **settings: str) -> list[dict[str, str]]:
    """Ranks that think that they are on these hosts."""
    return [{"HETCCL_HOSTID": name, **settings} for name in names]


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (on_hosts("a", "b", HETCCL_ENCRYPT="1"), "the ranks are on 2 hosts: hetccl encrypts its"),
        (on_hosts("a", "a", HETCCL_ENCRYPT=""), "HETCCL_ENCRYPT is set but empty"),
        (on_hosts("a", "a", HETCCL_ENCRYPT="yes"), "rank 0 cannot read its settings"),
        ([*on_hosts("a"), *on_hosts("a", HETCCL_ENCRYPT="1")], "on rank 1, but not on rank 0"),
        (on_hosts("a", "b", HETCCL_ENCRYPT="1", HETCCL_ALLOW_MPI_CLEARTEXT="1"),
         "needs HETCCL_SECRET_FILE"),
        (on_hosts("a", "a", HETCCL_SECRET_FILE="/dev/null"), "it is no regular file"),
    ],
    ids=["hosts", "empty", "bad", "one", "id", "file"],
)  # fmt: skip
def test_a_job_ends_that_would_run_without_its_protection(built, mpich, rules, ranks, why):
    for rank in ranks:
        rank["HETCCL_MPI_FILE"] = str(rules(BY_HETCCL))
    done = run_ranks(mpich, [*built(mpich, "faults"), "none"], *ranks)
    assert why in done.text, done.text
    assert done.status != 0
    assert not re.search("^ok$", done.text, re.MULTILINE)


def test_protected_jobs_run_on_one_host_and_on_several_with_permission(
    built, mpich, rules, secret
):  # fmt: skip
    given = {"HETCCL_ENCRYPT": "1", "HETCCL_MPI_FILE": str(rules(BY_HETCCL))}
    several = {"HETCCL_ALLOW_MPI_CLEARTEXT": "1", "HETCCL_SECRET_FILE": secret}
    for ranks in (on_hosts("a", "a", **given), on_hosts("a", "b", **given, **several)):
        done = run_ranks(mpich, [*built(mpich, "faults"), "pattern"], *ranks)
        assert done.status == 0, done.text
        assert re.search("^ok$", done.text, re.MULTILINE), done.text


class Listener:
    """Reads what crosses the loopback interface."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self._last = os.urandom(32)  # the packet after which nothing is read
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while self._last not in (packet := self._socket.recv(1 << 17)):
            self._seen += packet

    def stop(self) -> bytes:
        """Stops, and returns the observations."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marker:
            while self._thread.is_alive():
                marker.sendto(self._last, ("127.0.0.1", 9))
                self._thread.join(0.2)
        self._socket.close()
        return bytes(self._seen)


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """A listener, where this process may have one."""
    try:
        listener = Listener()
    except PermissionError:
        pytest.skip("the test reads the network, which takes CAP_NET_RAW")
    try:
        yield listener
    finally:
        if listener._thread.is_alive():
            listener.stop()


def test_who_reads_the_wire_sees_nothing_that_hetccl_carries_encrypted(
    built, mpich, rules, secret
):  # fmt: skip
    given = {"HETCCL_MPI_FILE": str(rules(BY_HETCCL))}
    protection = {"HETCCL_ENCRYPT": "1", "HETCCL_ALLOW_MPI_CLEARTEXT": "1",
                  "HETCCL_SECRET_FILE": secret}  # fmt: skip
    for settings, is_seen in ((given, True), ({**given, **protection}, False)):
        with listening() as listener:
            done = run_ranks(mpich, [*built(mpich, "faults"), "pattern"],
                             *on_hosts("a", "b", **settings))  # fmt: skip
            seen = listener.stop()
        assert done.status == 0, done.text
        assert (PATTERN in seen) == is_seen
        assert len(seen) > 1 << 18


def test_each_request_has_its_own_error(each, built, rules):
    done = launch(each, 3, [*built(each, "faults"), "mixed"], rules(BY_HETCCL))
    assert done.status == 0, done.text
    assert done.text.count("told apart") == 3, done.text


def test_no_exception_ends_the_process(each, built):
    done = launch(each, 1, built(each, "memory"))
    assert done.status == 0, done.text
    counts = re.search(r"^(\d+) allocations failed, (\d+) errors$", done.text, re.MULTILINE)
    assert counts is not None, done.text
    assert int(counts[1]) >= 2, done.text
    assert counts[2] == counts[1], done.text


def test_threads_whose_first_calls_on_a_communicator_meet(mpich, built):
    done = launch(mpich, 1, built(mpich, "first"))
    assert done.status == 0, done.text
    assert re.search("^ok$", done.text, re.MULTILINE), done.text
