"""`hetccl selftest`: what it runs, what it catches, and what its report says and does not say."""

import contextlib
import ctypes
import functools
import getpass
import io
import json
import math
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import commands
import faulty_selftest
import pytest
from patience import FACTOR, HANG, PROMPT
from ranks import run_ranks

import hetccl
from hetccl import _lib
from hetccl._elements import pack
from hetccl._lib import DataType
from hetccl.bench.operations import CASES
from hetccl.bench.options import Options
from hetccl.devices import choice
from hetccl.devices.adaptor import AdaptorCallError
from hetccl.devices.memory import GpuMemory, HostMemory, RuntimeCallError
from hetccl.processes import Attendance
from hetccl.selftest import command, emulator, evidence, private, rank, report
from hetccl.selftest.rank import Job
from hetccl.selftest.trials import operators, trials
from hetccl.selftest.values import Values


def known():
    """Returns what `hetccl selftest` would find here."""
    return {"version": hetccl.__version__, **json.loads(_lib.info())}


def selftest(tmp_path, *arguments, fault=None, looks=False, status=0):
    path = tmp_path / "report.json"
    prepare = functools.partial(faulty_selftest.know, known())
    if fault:
        prepare = functools.partial(faulty_selftest.sow, fault, known())
    if looks:
        prepare = None
    commands.run_to(status, "selftest", "--quick", "--report", path, *arguments, prepare=prepare)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def right(once):
    folder = once("selftest", lambda folder: selftest(folder, "--devices", "host,host", looks=True))
    return json.loads((folder / "report.json").read_text())


def test_every_collective_passes_in_both_layouts(right):
    assert right["result"] == {"ok": True, "passed": len(right["cases"]), "failed": 0, "absent": 0}
    for layout, clusters in (("found", [[0, 1]]), ("split", [[0], [1]])):
        assert [c["ranks"] for c in right["layouts"][layout]["clusters"]] == clusters
        mine = [case for case in right["cases"] if case["layout"] == layout]
        assert {case["collective"] for case in mine} == set(CASES)
        assert {case["bytes"] for case in mine} >= {0, 4, 4 * 1031}
        assert all(case["bits"] for case in mine)
    assert {speed["collective"] for speed in right["speeds"]} == {"all_reduce", "all_gather"}
    assert all(speed["us"] > 0 for speed in right["speeds"])


def test_the_report_says_what_it_ran_on_and_what_it_counts_as(right):
    assert right["schema"] == report.SCHEMA
    assert right["hetccl"]["version"]
    assert right["host"]["kernel"]
    assert [one["vendor"] for one in right["ranks"]] == ["host", "host"]
    assert [one["ended"] for one in right["ranks"]] == ["finished", "finished"]
    assert {"host", "hip runtime", "rccl"} <= {one["name"] for one in right["libraries"]}
    assert right["evidence"]["levels"] == {}  # a quick one shows too little


def test_the_report_names_no_host_address_user_or_folder(right):
    text = json.dumps(right)
    assert socket.gethostname() not in text
    assert str(Path.home()) + "/" not in text
    if getpass.getuser() != "root":
        assert getpass.getuser() not in text


def test_encoded_calls_are_checked_against_the_bound(tmp_path, monkeypatch):
    monkeypatch.setenv("HETCCL_WIRE", "int8")
    monkeypatch.setenv("HETCCL_WIRE_GATHER", "e4m3")
    monkeypatch.setenv("HETCCL_WIRE_LEAST_BYTES", "0")
    document = selftest(tmp_path, "--devices", "host,host")
    assert document["result"]["ok"]
    encoded = {
        (case["collective"], case["type"], case["encoding"])
        for case in document["cases"]
        if "encoding" in case
    }
    floats = ("float32", "bfloat16")
    assert encoded == {
        *(("all_reduce", one, "int8") for one in floats),
        *(("reduce_scatter", one, "int8") for one in floats),
        *(("all_gather", one, "e4m3") for one in floats),
    }
    assert {case["layout"] for case in document["cases"] if "encoding" in case} == {"split"}


@pytest.mark.smoke
def test_a_wrong_result_is_caught(tmp_path):
    document = selftest(tmp_path, fault="wrong", status=1)
    failed = [case for case in document["cases"] if case["ok"] is False]
    assert {(case["collective"], case["type"]) for case in failed} == {("all_reduce", "float32")}
    assert all("rank 1: 1 of" in case["detail"] for case in failed)
    assert all(case["bytes"] > 0 for case in failed)
    assert document["result"]["failed"] == len(failed) == 8
    assert document["evidence"]["levels"] == {}


