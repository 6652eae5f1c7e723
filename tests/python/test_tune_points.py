"""The points of `hetccl tune`: their file, what they say, its page, table and exports."""

import io
import json
import math
import re
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from hetccl import _lib, files
from hetccl.tune import findings, grid, knowledge, landscape, nccl, records, report, words
from hetccl.tune.progress import Progress
from hetccl.tune.records import Point, Records, RecordsError
from hetccl.tune.trial import CONFIRMING_PAIRS, Trial

KEY = {"collective": "all_reduce", "size_class": 20, "element_bytes": 4}
DEFAULT = {"algorithm": "exchange", "slice_bytes": 262144, "depth": 3}


def point(ratio=1.0, samples=CONFIRMING_PAIRS, key=KEY, **setting):
    return Point(
        key=key, setting={**DEFAULT, **setting}, default=DEFAULT, us=100.0 * ratio,
        default_us=100.0, ratio=ratio, error=0.001, samples=samples, bytes=1 << 20,
        dtype="float32", ranks=4, hosts=2, place="ab" * 8, summary="2 host + 2 host by <tcp>",
    )  # fmt: skip


def write(path, *points):
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in points))
    return path


def test_thinning_keeps_the_ends_and_the_default():
    assert grid.thin([1, 2, 3], 5, 2) == [1, 2, 3]
    assert grid.thin(list(range(11)), 5, 5) == [0, 2, 5, 8, 10]
    for keep in range(11):
        for most in (3, 4, 5, 6):
            thinned = grid.thin(list(range(11)), most, keep)
            assert {0, keep, 10} <= set(thinned)
            assert len(thinned) == most
            assert thinned == sorted(thinned)


def test_the_grid_begins_with_the_default_and_changes_one_thing_first():
    space = {
        "key": KEY,
        "subspaces": [
            {"start": DEFAULT, "axes": {"slice_bytes": [65536, 262144], "depth": [2, 3, 4]}},
            {"start": {"algorithm": "ring", "slice_bytes": 64, "depth": 3}, "axes": {}},
        ],
    }
    settings = grid.settings(space, 5)
    assert settings[0] == grid.default_of(space) == DEFAULT
    assert settings[1]["algorithm"] == "ring"
    assert len(settings) == 7
    changes = [sum(DEFAULT[name] != one[name] for name in DEFAULT) for one in settings[2:]]
    assert changes == sorted(changes)


def test_a_trial_says_what_the_pairs_say():
    trial = Trial()
    trial.add([100.0, 80.0, 200.0, 160.0, 50.0, 500.0, 100.0, 80.0])
    assert trial.samples == 4
    ratio, error = trial.compare()
    assert ratio == pytest.approx(0.8)  # the middle half of the pairs'
    assert 0 <= error < 0.1
    assert trial.us == 120
    assert trial.default_us == 100


def test_times_that_are_none_are_refused():
    for tried, beside in (([], []), ([-1.0], [1.0]), ([1.0], [math.nan]), ([math.inf], [1.0])):
        with pytest.raises(_lib.HetcclError, match="must be"):
            _lib.compare_times(tried, beside)


def test_points_are_appended_and_read_again(tmp_path):
    path = tmp_path / "tune.jsonl"
    with Records(path) as file:
        assert file.found == []
        file.add(point(1.0))
        file.add(point(0.8, samples=9, depth=4))
        file.add(point(0.9, depth=4))  # measured again
        with pytest.raises(RecordsError, match=r"another hetccl tune writes to .*wait"):
            Records(path)
    assert records.read(path) == [point(1.0), point(0.9, depth=4)]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("half", ['{"key": {"coll', "\0\0\0\n", '{"key": 1}\n', "[]\n"])
def test_a_broken_last_line_is_left_out_and_removed(tmp_path, half):
    path = write(tmp_path / "tune.jsonl", point())
    whole = path.read_text()
    path.write_text(whole + half)
    assert records.read(path) == [point()]
    with Records(path) as file:
        assert file.found == [point()]
    assert path.read_text() == whole


def damaged(**change):
    return json.dumps({**asdict(point()), **change})


