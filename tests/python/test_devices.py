"""bench, tune and topo on devices: which one each rank takes, and that its memory is used.

The devices are those of the adaptor of the guide and of the fake of HIP, whose memory the host
cannot touch.
"""

import json

import commands
import fake_hip
import pytest
import typer
from compiled import ADAPTORS, compile_to

from hetccl.bench.operations import CASES
from hetccl.bench.regression import fit
from hetccl.devices import choice
from hetccl.launchers.placement import LAUNCHERS, Placement

NO_GPU = {"devices": [{"vendor": "host", "available": True}]}
TWO = {"devices": [{"vendor": "cuda", "available": True, "device": f"cuda:{i}"} for i in (0, 1)]}
ONE = {"devices": TWO["devices"][:1]}


def place(local_rank, launcher=LAUNCHERS[0]):
    return Placement(launcher, 5, 8, local_rank)


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    """Settings with which there are four devices of the guide's adaptor."""
    target = tmp_path_factory.mktemp("threads") / "adaptor.so"
    source = str(ADAPTORS / "threads/threads_adaptor.c")
    compile_to(target, "gcc", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-DTHREADS_REDUCE",
               source, "-ldl", "-lpthread")  # fmt: skip
    return {"HETCCL_ADAPTORS": str(target)}


@pytest.fixture(scope="module")
def hip(tmp_path_factory):
    return fake_hip.build(tmp_path_factory.mktemp("hip"))


@pytest.mark.parametrize(
    ("text", "ranks", "found", "expected"),
    [
        ("auto", None, NO_GPU, ["host"] * 4),
        ("auto", 3, NO_GPU, ["host"] * 3),
        ("auto", None, ONE, ["cuda:0", "host"]),
        ("auto", None, TWO, ["cuda:0", "cuda:1"]),
        ("auto", 1, TWO, ["cuda:0"]),
        ("auto", 3, TWO, ["cuda:0", "cuda:1", "host"]),
        ("cpu", None, TWO, ["host"] * 4),
        ("cuda:1,cpu", None, TWO, ["cuda:1", "host"]),
        ("cuda:1,host", 2, TWO, ["cuda:1", "host"]),
    ],
)
def test_ranks_that_start_here_take_the_devices_in_order(text, ranks, found, expected):
    assert choice.of_ranks(text, ranks, found, usual=4) == expected


@pytest.mark.parametrize(
    ("text", "local_rank", "found", "visible", "expected"),
    [
        ("auto", 1, TWO, "", "cuda:1"),
        ("auto", 2, TWO, "", "host"),
        ("auto", 1, ONE, "", "host"),
        ("auto", 1, ONE, "1", "cuda:0"),  # each task sees its own GPU alone
        ("auto", None, NO_GPU, "", "host"),
        ("cpu", None, TWO, "", "host"),
        ("cuda:1,cpu,cuda:0", 2, TWO, "", "cuda:0"),
    ],
)
def test_a_launchers_rank_takes_the_device_of_its_local_rank(
    text, local_rank, found, visible, expected, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert choice.of_rank(text, place(local_rank), found) == expected


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: choice.of_ranks("cuda:0,cpu", 3, TWO, 4), "names 2 devices and --ranks 3"),
        (lambda: choice.of_ranks("gpu:0", None, TWO, 4), "--devices gpu:0"),
        (lambda: choice.of_ranks("cuda:x", None, TWO, 4), "write cuda:0"),
        (lambda: choice.of_rank("cuda:0", place(1), TWO), "rank 5 is number 1 of its host"),
        (lambda: choice.of_rank("auto", place(None), TWO), "torchrun does not say"),
    ],
)
def test_a_device_that_no_rank_can_have_is_refused(call, said):
    with pytest.raises(typer.BadParameter, match=said):
        call()


@pytest.mark.parametrize("operation", CASES)
def test_values_are_right_on_unlike_devices(operation, threads):
    arguments = ("--devices", "threads:0,cpu,threads:1", "-b", 12, "-e", "768K", "-f", 256, "-n", 2)
    report = json.loads(
        commands.run_to(0, "bench", operation, *arguments, "--json", env=threads).stdout
    )
    assert report["wrong"] == 0
    assert report["clusters"] == 3
    assert [row["size"] for row in report["rows"]][1:] == [3072, 768 << 10]


