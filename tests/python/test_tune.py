"""`hetccl tune`: sweeps of two ranks, what they leave behind, and arguments that do not fit."""

import json
from array import array

import commands
import pytest
from ranks import run_ranks
from typer.testing import CliRunner

from hetccl import cli
from hetccl.tune.trial import CONFIRMING_PAIRS

SMALL = ("--layout", "AB", "--collective", "all_reduce", "--sizes", "64K", "--points", "3")


@pytest.fixture
def tune(tmp_path):
    """Runs the command in a folder of its own, with a tuning file of its own."""
    saved = tmp_path / "cache/tuning.json"
    env = {"HETCCL_TUNE_FILE": str(saved), "COLUMNS": "200", "NO_COLOR": "1"}

    def run(*arguments, status=0, **more):
        options = {"folder": tmp_path, "env": {**env, **more}}
        return commands.run_to(status, "tune", *arguments, **options)

    run.folder = tmp_path
    run.points = tmp_path / "tune.jsonl"
    run.saved = saved
    run.env = env
    return run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.smoke
def test_a_sweep_measures_the_grid_and_shows_and_keeps_the_best(tune):
    done = tune(*SMALL)
    points = lines(tune.points)
    settings = {json.dumps(point["setting"], sort_keys=True) for point in points}
    axes = [len({p["setting"][name] for p in points}) for name in ("slice_bytes", "depth")]
    assert len(settings) == axes[0] * axes[1]
    assert axes == [3, 3]
    assert points[0]["setting"] == points[0]["default"]
    for point in points:
        assert point["us"] > 0
        assert point["ratio"] > 0
        assert point["samples"] in (3, 9, 12)
        assert point["key"] == {"collective": "all_reduce", "size_class": 16, "element_bytes": 4}
        assert len(point["place"]) == 16
    header, row = (line.split() for line in done.stdout.splitlines()[:2])
    assert header[:3] == ["collective", "at", "most"]
    assert row[:4] == ["all_reduce", "64", "KiB", "9"]
    assert "all_reduce, at most 64 KiB, elements of 4 bytes: 9 points, best " in done.stderr
    (entry,) = json.loads(tune.saved.read_text())["entries"]
    assert entry["key"] == points[0]["key"]
    assert json.dumps(entry["setting"], sort_keys=True) in settings
    assert entry["place"] == points[0]["place"]
    assert 0 < entry["us"] <= entry["default_us"]


def test_encoded_calls_are_left_out_and_named(tune):
    done = tune(
        "--layout", "AB", "--collective", "all_reduce", "--sizes", "64K,256K", "--points", "3",
        HETCCL_WIRE="int8", HETCCL_WIRE_LEAST_BYTES="131072",
    )  # fmt: skip
    assert {point["bytes"] for point in lines(tune.points)} == {64 << 10}
    assert "left out, since tuning leaves encoded calls alone: all_reduce of 256 KiB (int8)" in (
        done.stderr
    )
    assert done.stderr.count("left out") == 1
    done = tune(*SMALL, "--output", "other.jsonl", status=1, HETCCL_WIRE="int8")
    assert "all of these calls are encoded" in done.stderr


def test_a_second_run_measures_only_what_is_missing(tune):
    tune(*SMALL)
    whole = tune.points.read_text()
    tune(*SMALL)
    assert tune.points.read_text().startswith(whole)
    # Nothing for the first time. Noise may make another setting seem the best: it is confirmed.
    more = lines(tune.points)[len(whole.splitlines()) :]
    assert {point["samples"] for point in more} <= {CONFIRMING_PAIRS}
    whole = tune.points.read_text()
    kept = whole.splitlines()[:4]
    tune.points.write_text("\n".join(kept) + "\n" + whole.splitlines()[4][:50])  # was killed
    tune(*SMALL)
    again = tune.points.read_text().splitlines()
    assert again[:4] == kept
    assert {json.dumps(json.loads(line)["setting"]) for line in again} == {
        json.dumps(json.loads(line)["setting"]) for line in whole.splitlines()
    }