def test_other_bits_on_one_rank_are_caught_though_they_are_near_enough(tmp_path):
    document = selftest(tmp_path, fault="bits", status=1)
    failed = [case for case in document["cases"] if case["ok"] is False]
    assert {case["detail"] for case in failed} == {"ranks have different bits"}
    assert {(case["collective"], case["type"]) for case in failed} == {("all_reduce", "float32")}


def test_what_cannot_run_is_absent_with_its_reason_and_has_not_passed(tmp_path):
    document = selftest(tmp_path, fault="absent")
    absent = [case for case in document["cases"] if case["ok"] is None]
    assert {(case["collective"], case["type"]) for case in absent} == {("all_reduce", "float32")}
    assert {case["detail"] for case in absent} == {"rank 1 cannot reduce float32 by sum"}
    assert document["result"]["absent"] == len(absent)
    assert document["result"]["passed"] == len(document["cases"]) - len(absent)


def test_a_rank_that_dies_is_in_the_report(tmp_path):
    document = selftest(tmp_path, fault="die", status=1)
    assert document["ranks"][1]["ended"] == "was killed by SIGKILL"
    assert document["ranks"][0]["ended"] != "finished"
    failed = [case for case in document["cases"] if case["ok"] is False]
    # The one at which it died, and perhaps the one before, which the other had not finished.
    assert failed[-1]["type"] == "float32"
    assert len(failed) <= 2
    assert "not finished by ranks" in failed[-1]["detail"]
    absent = [case for case in document["cases"] if case["ok"] is None]
    assert {case["detail"] for case in absent} == {"not run: its ranks had failed before"}
    assert not document["result"]["ok"]


def test_a_rank_that_hangs_is_killed_at_the_deadline(tmp_path):
    seconds = round(2 * FACTOR)
    document = selftest(tmp_path, "--deadline", str(seconds), fault="hang", status=1)
    late = f"did not end in {seconds} s, and was killed: --deadline gives it longer"
    assert document["ranks"][1]["ended"] == late
    assert document["seconds"] < 2 * FACTOR + PROMPT
    assert not document["result"]["ok"]


def look_late(sender, _):
    time.sleep(0.3)
    sender.send((True, {"version": "1"}))


def test_what_there_is_may_take_a_tenth_of_a_long_deadline(monkeypatch):
    monkeypatch.setattr(choice, "_LOOKING", 0.01)
    monkeypatch.setattr(choice, "_send_facts", look_late)
    with pytest.raises(choice.LookingError, match=r"within 0\.01 s"):
        choice.look()
    assert choice.look({}, HANG) == {"version": "1"}


def slow_speeds(comm):
    """A rank's notes on speeds, and what it says. All-reduces are slow on rank 1 alone."""
    rank._SPEED_SIZES = (4 << 10, 1 << 20, 2 << 20)
    rank.measure = lambda comm, _, operation, size: (
        6.0 if (comm.rank, operation, size) == (1, "all_reduce", 1 << 20) else 1e-6
    )
    written, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(told):
        rank.measure_all(comm, HostMemory(), Job([], {}), "split", rank.Notes(written))
    return [json.loads(line) for line in written.getvalue().splitlines()], told.getvalue()


def test_speeds_that_would_take_too_long_are_left_out_on_all_ranks():
    slow = "a call would take some 12 s"
    (first, told), (second, silence) = run_ranks(2, slow_speeds)
    for notes in (first, second):
        absent = [note for note in notes if "absent" in note]
        assert [(one["speed"], one["bytes"]) for one in absent] == [("all_reduce", 2 << 20)]
        assert absent[0]["absent"] == slow
        assert len(notes) == 6
    assert told == f"hetccl selftest: all_reduce of 2097152 bytes is not measured: {slow}\n"
    assert silence == ""


def test_a_layout_that_cannot_be_made_leaves_the_other(tmp_path):
    document = selftest(tmp_path, fault="no-cluster", status=1)
    assert "layout found: " in document["ranks"][0]["ended"]
    assert set(document["layouts"]) == {"split"}
    for layout, ok in (("found", None), ("split", True)):
        assert {case["ok"] for case in document["cases"] if case["layout"] == layout} == {ok}
    assert not document["result"]["ok"]