def test_the_fakes_memory_is_a_devices(hip):
    """The host's accesses to it would end the ranks."""
    for more in ((), ("--blocking", 1, "--predict")):
        done = commands.run_to(
            0, "bench", "--devices", "hip:0,cpu", "-b", "1K", "-e", "1M", "-f", 32, "-n", 2, *more,
            env=hip,
        )  # fmt: skip
        assert "# Out of bounds values : 0 OK" in done.stdout
        assert "# ranks 0: hip" in done.stdout


def test_launched_ranks_take_their_devices(threads, tmp_path):
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
    call = ("bench", "-b", "1K", "-e", "1K", "-n", 1, "--rendezvous", tmp_path / "id")
    ranks = [
        commands.Command(
            *call, env={**threads, **dict(zip(names, (str(rank), "2", str(rank)), strict=True))}
        )
        for rank in range(2)
    ]
    done = [rank.finish() for rank in ranks]
    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    assert "# ranks 0-1: threads" in done[0].stdout


def test_the_topology_of_devices_is_what_plan_and_shard_read(threads, tmp_path):
    path = tmp_path / "topology.json"
    commands.run_to(0, "topo", "--devices", "threads:0,threads:1,cpu", "--save", path, env=threads)
    ranks = json.loads(path.read_text())["ranks"]
    assert [one["vendor"] for one in ranks] == ["threads", "threads", "host"]
    shown = commands.run_to(0, "shard", "7B", "--topology", path, env=threads).stdout
    assert "3 ranks, 1 host, 3 clusters" in shown
    commands.run_to(0, "plan", "all_reduce", "--topology", path, env=threads)


def test_a_topology_of_a_device_that_is_not_there_says_so(threads):
    done = commands.run_to(2, "topo", "--devices", "threads:0,threads:9", env=threads)
    assert "there are 0 to 3 here" in " ".join(done.stderr.replace("│", " ").split())


def test_settings_of_devices_are_swept(threads, tmp_path):
    path = tmp_path / "points.jsonl"
    commands.run_to(
        0, "tune", "--devices", "threads:0,threads:1,cpu,cpu", "--sizes", "64K", "--points", 3,
        "--collective", "all_reduce", "--budget-seconds", 1, "--no-save", "-o", path, env=threads,
    )  # fmt: skip
    points = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(points) >= 2
    assert all(point["us"] > 0 for point in points if not point.get("failed"))


def test_a_line_is_fitted_to_all_sizes_alike():
    sizes = [8 << n for n in range(0, 28, 3)]
    found = fit([(size, 5e-6 + size / 20e9) for size in sizes])
    assert found.seconds == pytest.approx(5e-6, rel=1e-6)
    assert found.bandwidth == pytest.approx(20e9, rel=1e-6)
    assert found.r_squared == pytest.approx(1.0)
    # Errors of a percent at the largest size leave the latency as it is.
    noisy = fit([(size, (5e-6 + size / 20e9) * (1.01 if size > 1 << 27 else 1)) for size in sizes])
    assert noisy.seconds == pytest.approx(5e-6, rel=0.05)
    assert 0.99 < noisy.r_squared < 1
    assert fit([(8, 1e-6), (16, 2e-6), (0, 1e-6)]) is None
    assert fit([(8, 1e-6), (16, 1e-6), (32, 1e-6)]).bandwidth == float("inf")


def test_a_regression_stands_below_the_table():
    sizes = ("--ranks", 2, "-b", 8, "-e", "1M", "-f", 8, "-n", 2)
    shown = commands.run_to(0, "bench", *sizes, "--regress").stdout
    line = next(line for line in shown.splitlines() if line.startswith("# Regression"))
    assert "R2 " in line and "of 6 sizes" in line
    short = commands.run_to(0, "bench", "--ranks", 2, "-b", 8, "-e", 16, "-f", 2, "--regress")
    assert "none: it takes 3 sizes or more" in short.stdout
    assert json.loads(commands.run_to(0, "bench", *sizes, "--json").stdout)["fit"] is None