def test_every_collective_and_a_type_without_reductions(tune):
    tune("--layout", "ABA", "--sizes", "12K,48K", "--dtype", "bfloat16", "--points", "3")
    keys = {(p["key"]["collective"], p["key"]["size_class"]) for p in lines(tune.points)}
    assert keys == {
        ("all_reduce", 14), ("all_reduce", 16), ("broadcast", 14), ("broadcast", 16),
        ("all_gather", 12), ("all_gather", 14), ("reduce_scatter", 12), ("reduce_scatter", 14),
        ("all_to_all", 12), ("all_to_all", 14),
    }  # fmt: skip


def test_without_a_budget_only_the_least_is_measured_and_a_later_run_goes_on(tune):
    tune(*SMALL, "--budget-seconds", "0", "--no-save")
    assert len({json.dumps(p["setting"]) for p in lines(tune.points)}) == 2
    assert not tune.saved.exists()
    tune(*SMALL)
    assert len({json.dumps(p["setting"]) for p in lines(tune.points)}) == 9


def use_what_is_known(comm):
    before = comm.tuning()
    values = array("f", [1.0]) * (1 << 14)
    comm.all_reduce(values)
    return before, comm.tuning()


def test_the_next_job_starts_tuned(tune, monkeypatch):
    tune(*SMALL)
    document = json.loads(tune.saved.read_text())
    setting = {"algorithm": "exchange", "slice_bytes": 8192, "depth": 5}
    document["entries"][0]["setting"] = setting
    tune.saved.write_text(json.dumps(document))
    monkeypatch.setenv("HETCCL_TUNE", "online")
    monkeypatch.setenv("HETCCL_TUNE_FILE", str(tune.saved))
    _, after = run_ranks(2, use_what_is_known, ("A", "B"))[0]
    (known,) = after["keys"]
    assert known["state"] == "settled"
    assert known["setting"] == setting


def test_ranks_of_a_launcher_sweep_together(tune):
    meet = tune.folder / "meet"
    call = ("tune", *SMALL, "--rendezvous", meet)
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    processes = [
        commands.Command(
            *call, folder=tune.folder, env={**tune.env, names[0]: str(rank), names[1]: "2"}
        )
        for rank in range(2)
    ]
    done = [process.finish() for process in processes]
    assert [one.returncode for one in done] == [0, 0]
    assert "all_reduce" in done[0].stdout
    assert done[1].stdout == ""
    assert not meet.exists()


def test_a_rank_number_that_does_not_fit_the_layout_is_refused(tune):
    done = tune(*SMALL, status=2, RANK="0", WORLD_SIZE="3")
    assert "--layout has 2 ranks, and the launcher started 3" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--sizes", "4X..8M"), ("4X", "write 8, 64K")),
        (("--sizes", "1M..4K"), ("--sizes 1M..4K", "such as 4K..64M")),
        (("--sizes", "8"), ("--sizes 8", "from 64 bytes upward")),
        (("--collective", "send_recv"), ("--collective 'send_recv'", "all_reduce")),
        (("--layout", "A4"), ("--layout A4", "write two letters")),
        (("--layout", "4"), ("--layout", "a letter for each rank")),
        (("--points", "2"), ("--points", "3")),
        (("--budget-seconds", "-1"), ("--budget-seconds",)),
        (("--export", "mpich", "x.jsonl"), ("--export mpich", "nccl")),
        (("--report", "a", "--export", "nccl", "b"), ("--report or --export",)),
        (("--report", "none.jsonl"), ("none.jsonl", "No such file")),
        (("-o", "none/tune.jsonl"), ("none/tune.jsonl", "No such file")),
    ],
)
def test_wrong_options_name_the_argument_and_the_remedy(arguments, parts, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["tune", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    for part in parts:
        assert part in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_sizes_below_an_element_for_each_rank_are_named(tune):
    done = tune("--layout", "A16B16", "--sizes", "64", "--collective", "all_gather", status=1)
    assert "--sizes: 64 bytes are less than an element of float32" in done.stderr


def test_one_cluster_leaves_nothing_to_tune(tune):
    done = tune("--rendezvous", tune.folder / "meet", status=1, RANK="0", WORLD_SIZE="1")
    assert "all ranks are in one cluster" in done.stderr
    assert "give --layout AABB" in done.stderr


def test_a_deterministic_job_cannot_be_tuned(tune):
    done = tune(*SMALL, status=1, HETCCL_DETERMINISTIC="1")
    assert "HETCCL_DETERMINISTIC=1" in done.stderr