@pytest.mark.parametrize(
    "line",
    [
        "no json", "{}", "[]", '"x"', damaged(us=-1), damaged(us=0), damaged(ratio=1e400),
        damaged(samples="9"), damaged(samples=1.5), damaged(ranks=0), damaged(key={}),
        damaged(setting={"algorithm": 1}), damaged(other=1), damaged(bytes=True),
        damaged(key={"collective": "all_reduce", "size_class": 64}),
        damaged(key={"collective": "all_reduce", "size_class": True}),
        damaged(setting={"algorithm": "ring", "depth": []}),
    ],
)  # fmt: skip
def test_other_damage_names_the_line_and_what_to_do(tmp_path, line):
    path = tmp_path / "tune.jsonl"
    path.write_text(f"{damaged()}\n{line}\n{damaged()}\n")
    with pytest.raises(RecordsError, match=r"tune\.jsonl, line 2: .*Remove the line"):
        records.read(path)
    with pytest.raises(RecordsError, match="line 2"):
        Records(path)
    assert len(path.read_text().splitlines()) == 3


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(RecordsError, match="no regular file"):
        records.read(tmp_path)


def test_a_best_counts_only_once_it_was_measured_again():
    points = [point(), point(0.7, samples=9, depth=4), point(0.9, depth=8)]
    assert findings.find_unconfirmed(points) == points[1]
    (found,) = findings.find(points)
    assert found.best == points[2]
    points[1] = replace(points[1], ratio=0.95, samples=CONFIRMING_PAIRS)
    assert findings.find_unconfirmed(points) is None
    (found,) = findings.find(points)
    assert found.gain == pytest.approx(1 / 0.9)
    assert found.best_us == pytest.approx(90)


def test_what_gains_less_than_the_noise_does_not_replace_the_default():
    (found,) = findings.find([point(0.97), point(0.99, depth=4), point(2.5, samples=3, depth=8)])
    assert found.best == found.points[0]
    assert found.gain == 1
    assert found.best_us == 100


def test_a_refused_setting_is_no_best_and_a_key_without_default_no_finding():
    refused = replace(point(depth=4), us=0.0, ratio=0.0, default_us=0.0, failed="does not fit")
    (found,) = findings.find([point(), refused])
    assert findings.is_default(found.best)
    assert findings.find([point(0.5, depth=4)][:0]) == []
    assert findings.find([refused]) == []


def shown(found):
    out = io.StringIO()
    findings.show(found, Console(file=out, width=120))
    return out.getvalue().splitlines()


def test_the_table_has_best_against_default():
    broadcast = {"collective": "broadcast", "size_class": 12, "root_cluster": 0}
    lines = shown(
        findings.find([point(), point(0.8, depth=8, slice_bytes=65536), point(key=broadcast)])
    )
    assert lines[0].split() == [
        "collective", "at", "most", "points", "default", "best", "gain", "best", "setting",
    ]  # fmt: skip
    assert " ".join(lines[1].split()) == (
        "all_reduce 1 MiB 2 100 us 80 us 1.25x slice_bytes 64 KiB, depth 8"
    )
    assert " ".join(lines[2].split()) == "broadcast 4 KiB 1 100 us 100 us 1.00x the default"


def test_words():
    assert words.setting_text(DEFAULT) == "exchange, slice_bytes 256 KiB, depth 3"
    assert words.change_text({**DEFAULT, "algorithm": "ring", "tcp_streams": 2}, DEFAULT) == (
        "ring, tcp_streams 2"
    )
    assert words.key_text(KEY) == "all_reduce, at most 1 MiB, elements of 4 bytes"
    assert findings.time_text(12.34) == "12.3 us"
    assert findings.time_text(4567.0) == "4.57 ms"


def along(*ratios, error=0.001):
    return [(math.log(ratio), error) for ratio in ratios]


@pytest.mark.parametrize(
    ("values", "valleys"),
    [
        (along(1, 1, 1), 1),
        (along(3, 2, 1), 1),
        (along(1, 2, 3), 1),
        (along(3, 1, 2), 1),
        (along(1, 3, 1), 2),
        (along(3, 1, 2, 1.5, 2), 2),
        (along(1, 2, 1, 2, 1), 3),
        (along(1, 1.015, 1), 1),  # noise
        (along(1, 1.2, 1, error=0.1), 1),
        (along(1, 1.01, 1.02, 1.03, 1), 2),  # small rises add up
    ],
)
def test_valleys_are_counted_beyond_the_noise(values, valleys):
    assert landscape.count_valleys(values) == valleys


