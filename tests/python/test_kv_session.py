"""Hand-offs between senders and receivers over a double of the endpoint: one case each."""

import dataclasses
import json

import numpy as np
import pytest
from kv_caches import Model
from kv_pair import CHECKED, LAYOUTS, OPTIONS, SOURCE, TARGET, Pair, fill, join

from hetccl._lib import HetcclError
from hetccl.endpoint import MAX_NOTIFICATION
from hetccl.kv import KvError, Options, Receiver, Sender, messages

modes = pytest.mark.parametrize("mode", ["push", "pull"])


@modes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_checked", [False, True])
def test_cells_arrive_layer_by_layer(mode, layout, is_checked):
    pair, sender, receiver = join(mode, 1, *LAYOUTS[layout], CHECKED if is_checked else OPTIONS)
    receiver.offer("r", TARGET, (2, 11), mode=mode)
    sender.begin("r", SOURCE, 12)
    for tokens in ((0, 5), (5, 12)):
        for layer in range(3):
            assert sender.send_layers("r", [layer], tokens)
            pair.step()
    assert ("d0", "r") not in pair.outcomes
    assert sender.commit("r")
    sent, received = pair.run(("p0", "r"), ("d0", "r"))
    assert sent.ok and received.ok, (sent, received)
    wanted, found = (pair.cells(*end, (2, 11)) for end in (("p0", SOURCE), ("d0", TARGET)))
    assert (wanted == found).all()
    assert pair.released == {("p0", "r"): [1]}
    metrics = sender.metrics
    item = pair.ends["p0"].description.item_bytes
    item = min(item, pair.ends["d0"].description.item_bytes)
    n_bytes = wanted.size * item
    assert metrics.direct_bytes + metrics.packed_bytes == n_bytes
    assert (metrics.packed_bytes > 0) == (layout != "direct")
    if metrics.packed_bytes and mode == "push":
        assert metrics.credit_waits > 0
        assert metrics.credit_wait_ms > 0
    assert receiver.metrics.requests_ok == sender.metrics.requests_ok == 1


@modes
def test_a_session_says_when_it_has_to_be_polled(mode):
    pair, sender, receiver = join(mode)
    for _ in range(200):
        pair.step()
    now = pair.world.clock()
    renewals = [min(peer.renew_at for peer in one._peers.values()) for one in (sender, receiver)]
    assert [sender.due, receiver.due] == renewals
    assert min(renewals) > now
    sender.begin("r", SOURCE, 12, lease=0.5)
    assert sender.due == min(now + 0.5, renewals[0])
    sender.renew("r")
    receiver.offer("r", TARGET, (0, 12), mode=mode)
    assert receiver.due == now  # until its gets are done, of which no news comes
    while not sender._handoffs:
        pair.step()
    assert sender.due == receiver.due == pair.world.clock()
    sender.abort("r")
    pair.run(("p0", "r"), ("d0", "r"))
    assert min(sender.due, receiver.due) > pair.world.clock()
    receiver.disconnect(*receiver.peers)
    assert receiver.due is None


@modes
@pytest.mark.parametrize("encoding", ["int8", "e4m3"])
def test_encoded_cells_are_within_their_bound(mode, encoding):
    pair, sender, receiver = join(mode, target={"order": "BSHND", "dtype": "float32"})
    receiver.offer("r", TARGET, (0, 12), mode=mode, encoding=encoding)
    sender.begin("r", SOURCE, 12)
    sender.send_layers("r", range(3), (0, 12))
    sender.commit("r")
    assert pair.run(("d0", "r"))[0].ok
    wanted, found = (pair.cells(*end, (0, 12)) for end in (("p0", SOURCE), ("d0", TARGET)))
    largest = np.abs(wanted).max(-1, keepdims=True)
    bound = (
        largest / 254 if encoding == "int8" else np.maximum(np.abs(wanted) / 16, largest / 458752)
    )
    assert (np.abs(wanted - found) <= bound + largest / 2**22).all()
    assert (wanted != found).any()


