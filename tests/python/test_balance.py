"""Shares of a batch, without torch: plans, their files, and the order of samples."""

import itertools
import json
import math
import random
import subprocess
import sys

import pytest
from commands import Command

from hetccl.balance import BalanceError, Plan, Profile, divide_by_speeds, divide_evenly, plan
from hetccl.balance.online import GAIN, Balancer, Report

pytestmark = pytest.mark.smoke


def steady(seconds, most=None):
    """A device that takes as long for every sample."""
    return Profile(((1, seconds), (64, 64 * seconds)), most)


def slowest(profiles, shares, count):
    made = Plan(tuple(profiles), sum(shares), count, tuple(shares))
    return made.slowest


def test_shares_are_in_proportion_to_speed():
    made = plan([steady(1.0), steady(1.0), steady(2.0), steady(2.0)], 96, 1)
    assert made.shares == (32, 32, 16, 16)
    assert made.efficiency == pytest.approx(1)
    assert plan([steady(0.5), steady(0.3)], 1000, 1).shares == (375, 625)


def test_no_other_shares_are_faster():
    chance = random.Random(1)
    for _ in range(60):
        profiles = []
        for _ in range(3):
            sizes = sorted(chance.sample(range(1, 20), 4))
            times = [chance.uniform(0.1, 2) for _ in sizes]
            most = chance.choice([None, chance.randint(4, 12)])
            profiles.append(Profile(tuple(zip(sizes, sorted(times), strict=True)), most))
        batch, count = chance.randint(6, 16), chance.choice([1, 2])
        if sum(p.most * count if p.most else batch for p in profiles) < batch:
            continue
        made = plan(profiles, batch, count)
        limits = [batch if p.most is None else p.most * count for p in profiles]
        options = [range(count, limit + 1) for limit in limits]
        best = min(
            slowest(profiles, shares, count)
            for shares in itertools.product(*options)
            if sum(shares) == batch
        )
        assert sum(made.shares) == batch
        assert all(
            count <= share <= limit for share, limit in zip(made.shares, limits, strict=True)
        )
        assert made.slowest == pytest.approx(best), (profiles, batch, count)


def test_memory_limits_shares_and_sets_the_number_of_micro_batches():
    made = plan([steady(1.0, most=4), steady(4.0, most=64)], 40)
    assert all(max(made.micro_batches(0)) <= 4 for _ in [0])
    assert made.shares == (32, 8)
    assert made.accumulation == 8
    assert made.micro_batches(1) == (1,) * 8
    few = plan([steady(1.0, most=4), steady(4.0, most=64)], 40, accumulation=1)
    assert few.shares == (4, 36)


def test_fixed_costs_ask_for_few_micro_batches():
    affine = Profile(tuple((size, 1 + 0.1 * size) for size in (1, 2, 4, 8, 16, 32)))
    assert plan([affine, affine], 32).accumulation == 1


@pytest.mark.parametrize(
    ("profiles", "batch", "count", "text"),
    [
        ([], 4, None, "profiles is empty"),
        ([steady(1.0)] * 4, 3, None, "batch is 3: too small to give each of 4 ranks"),
        ([steady(1.0)] * 4, 7, 2, "it takes 8"),
        ([steady(1.0, 2), steady(1.0, 3)], 11, 2, "all ranks together hold 10 with accumulation 2"),
        ([steady(1.0)], 0, None, "batch is 0"),
        ([steady(1.0)], True, None, "batch is True"),
        ([steady(1.0)], 4, 0, "accumulation is 0"),
    ],
)
def test_what_cannot_be_divided_is_named(profiles, batch, count, text):
    with pytest.raises(BalanceError, match=text):
        plan(profiles, batch, count)


@pytest.mark.parametrize(
    ("seconds", "most", "text"),
    [
        ((), None, "sizes"),
        (((2, 1.0), (1, 2.0)), None, "increase"),
        (((0, 1.0),), None, "positive"),
        (((1, 0.0),), None, "1 samples take 0.0 s"),
        (((1, float("nan")),), None, "finite"),
        (((1, 1.0),), 0, "most is 0"),
    ],
)
def test_profiles_that_no_device_has_are_refused(seconds, most, text):
    with pytest.raises(BalanceError, match=text):
        Profile(seconds, most)