def valley_points():
    return [
        point(), point(0.8, depth=6), point(1.1, depth=8), point(0.9, depth=12),
        point(1.2, slice_bytes=65536), point(1.3, slice_bytes=1 << 20),
        point(0.85, depth=6, slice_bytes=65536), point(1.4, algorithm="ring", slice_bytes=65536),
        point(1.3, algorithm="ring"),
    ]  # fmt: skip


def test_lines_differ_in_one_parameter_alone():
    (found,) = findings.find(valley_points())
    assert landscape.parameters_of(found.points) == ["slice_bytes", "depth"]
    (depth,) = landscape.lines_at_best(found, "depth")
    assert [one.setting["depth"] for one in depth.points] == [3, 6, 8, 12]
    assert depth.valleys == 2
    evidence = {one.parameter: one for one in landscape.evidence([found])}
    assert evidence["depth"].text.startswith("One valley on 0 lines of 1; 1 (100%) have several")
    assert "unimodal" in evidence["slice_bytes"].text


def test_the_page_tells_everything_and_needs_nothing_else(tmp_path):
    refused = replace(point(depth=64), us=0.0, ratio=0.0, failed="<too deep>")
    page = report.render([*valley_points(), refused], "<points>")
    for part in (
        "2 host + 2 host by &lt;tcp&gt;", "4 ranks on 2 hosts", "10 points of &lt;points&gt;",
        "1 key, of which 1 can be faster than by default", "1.25x", "100 us", "80 us",
        "exchange: 2 valleys on this line", "unimodal, as far as it was measured",
        "coordinate descent may end in the wrong one", "&lt;too deep&gt;", "depth 6",
        "ring: two points, which tell nothing of valleys", "time along depth",
    ):  # fmt: skip
        assert part in page, part
    assert page.count("<svg") == 2
    assert not re.findall(r"(?:src|href)=(?![\"']?#)|@import|url\((?!#)|<script", page)


PAGE = """
const inside = [...document.querySelectorAll('svg text')].every(text => {
  const own = text.getBoundingClientRect(), frame = text.closest('svg').getBoundingClientRect();
  return own.width > 0 && own.left >= frame.left - 1 && own.right <= frame.right + 1;
});
const lines = [...document.querySelectorAll('svg path.wire:not(.dashed)')];
return {inside, wide: document.documentElement.scrollWidth,
        lengths: lines.map(line => line.getTotalLength()),
        bars: [...document.querySelectorAll('.bar')].map(e => e.getBoundingClientRect().width)};
"""


def test_the_pictures_are_drawn(tmp_path):
    from browser import ask

    path = tmp_path / "tune.html"
    path.write_text(report.render(valley_points(), "points"), encoding="utf-8")
    seen = ask(path, PAGE, tmp_path)
    assert seen["inside"], "text leaves its picture"
    assert seen["wide"] <= 1130
    assert len(seen["lengths"]) == 3
    assert min(seen["lengths"]) > 50
    assert seen["bars"][1] / seen["bars"][0] == pytest.approx(0.8, abs=0.02)


def test_the_bar_on_a_terminal_counts_points():
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, force_interactive=True)
    with Progress(3, console) as progress:
        progress.begin(KEY)
        progress.advance(3)
    assert "3/3" in out.getvalue()
    assert "all_reduce, at most 1 MiB" in out.getvalue()


