"""The connector between engines of vllm_engine: prefill -> hand-off -> decode, over real endpoints.

Runs against vLLM's own base classes where they can be imported, else against the recorded ones.
"""

import contextlib
import functools
import os
import time
from pathlib import Path

import pytest
import torch
import vllm_engine
from patience import PROMPT as PATIENCE
from patience import seconds
from vllm_engine import Engine, Status

from hetccl.kv import KvError

WANTED = {"do_remote_decode": True, "do_remote_prefill": False}


class Pair:
    """Engines that step in turn, until a condition holds."""

    def __init__(self, p=None, d=None, **extra):
        self.p = Engine("p", **(p or {}), **extra)
        self.d = Engine("d", **(d or {}), **extra)
        self.engines = [self.p, self.d]

    def step(self):
        for engine in self.engines:
            engine.step()
        time.sleep(0.0005)

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.step()
            assert time.monotonic() < deadline, "nothing comes"

    def prefill(self, identity, prompt, n_tokens):
        """Computes a prompt on P. Returns the params for D."""
        self.p.add(identity, prompt, n_tokens, dict(WANTED))
        self.until(lambda: identity in self.p.ended)
        return self.p.params[identity]

    def decode(self, identity, prompt, n_tokens, params, **more):
        return self.d.add(identity, prompt, n_tokens, dict(params), **more)

    def settle(self):
        """Waits until no engine holds a request, and checks that no block is lost."""
        self.until(lambda: not any(engine.requests for engine in self.engines))
        for _ in range(50):
            self.step()
        for engine in self.engines:
            assert len(engine.free) == engine.n_blocks - 1
            engine.check_free()
            assert not engine.connector.has_pending_push_work()


@pytest.fixture
def make():
    made = []

    def make_pair(*arguments, **options):
        made.append(Pair(*arguments, **options))
        return made[-1]

    yield make_pair
    for pair in made:
        for engine in pair.engines:
            engine.close()


modes = pytest.mark.parametrize("mode", ["push", "pull"])


@pytest.mark.smoke
@modes
def test_prompts_are_handed_off_and_decoded(make, mode):
    pair = make(mode=mode)
    for i, n_tokens in enumerate((1, 4, 7, 30)):
        params = pair.prefill(f"p{i}", i, n_tokens)
        assert params["do_remote_prefill"] and params["remote_num_tokens"] == n_tokens
        request = pair.decode(f"d{i}", i, n_tokens, params)
        pair.until(lambda i=i: f"d{i}" in pair.d.ended)
        assert request.received
        assert pair.d.ended[f"d{i}"] == "FINISHED_LENGTH_CAPPED"
    pair.settle()
    received = sum(stats.data["requests_received"] for stats in pair.d.stats)
    assert received == 4
    assert sum(len(stats.data["load_seconds"]) for stats in pair.d.stats) == 4
    assert sum(stats.data["bytes_sent"] for stats in pair.p.stats) > 0


def test_a_side_that_waits_polls_nothing(make):
    pair = make()
    params = pair.prefill("p0", 0, 7)
    pair.decode("d0", 0, 7, params)
    pair.until(lambda: "d0" in pair.d.ended)
    pair.settle()
    sides = [rank.connector._worker for e in pair.engines for rank in e.ranks]
    rounds = dict.fromkeys(sides, 0)

    def count(side, advance):
        rounds[side] += 1
        advance()

    for side in sides:
        side._advance = functools.partial(count, side, side._advance)
    time.sleep(0.5)
    # A renewal, and the news of one, are due each third of a lease of 30 s.
    assert all(n <= 4 for n in rounds.values()), rounds.values()


SHAPES = {
    "layout": ({"layout": "NHD"}, {"layout": "HND"}),
    "blocks": ({"block_size": 4}, {"block_size": 6}),
    "type": ({"dtype": torch.bfloat16}, {"dtype": torch.float16}),
    "kernel blocks": ({"block_size": 8, "kernel_block": 4}, {"block_size": 4}),
    "1 to 2 ranks": ({"tp": 1}, {"tp": 2}),
    "4 to 2 ranks": ({"tp": 4, "layout": "NHD"}, {"tp": 2}),
    "2 to 8 ranks": ({"tp": 2}, {"tp": 8, "block_size": 3}),
}


@modes
@pytest.mark.parametrize("shape", SHAPES)
def test_unlike_engines(make, mode, shape):
    """Each rank of each end reports once; values are right on all decode ranks."""
    pair = make(*SHAPES[shape], mode=mode)
    for i in range(3):
        params = pair.prefill(f"p{i}", i, 17)
        request = pair.decode(f"d{i}", i, 17, params)
        pair.until(lambda i=i: f"d{i}" in pair.d.ended)
        assert request.received, "it was recomputed"
    pair.settle()


