"""Ranks of mpirun, and of any launcher that speaks PMI, meet without a setting, file or address."""

import ctypes
import json
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import mpi_jobs
import pytest
from mpi_jobs import MPIS, run
from patience import HANG, PROMPT, seconds

from hetccl.launchers import board, mpi, pmix, torch_store
from hetccl.launchers.placement import LAUNCHERS, RendezvousError, find_job, find_placement
from hetccl.launchers.pmi import PmiBoard
from hetccl.launchers.pmix import PmixBoard

each = mpi_jobs.each
BENCH = ["-m", "hetccl", "bench", "-b", "1K", "-e", "1K", "-n", "1", "--json"]
PLACES = {name for one in LAUNCHERS for name in (one.rank, one.size, one.local_rank, one.sign)}
SERVICES = {"PMI_FD", "PMIX_NAMESPACE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_LOCALID": "0"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """These tests are no ranks of a launcher that has started them."""
    for name in (PLACES | SERVICES) - {None}:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, ("torchrun", 1, 4, None)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, ("Open MPI", 1, 2, None)),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", **SLURM}, ("torchrun", 1, 4, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3",
          "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMI_RANK": "0", "PMI_SIZE": "1", **SLURM},
         ("Open MPI", 2, 3, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "5", "MPI_LOCALRANKID": "0", **SLURM}, ("MPICH", 2, 5, 0)),
        ({"PMI_RANK": "1", "PMI_SIZE": "3", **SLURM}, ("Slurm", 1, 3, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"}, None),  # sbatch's script
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "1",
          "PMI_SIZE": "2"}, ("Flux", 1, 2, 1)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, ("PMI", 0, 1, None)),
    ],
)  # fmt: skip
def test_the_innermost_launcher_says_which_rank_this_is(environment, expected):
    found = find_placement(environment)
    told = found and (found.launcher.name, found.rank, found.size, found.local_rank)
    assert told == expected


def test_torchruns_variables_that_disagree_with_a_launchers_need_its_sign():
    both = {"RANK": "1", "WORLD_SIZE": "4", **SLURM}
    with pytest.raises(RendezvousError, match=r"RANK=1 of WORLD_SIZE=4.*SLURM_PROCID=1 of SLURM_S"):
        find_placement(both)
    for sign in ("LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        assert find_placement({**both, sign: "0"}).launcher.name == "torchrun"
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711"}
    assert find_placement({**both, **place}).launcher.name == "torchrun"
    assert find_placement({**both, "WORLD_SIZE": "3"}).launcher.name == "torchrun"


def test_a_step_of_one_task_is_no_job_of_a_command():
    step = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert find_placement(step).size == 1
    assert find_job(step) is None
    assert find_job(SLURM) == find_placement(SLURM)


@pytest.mark.parametrize(("rank", "size"), [("4", "4"), ("-1", "4"), ("x", "4"), ("1" * 10, "4")])
def test_a_rank_that_is_none_is_refused(rank, size):
    with pytest.raises(RendezvousError, match="RANK"):
        find_placement({"RANK": rank, "WORLD_SIZE": size})


ANSWERS = {
    "init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    "get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=\u0192job\n",
    "put": "cmd=put_result rc=0\n",
    "barrier_in": "cmd=barrier_out\n",
    "get": "cmd=get_result rc=0 value={value}\n",
    "finalize": "cmd=finalize_ack rc=0\n",
}


class Server:
    """A launcher's end of PMI_FD; `answers` replaces what it says to a command."""

    def __init__(self, answers: dict[str, str | None]) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._answers = {**ANSWERS, **answers}
        self.commands: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        value = "ff"
        for line in self._ours.makefile():
            words = dict(word.split("=", 1) for word in line.split())
            self.commands.append(words["cmd"])
            value = words.get("value", value)
            answer = self._answers[words["cmd"]]
            if answer == "":
                break
            if answer is not None:
                self._ours.sendall(answer.format(value=value).encode())
            if words["cmd"] == "finalize":
                break
        self._ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.theirs.close()
        self._thread.join(HANG)
        self._ours.close()
        assert not self._thread.is_alive()


@pytest.fixture
def serve(monkeypatch):
    """Starts a launcher's end, and makes this process rank 0 or 1 of its two."""
    servers = []

    def start(rank: int = 0, **answers: str | None) -> Server:
        servers.append(Server(answers))
        for name, value in {"PMI_RANK": rank, "PMI_SIZE": 2,
                            "PMI_FD": servers[-1].theirs.fileno()}.items():  # fmt: skip
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(board, "_session", board._Session())
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_rank_0_writes_and_all_read(serve):
    server = serve()
    assert board.share(find_placement(), b"id", 60, keep=False) == b"id"
    assert server.commands == ["init", "get_my_kvsname", "put", "barrier_in", "get", "finalize"]
    server = serve(rank=1)
    assert board.share(find_placement(), None, 60, keep=True) == b"\xff"
    assert board.share(find_placement(), None, 60, keep=True) == b"\xff"
    again = ["barrier_in", "get"]
    assert server.commands == ["init", "get_my_kvsname", *again, *again]
    board._session.end()
    assert server.commands[-1] == "finalize"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"init": ""}, "PMI_FD=[0-9]+.: the launcher has closed it; start the job with"),
        ({"init": "cmd=response_to_init rc=-1\n"}, "refused init with rc=-1"),
        ({"init": "cmd=response_to_init pmi_version=2 rc=0\n"}, "speaks PMI 2"),
        ({"init": "Segmentation fault\n"}, r"answered cmd=\? to init"),
        ({"init": "x" * 5000}, "a line without an end"),
        ({"get_my_kvsname": "cmd=my_kvsname rc=0\n"}, "no name"),
        ({"put": None}, "it is silent within the time"),
        ({"barrier_in": None}, "not all ranks have come within the time"),
        ({"get": "cmd=get_result rc=1\n"}, "refused get with rc=1"),
        ({"get": "cmd=get_result rc=0 value=no-id\n"}, "something else than rank 0 wrote"),
    ],
)
def test_what_a_launcher_says_is_bounded_and_checked(serve, answers, says):
    rank = int("barrier_in" in answers)  # rank 1 does nothing else at a meeting
    serve(rank=rank, **answers)
    with pytest.raises(RendezvousError, match=says):
        placement = find_placement()
        board._session.board = PmiBoard(placement, HANG)  # only the meeting has a short limit
        limit = 0.2 if None in answers.values() else HANG
        board.share(placement, None if rank else b"id", limit, keep=True)