@modes
def test_two_senders_and_two_receivers_of_unlike_degrees(mode):
    """Prefill with 3 ranks, decode with 2, of 4 heads; an offer comes before its request begins."""
    pair = Pair()
    heads = {"p0": (0, 1), "p1": (1, 3), "p2": (3, 4)}
    senders = {name: pair.add(Sender, name, heads=held) for name, held in heads.items()}
    receivers = {
        name: pair.add(Receiver, name, "BSHND", heads=held, block_size=3)
        for name, held in {"d0": (0, 2), "d1": (2, 4)}.items()
    }
    for seed, name in enumerate(senders):
        fill(pair.ends[name], seed)
    for name, receiver in receivers.items():
        for sender in senders.values():
            receiver.connect(sender.metadata())
        receiver.offer("r", [3, 0, 2, 5], (0, 12), mode=mode)
        del name
    for _ in range(30):
        pair.step()
    for name, sender in senders.items():
        sender.begin("r", SOURCE, 12, receivers=2 if name == "p1" else 1)
        sender.send_layers("r", range(3), (0, 12))
        sender.commit("r")
    ends = [(name, "r") for name in (*senders, *receivers)]
    assert all(outcome.ok for outcome in pair.run(*ends))
    whole = np.concatenate([pair.cells(name, SOURCE, (0, 12)) for name in senders], 3)
    found = np.concatenate([pair.cells(name, [3, 0, 2, 5], (0, 12)) for name in receivers], 3)
    assert (whole == found).all()


@modes
def test_offers_may_say_the_number_of_receivers(mode):
    """Both receivers offer to both senders; each reads from one of them, and holds keep the lease
    of a sender whose offers come late."""
    pair = Pair()
    halves = [(0, 2), (2, 4)]
    senders = [pair.add(Sender, f"p{i}", heads=held) for i, held in enumerate(halves)]
    receivers = [pair.add(Receiver, f"d{i}", heads=held) for i, held in enumerate(halves)]
    for i, sender in enumerate(senders):
        fill(pair.ends[f"p{i}"], i)
        sender.begin("r", SOURCE, 12, receivers=None)
        sender.send_layers("r", range(3), (0, 12))
        sender.commit("r")
    for receiver in receivers:
        for sender in senders:
            link = receiver.open(sender.metadata())
            receiver.connect(sender.metadata(), link=link)
    while pair.world.now < 7:
        pair.step()
        receivers[0].hold("r", [*receivers[0].peers, 99])
    for receiver in receivers:
        receiver.offer("r", TARGET, (0, 12), mode=mode, receivers=2)
    ends = [(name, "r") for name in ("p0", "p1", "d0", "d1")]
    assert all(one.ok for one in pair.run(*ends))
    for i in (0, 1):
        found = pair.cells(f"d{i}", TARGET, (0, 12))
        assert (pair.cells(f"p{i}", SOURCE, (0, 12)) == found).all()


def test_an_offer_that_does_not_say_it_is_refused():
    pair, sender, receiver = join()
    sender.begin("r", SOURCE, 12, receivers=None)
    receiver.offer("r", TARGET, (0, 12))
    assert "does not say how many receivers" in pair.run(("d0", "r"))[0].cause


def begin_all(pair, sender, receiver, mode, request="r"):
    receiver.offer(request, TARGET, (0, 12), mode=mode)
    sender.begin(request, SOURCE, 12)
    sender.send_layers(request, [0, 1], (0, 12))


@modes
@pytest.mark.parametrize("layout", ["direct", "packed"])
@pytest.mark.parametrize("steps", [0, 1, 3, 6, 10])
@pytest.mark.parametrize("end", ["p0", "d0"])
def test_an_abort_at_either_end_fails_both_by_name(mode, layout, steps, end):
    pair, sender, receiver = join(mode, steps, *LAYOUTS[layout])
    begin_all(pair, sender, receiver, mode)
    for _ in range(steps):
        pair.step()
    assert pair.sessions[end].abort("r", "the user left")
    outcomes = pair.run(("p0", "r"), ("d0", "r"))
    assert [one.kind for one in outcomes] == ["aborted", "aborted"]
    assert all("the user left" in one.cause for one in outcomes)
    assert pair.released == {("p0", "r"): [1], ("d0", "r"): [1]}
    assert not sender.send_layers("r", [2], (0, 12)) and not receiver.abort("r")


