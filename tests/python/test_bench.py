"""`hetccl bench`: nccl-tests' columns, right values, and every way to start ranks."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from array import array
from types import SimpleNamespace

import commands
import pytest
from patience import HANG, PROMPT

from hetccl import processes
from hetccl._lib import NCCL_OPS
from hetccl.arguments import TYPES
from hetccl.bench import launch, measure, table
from hetccl.bench.operations import CASES
from hetccl.bench.options import Options
from hetccl.launchers.placement import RendezvousError
from hetccl.rendezvous import exchange


def run_bench(*arguments, status=0, **settings):
    return commands.run_to(status, "bench", *arguments, env=settings)


def bench(*arguments, status=0, **settings):
    return run_bench(*arguments, status=status, **settings).stdout


@pytest.mark.parametrize("operation", CASES)
@pytest.mark.parametrize("layout", [(), ("--clusters", 2), ("--clusters", 2, "--interleave")])
def test_values_are_right_in_every_layout(operation, layout):
    sizes = ("-b", 4, "-e", "1M", "-f", 32, "-n", 2)
    report = json.loads(bench(operation, "--ranks", 4, *layout, *sizes, "--json"))
    assert report["wrong"] == 0
    assert report["clusters"] == (2 if layout else 1)
    for row in report["rows"]:
        assert row["out_of_place"]["wrong"] == 0
        assert (row["in_place"] or {}).get("wrong") == (
            0 if CASES[operation].has_in_place else None
        )
    assert [row["size"] for row in report["rows"]][1:] == [128, 4096, 1 << 17]
    assert (report["cross_bytes"] > 0) == bool(layout)
    assert (report["least_cross_bytes"] > 0) == (bool(layout) and operation != "send_recv")


def moved(operation, sent, root):
    """Returns the data that each rank must have received if all have `sent` theirs."""
    size, whole = len(sent), b"".join(sent)
    blocks = [
        [mine[len(mine) * r // size : len(mine) * (r + 1) // size] for r in range(size)]
        for mine in sent
    ]
    return {
        "all_to_all": lambda rank: b"".join(blocks[r][rank] for r in range(size)),
        "gather": lambda rank: whole if rank == root else b"",
        "scatter": lambda rank: blocks[root][rank],
        "send_recv": lambda rank: sent[(rank + size - 1) % size],
        "all_gather": lambda _: whole,
        "broadcast": lambda _: sent[root],
    }[operation]


@pytest.mark.parametrize(
    ("operation", "in_place"),
    [
        (operation, in_place)
        for operation in (
            "all_to_all", "gather", "scatter", "send_recv", "all_gather", "broadcast",
        )
        for in_place in (False, True)[: 1 + CASES[operation].has_in_place]
    ],
)  # fmt: skip
def test_what_moves_is_expected_where_it_belongs(operation, in_place):
    case, options = CASES[operation], Options(root=1, dtype="int32")
    cases = [case(SimpleNamespace(rank=r, size=3), options, 1200, in_place) for r in range(3)]
    for one in cases:
        one.fill()
    received = moved(operation, [bytes(one.send) for one in cases], root=1)
    for rank, one in enumerate(cases):
        assert one.expected() == received(rank)
        assert len(one.recv) == len(received(rank))
    if operation not in ("all_gather", "broadcast"):  # a block of another rank's is found
        assert len({one.expected() for one in cases}) > 1


def test_operations_without_an_in_place_form_show_none():
    lines = bench("all_to_all", "--ranks", 3, "-b", "3K", "-e", "3K", "-n", 1).splitlines()
    row = next(line.split() for line in lines if not line.startswith("#"))
    assert row[:5] == ["3072", "256", "float", "none", "-1"]
    assert row[8:] == ["0", *["N/A"] * 4]


def test_messages_have_no_prediction():
    bench("send_recv", "--predict", "-b", 8, "-e", 8, status=2)


def test_all_types_and_operators():
    arguments = ("--ranks", 3, "--clusters", 2, "-b", "9K", "-e", "9K", "-n", 1)
    report = json.loads(bench("all_reduce", *arguments, "-d", "all", "-o", "all", "--json"))
    assert report["wrong"] == 0
    measured = [(row["dtype"], row["redop"]) for row in report["rows"]]
    assert measured == [(dtype, op) for dtype in TYPES for op in NCCL_OPS]
    report = json.loads(bench("broadcast", *arguments, "-d", "all", "-o", "all", "--json"))
    assert [(row["dtype"], row["redop"]) for row in report["rows"]] == [(t, "none") for t in TYPES]
    refused = run_bench("--regress", "-d", "all", status=2)
    assert "--regress takes one type (-d) and one operator (-o), not all" in refused.stderr


def test_a_prediction_is_added_where_it_is_asked_for():
    lines = bench("--ranks", 2, "--clusters", 2, "-b", "1K", "-e", "1M", "-f", 32, "--predict")
    rows = [line.split() for line in lines.splitlines() if not line.startswith("#")]
    assert [len(row) for row in rows] == [15] * len(rows)
    predicted = [float(row[13]) for row in rows]
    assert predicted == sorted(predicted)
    assert predicted[0] > 0
    assert all(float(row[14]) > 0 for row in rows)


@pytest.mark.smoke
@pytest.mark.parametrize("blocking", [0, 1])
def test_the_table_has_nccl_tests_columns(blocking):
    lines = bench("--ranks", 2, "-b", "1K", "-e", "4K", "-f", 2, "-z", blocking).splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [row[0] for row in rows] == ["1024", "2048", "4096"]
    for row in rows:
        assert len(row) == 13
        assert row[2:5] == ["float", "sum", "-1"]
        assert row[8] == row[12] == "0"
    assert "# Out of bounds values : 0 OK" in lines


def test_a_rooted_reduction_shows_its_root():
    lines = bench("reduce", "--ranks", 3, "-r", 2, "-d", "float8_e4m3", "-b", 99, "-e", 99)
    row = next(line.split() for line in lines.splitlines() if not line.startswith("#"))
    assert row[2:5] == ["f8e4m3", "sum", "2"]
    assert row[8] == row[12] == "0"


WIRES = {"HETCCL_WIRE": "int8", "HETCCL_WIRE_GATHER": "int4:64"}


@pytest.mark.parametrize(
    ("operation", "dtype", "redop", "settings", "encoding"),
    [
        ("all_reduce", "float32", "sum", {}, "int8"),
        ("all_reduce", "bfloat16", "avg", {"HETCCL_WIRE": "int4:32:stochastic"},
         "int4:32:stochastic"),
        ("reduce_scatter", "float16", "sum", {"HETCCL_WIRE": "e4m3"}, "e4m3"),
        ("all_gather", "float32", "sum", {}, "int4:64"),
        ("broadcast", "float32", "sum", {}, ""),
        ("all_reduce", "int32", "sum", {}, ""),
    ],
)  # fmt: skip
def test_encoded_calls_are_checked_against_the_bound(operation, dtype, redop, settings, encoding):
    arguments = (operation, "--ranks", 4, "--clusters", 2, "-b", "4K", "-e", "1M", "-f", 256,
                 "-n", 1, "-d", dtype, "-o", redop, "--json")  # fmt: skip
    report = json.loads(bench(*arguments, **{**WIRES, **settings}))
    assert report["wrong"] == 0
    small, large = report["rows"]
    assert (small["encoding"], large["encoding"]) == ("", encoding)  # from 64 KiB on
    assert (large["largest_error"] > 0) == bool(encoding)


def test_the_table_says_what_is_encoded():
    arguments = ("--ranks", 2, "-b", "4K", "-e", "1M", "-f", 256, "-n", 1)
    lines = bench(*arguments, "--clusters", 2, **WIRES).splitlines()
    told = next(at for at, line in enumerate(lines) if line.startswith("# int8: "))
    assert lines[told - 1].split()[0] == "4096"
    assert lines[told + 1].split()[0] == str(1 << 20)
    assert "errors above" in lines[told]
    alone = bench(*arguments, **WIRES)
    assert "# Encoded              : nothing, though HETCCL_WIRE=int8" in alone
    assert "ncoded" not in bench(*arguments, "--clusters", 2)


def test_a_value_beyond_the_bound_is_wrong():
    kind, count = CASES["all_gather"], 1000
    comm = SimpleNamespace(rank=0, size=2, tuning_space=lambda *_: {"encoding": "int8"})
    case = kind(comm, Options("all_gather"), 8 * count, in_place=False)
    assert case.find_encoding() == "int8"
    case.fill()
    values = array("f", case.expected())
    assert case.wrong(bytes(values)) == 0
    bound = case.largest_error()
    assert 60 / 254 < bound < 61 / 254  # the largest value is 60
    values[3] += 0.999 * bound
    assert case.wrong(bytes(values)) == 0
    values[3] += 0.01 * bound
    values[count] = float("nan")  # the other rank's first
    assert case.wrong(bytes(values)) == 2


SABOTAGED = """
import os, sys
from hetccl.bench import launch, operations
from hetccl.bench.options import Options
def expected(case):
    {sabotage}
    return bytes(len(case.recv))