def test_a_descriptor_that_was_used_or_is_none_is_named(serve, monkeypatch, tmp_path):
    server = serve()
    board.share(find_placement(), b"id", HANG, keep=False)
    with pytest.raises(RendezvousError, match=r"closed it|can use it once"):
        board.share(find_placement(), b"id", HANG, keep=False)
    with pytest.raises(RendezvousError, match="an earlier meeting of this process has failed"):
        board.share(find_placement(), b"id", HANG, keep=False)
    assert server.commands.count("init") == 1
    with (tmp_path / "file").open("w") as file:
        for descriptor in ("x", "-1", "123456", str(file.fileno())):
            monkeypatch.setenv("PMI_FD", descriptor)
            with pytest.raises(RendezvousError, match=f"PMI_FD={descriptor}.: it is|is no desc"):
                PmiBoard(find_placement(), HANG)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("answer", ["cmd=put_result rc=1\n", "cmd=pot secret=5ec7e7\n"])
def test_a_meeting_that_fails_is_the_last(serve, answer):
    server = serve(put=answer)
    with pytest.raises(RendezvousError, match=r"refused put|answered cmd=pot to put") as told:
        board.share(find_placement(), b"id", HANG, keep=True)
    assert "5ec7e7" not in str(told.value)
    with pytest.raises(RendezvousError, match=r"has failed: start the job again"):
        board.share(find_placement(), b"id", HANG, keep=True)
    board._session.end()
    assert server.commands == ["init", "get_my_kvsname", "put"]


def test_a_descriptor_that_is_another_by_now_gets_nothing(serve):
    server = serve()
    board.share(find_placement(), b"id", HANG, keep=True)
    ours, theirs = socket.socketpair()
    kept = server.theirs.dup()
    with ours, theirs, kept:
        os.dup2(theirs.fileno(), server.theirs.fileno())
        with pytest.raises(RendezvousError, match="no longer the socket"):
            board._session.board.share("key", None, HANG)
        board._session.end()
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
    assert "finalize" not in server.commands