@modes
def test_no_byte_lands_after_the_release(mode):
    """Writes into the target's blocks stop before `release`, for any seed."""
    for seed in range(30):
        pair, sender, receiver = join(mode, seed, pace=0.3)
        writes = []
        blocks = {region.id for region in receiver._regions}
        pair.world.on_move = lambda _, source, at, target, *more, pair=pair, writes=writes: (
            writes.append((target, ("d0", "r") in pair.released))
        )
        begin_all(pair, sender, receiver, mode)
        for _ in range(4 + seed % 7):
            pair.step()
        receiver.abort("r", forget=bool(seed % 2))
        pair.run(("p0", "r"))
        assert pair.released[("d0", "r")] == [1]
        assert not any(is_late for region, is_late in writes if region in blocks)
        assert (("d0", "r") in pair.outcomes) == (not seed % 2)


@modes
@pytest.mark.parametrize("victim", ["p0", "d0"])
def test_a_death_fails_the_other_end_by_name(mode, victim):
    pair, sender, receiver = join(mode, 3, *LAYOUTS["packed"])
    begin_all(pair, sender, receiver, mode)
    for _ in range(8):
        pair.step()
    pair.world.kill(victim)
    pair.sessions.pop(victim)
    left = next(iter(pair.sessions))
    (outcome,) = pair.run((left, "r"))
    assert outcome.kind in ("peer", "transfer", "lease")
    assert victim in outcome.cause
    assert pair.released == {(left, "r"): [1]}
    assert pair.sessions[left].peers == {}


@pytest.mark.parametrize("victim", ["p0", "d0"])
def test_an_idle_peer_that_has_died_is_dropped(victim):
    pair, *_ = join()
    for _ in range(100):
        pair.step()
    assert all(session.peers for session in pair.sessions.values())
    pair.world.kill(victim)
    pair.sessions.pop(victim)
    (left,) = pair.sessions.values()
    while left.peers:
        pair.step()
        assert pair.world.now < 100
    assert left.metrics.peers_lost == 1


@modes
@pytest.mark.parametrize("victim", ["p0", "d0"])
def test_silence_expires_at_the_other_end_and_fails_both(mode, victim):
    pair, sender, receiver = join(mode, 4)
    begin_all(pair, sender, receiver, mode)
    for _ in range(6):
        pair.step()
    pair.stalled.add(victim)
    began = pair.world.now
    left = "p0" if victim == "d0" else "d0"
    for _ in range(3000):
        pair.step()
        sender.renew("r")
        if (left, "r") in pair.outcomes:
            break
    assert pair.outcomes[(left, "r")][0].kind == "lease"
    assert pair.world.now - began < 3.0 + 1.0 + 1.0
    pair.stalled.clear()
    late, first = pair.run((victim, "r"), (left, "r"))
    assert first.kind == "lease" and victim in first.cause
    assert late.kind in ("lease", "peer", "transfer")
    assert pair.released == {("p0", "r"): [1], ("d0", "r"): [1]}


def test_a_prefill_that_never_begins_or_stops_is_named():
    pair, sender, receiver = join()
    receiver.offer("never", TARGET, (0, 12))
    (outcome,) = pair.run(("d0", "never"))
    assert outcome.kind == "lease"
    sender.begin("stuck", SOURCE, 12)
    (outcome,) = pair.run(("p0", "stuck"))
    assert outcome.kind == "lease" and "0 of 1 receivers have offered" in outcome.cause
    receiver.offer("stuck", TARGET, (0, 12))
    (outcome,) = pair.run(("d0", "stuck"))
    assert outcome.kind == "lease" and "request stuck: no call" in outcome.cause


def test_calls_renew_the_lease_of_a_long_prefill():
    pair, sender, receiver = join()
    receiver.offer("r", TARGET, (0, 12))
    sender.begin("r", SOURCE, 12)
    while pair.world.now < 10:
        pair.step()
        sender.renew("r")
    sender.send_layers("r", range(3), (0, 12))
    sender.commit("r")
    assert pair.run(("d0", "r"))[0].ok
    assert sender.metrics.leases_expired == receiver.metrics.leases_expired == 0


@pytest.mark.parametrize("layout", ["direct", "packed"])
@modes
def test_wrong_bytes_fail_by_their_checksum(mode, layout):
    pair, sender, receiver = join(mode, 5, *LAYOUTS[layout], CHECKED)
    hit = []

    def spoil(_, source, at, *more):
        if not hit:
            hit.append(1)
            pair.world.regions[source].memory[at] ^= 1

    pair.world.on_move = spoil
    begin_all(pair, sender, receiver, mode)
    (outcome,) = pair.run(("d0", "r"))
    assert outcome.kind == "checksum", outcome
    assert "checksum of a chunk from p0 is wrong, at layer" in outcome.cause
    assert pair.run(("p0", "r"))[0].kind == "checksum"