def test_all_types_operators_and_places_are_tried():
    every = list(trials(2))
    assert {trial.dtype for trial in every} == set(DataType.__members__)
    assert "bxor" in operators("uint16")
    assert "bxor" not in operators("float16")
    for name, case in CASES.items():
        mine = [trial for trial in every if trial.collective == name]
        assert len({trial.in_place for trial in mine}) == 1 + case.has_in_place
        assert {trial.size(2) for trial in mine if trial.dtype == "float32"} >= {0}
        assert max(trial.size(2) for trial in mine) > 1 << 19
        if case.reduces:
            assert {t.op for t in mine if t.dtype == "int8"} == set(operators("int8"))


@pytest.mark.parametrize("dtype", list(DataType))
def test_values_accept_roundings_and_nothing_else(dtype):
    for op in operators(dtype.name):
        values = Values(dtype, op, 3)
        expected = values.result(5, 200)
        assert values.wrong(expected, expected) == 0
        broken = bytearray(expected)
        broken[dtype.bytes * 7 : dtype.bytes * 8] = b"\x55" * dtype.bytes
        values.result(5, 200)
        assert values.wrong(bytes(broken), expected) == 1, op


def test_a_sum_may_be_off_by_its_roundings_alone():
    values = Values(DataType.float32, "sum", 2)
    exact = [values.reduced(i) for i in range(61)]
    near = pack([x * (1 + 2**-23) for x in exact], DataType.float32)
    far = pack([x + 1e-3 for x in exact], DataType.float32)
    expected = values.result(0, 61)
    assert values.wrong(near, expected) == 0
    values.result(0, 61)
    assert values.wrong(far, expected) == 61
    values.result(0, 1)
    assert values.wrong(pack_nan(), expected[:4]) == 1


def pack_nan():
    return bytes(ctypes.c_float(math.nan))


class HostRuntime:
    """A GPU's runtime, as memory of the host: the case's own buffers are not touched meanwhile."""

    def __init__(self):
        self.kept, self.synchronized = [], 0

    def allocate(self, size):
        self.kept.append((ctypes.c_char * size)())
        return ctypes.addressof(self.kept[-1])

    def write(self, target, source, size):
        ctypes.memmove(target, source, size)

    read = write

    def synchronize(self):
        self.synchronized += 1


@pytest.mark.parametrize(
    ("operation", "in_place"),
    [
        (name, place)
        for name, case in CASES.items()
        for place in (False, True)[: 1 + case.has_in_place]
    ],
)
def test_a_gpu_gets_the_buffers_and_gives_them_back(operation, in_place):
    comm = SimpleNamespace(rank=1, size=2)
    case = CASES[operation](comm, Options(dtype="int32", root=1), 4096, in_place)
    case.fill()
    send, recv = bytes(case.send), bytes(case.recv)
    runtime = HostRuntime()
    with GpuMemory(runtime).lend(case):
        assert bytes(case.send) == send
        assert bytes(case.recv) == recv
        ends = [ctypes.addressof(case.send), ctypes.addressof(case.recv)]
        assert (ends[0] < ends[1] + len(recv) and ends[1] < ends[0] + len(send)) == in_place
        for i in range(len(case.recv)):
            case.recv[i] = 7
    assert runtime.synchronized == 1
    assert isinstance(case.recv, (bytearray, memoryview))
    assert bytes(case.recv) == b"\7" * len(recv)


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("nvidia:0,host", "no vendor 'nvidia': give cuda, hip, host, or a device of an adaptor"),
        ("H100,host", "a model follows its vendor: cuda:H100"),
        ("cuda:x,host", "write cuda:0"),
        ("host:0,host", "write host"),
    ],
)
def test_an_unknown_device_is_refused_with_those_that_are_known(devices, says):
    prepare = functools.partial(faulty_selftest.know, known())
    arguments = ("selftest", "--quick", "--devices", devices)
    done = commands.run(*arguments, env={"COLUMNS": "300"}, prepare=prepare)
    assert done.returncode == 2
    assert says in done.stderr


def test_devices_and_layouts():
    gpus = [{"available": True, "device": f"hip:{i}"} for i in range(3)]
    host, none = {"available": True, "vendor": "host"}, {"available": False, "vendor": "cuda"}
    assert command.choose_devices({"devices": [host, none, *gpus]}) == ["hip:0", "hip:1", "hip:2"]
    assert command.choose_devices({"devices": [host, none, *gpus[:1]]}) == ["hip:0", "host"]
    assert command.choose_devices({"devices": [host, none]}) == ["host", "host"]
    assert command.choose_layouts(["hip:0", "hip:0", "host", "host"]) == {
        "found": ["", "again-1", "", ""],
        "split": ["r0", "r1", "r2", "r3"],
    }


