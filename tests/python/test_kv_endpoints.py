"""Hand-offs over real endpoints: the cases of test_kv_session, schedules, and killed processes."""

import dataclasses
import inspect
import json
import select
import subprocess
from pathlib import Path

import kv_pair
import kv_processes
import kv_world
import pytest
import test_kv_session as cases
from kv_schedules import Schedule
from kv_world import RealWorld
from patience import HANG, milliseconds, mostly_long

from hetccl import Endpoint, endpoint
from hetccl.hosts import EmulatedHosts
from hetccl.kv import Receiver, Sender

HERE = Path(__file__).parent

CASES = [
    "test_cells_arrive_layer_by_layer",
    "test_encoded_cells_are_within_their_bound",
    "test_two_senders_and_two_receivers_of_unlike_degrees",
    "test_an_abort_at_either_end_fails_both_by_name",
    "test_a_death_fails_the_other_end_by_name",
    "test_an_idle_peer_that_has_died_is_dropped",
    "test_a_restarted_peer_is_a_new_session",
    "test_both_ends_may_connect",
    "test_messages_longer_than_a_notification",
    "test_back_pressure_is_bounded_and_counted",
]
for _name in CASES:
    globals()[_name] = getattr(cases, _name)


@pytest.fixture(autouse=True)
def real_world(monkeypatch):
    """Real endpoints in place of the double, and no deadline that a busy machine could miss."""
    made = []

    def make(seed, **options):
        made.append(RealWorld(seed, **options))
        return made[-1]

    monkeypatch.setattr(kv_pair, "MAKE_WORLD", make)
    patient = {"lease": 1e5, "grace": 1e5}
    plain = kv_pair.Pair.__init__
    monkeypatch.setattr(
        kv_pair.Pair, "__init__",
        lambda pair, seed=0, options=kv_pair.OPTIONS, **world: plain(
            pair, seed, dataclasses.replace(options, **patient), **world
        ),
    )  # fmt: skip
    yield
    for world in made:
        world.close()


@pytest.mark.parametrize(
    ("real", "double"),
    [
        (Endpoint, kv_world.FakeEndpoint),
        (endpoint.Peer, kv_world.Peer),
        (endpoint.Region, kv_world.Region),
        (endpoint.Transfer, kv_world.Transfer),
    ],
)
def test_the_double_has_the_endpoints_methods(real, double):
    """Each public method of the double has the real one's parameters; the double lacks none but
    constructors, and has none more but its world's."""
    ours = {"move"} if double is kv_world.Transfer else set()
    methods = [
        {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
        for kind in (real, double)
    ]
    assert methods[0].keys() == methods[1].keys() - ours
    for name, method in methods[0].items():
        wanted, found = (
            [
                (one.name, one.kind, one.default)
                for one in inspect.signature(each).parameters.values()
            ]
            for each in (method, methods[1][name])
        )
        assert wanted == found, name


@pytest.mark.parametrize("seed", mostly_long(range(12), 4))
def test_random_schedules_over_real_endpoints(seed):
    """Values are right, blocks are freed once, free blocks keep their mark, nothing hangs."""
    schedule = Schedule(seed, RealWorld)
    try:
        schedule.run()
    finally:
        schedule.world.close()
    print(sorted(schedule.counts.items()))


@pytest.mark.parametrize("mode", mostly_long(["push", "pull"], 1))
@pytest.mark.parametrize("kind", [Sender, Receiver])
@pytest.mark.parametrize("order", mostly_long(["BHNC", "SBNHD"], 1))
def test_a_process_that_is_killed_in_mid_transfer(kind, mode, order):
    """The end that is left names the other, frees its blocks once, and none is written later."""
    session, outcomes, released = kv_processes.play(kind, order, mode)
    (outcome,) = outcomes
    assert outcome.kind in ("peer", "transfer"), outcome
    assert ("p0" if kind is Receiver else "d0") in outcome.cause
    assert released == ["r"]
    assert session.peers == {}
    assert session.close() == []


@pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)
@pytest.mark.parametrize("mode", mostly_long(["push", "pull"], 1))
def test_a_link_that_is_cut_in_mid_transfer(mode, forked_python, tmp_path):
    """Both ends name each other, free their blocks once, and nothing lands after that, even where
    the link is whole again while data is on its way."""
    settings = {"HETCCL_LIVENESS_MS": milliseconds(1000)}
    folders = [tmp_path / "p0", tmp_path / "d0"]
    with EmulatedHosts(2, rate="40mbit") as hosts:
        ends = []
        for host, kind in enumerate(["Sender", "Receiver"]):
            folders[host].mkdir()
            play = f"import kv_host; kv_host.main('{kind}', '{mode}', '{folders[host]}')"
            command = [forked_python, "-c", play]
            pipe = subprocess.PIPE
            ends.append(hosts.popen(host, command, settings, cwd=HERE, stdout=pipe, text=True))
        first = [hear(end)["metadata"] for end in ends]
        for folder, metadata in zip(folders, reversed(first), strict=True):
            tell(folder / "metadata", metadata)
        assert [hear(end) for end in ends] == [{"state": "in mid-transfer"}] * 2
        hosts.cut(1)
        told = [hear(end) for end in ends]
        hosts.restore(1)
        for folder in folders:
            tell(folder / "healed", "")
        last = [hear(end) for end in ends]
    for one, other in zip(told, ("d0", "p0"), strict=True):
        assert one["kind"] in ("peer", "transfer"), one
        assert other in one["cause"]
        assert one["released"] == ["r"]
        assert not any(one["in_use"].values())
    assert last == [{"marks": True, "outcomes": 1, "peers": {}}] * 2


def hear(process):
    ready, _, _ = select.select([process.stdout], [], [], HANG)
    assert ready, "it says nothing"
    return json.loads(process.stdout.readline())


def tell(path, text):
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").rename(path)