operations.AllReduce.expected = expected
sys.exit(launch.run_forked(launch.Job(Options(min_bytes=1024, max_bytes=1024)), ["host"] * 3))
"""


def sabotaged(sabotage):
    """A run in a fresh process, since what forks must not have used the library before."""
    command = [sys.executable, "-c", SABOTAGED.format(sabotage=sabotage)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)


def test_wrong_values_fail_the_run():
    done = sabotaged("pass")
    assert done.returncode == 1
    assert "FAILED" in done.stdout


@pytest.mark.smoke
def test_a_rank_that_dies_ends_the_run_in_bounded_time():
    start = time.monotonic()
    done = sabotaged("case.comm.rank == 1 and os._exit(7)")
    assert done.returncode == 1
    assert time.monotonic() - start < PROMPT
    assert "1 (7)" in done.stderr
    assert "rank 1" in done.stderr.replace("hetccl bench: rank 1", "")  # the others name it


def test_ctrl_c_says_one_line():
    # Processes that a shell starts in the background ignore the signal, and so would the command.
    python = ("env", "--default-signal=INT", sys.executable)
    command = ("-m", "hetccl", "bench", "-b", "16M", "-e", "16M", "-n", "100000")
    bench = subprocess.Popen(
        [*python, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    while "(us)" not in bench.stdout.readline():  # the ranks are at work
        pass
    os.killpg(bench.pid, signal.SIGINT)
    _, said = bench.communicate(timeout=HANG)
    assert bench.returncode == 130
    assert said == "hetccl: interrupted\n"


def find_two_ports():
    """The first of two ports in a row that nobody has."""
    for port in range(42_000, 60_000, 2):
        with socket.socket() as one, socket.socket() as two, contextlib.suppress(OSError):
            one.bind(("", port))
            two.bind(("", port + 1))
            return port
    raise AssertionError("no two ports are free")


def give_more_grace():
    """Ranks 1 to 3 may fail seconds apart; rank 0 warns of a firewall only after ten."""
    processes._GRACE_BEFORE_MEETING = 6.0


def test_a_rank_that_cannot_join_ends_the_run_before_others_blame_a_firewall():
    """Rank 0 takes both ports, and waits; the others have none, and end."""
    port = find_two_ports()
    settings = {"HETCCL_PORT_RANGE": f"{port}-{port + 1}"}
    done = commands.run_to(
        1, "bench", "--ranks", 4, "-b", "1K", "-e", "1K", env=settings, prepare=give_more_grace
    )
    assert "no port of HETCCL_PORT_RANGE=" in done.stderr
    assert "those of other jobs included" in done.stderr
    assert "firewall" not in done.stderr
    assert "waiting for" not in done.stderr
    assert (
        "hetccl bench: ranks that failed (status): 1 (1), 2 (1), 3 (1); ended because of that: 0"
    ) in done.stderr


def start_by_launcher(environment, *arguments):
    call = ("bench", "-b", "1K", "-e", "1K", "-n", "1", "--json", *arguments)
    return [commands.Command(*call, env=environment(rank)) for rank in range(2)]


def finish(processes):
    done = [process.finish() for process in processes]
    assert [one.returncode for one in done] == [0, 0]
    assert json.loads(done[0].stdout)["ranks"] == 2
    assert done[1].stdout == ""


@pytest.mark.parametrize("one_each", [(), ("-g", 1)], ids=["", "-g 1"])
def test_ranks_of_a_launcher_meet_by_a_file(tmp_path, one_each):
    meet = tmp_path / "meet"
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    finish(
        start_by_launcher(
            lambda rank: dict(zip(names, (str(rank), "2"), strict=True)),
            "--rendezvous",
            meet,
            *one_each,
        )
    )
    assert not meet.exists()


@pytest.mark.long
def test_ranks_of_torchrun_meet_by_its_store(forked_python, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHON_EXEC", forked_python)  # of torchrun's ranks
    torchrun = [forked_python, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    command = [*torchrun, "-m", "hetccl", "bench", "-b", "1K", "-e", "1K", "-n", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr
    assert "# Out of bounds values : 0 OK" in done.stdout


def test_a_stale_rendezvous_file_is_refused(tmp_path):
    stale = tmp_path / "id"
    stale.write_bytes(bytes(128))
    with pytest.raises(RendezvousError, match="remove it"):
        exchange(0, stale, 1)


def test_a_rendezvous_that_never_comes_names_the_file(tmp_path):
    with pytest.raises(RendezvousError, match="never"):
        exchange(1, tmp_path / "never", 0.1)
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(RendezvousError, match="no unique id"):
        exchange(1, tmp_path / "short", 1)


def test_the_log_names_clusters_cards_and_transports(tmp_path):
    settings = {"HETCCL_TUNE": "online", "HETCCL_TUNE_FILE": str(tmp_path / "tuning.json")}
    log = run_bench(
        "--ranks", 4, "--clusters", 2, "-b", "1K", "-e", "1K", HETCCL_DEBUG="info", **settings
    ).stderr
    for line in (
        "[rank 0] info: communicator of 4 ranks in 2 clusters is ready",
        "[rank 0] info: cluster 0: ranks 0, 1, host, library host 1, label c0",
        "[rank 0] info: cluster 1: ranks 2, 3, host, library host 1, label c1",
    ):
        assert line in log
    for rank, others in enumerate(["2, 3", "2, 3", "0, 1", "0, 1"]):
        own = (
            rf"\[rank {rank}\] info: device host; cards: (\S+ \S+.*|none); \w+ to ranks {others}\n"
        )
        assert re.search(own, log), log
    assert "[rank 1] info: cluster" not in log
    settled = (
        r"\[rank 0\] info: tuning: \d+ kinds of calls are settled, in \S+tuning.json; \d+ are not"
    )
    assert re.search(settled, log), log


def test_sizes_grow_as_nccl_tests():
    def sizes(**options):
        return list(Options(**options).sizes())

    assert sizes(min_bytes=8, max_bytes=64, factor=2) == [8, 16, 32, 64]
    assert sizes(min_bytes=10, max_bytes=40, step_bytes=15) == [10, 25, 40]
    assert sizes(min_bytes=10, max_bytes=10) == [10]


def test_bus_bandwidth_factors():
    assert CASES["all_reduce"].bus_factor(4) == 1.5
    assert CASES["all_gather"].bus_factor(4) == 0.75
    assert CASES["reduce_scatter"].bus_factor(4) == 0.75
    assert CASES["broadcast"].bus_factor(4) == 1
    assert CASES["reduce"].bus_factor(4) == 1
    assert CASES["all_to_all"].bus_factor(4) == 0.75
    assert CASES["gather"].bus_factor(4) == 0.75
    assert CASES["scatter"].bus_factor(4) == 0.75
    assert CASES["send_recv"].bus_factor(4) == 1


def test_cluster_labels():
    assert launch.cluster_labels(4, 2, interleave=False) == ["c0", "c0", "c1", "c1"]
    assert launch.cluster_labels(4, 2, interleave=True) == ["c0", "c1", "c0", "c1"]
    assert launch.cluster_labels(3, 1, interleave=False) == ["", "", ""]


def test_long_times_keep_the_columns():
    timing = measure.Timing(seconds=12.3456789, algbw=0.01, busbw=0.01, wrong=None)
    row = measure.Row("float32", "sum", 1 << 40, 1 << 38, timing, timing)
    assert "N/A" in table.line(Options(), row)