def test_what_is_private_is_taken_out():
    names = {"build7": "(host)", "alice": "(user)"}
    text = "rank 1 on build7 at 10.1.2.3 and [fd00::2]: /home/alice/lib/librccl.so.1, ../x/y.c"
    assert private.clean(text, names) == (
        "rank 1 on (host) at (address) and [(address)]: librccl.so.1, y.c"
    )
    kept = "6.4.43484, gfx90a:sramecc+:xnack-, 3/4 of 2.28.9, build70"
    assert private.clean(kept, names) == kept
    assert private.clean("GID 3 (10.1.2.3/24, fd00::2/64)", names) == (
        "GID 3 ((address)/24, (address)/64)"
    )
    assert private.remove_from({"alice": ["build7", 3, None]}, names) == {
        "alice": ["(host)", 3, None]
    }


def shown(ranks, layouts, passed=3, absent=1, **facts):
    """The evidence of a report. `ranks` have a vendor and what differs from a real GPU's."""
    usual = {"model": "a GPU", "kernels": True, "emulator": "", "ended": evidence.FINISHED}
    named = {
        name: {"clusters": [{"vendor": vendor, "ranks": found} for vendor, found in clusters]}
        for name, clusters in layouts.items()
    }
    cases = [
        {"layout": name, "ok": ok, "detail": ""}
        for name in named
        for ok in [True] * passed + [None] * absent
    ]
    own = {"host": "host", "cuda": "nccl", "hip": "rccl"}
    all_ranks = [
        {**usual, "rank": number, "library": own.get(one["vendor"], "none"), **one}
        for number, one in enumerate(ranks)
    ]
    return evidence.of({
        "ranks": all_ranks, "layouts": named, "cases": cases, "quick": False, "emulator": "",
        "result": {"ok": True, "failed": 0},
        "transports": ["tcp", "shm"], **facts,
    })  # fmt: skip


HOST, HIP, THREADS = {"vendor": "host"}, {"vendor": "hip"}, {"vendor": "threads"}
ALONE = {"split": [("host", [0]), ("hip", [1])]}
TOGETHER = {"found": [("hip", [0, 1])]}


def test_what_a_report_counts_as():
    every = {"device": 6, "kernels": 6, "transports": 6}
    assert shown([HOST, HIP], ALONE)["levels"] == {"host": every, "hip": every}
    assert shown([HIP, HIP], TOGETHER)["levels"] == {"hip": {"ccl": 6, "device": 6, "kernels": 6}}
    untried = [{"layout": "split", "ok": True}, {"ok": None, "detail": evidence.NOT_RUN}]
    late = {**HIP, "ended": "was killed by SIGKILL"}
    for ranks, facts, why in (
        ([HOST, HIP], {"quick": True}, "--quick tries too few cases"),
        ([HOST, HIP], {"result": {"ok": False, "failed": 2}}, "cases failed: 2"),
        ([HOST, HIP], {"result": {"ok": False, "failed": 0}}, "no case passed"),
        ([HOST, HIP], {"cases": untried}, "cases not tried: 1"),
        ([HOST, late], {}, "ranks that did not finish: 1"),
        (
            [HOST, late],
            {"quick": True},
            "ranks that did not finish: 1; --quick tries too few cases",
        ),
    ):
        found = shown(ranks, ALONE, **facts)
        assert found["levels"] == {}
        assert found["text"] == f"none: {why}"


def test_a_part_of_which_most_cases_are_absent_has_no_evidence():
    assert shown([HIP, HIP], TOGETHER, passed=2, absent=2)["levels"]
    few = shown([HIP, HIP], TOGETHER, passed=2, absent=3)
    assert few["levels"] == {} and "too few cases passed" in few["text"]
    cases = [{"layout": "found", "ok": None}] * 3 + [{"layout": "split", "ok": True}] * 5
    both = {**TOGETHER, "split": [("hip", [0]), ("hip", [1])]}
    assert shown([HIP, HIP], both, cases=cases)["levels"] == {
        "hip": {"device": 6, "kernels": 6, "transports": 6}  # its library did nothing
    }