def test_back_pressure_is_bounded_and_counted():
    """Many requests share 3 slots; all arrive."""
    pair, sender, receiver = join("push", 6, *LAYOUTS["packed"])
    for i in range(3):
        receiver.offer(f"r{i}", [i * 2 % 6, i * 2 % 6 + 1, 0][:1], (0, 4))
        sender.begin(f"r{i}", [i], 4)
        sender.send_layers(f"r{i}", range(3), (0, 4))
        sender.commit(f"r{i}")
    assert all(one.ok for one in pair.run(*[("d0", f"r{i}") for i in range(3)]))
    assert sender.metrics.credit_waits >= 3
    assert sender.metrics.staging_waits > 0


def test_what_an_engine_asks_wrongly_is_named():
    pair, sender, receiver = join()
    with pytest.raises(KvError, match="peer 9 is not connected"):
        receiver.offer("r", TARGET, (0, 12), [9])
    with pytest.raises(KvError, match="a sender is listed twice"):
        receiver.offer("r", TARGET, (0, 12), [*receiver.peers] * 2)
    with pytest.raises(KvError, match="block twice"):
        receiver.offer("r", [1, 1, 2], (0, 12))
    with pytest.raises(KvError, match="no source holds"):
        receiver.offer("r", TARGET, (0, 12), [])
    with pytest.raises(KvError, match="a message of kind offer takes"):
        receiver.offer("r" * 5_000_000, TARGET, (0, 12))
    with pytest.raises(KvError, match="slots is 0"):
        Options(slots=0)
    with pytest.raises(KvError, match="mode is"):
        receiver.offer("r", TARGET, (0, 12), mode="both")
    receiver.offer("r", TARGET, (0, 12))
    with pytest.raises(KvError, match="offered before"):
        receiver.offer("r", TARGET, (0, 12))
    sender.begin("r", SOURCE, 12)
    with pytest.raises(KvError, match="begun before"):
        sender.begin("r", SOURCE, 12)
    sender.send_layers("r", [0], (0, 8))
    with pytest.raises(KvError, match="were sent before"):
        sender.send_layers("r", [0], (7, 12))
    with pytest.raises(KvError, match="does not hold layer 3"):
        sender.send_layers("r", [3], (0, 12))
    for _ in range(20):
        pair.step()
    with pytest.raises(KvError, match="layer 0 was not sent for all of tokens 0 to 11"):
        sender.commit("r")


def test_unlike_models_are_refused_by_both_names():
    pair = Pair()
    sender = pair.add(Sender, "p0")
    other = pair.add(Receiver, "d0", model=Model(3, 4, (16, 16)))
    with pytest.raises(KvError, match=r"p0 and d0 cannot be joined: head_sizes is \(8, 8\) at p0"):
        other.connect(sender.metadata())


def test_wrong_messages_end_the_connection_by_name():
    pair, sender, receiver = join()
    begin_all(pair, sender, receiver, "push")
    for _ in range(10):
        pair.step()
    p0 = pair.world.find("p0")
    ((link, _),) = p0.links.items()
    pair.world.deliver(link, p0, b"\x80junk")
    (outcome,) = pair.run(("d0", "r"))
    assert outcome.kind == "peer"
    assert "p0 is lost: it sent a wrong message: a message is no JSON" in outcome.cause
    assert receiver.metrics.messages_refused == 1


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        ("grant", {"number": 1, "slots": "x"}, "grant.slots"),
        ("grant", {"number": -1, "slots": []}, "grant.number is -1"),
        ("commit", {"number": 1}, "commit lacks or does not know the field cells"),
        ("landed", {"number": 1, "segments": [[1, 2]], "checksum": None}, "landed.segments"),
        ("abort", {"number": 1, "reason": "so", "cause": ""}, "abort.reason"),
        ("x" * 200, {}, "unknown kind"),
    ],
)
def test_wrong_fields_of_messages_are_named(kind, values, text):
    with pytest.raises(KvError, match=text):
        messages.decode(messages.encode(kind, "t", **values))


