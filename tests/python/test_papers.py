"""bench/papers: the registry is complete, entries run or say why not, the page is up to date."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compiled import ROOT
from patience import HANG

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
PAPERS = ROOT / "bench/papers"
sys.path[:0] = [str(PAPERS), str(PAPERS.parent)]

import measure  # noqa: E402
import page  # noqa: E402
import run  # noqa: E402
from draw import draw, has_figure  # noqa: E402
from entry import Entry, Found, MissingError  # noqa: E402
from record import KEPT, Record, read_all  # noqa: E402

NAMED = {
    "000": [*(f"figure {n}" for n in (7, 8, 9, *range(11, 17))), "table 3", "table 4"],
    "001": ["figure 3", *(f"figure {n}" for n in range(10, 20)), "table 8", "table 9", "table 10"],
    "002": ["figure 4", "figure 6", "figure 7"],
    "003": [*(f"table {n}" for n in (4, 5, 6, 7, 8, 10)), *(f"figure {n}" for n in range(7, 11))],
    "004": ["space", "valleys", "alone", "beside", "training"],
}
# Does what the runner's own process does for an entry, as its name says. The late one has a child.
CHILD = """
import json, subprocess, sys, time
path, name = sys.argv[2:4]
if name == "000-fail":
    sys.exit("the reason of the fake")
if name == "000-hang":
    with open({told!r}, "w") as file:
        file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
    time.sleep(1000)
run = {{"where": "here", "values": {{"times": 1.5}}, "axes": ["bytes", "us"],
       "series": {{"line": {{"1": 2.0, "4096": 4.0}}}}}}
found = {{"missing": "needs a unicorn"}} if name == "000-lack" else {{"runs": [run, run]}}
if name == "000-unlike":
    found["runs"][1] = {{**run, "values": {{}}}}
with open(path, "w") as file:
    json.dump(found, file)