def test_learnt_entries_are_merged_with_what_others_wrote(tmp_path):
    found = findings.find([point(), point(0.8, depth=8)])
    path = tmp_path / "new/tuning.json"
    tuning = {"place": "ab" * 8, "file": str(path)}
    assert "saved: 1 key in " in knowledge.save(found, tuning)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    document = json.loads(path.read_text())
    (mine,) = document["entries"]
    assert document["hetccl_tuning"] == knowledge.FORMAT
    assert mine["setting"]["depth"] == 8
    assert (mine["us"], mine["default_us"], mine["trials"]) == (pytest.approx(80), 100, 2)
    other = {**mine, "place": "cd" * 8, "unknown": 1}
    newer = {**mine, "time": mine["time"] + 1000, "us": 70.0}
    path.write_text(json.dumps({**document, "entries": [newer, other, {"key": 1}, 3]}))
    knowledge.save(found, tuning)
    assert json.loads(path.read_text())["entries"] == [newer, other]


def test_a_damaged_tuning_file_is_replaced_and_a_newer_one_is_left_alone(tmp_path):
    found = findings.find([point(), point(0.8, depth=8)])
    path = tmp_path / "tuning.json"
    tuning = {"place": "ab" * 8, "file": str(path)}
    path.write_text("{broken")
    knowledge.save(found, tuning)
    assert len(json.loads(path.read_text())["entries"]) == 1
    path.write_text('{"hetccl_tuning": 2}')
    with pytest.raises(knowledge.KnowledgeError, match="HETCCL_TUNE_FILE"):
        knowledge.save(found, tuning)
    assert path.read_text() == '{"hetccl_tuning": 2}'


def test_without_a_place_or_a_file_nothing_is_kept():
    found = findings.find([point(), point(0.8, depth=8)])
    with pytest.raises(knowledge.KnowledgeError, match="newer hetccl, or pass --no-save"):
        knowledge.save(found, {"mode": "off"})
    with pytest.raises(knowledge.KnowledgeError, match="HETCCL_TUNE_FILE"):
        knowledge.save(found, {"place": "ab" * 8, "file": ""})
    assert "nothing to save" in knowledge.save(found[:0], {"place": "ab" * 8, "file": "/x"})


def test_a_file_that_is_held_or_too_long_is_not_updated(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_LOCK_TRIES", 2)
    path = tmp_path / "f"

    def again(found):
        with pytest.raises(OSError, match="another process holds it"):
            files.update(path, 10, lambda inner: "")
        return f"{found.decode()}x"

    files.update(path, 10, again)
    files.update(path, 10, lambda found: found.decode() + "y" * 10)
    assert path.read_text() == "x" + "y" * 10
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.update(path, 10, lambda found: "")


def nccl_file(*entries):
    return json.dumps({"hetccl_tuning": 1, "entries": list(entries)})


def nccl_entry(collective="all_gather", size_class=20, summary="nccl: 4 ranks on 2 nodes", **more):
    setting = {"algorithm": "vendor", "nccl_algorithm": "ring", "nccl_protocol": "ll128", **more}
    key = {"collective": collective, "size_class": size_class}
    return {"key": key, "setting": setting, "summary": summary}


def test_nccl_s_configuration_has_what_its_plug_in_reads():
    text, count = nccl.configuration(
        nccl_file(
            nccl_entry(nccl_channels=8),
            nccl_entry("all_reduce", 10),
            nccl_entry("all_to_all"),
            nccl_entry("broadcast", 0),
            nccl_entry(summary="2 host + 2 host by tcp"),
            {"key": {}, "setting": {"algorithm": "ring"}, "summary": "nccl: 4 ranks on 2 nodes"},
        )
    )
    assert count == 3
    comment, *lines = text.splitlines()
    assert comment.startswith("#")
    assert lines == [
        "allgather,524289,1048576,ring,ll128,8,2,4,-1,-1",
        "allreduce,513,1024,ring,ll128,-1,2,4,-1,-1",
        "broadcast,0,1,ring,ll128,-1,2,4,-1,-1",
    ]


def test_what_is_no_tuning_file_cannot_be_exported():
    assert nccl.configuration(nccl_file())[1] == 0
    with pytest.raises(nccl.ExportError, match=r"nccl_algorithm is 'spiral'.*tree, ring"):
        nccl.configuration(nccl_file(nccl_entry(nccl_algorithm="spiral")))
    for text in ("", "[]", "{}", '{"entries": 3}', '{"entries": [{}]}'):
        with pytest.raises(nccl.ExportError, match="no tuning file"):
            nccl.configuration(text)