def test_a_restarted_peer_is_a_new_session():
    """The peer of the same name that died is used no more, though its loss is noticed later."""
    pair, sender, receiver = join()
    begin_all(pair, sender, receiver, "push")
    for _ in range(10):
        pair.step()
    pair.world.kill("p0")
    pair.sessions.pop("p0")
    again = pair.add(Sender, "p0")
    fill(pair.ends["p0"])
    number = receiver.connect(again.metadata())
    assert [*receiver.peers.values()] == ["p0", "p0"]
    receiver.offer("r2", TARGET, (0, 12), [number])
    again.begin("r2", SOURCE, 12)
    again.send_layers("r2", range(3), (0, 12))
    again.commit("r2")
    lost, received = pair.run(("d0", "r"), ("d0", "r2"))
    assert "p0" in lost.cause and not lost.ok
    assert received.ok
    assert receiver.peers == {number: "p0"}


def test_both_ends_may_connect():
    pair = Pair()
    sender, receiver = pair.add(Sender, "p0"), pair.add(Receiver, "d0")
    fill(pair.ends["p0"])
    receiver.connect(sender.metadata())
    sender.connect(receiver.metadata())
    for _ in range(20):
        pair.step()
    assert [len(one.peers) for one in (sender, receiver)] == [1, 1]
    for request, mode in (("r", "push"), ("r2", "pull")):
        begin_all(pair, sender, receiver, mode, request)
        sender.send_layers(request, [2], (0, 12))
        sender.commit(request)
        assert pair.run(("d0", request))[0].ok
    receiver.disconnect(*receiver.peers)
    while sender.peers:
        pair.step()


@modes
def test_messages_longer_than_a_notification(mode):
    """Introductions, offers and notes of puts travel in parts, or on their own."""
    model = Model(1300, 2, (2, 2))
    pair = Pair(options=dataclasses.replace(OPTIONS, slots=8, slot_bytes=4096))
    many = {"n_blocks": 60, "block_size": 2, "model": model}
    sender, receiver = pair.add(Sender, "p0", **many), pair.add(Receiver, "d0", **many)
    fill(pair.ends["p0"])
    receiver.connect(sender.metadata())
    assert len(receiver.metadata()) > 2 * MAX_NOTIFICATION
    source, target = np.arange(20), np.concatenate([np.arange(20, 40), np.full(9000, -1)])
    receiver.offer("r", target, (0, 40), mode=mode)
    sender.begin("r", source, 40)
    sender.send_layers("r", range(1300), (0, 40))
    sender.commit("r")
    assert all(one.ok for one in pair.run(("p0", "r"), ("d0", "r"), most=20_000))
    assert sender.metrics.packed_bytes == 0
    assert (pair.cells("d0", target, (0, 40)) == pair.cells("p0", source, (0, 40))).all()


def sizes(session):
    """The lengths of all that a session and its peers keep, but for the bounded list of ends."""
    kept = [vars(session), *map(vars, session._peers.values())]
    kept += [vars(peer.parts) for peer in session._peers.values()]
    return {
        name: len(value) for fields in kept for name, value in fields.items()
        if hasattr(value, "__len__") and name not in ("_ended", "_token", "token", "name")
    }  # fmt: skip


@modes
def test_nothing_is_kept_of_requests_that_have_ended(mode):
    pair, sender, receiver = join(mode, 8, *LAYOUTS["packed"])
    seen = []
    for i in range(60):
        request = f"r{i}"
        receiver.offer(request, TARGET, (0, 12), mode=mode)
        sender.begin(request, SOURCE, 12)
        sender.send_layers(request, range(3), (0, 12))
        sender.commit(request)
        for _ in range(i % 9):
            pair.step()
        if i % 3 == 0:
            receiver.abort(request, forget=i % 2 == 0)
        elif i % 3 == 1:
            sender.abort(request)
        while not (receiver._is_idle and sender._is_idle):
            pair.step()
        seen.append((sizes(sender), sizes(receiver)))
    assert seen[9] == seen[-1]
    assert len(pair.released) > 30


