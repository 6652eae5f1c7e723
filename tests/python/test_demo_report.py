"""The demo's report: one page, looked at in a real browser."""

import json
import re
import subprocess
import sys

import pytest
from browser import ask, picture
from patience import HANG

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
from hetccl import _lib
from hetccl.demo import charts, launch, report

STEPS = 30


def run_of(backend, slower=1.0, **other):
    run = {
        "backend": backend, "steps": STEPS, "parameters": 1_900_000, "torch": "2.13",
        "step_seconds": 0.1 * slower, "tokens_per_second": 5000 / slower,
        "step_times": [0.1 * slower + 0.01 * (step % 3) for step in range(STEPS)],
        "step_losses": [5.5 - step / 10 for step in range(STEPS)],
        "communication_share": 0.2, "least_bytes": 600_000_000,
        "link_bytes": round(604e6 * slower), "payload_bytes": None, "loss": 2.5,
        "gradient_error": 1e-7, "hash": "ab" * 32, "topology": None,
    }  # fmt: skip
    return {**run, **other}


def ours(**other):
    ranks = [
        {"rank": r, "host": f"h{r // 2}", "host_name": "vm", "vendor": "host", "model": "<EPYC>",
         "nics": [{"name": "up0", "mbps": 10000}]} for r in range(4)
    ]  # fmt: skip
    topology = _lib.topology(json.dumps({"ranks": ranks}))
    return run_of("hetccl", topology=topology, payload_bytes=600_000_000, **other)


def page_of(*runs, **other):
    page = {"verdict": "line that compares", "command": "hetccl demo --x", "rate": "1gbit"}
    return report.Page(list(runs), **{**page, **other})


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "demo.html"
    markup = report.render(page_of(ours(), run_of("gloo", 1.5)), {"HETCCL_DEPTH": "4"})
    path.write_text(markup, encoding="utf-8")
    return path


POINTS = """
const points = path => (path.getAttribute('d').match(/[ML]/g) || []).length;
const drawn = {};
for (const id of ['loss-hetccl', 'loss-hetccl-raw', 'loss-gloo', 'loss-gloo-raw',
                  'time-hetccl', 'time-gloo']) {
  const path = document.getElementById(id).querySelector('path');
  const box = path.getBoundingClientRect(), style = getComputedStyle(path);
  drawn[id] = {points: points(path), length: path.getTotalLength(), width: box.width,
               height: box.height, stroke: style.stroke};
}
return drawn;
"""


def test_the_lines_are_drawn_with_a_point_for_each_step(page, tmp_path):
    drawn = ask(page, POINTS, tmp_path)
    for name, line in drawn.items():
        assert line["points"] == STEPS, name
        assert line["length"] > 100, name
        assert line["width"] > 200, name
        assert line["height"] > 10, name
    assert drawn["loss-hetccl"]["stroke"] == "rgb(47, 111, 222)"
    assert drawn["time-gloo"]["stroke"] == "rgb(217, 98, 43)"


BARS = """
const bar = name => document.getElementById('bytes-' + name).getBoundingClientRect();
return ['least-possible', 'hetccl-payload', 'hetccl-on-the-wire', 'Gloo-on-the-wire']
  .map(name => [bar(name).width, bar(name).height]);
"""


def test_the_bars_are_as_long_as_the_bytes_are_many(page, tmp_path):
    (least, _), (payload, _), (wire, _), (gloo, height) = ask(page, BARS, tmp_path)
    assert least > 100
    assert height > 5
    assert payload == pytest.approx(least, rel=0.001)
    assert wire / least == pytest.approx(604 / 600, abs=0.003)
    assert gloo / least == pytest.approx(1.5 * 604 / 600, abs=0.003)


PAGE = """
const rects = [...document.querySelectorAll('figure, .tile, .verdict')]
  .map(e => e.getBoundingClientRect());
const inside = [...document.querySelectorAll('svg text')].every(text => {
  const own = text.getBoundingClientRect(), frame = text.closest('svg').getBoundingClientRect();
  return own.width > 0 && own.left >= frame.left - 1 && own.right <= frame.right + 1;
});
return {text: document.body.innerText, figures: rects.every(r => r.width > 100 && r.height > 40),
        inside, wide: document.documentElement.scrollWidth, refused: performance
          .getEntriesByType('resource').length,
        ids: [...document.querySelectorAll('[id]')].map(e => e.id)};
"""


