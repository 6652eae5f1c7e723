"""Hundreds of random schedules of prefill and decode workers: see kv_schedules.py."""

import pytest
from kv_schedules import Schedule
from patience import WHOLE, mostly_long

SCHEDULES, PARTS = (300, 6) if WHOLE else (100, 2)


def play(seed):
    """Replays a seed: `python -c "import test_kv_schedules as t; t.play(7)"`."""
    schedule = Schedule(seed)
    schedule.run()
    return schedule.counts


@pytest.mark.parametrize("part", mostly_long(range(PARTS), 1))
def test_random_schedules(part):
    """No block is released twice or lost, none is touched after its release, received requests
    have the source's values, and all others end once, by an error that says why."""
    counts = {}
    for seed in range(part, SCHEDULES, PARTS):
        try:
            found = play(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        for what, number in found.items():
            counts[what] = counts.get(what, 0) + number
    print(sorted(counts.items()))
    kinds = {"", "aborted", "lease", "peer"}
    expected = {f"{verb} {kind}" for verb in ("sent", "received") for kind in kinds}
    assert expected | {"abort", "death", "restart"} <= counts.keys(), counts
    received = sum(number for what, number in counts.items() if what.startswith("received"))
    assert counts["received "] > received / 4, counts  # most schedules do carry requests