def test_times_between_the_sizes_that_were_measured():
    found = Profile(((2, 1.0), (4, 0.9), (8, 3.0)))
    assert found.time(0) == 0
    assert found.time(1) == 0.5
    assert found.time(3) == 1.0  # a time that falls is noise
    assert found.time(6) == 2.0
    assert found.time(16) == 6.0


def test_a_plan_of_a_thousand_ranks_takes_seconds():
    profiles = [steady(1 + rank % 7 + rank / 1e6) for rank in range(1024)]
    made = plan(profiles, 65536, 1)
    assert sum(made.shares) == 65536
    assert made.efficiency > 0.97


def test_a_plan_comes_back_from_its_file(tmp_path):
    made = plan([steady(1.0, most=9), steady(2.0)], 30)
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.pop("shares"),
        lambda values: values.update(shares=[1, 2]),
        lambda values: values.update(shares=["10", 20]),
        lambda values: values.update(batch=-1),
        lambda values: values.update(profiles=[{"seconds": [[1]]}]),
        lambda values: values.update(profiles=7),
        lambda values: values["profiles"][0].update(seconds=[[1.5, 1]]),
        lambda values: values["profiles"][0].update(seconds=[[1, 10**400]]),
        lambda values: values["profiles"][0].update(seconds=[[10**400, 1]]),
    ],
)
def test_files_that_are_no_plan_are_named(tmp_path, change):
    path = tmp_path / "plan.json"
    plan([steady(1.0), steady(2.0)], 30).save(path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(BalanceError, match=r"plan\.json"):
        Plan.load(path)
    path.write_text("[" * 100_000)
    with pytest.raises(BalanceError, match=r"plan\.json is no plan"):
        Plan.load(path)


@pytest.mark.long
def test_the_command_explains_a_plan(tmp_path):
    path = tmp_path / "plan.json"
    plan([steady(1.0, most=4), steady(2.0)], 12, 3).save(path)
    command = [sys.executable, "-m", "hetccl", "balance", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "A batch of 12 samples on 2 ranks, in 3 micro-batches each." in shown
    assert "Efficiency: 100.0%" in shown
    assert "with equal shares 66.7%" in shown
    again = [*command, "--batch", "24", "--accumulation", "1", "--json"]
    values = json.loads(subprocess.run(again, capture_output=True, text=True, check=True).stdout)
    assert [rank["share"] for rank in values["ranks"]] == [4, 20]
    wrong = subprocess.run([*command, "--batch", "1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "too small to give each of 2 ranks" in wrong.stderr.replace("\n", " ")


def hetccl(*arguments, code=0):
    ended = Command(*arguments).finish()
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else " ".join(ended.stderr.replace("│", " ").split())


def test_a_saved_topology_of_a_job_is_read_by_balance_shard_and_parallel(tmp_path):
    job, first = tmp_path / "job.json", tmp_path / "plan.json"
    hetccl("topo", "--devices", "cpu,cpu", "--save", job)
    shown = hetccl("balance", "--topology", job, "--batch", 30, "--speed", "2T", "--save", first)
    assert "A batch of 30 samples on 2 ranks" in shown and "stated, not measured" in shown
    assert Plan.load(first).shares == (15, 15)
    values = json.loads(hetccl("balance", first, "--batch", 8, "--json"))
    assert [rank["share"] for rank in values["ranks"]] == [4, 4]
    assert values["ranks"][0]["seconds"] is None
    assert "2 ranks, 1 host" in hetccl("shard", "1B", "--topology", job, "--memory", "64G")
    assert "llama-8b" in hetccl(
        "parallel", "llama-8b", "--topology", job, "--speed", "2T", "--memory", "400G"
    )
    wrong = hetccl("balance", "--topology", job, "--batch", 30, code=2)
    assert "the speed of rank 0" in wrong and "--speed" in wrong


def test_a_batch_is_divided_by_the_speeds_of_a_topologys_devices():
    kinds = ("--layout", "A2B2", "--kind", "A=cuda:H100", "--kind", "B=hip:MI250X")
    values = json.loads(hetccl("balance", *kinds, "--batch", 640, "--json"))
    shares = [rank["share"] for rank in values["ranks"]]
    assert shares[0] / shares[2] == pytest.approx(989 / 191.5, rel=0.05)
    assert sum(shares) == 640 and shares[:2] == sorted(shares[:2], reverse=True)
    given = json.loads(hetccl("balance", *kinds, "--batch", 60, "--speed", "1=1978T", "--json"))
    assert given["ranks"][2]["share"] > given["ranks"][0]["share"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the FILE of a plan, --topology FILE or --layout"),
        (("--layout", "A2"), "give --batch"),
        (("--layout", "A2", "--batch", "4", "--speed", "5=2T"), "there is no cluster 5"),
        (("plan.json", "--layout", "A2"), "give a plan, which has its ranks' profiles, or"),
    ],
)
def test_what_balance_cannot_divide_says_why(arguments, said):
    assert said in hetccl("balance", *arguments, code=2)


def test_speeds_that_are_none_are_refused():
    for speeds in ([1.0, 0.0], [math.inf, 1.0], [1.0, -1.0]):
        with pytest.raises(BalanceError, match="speeds are"):
            divide_by_speeds(speeds, 8)
    assert not divide_by_speeds([2.0, 1.0], 6).profiles[0].in_tokens(4).is_measured


def reports(rates):
    """Reports of ranks that compute `rates` times as fast as their profiles say."""
    return [Report(1 / rate, 1.0, 0.0, 0) for rate in rates]


def test_a_job_without_profiles_finds_its_shares():
    balancer = Balancer(divide_evenly(4, 96))
    assert balancer.add_reports(reports((2, 2, 1, 1))).shares == (32, 32, 16, 16)
    assert balancer.add_reports(reports((2, 2, 1, 1))) is None


def test_a_device_that_becomes_slow_loses_its_share_at_the_next_window():
    balancer = Balancer(divide_evenly(2, 90))
    assert balancer.add_reports(reports((1, 1))) is None
    assert balancer.add_reports(reports((2, 1))).shares == (60, 30)
    assert balancer.add_reports(reports((1, 2))).shares == (30, 60)


def test_small_changes_and_noise_move_nothing():
    balancer = Balancer(divide_evenly(2, 1000))
    chance = random.Random(3)
    for _ in range(50):
        rates = [chance.uniform(0.98, 1.02) for _ in range(2)]
        assert balancer.add_reports(reports(rates)) is None
    assert GAIN > 1.02


def test_a_window_without_a_time_changes_nothing():
    balancer = Balancer(divide_evenly(2, 90))
    for slowness in (None, 0.0, -1.0):
        assert balancer.add_reports([Report(slowness, 1, 0, 0), Report(1, 1, 0, 0)]) is None
    assert balancer.add_reports(reports((2, 1))).shares == (60, 30)


def test_shares_that_make_no_batch_are_refused():
    with pytest.raises(BalanceError, match="do not make a batch of 8"):
        Plan((steady(1.0), steady(1.0)), 8, 1, (6, 1))


def test_no_rank_gets_more_than_the_most_where_shares_move():
    balancer = Balancer(divide_evenly(2, 90, most=50))
    assert balancer.add_reports(reports((9, 1))).shares == (50, 40)


def test_agreeing_takes_a_hundredth_of_the_time_at_most():
    balancer = Balancer(divide_evenly(2, 10))
    found = [Report(0.001, 0.002, 0.004, 0)] * 2
    balancer.add_reports(found)
    assert balancer.window == 200
    balancer.add_reports([Report(0.1, 0.2, 0.004, 0)] * 2)
    assert balancer.window == 10