"""


class Soon(Entry):
    """An entry that only a hang makes late."""

    deadline = 10.0


def lack(quick: bool) -> Found:
    raise MissingError("needs a unicorn")


@pytest.fixture
def fakes(tmp_path, monkeypatch, capsys):
    """Runs fake entries: the exit status, and what was printed. Their results go to `results`."""
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(told=str(tmp_path / "told")))
    entries = {
        f"000-{name}": Soon("000", name, "A claim.", "times", {"times": 2}, "How.", "No.", 1, lack)
        for name in ("well", "lack", "fail", "hang", "unlike")
    }
    monkeypatch.setattr(run, "ENTRIES", entries)

    def start(*names: str) -> tuple[int, str]:
        argv = [str(script), *names, "--quick", "--json", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", argv)
        status = run.main()
        return status, capsys.readouterr().out

    return start


def make_record(**changes) -> Record:
    runs = [
        Found("two ranks", {"a": value, "b": "text"}, {"line": {1.0: 2.0, 8.0: 3.5}})
        for value in (1.0, 3.0)
    ]
    load = {"average": 0.1, "before": 0.01, "after": 0.02}
    machine = {"processor": "2 cores of a kind", "system": "Linux 6"}
    made = Record("000-figure-7", "2026-11-28", False, 12.5, machine, {"hetccl": "0.1"}, load, runs)
    return dataclasses.replace(made, **changes)


def test_every_figure_and_table_has_an_entry():
    assert {(e.paper, e.piece) for e in run.ENTRIES.values()} == {
        (paper, piece) for paper, pieces in NAMED.items() for piece in pieces
    }
    for entry in run.ENTRIES.values():
        assert entry.claim.endswith(".")
        assert entry.measured.endswith(".")
        assert entry.seconds > 0
        assert (ROOT / f"docs/{entry.page}.md").exists() or not entry.page


def test_a_record_survives_its_file_and_knows_its_noise(tmp_path):
    record = make_record()
    assert Record.from_json(record.to_json()) == record
    assert record.values() == {"a": 2.0, "b": "text"}
    assert record.noise() == {"a": 1.0}
    assert make_record(runs=[record.runs[0]] * 2).noise() == {"a": 0.0}
    (tmp_path / "000-figure-7.json").write_text(record.to_json())
    assert read_all(tmp_path) == {"000-figure-7": record}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: raw.pop("machine"), "no result of an entry"),
        (lambda raw: raw["runs"].pop(), "not two runs"),
        (lambda raw: raw["runs"][0]["values"].pop("a"), "not two runs with the same values"),
        (lambda raw: raw.update(entry="000-figure-8"), "a result of 000-figure-8"),
        (lambda raw: raw.update(runs=7), "no result of an entry"),
    ],
)
def test_a_damaged_result_is_named(tmp_path, change, why):
    raw = json.loads(make_record().to_json())
    change(raw)
    path = tmp_path / "000-figure-7.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=why) as caught:
        read_all(tmp_path)
    assert str(path) in str(caught.value)


def test_a_machine_on_which_others_work_is_loaded():
    assert not make_record().is_loaded
    for when in ("before", "after"):
        load = {"average": 2.5, "before": 0.01, "after": 0.02, when: 0.6}
        assert make_record(load=load).is_loaded


def test_the_page_shows_results_and_what_is_missing():
    load = {"average": 2.5, "before": 0.6, "after": 0.02}
    record = make_record(load=load, quick=True)
    text = page.make_page(run.ENTRIES, {record.entry: record})
    row = next(line for line in text.splitlines() if line.startswith("| figure 7 | All-reduce"))
    assert "a: 2; b: text" in row
    assert "noise 100%; **quick**, **machine was loaded**; also [gpus](gpus.md)" in row
    assert "`python bench/papers/run.py 000-figure-7 --quick`, 2026-11-28, 12 s" in text
    assert "load average 2.5" in text
    assert "| figure 15 | On one node of 8 H100" in text
    assert "needs two GPUs; also [gpus](gpus.md)" in text
    assert "not run yet" in text
    calm = page.make_page(run.ENTRIES, {record.entry: make_record()})
    assert "machine was loaded**; " not in calm
    assert calm == page.make_page(run.ENTRIES, {record.entry: make_record()})
    with pytest.raises(ValueError, match="000-figure-99"):
        page.make_page(run.ENTRIES, {"000-figure-99": record})


def test_the_page_of_the_tree_is_up_to_date_with_its_results():
    records = read_all(KEPT)
    made = page.make_page(run.ENTRIES, records)
    assert (ROOT / "docs/papers.md").read_text() == made, "bench/papers/run.py --write makes it"
    drawn = {name for name, one in records.items() if has_figure(run.ENTRIES[name], one)}
    assert {path.stem for path in KEPT.glob("*.svg")} == drawn


def test_a_figure_is_the_same_for_the_same_result(tmp_path):
    entry = run.ENTRIES["000-figure-7"]
    for name in ("one.svg", "two.svg"):
        draw(entry, make_record(), tmp_path / name)
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two
    assert "all_reduce" in one
    assert "paper" in one


def test_a_result_is_kept_and_drawn(fakes, tmp_path):
    status, said = fakes("000-well", "000-lack")
    assert status == 0, said
    assert "times: 1.5 +- 0%; paper 2" in said
    assert "000-lack: skipped: needs a unicorn" in said
    results = tmp_path / "results"
    assert {path.name for path in results.iterdir()} == {"000-well.json", "000-well.svg"}
    record = Record.from_json((results / "000-well.json").read_text())
    assert (record.quick, record.values()) == (True, {"times": 1.5})
    assert record.runs[1].series == {"line": {1.0: 2.0, 4096.0: 4.0}}
    assert {"processor", "system"} <= record.machine.keys()
    assert {"hetccl", "commit", "torch"} <= record.versions.keys()


def test_the_process_of_an_entry_says_what_is_missing(tmp_path):
    entry = Entry("000", "lack", "A claim.", "", {}, "How.", "No.", 1, lack)
    run.measure_in_child(entry, True, tmp_path / "found")
    assert json.loads((tmp_path / "found").read_text()) == {"missing": "needs a unicorn"}


def is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.long
def test_failed_and_late_entries_are_told_and_leave_nothing(fakes, tmp_path):
    status, said = fakes("000-fail", "000-hang", "000-unlike", "000-well")
    assert status == 1
    assert "000-fail: FAILED: exit status 1: the reason of the fake" in said
    assert "000-hang: FAILED: late: not done within 10 s" in said
    assert "000-unlike: FAILED: it has not two runs with the same values" in said
    assert "times: 1.5" in said  # the others are measured
    assert {path.stem for path in (tmp_path / "results").iterdir()} == {"000-well"}
    child, deadline = int((tmp_path / "told").read_text()), time.monotonic() + HANG
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


@pytest.mark.long
def test_two_cheap_entries_run(tmp_path):
    names = ["003-table-7", "003-table-10"]
    done = subprocess.run(
        [sys.executable, PAPERS / "run.py", *names, "--quick", "--json", tmp_path],
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_all(tmp_path)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"003-table-7.svg"}  # words have none
    assert list(found) == sorted(names)
    for name, record in found.items():
        assert record.values() == pytest.approx(run.ENTRIES[name].paper_values)
    assert max(found["003-table-7"].noise().values()) == 0


def test_an_unknown_entry_is_an_error_and_the_list_names_all(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "000-figure-99"])
    with pytest.raises(SystemExit, match="2"):
        run.main()
    assert "there is no entry 000-figure-99: see --list" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["run.py", "--list"])
    assert run.main() == 0
    listed = capsys.readouterr().out
    assert [name for name in run.ENTRIES if f" {name} " not in listed] == []


def test_latency_and_bandwidth_are_those_of_the_line():
    start, rate, fit = measure.regress({size: 2e-4 + size / 1e9 for size in (1e3, 1e6, 4e6, 64e6)})
    assert (start, rate, fit) == pytest.approx((2e-4, 1e9, 1.0))
    assert measure.regress({1e6: 1.0, 2e6: 3.0, 3e6: 2.0})[2] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("scene", "collective", "buffers"),
    [("AABB", "all_reduce", 1), ("AABB", "all_gather", 0.5), ("AABB", "reduce", 1),
     ("AABB", "all_to_all", 1), ("AB", "send_recv", 1), ("AABC", "all_reduce", 4 / 3)],
)  # fmt: skip
def test_a_call_at_the_links_limit_has_all_of_it(scene, collective, buffers):
    seconds = buffers * 64e6 / measure.RATE_BYTES
    assert measure.of_limit(scene, collective, 64e6, seconds) == pytest.approx(1)


def test_wrong_values_of_a_benchmark_are_an_error():
    row = {"size": 8, "out_of_place": {"seconds": 1.0, "wrong": 0}}
    assert measure.seconds_of(json.dumps({"rows": [row]})) == {8: 1.0}
    row["out_of_place"]["wrong"] = 3
    with pytest.raises(RuntimeError, match="wrong values at 8 bytes"):
        measure.seconds_of(json.dumps({"rows": [row]}))


def test_a_command_that_fails_tells_its_words():
    with pytest.raises(RuntimeError, match="exits with 3: the reason"):
        measure.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])


def test_entries_use_nothing_outside_of_the_tree():
    for path in PAPERS.glob("*.py"):
        assert "../shared" not in path.read_text()
        assert "/work/" not in path.read_text()
    assert os.fspath(KEPT).startswith(os.fspath(ROOT))


def test_a_gpu_entry_says_how_many_it_needs():
    entry = run.ENTRIES["001-figure-3"]
    assert isinstance(entry, Entry)
    assert entry.lacking == "needs a GPU"
    assert dataclasses.replace(entry, gpus=4).lacking == "needs four GPUs"
    assert dataclasses.replace(entry, gpus=0).lacking == "not run yet"
    assert run.ENTRIES["000-figure-16"].lacking == "needs an RDMA card"