def test_a_local_prefix_is_not_loaded(make):
    """Only what is missing moves; with a whole hit nothing does, and P's blocks are freed."""
    pair = make()
    for i, n_cached in enumerate((8, 16)):
        params = pair.prefill(f"p{i}", i, 16)
        pair.decode(f"d{i}", i, 16, params, n_cached=n_cached)
        pair.until(lambda i=i: f"d{i}" in pair.d.ended)
    pair.settle()
    cell = 2 * vllm_engine.N_HEADS * vllm_engine.SIZE * vllm_engine.N_LAYERS * 2
    assert sum(stats.data["bytes_sent"] for stats in pair.p.stats) == 8 * cell
    assert sum(stats.data["requests_sent"] for stats in pair.p.stats) == 2


@modes
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 9])
def test_a_decode_request_that_is_aborted(make, mode, steps):
    """Its blocks are freed once, however far its load is, and so are P's."""
    pair = make({"tp": 2}, {"tp": 2}, mode=mode, slots=1, slot_bytes=256)
    params = pair.prefill("p", 1, 60)
    pair.decode("d", 1, 60, params)
    for _ in range(steps):
        pair.step()
    pair.d.abort("d")
    pair.settle()
    other = pair.decode("d2", 2, 20, pair.prefill("p2", 2, 20))
    pair.until(lambda: "d2" in pair.d.ended)
    assert other.received
    pair.settle()


def test_a_decode_request_that_is_aborted_before_it_is_scheduled(make):
    """P is told at once, though D makes a step only because the connector has work."""
    pair = make()
    params = pair.prefill("p", 1, 20)
    pair.decode("d", 1, 20, params)
    pair.d.abort("d")
    assert pair.d.connector.has_pending_push_work()
    assert "p" in pair.p.requests
    pair.settle()


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_request_with_the_params_of_another(make, is_aborted, steps):
    """vLLM's server cleans up behind a client that has left by a second request with the same
    params, aborted before it is scheduled. A client may send them twice, too."""
    pair = make({}, {"n_blocks": 40}, slots=1, slot_bytes=256)
    params = pair.prefill("p", 1, 60)
    first = pair.decode("d", 1, 60, params)
    for _ in range(steps):
        pair.step()
    pair.decode("d2", 1, 60, params)
    pair.d.abort("d2")
    if is_aborted:
        pair.d.abort("d")
    third = pair.decode("d3", 1, 60, params)
    pair.until(lambda: {"d", "d3"} <= pair.d.ended.keys())
    assert not (first.received and third.received)
    pair.settle()


def test_a_prefill_request_that_is_aborted_keeps_no_blocks(make):
    pair = make()
    pair.p.add("p", 1, 20, dict(WANTED))
    pair.p.abort("p")
    assert pair.p.params["p"] is None
    pair.settle()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
def test_hand_offs_move_on_more_cores_than_the_engine_is_bound_to(make):
    own = os.sched_getaffinity(0)
    before = threads()
    os.sched_setaffinity(0, {min(own)})
    try:
        pair = make()
        assert os.sched_getaffinity(0) == {min(own)}
    finally:
        os.sched_setaffinity(0, own)
    started, end = {}, time.monotonic() + PATIENCE
    while len(started) < 8:  # of two endpoints at each of two workers: doors, and copies
        assert time.monotonic() < end, started
        started = {number: cores for number, cores in threads().items() if number not in before}
    started[0] = os.sched_getaffinity(pair.p.ranks[0].connector._worker._thread.native_id)
    assert all(cores >= own for cores in started.values()), started


def threads():
    """The cores of the library's threads in this process, by their numbers."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            if (task / "comm").read_text().startswith("hetccl"):
                found[int(task.name)] = os.sched_getaffinity(int(task.name))
    return found


def test_a_load_waits_for_blocks_and_its_lease_is_held(make):
    """P's lease passes twice while D has no room for the prompt."""
    pair = make(lease=seconds(1.2))
    params = pair.prefill("p", 1, 40)
    held, pair.d.free = pair.d.free, []
    request = pair.decode("d", 1, 40, params)
    began = time.monotonic()
    pair.until(lambda: time.monotonic() - began > seconds(2.8))
    assert "p" in pair.p.requests
    pair.d.free = held
    pair.until(lambda: "d" in pair.d.ended)
    assert request.received
    pair.settle()


def test_an_expired_lease_frees_and_is_recomputed(make):
    """P frees the blocks that nobody asks for; a late D is refused, and computes."""
    pair = make(lease=0.2)
    params = pair.prefill("p", 1, 20)
    pair.until(lambda: "p" not in pair.p.requests)
    assert sum(stats.data["leases_expired"] for stats in pair.p.stats) == 1
    request = pair.decode("d", 1, 20, params)
    pair.until(lambda: "d" in pair.d.ended)
    assert not request.received and pair.d.ended["d"] == "failed"
    pair.settle()