def test_the_page_tells_everything_and_needs_nothing_else(page, tmp_path):
    seen = ask(page, PAGE, tmp_path)
    for part in ("line that compares", "1.50x", "1.01x", "host vm (1)", "host vm (2)",
                 "tcp 1 Gbit/s", "1gbit each way", "cores of", "2.13", "1,900,000 parameters",
                 "HETCCL_DEPTH", "hetccl demo --x", "604 MB, 1.01 of the least",
                 "906 MB, 1.51 of the least", "median 100 ms", "median 150 ms"):  # fmt: skip
        assert part in seen["text"], part
    assert seen["figures"]
    assert seen["inside"], "text leaves its picture"
    assert seen["wide"] <= 1130
    assert seen["refused"] == 0
    assert len(seen["ids"]) == len(set(seen["ids"]))
    text = page.read_text()
    assert len(text) < 150_000
    assert not re.findall(r"(?:src|href)=[\"']?(?!#)|@import|url\((?!#)", text)


def test_light_and_dark_pages_both_have_contrast(page, tmp_path):
    pil = pytest.importorskip("PIL.Image")
    for dark in (False, True):
        with pil.open(picture(page, tmp_path / f"{dark}.png", dark=dark)) as image:
            gray = image.convert("L")
            paper = gray.getpixel((3, 3))
            assert paper < 40 if dark else paper > 230
            lowest, highest = gray.crop((0, 0, 1130, 140)).getextrema()
            assert highest - lowest > 180


def test_a_run_alone_and_without_a_link_has_its_report_too(tmp_path):
    path = tmp_path / "alone.html"
    alone = ours(link_bytes=None, least_bytes=600_000_000)
    path.write_text(report.render(page_of(alone, rate=None), {}), encoding="utf-8")
    seen = ask(path, PAGE, tmp_path)["text"]
    assert "loopback" in seen
    assert "sent between clusters" in seen
    assert "Gloo" not in seen
    assert "tcp 10 Gbit/s" in seen


def test_what_comes_from_outside_is_escaped():
    hostile = "<script>alert(1)</script>"
    page = page_of(ours(), verdict=hostile, command=hostile)
    markup = report.render(page, {"HETCCL_CLUSTER": hostile, "HETCCL_SECRET_FILE": "/secret"})
    assert "<script" not in markup
    assert "/secret" not in markup
    assert "&lt;EPYC&gt;" in markup


def test_smoothing_has_no_bias_at_the_start():
    assert charts.smooth([2.0] * 5) == pytest.approx([2.0] * 5)
    assert charts.smooth([]) == []


@pytest.mark.long
def test_a_short_run_writes_its_report(forked_python, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "executable", forked_python)
    monkeypatch.setenv("PYTHON_EXEC", forked_python)  # of torchrun's ranks
    path = tmp_path / "demo.html"
    assert launch.main(["--steps", "3", "--loopback", "--no-gloo", "--report", str(path)]) == 0
    assert f"report: {path}" in capsys.readouterr().out
    drawn = path.read_text()
    assert "3 steps of DistributedDataParallel over hetccl" in drawn
    assert "cluster 1" in drawn


def test_a_report_that_cannot_be_written_is_known_before_training(tmp_path):
    argv = [sys.executable, "-m", "hetccl.demo", "--report", str(tmp_path / "none/demo.html")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 2
    assert "its folder does not exist" in done.stderr


def test_without_matplotlib_the_demo_says_so_before_it_trains(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    said = []

    def train(options):
        said.append(capsys.readouterr().out)
        return [], "", None

    monkeypatch.setattr(launch, "run", train)
    assert launch.main([]) == 0
    assert said == [
        "This run writes no report: its charts need matplotlib: pip install 'matplotlib>=3.9'\n"
    ]
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        launch.parse(["--report", str(tmp_path / "x.html")])


def test_without_the_backend_the_demo_says_what_to_do_and_starts_no_rank(monkeypatch, capsys):
    reason = "torch is not installed; install it, then run: pip install /sources"
    monkeypatch.setattr(
        launch.torch_backend, "state", lambda: {"available": False, "reason": reason}
    )
    monkeypatch.setattr(launch, "run", lambda options: pytest.fail("it trains"))
    assert launch.main(["--no-report"]) == 1
    assert reason in capsys.readouterr().err