def test_what_is_emulated_or_forwarded_is_no_hardware():
    model = {"model": "HIP forwarded to NVIDIA by a test library, not AMD hardware"}
    found = shown([HOST, {**HIP, **model}], ALONE)
    assert found["levels"]["hip"]["device"] == 4 and found["forwarded"]
    loaded = shown([HOST, {**HIP, "emulator": "librocjitsu"}], ALONE)
    told = shown([HOST, HIP], ALONE, emulator="rj gfx942.json")
    for found, name in [(loaded, "librocjitsu"), (told, "rj gfx942.json")]:
        assert found["levels"] == {"hip": {"device": 5, "kernels": 5, "transports": 5}}
        assert found["emulator"] == name
        assert f"ran under an emulator, {name}" in found["text"]


def test_adaptors_give_evidence_of_themselves():
    layouts = {"split": [("hip", [0]), ("threads", [1])]}
    found = shown([HIP, THREADS], layouts)
    assert set(found["levels"]) == {"hip"}
    assert found["adaptors"] == {"threads": ["device", "kernels", "transports"]}
    assert "threads (device, kernels, transports): of an adaptor" in found["text"]
    mpi = {**HOST, "library": "mpi"}
    found = shown([mpi, mpi], {"found": [("host", [0, 1])]})
    assert found["levels"] == {"host": {"device": 6, "kernels": 6}}
    assert found["adaptors"] == {"mpi": ["ccl"]}
    found = shown([HOST, HIP], ALONE, transports=["shm", "tcp", "ucx-1.13"])
    assert "transports" not in found["levels"]["hip"]


def test_an_emulators_library_is_recognised_among_those_that_are_mapped(tmp_path):
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 fe:00 12 {}\n"
    maps.write_text(line.format("/lib/libc.so.6") + line.format("/my rj/librocjitsu.so.1"))
    assert emulator.find(maps) == "librocjitsu"
    maps.write_text(line.format("/librocjitsu/libc.so.6") + line.format("[heap]"))
    assert emulator.find(maps) == ""
    assert emulator.find(tmp_path / "none") == ""
    assert emulator.find() == ""


@pytest.mark.parametrize("error", [AdaptorCallError("use: no \ufffd"), RuntimeCallError("hipInit")])
def test_a_rank_tells_which_call_failed(error, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(rank, "join", lambda *_: contextlib.nullcontext(SimpleNamespace()))
    monkeypatch.setattr(rank, "memory_of", fail)
    assert rank.run(Job(["threads:0"], {"found": [""]}), 0, tmp_path, Attendance(1)) == 1
    assert report.read_notes(tmp_path / "rank-0.jsonl").failed == str(error)


def test_a_rank_without_a_communicator_is_shown_by_its_device_and_its_error_once(tmp_path, capsys):
    for number in range(2):
        note = {"failed": "layout split: rank 0: no CUDA driver: libcuda.so.1 is missing"}
        (tmp_path / f"rank-{number}.jsonl").write_text(json.dumps(note) + "\n")
    job = Job(["cuda:0", "host"], {"split": ["r0", "r1"]}, quick=True)
    report.show(report.build(job, tmp_path, ["", ""], {"seconds": 1.0}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rank 0: cuda:0: layout split: no CUDA driver: libcuda.so.1 is missing"
    assert lines[1] == "rank 1: host: layout split: rank 0: no CUDA driver: libcuda.so.1 is missing"


def test_libraries_of_one_name_keep_their_paths():
    found = [{"name": "a", "path": "x"}, {"name": "a", "path": "y"}, {"name": "a", "path": "x"}]
    paths = choice.library_paths({"libraries": [*found, {"name": "host"}]})
    assert paths == {"a": ["x", "y"]}


def test_notes_that_end_anywhere_are_read(tmp_path):
    path = tmp_path / "rank-0.jsonl"
    assert report.read_notes(path).outcomes == {}
    whole = '{"layout": "found", "trial": 0}\n{"layout": "found", "trial": 0, "outcome": "ok"}\n'
    for size in range(len(whole)):
        path.write_text(whole[:size])
        assert len(report.read_notes(path).outcomes) <= 1
    document = report.build(
        Job(["host"], {"found": [""]}, quick=True), tmp_path, ["was killed by SIGKILL"],
        {"seconds": 1.0},
    )  # fmt: skip
    assert document["ranks"][0]["ended"] == "was killed by SIGKILL"
    assert not document["result"]["ok"]