@modes
def test_close_ends_all_and_leaves_nothing(mode):
    pair, sender, receiver = join(mode)
    begin_all(pair, sender, receiver, mode)
    for _ in range(5):
        pair.step()
    del pair.sessions["d0"]
    (outcome,) = receiver.close()
    assert outcome.kind == "closed"
    pair.run(("p0", "r"))
    assert sender.close() == []
    assert pair.world.regions == {}


def test_a_region_that_is_gone_fails_by_name():
    pair, sender, receiver = join()
    begin_all(pair, sender, receiver, "push")
    pair.step()
    for region in receiver._regions:
        region.close()
    outcome = pair.run(("p0", "r"))[0]
    assert outcome.kind == "transfer" and "is gone" in outcome.cause
    assert "d0" in outcome.cause


def test_a_stranger_is_refused():
    pair, sender, _ = join()
    with pytest.raises(KvError, match="metadata is no JSON"):
        sender.connect("\xff")
    with pytest.raises(KvError, match="metadata is not of version 1"):
        sender.connect('{"version": 2}')
    other = pair.add(Receiver, "d1")
    metadata = other.metadata()
    pair.world.kill("d1")
    with pytest.raises(HetcclError, match="d1 does not answer"):
        sender.connect(metadata)


HELLO_OF_VERSION_2 = '{"version": 2}'


@pytest.mark.parametrize(
    "payload",
    [
        b"junk",
        messages.encode("want", "t", number=1, slots=1),
        messages.encode("hello", "t", metadata=HELLO_OF_VERSION_2),
        messages.encode("hello", "t", metadata="{}"),
    ],
)
def test_a_stranger_that_connects_is_dropped_and_ends_nothing(payload):
    pair, sender, receiver = join()
    begin_all(pair, sender, receiver, "push")
    stranger = pair.world.endpoint("x")
    links = [stranger.connect(json.loads(one.metadata())["endpoint"]) for one in (sender, receiver)]
    for link in links:
        stranger.notify(link, payload)
    while any(one["gone"] is None for one in stranger.peers()):
        pair.step()
        assert pair.world.now < 2
    sender.send_layers("r", [2], (0, 12))
    sender.commit("r")
    assert all(one.ok for one in pair.run(("p0", "r"), ("d0", "r")))
    assert [one.metrics.messages_refused for one in (sender, receiver)] == [1, 1]
    assert [len(one.peers) for one in (sender, receiver)] == [1, 1]


def test_a_stranger_whose_cache_cannot_be_joined_is_dropped():
    """A peer of another model that introduces itself, though its own check would refuse."""
    pair, sender, _ = join()
    other = pair.add(Receiver, "d1", model=Model(3, 4, (16, 16)))
    stranger = pair.world.endpoint("x")
    link = stranger.connect(json.loads(sender.metadata())["endpoint"])
    for part in messages.cut(
        messages.encode("hello", "t", metadata=other.metadata()), MAX_NOTIFICATION
    ):
        stranger.notify(link, part)
    while stranger.peers()[0]["gone"] is None:
        pair.step()
        assert pair.world.now < 2
    assert sender.metrics.messages_refused == 1
    assert [*sender.peers.values()] == ["d0"]


def test_strangers_that_never_say_who_they_are_are_bounded():
    pair, sender, _ = join()
    endpoint = json.loads(sender.metadata())["endpoint"]
    for i in range(200):
        stranger = pair.world.endpoint(f"x{i}")
        stranger.notify(stranger.connect(endpoint), messages.cut(b"x" * 40_000, 32_768)[0])
        pair.step()
    for _ in range(30):
        pair.step()
    assert len(sender._strangers) == 64


def test_what_is_in_use_is_counted():
    pair, sender, receiver = join("push", 6, *LAYOUTS["packed"])
    nothing = {"transfers": 0, "slots": 0, "requests": 0, "hand-offs": 0}
    assert sender.in_use == receiver.in_use == nothing
    begin_all(pair, sender, receiver, "push")
    most = dict(nothing)
    for _ in range(40):
        pair.step()
        most = {name: max(count, sender.in_use[name]) for name, count in most.items()}
    assert receiver.in_use | {"slots": 0} == nothing | {"requests": 1, "hand-offs": 1}
    assert most["requests"] == most["hand-offs"] == 1
    assert most["slots"] > 0 and most["transfers"] > 0
    receiver.abort("r")
    pair.run(("p0", "r"), ("d0", "r"))
    assert sender.in_use == receiver.in_use == nothing