def test_a_socket_of_the_network_is_not_the_launchers(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    with socket.socket() as one:
        monkeypatch.setenv("PMI_FD", str(one.fileno()))
        with pytest.raises(RendezvousError, match="no local stream socket"):
            PmiBoard(find_placement(), HANG)


def test_a_forked_child_is_no_rank(serve):
    serve()
    board.share(find_placement(), b"id", HANG, keep=True)
    board._session.process = os.getppid()
    with pytest.raises(RendezvousError, match="a fork of one that has met"):
        board.share(find_placement(), b"id", HANG, keep=True)


def test_one_rank_needs_no_service(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert board.share(find_placement(), b"id", HANG, keep=True) == b"id"


def test_no_service_names_the_remedy(monkeypatch):
    monkeypatch.setattr(board, "_session", board._Session())
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RendezvousError, match=r"Slurm has started rank 1 of 3.*srun --mpi=pmi2"):
        board.share(find_placement(), None, HANG, keep=False)


def test_mpi_keeps_a_descriptor_that_it_has_in_use(serve, monkeypatch):
    server = serve()
    monkeypatch.setattr(mpi, "is_initialized", lambda: True)
    with pytest.raises(RendezvousError, match="broadcast hetccl"):
        board.share(find_placement(), b"id", HANG, keep=True)
    assert server.commands == []
    monkeypatch.setattr(mpi, "is_initialized", lambda: False)
    board.share(find_placement(), b"id", HANG, keep=True)
    monkeypatch.setattr(mpi, "is_initialized", lambda: True)  # the program has called MPI_Init
    board._session.end()
    assert "finalize" not in server.commands


def start(which, program, parts=(1, 1), **environment):
    """Runs `python PROGRAM` as so many ranks in each part of a job, parts with a label each."""
    python, *arguments = program
    words = []
    for part, ranks in enumerate(parts):
        label = ["-x", f"HETCCL_CLUSTER={'ab'[part]}"] if which.name == "Open MPI" else [
            "-env", "HETCCL_CLUSTER", "ab"[part]]  # fmt: skip
        words += [*([":"] if part else []), "-n", str(ranks), *label, python, *arguments]
    launcher = which.argv(sum(parts), [])[:-2]
    env = {**which.env(sum(parts)), **environment}
    return run([*launcher, *words], env)


@pytest.mark.smoke
def test_a_job_of_unlike_parts_is_one_communicator(each, forked_python):
    done = start(each, [forked_python, *BENCH])
    assert done.status == 0, done.text
    report = json.loads(done.text[done.text.index("{") :])
    assert (report["ranks"], report["clusters"], report["wrong"]) == (2, 2, 0)


PROGRAM = """
import ctypes, os, sys
import hetccl
library, order = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL), sys.argv[2]
if order == "mpi4py first":
    from mpi4py import MPI
if order == "MPI first":
    assert library.MPI_Init(None, None) == 0
comm = hetccl.init_from_launcher(init_timeout=60)
place = hetccl.find_placement()
assert (comm.rank, comm.size) == (place.rank, place.size) and place.local_rank == place.rank
value = bytearray(b"\\1")
comm.all_reduce(value, dtype="uint8")
assert value == b"\\2", value
comm.destroy()
if order == "MPI last":
    assert library.MPI_Init(None, None) == 0
if order != "mpi4py first":
    assert library.MPI_Finalize() == 0
os.write(1, f"done {place.launcher.name}\\n".encode())
"""


ORDERS = ("MPI last", "MPI first", "mpi4py first")
# Open MPI 5 does not start where PMIx is in use: docs/launchers.md.
CASES = [(m, order) for m in MPIS for order in ORDERS if (m.name, order) != ("Open MPI", ORDERS[0])]


@pytest.mark.parametrize(("each", "order"), CASES, indirect=["each"])
def test_a_program_with_mpi(each, forked_python, order):
    paths = {"LD_LIBRARY_PATH": str(each.prefix / "lib")}
    if order == "mpi4py first":
        package = next(mpi_jobs.MPI4PY.glob("lib/python*/site-packages"), None)
        mpi_jobs.need(None if package else "no mpi4py")
        paths["PYTHONPATH"] = f"{package}:{os.environ.get('PYTHONPATH', '')}"
    program = [sys.executable, "-c", PROGRAM, str(each.prefix / "lib" / each.library), order]
    done = start(each, program, (2,), **paths)
    if order == "MPI first" and each.name != "Open MPI":  # whose PMI has one user in a process
        assert done.status != 0
        assert "broadcast hetccl.unique_id() by MPI" in done.text
        return
    assert done.status == 0, done.text
    name = "Open MPI" if each.name == "Open MPI" else "MPICH"
    assert done.text.count(f"done {name}") == 2, done.text


TRAINING = """
import os
import torch, torch.distributed as dist
import hetccl.torch_backend
hetccl.torch_backend.register()
for _ in range(2):
    dist.init_process_group("hetccl", init_method="hetccl://")
    value = torch.ones(3) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    dist.destroy_process_group()
os.write(1, f"sum {value[0].item()}\\n".encode())
"""


def test_torch_meets_by_the_launcher(each, forked_python):
    pytest.importorskip("torch")
    done = start(each, [forked_python, "-c", TRAINING])
    assert done.status == 0, done.text
    assert done.text.count("sum 3.0") == 2, done.text


def make_pmix(**calls) -> PmixBoard:
    """A session of PMIx over a library of these functions, which has begun."""
    one = object.__new__(PmixBoard)
    one._placement, one._hangs, one._kept = find_placement(SLURM), False, []
    one._library = SimpleNamespace(PMIx_Error_string=lambda _: b"wrong", **calls)
    return one


def test_calls_of_pmix_have_one_deadline_and_tell_what_went_wrong():
    def fail(*_):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        make_pmix(PMIx_Put=fail).share("key", "value", HANG)
    slow = make_pmix(
        PMIx_Put=lambda *_: time.sleep(0.3) or 0, PMIx_Commit=lambda: time.sleep(HANG) or 0
    )
    begin = time.monotonic()
    with pytest.raises(RendezvousError, match="PMIx_Commit has not returned"):
        slow.share("key", "value", seconds(3))
    assert time.monotonic() - begin < seconds(PROMPT)
    assert slow._kept[0].value == b"value"


def test_a_text_of_pmix_is_bounded():
    for text, read in ((b"id", b"id"), (b"x" * 5000, None)):
        buffer = ctypes.create_string_buffer(text)
        assert pmix._read_text(ctypes.addressof(buffer)) == read


def test_a_library_of_the_working_folder_is_not_loaded(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libpmix.so.2").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin:")
    for name, value in (("PMIX_PREFIX", "."), ("OPAL_PREFIX", ""), ("PRTE_PREFIX", "")):
        monkeypatch.setenv(name, value)
    assert pmix._paths() == ["libpmix.so.2"]
    monkeypatch.setenv("PMIX_PREFIX", str(tmp_path))
    assert pmix._paths() == [str(tmp_path / "lib/libpmix.so.2"), "libpmix.so.2"]


def test_torchs_store_is_bounded_and_its_errors_are_of_the_meeting():
    pytest.importorskip("torch")
    short = timedelta(seconds=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(RendezvousError, match=f"cannot reach .* 127.0.0.1, port {port}"):
            torch_store.open_store("127.0.0.1", port, short, serves=False)
        with pytest.raises(RendezvousError, match=f"cannot serve .*port {port}"):
            torch_store.open_store("127.0.0.1", port, timedelta(seconds=HANG), serves=True)
    first = torch_store.open_store("localhost", 0, timedelta(seconds=HANG), serves=True)
    again = torch_store.open_store("localhost", first.port, timedelta(seconds=HANG), serves=True)
    again.set("key", "value")
    assert first.get("key") == b"value"


def test_a_rank_that_another_says_is_refused(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(ValueError, match="rank is 0, but PMI says 1"):
        next(torch_store.meet("hetccl://?rank=0&world_size=2"))


LATE = """
import sys, time
from pathlib import Path
import hetccl
met = Path(sys.argv[1])
if hetccl.find_placement().rank == 1:
    while not met.exists():
        time.sleep(0.01)
    sys.exit(0)
try:
    hetccl.init_from_launcher(init_timeout=float(sys.argv[2]))
except hetccl.RendezvousError as error:
    print("told", error)
met.touch()
"""


def test_a_rank_that_never_comes_is_an_error_in_time(each, forked_python, tmp_path):
    begin = time.monotonic()
    done = start(each, [forked_python, "-c", LATE, str(tmp_path / "met"), str(seconds(1))], (2,))
    assert "told the ranks cannot meet by" in done.text, done.text
    assert "not all ranks have come" in done.text
    assert time.monotonic() - begin < seconds(PROMPT)


@pytest.mark.long
@pytest.mark.parametrize("each", [m for m in MPIS if m.name == "Open MPI"], indirect=True)
def test_the_demo_under_a_launcher(each, forked_python):
    pytest.importorskip("torch")
    demo = [forked_python, "-m", "hetccl", "demo", "--steps", "3", "--no-report"]
    done = start(each, demo)
    assert done.status == 0, done.text
    assert "hetccl against Gloo" in done.text
    assert done.text.count("parameters") == 2  # rank 0 alone tells, of each backend
    refused = start(each, [*demo, "--loopback"])
    assert refused.status != 0
    assert "Open MPI has started these ranks" in refused.text
