"""The soak in small: `make soak` runs it for half an hour."""

import sys
from pathlib import Path

import pytest
from patience import WHOLE, milliseconds, seconds

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))
import rank as soak_rank
import soak


def test_a_short_soak_finds_nothing(monkeypatch):
    monkeypatch.setitem(soak.SETTINGS, "HETCCL_LIVENESS_MS", milliseconds(2000))
    for name, value in soak.SETTINGS.items():  # which the soak leaves in the environment
        monkeypatch.setenv(name, value)
    report = soak.soak(seconds=20 if WHOLE else seconds(8), n_workers=4, seed=7)
    assert not report.wrong
    assert not report.grown
    assert report.counts["collectives"] > 50
    assert report.slowest < soak.PATIENCE_S


@pytest.mark.long
def test_a_short_soak_of_serving_finds_nothing(monkeypatch, forked_python):
    pytest.importorskip("torch")
    import serving

    for name, value in serving.SETTINGS.items():
        monkeypatch.setenv(name, value)
    report = serving.soak(seconds=30 if WHOLE else seconds(5), seed=5, python=forked_python)
    assert not report.wrong
    assert not report.grown
    assert report.counts["tokens"] > 50
    assert report.counts["clients that left"] > 0


def history(leak):
    """Figures of a process that holds `leak` more descriptors after each episode."""
    return [
        soak_rank.Census(
            resident_kib=50_000 + episode % 7,
            descriptors=20 + leak * episode,
            threads=5,
            segments=0,
        )
        for episode in range(4 * soak.WARM_UP)
    ]


def test_growth_is_seen():
    report = soak.Report()
    report.grow(4711, history(leak=0))
    assert not report.grown
    report.grow(4711, history(leak=1))
    assert len(report.grown) == 1
    assert "process 4711: descriptors" in report.grown[0]