@modes
def test_a_lost_prefill_engine_is_recomputed(make, mode):
    pair = make(mode=mode, slots=1, slot_bytes=256, connect_timeout=1.0)
    first, second = (pair.prefill(f"p{i}", i, 40) for i in (0, 1))
    pair.decode("d0", 0, 40, first)
    pair.until(lambda: pair.d.requests["d0"].status is Status.WAITING_FOR_REMOTE_KVS)
    pair.p.close()
    pair.engines.remove(pair.p)
    pair.decode("d1", 1, 40, second)
    pair.until(lambda: {"d0", "d1"} <= pair.d.ended.keys())
    assert pair.d.ended["d1"] == "failed"
    pair.settle()


@modes
def test_a_lost_decode_engine_frees_the_prefills_blocks(make, mode):
    pair = make(mode=mode, slots=1, slot_bytes=256, lease=1.0)
    params = pair.prefill("p", 1, 60)
    pair.decode("d", 1, 60, params)
    pair.until(lambda: pair.d.requests["d"].status is Status.WAITING_FOR_REMOTE_KVS)
    pair.d.close()
    pair.engines.remove(pair.d)
    pair.settle()


def test_a_prefill_engine_that_was_started_again_is_named(make, caplog):
    """Its door has another session: the old params load nothing, and new ones work."""
    pair = make(d={})
    params = pair.prefill("p", 1, 20)
    port = params["remote_port"]
    pair.p.close()
    pair.p = pair.engines[0] = Engine("p", port=port)
    request = pair.decode("d", 1, 20, params)
    pair.until(lambda: "d" in pair.d.ended)
    assert not request.received
    assert "was started again: the cache of this request is gone" in caplog.text
    pair.until(lambda: sum(stats.data["requests_failed"] for stats in pair.d.stats) == 1)
    request = pair.decode("d2", 2, 20, pair.prefill("p2", 2, 20))
    pair.until(lambda: "d2" in pair.d.ended)
    assert request.received
    pair.settle()


@pytest.mark.parametrize(
    "wrong",
    [
        {"remote_port": 0}, {"remote_host": 7}, {"remote_num_tokens": -1}, {"remote_session": None},
        {"remote_name": "x" * 999},
    ],
)  # fmt: skip
def test_wrong_params_of_a_client_are_computed_here(make, wrong):
    pair = make()
    params = pair.prefill("p", 1, 20)
    request = pair.decode("d", 1, 20, params | wrong)
    pair.until(lambda: "d" in pair.d.ended)
    assert not request.received and pair.d.ended["d"] == "FINISHED_LENGTH_CAPPED"
    pair.decode("d2", 1, 20, params)
    pair.settle()


def test_params_of_another_request_load_nothing(make):
    """A name that P does not know is refused once its lease is over; no cell of another prompt
    arrives."""
    pair = make(lease=0.3)
    params = pair.prefill("p", 1, 20)
    request = pair.decode("d", 1, 20, params | {"remote_name": "p/other/0"})
    pair.until(lambda: "d" in pair.d.ended)
    assert not request.received
    pair.settle()


def test_many_requests_at_once_between_three_engines(make):
    """Two prefill engines and one decode engine, with aborts between."""
    pair = make({"n_blocks": 64}, {"n_blocks": 40, "tp": 2}, slots=2, slot_bytes=1024)
    other = Engine("p2", n_blocks=64, layout="NHD", slots=2, slot_bytes=1024)
    pair.engines.append(other)
    first = pair.p
    for i in range(30):
        pair.p = (first, other)[i % 2]
        params = pair.prefill(f"p{i}", i, 5 + i)
        pair.decode(f"d{i}", i, 5 + i, params)
        if i % 4 == 3:
            pair.d.abort(f"d{i - 1}")
    pair.settle()
    assert sum(end == "FINISHED_LENGTH_CAPPED" for end in pair.d.ended.values()) > 15
    assert "failed" not in pair.d.ended.values()


def test_a_failure_of_the_thread_stops_the_engine(make, monkeypatch):
    """No request waits for ever, and none runs on cells that nobody vouches for."""
    pair = make()
    params = pair.prefill("p", 1, 20)
    worker = pair.d.ranks[0].connector._worker
    monkeypatch.setattr(worker, "_offer", lambda *_: {}["a fault"])
    pair.decode("d", 1, 20, params)
    with pytest.raises(KvError, match="the thread that moves caches has failed"):
        pair.until(lambda: "d" in pair.d.ended)


def test_settings_and_models_that_are_not_served_are_named(monkeypatch):
    with pytest.raises(KvError, match="kv_connector_extra_config has 'modus'"):
        Engine("e", modus="pull")
    with pytest.raises(KvError, match="mode is 'both'"):
        Engine("e", mode="both")
    monkeypatch.delenv("HETCCL_SECRET_FILE", raising=False)
    with pytest.raises(KvError, match="HETCCL_SECRET_FILE is not set"):
        Engine("e", host="0.0.0.0")
    spec = type("MambaSpec", (vllm_engine.FullAttentionSpec,), {})
    monkeypatch.setattr(vllm_engine, "FullAttentionSpec", spec)
    with pytest.raises(KvError, match="serves one group of"):
        Engine("e")
