"""examples/serving: tokens are the monolithic engine's, whichever way the cache came, and whatever
happens to workers and clients on the way."""

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from patience import HANG, PROMPT, milliseconds, mostly_long

pytest.importorskip("torch")
SERVING = Path(__file__).resolve().parents[2] / "examples/serving"
sys.path.insert(0, str(SERVING))

import drive  # noqa: E402
import torch  # noqa: E402
import worker  # noqa: E402
from baselines import Sockets, gather  # noqa: E402
from engine import BlockPool, Engine, Request, complete  # noqa: E402
from front import Front  # noqa: E402
from handover import Ended  # noqa: E402
from model import SHAPES, Model  # noqa: E402
from results import COLUMNS, Result, Run, plot, table  # noqa: E402
from router import FailedError, Router, tokens_of  # noqa: E402

from hetccl import Endpoint  # noqa: E402
from hetccl.hosts import EmulatedHosts  # noqa: E402

PAIR = "prefill@cpu,decode@cpu"


def prompts(count, seed=0):
    """Pairs of prompt and tokens of the answer; a prompt of one token has no prefill."""
    chance = random.Random(seed)
    lengths = [1, 2, 300, *(chance.randint(1, 300) for _ in range(count - 3))]
    return [([chance.randrange(512) for _ in range(n)], chance.randint(1, 24)) for n in lengths]


def monolithic(shape, pairs, blocks=512, model=None):
    torch.set_num_threads(1)
    engine = Engine(model or Model(SHAPES[shape]), blocks)
    answers = complete(engine, [Request(str(i), *pair) for i, pair in enumerate(pairs)])
    assert engine.pool.n_free == blocks
    return answers


@pytest.fixture
def start(forked_python):
    """Starts routers by (workers, transport, *options), with the tests' way to start Python."""

    def begin(workers, transport, *options, **more):
        return Router(workers, transport, options, python=forked_python, timeout=HANG, **more)

    return begin


def wait_until(condition):
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_blocks(router):
    """All jobs end, and every block is free again."""
    stats = router.await_idle(PROMPT)
    assert all(one["free"] == one["blocks"] for one in stats.values()), stats
    assert not any(any(one["in_use"].values()) for one in stats.values()), stats
    return stats


@pytest.mark.smoke
@pytest.mark.parametrize("shape", ["tiny", "tiny-gpt"])
def test_answers_do_not_depend_on_the_batch(shape):
    pairs, model = prompts(12), Model(SHAPES[shape])
    together, cells = cells_of(model, pairs)
    for pair, answer, cell in zip(pairs, together, cells, strict=True):
        [alone], [found] = cells_of(model, [pair])
        assert alone == answer
        assert torch.equal(found, cell)  # each bit of the cache
    assert together == monolithic(shape, pairs, blocks=21, model=model)  # most of them wait
    assert len({token for answer in together for token in answer}) > 20


def cells_of(model, pairs):
    """Answers of one engine, and what its cache holds of each request then."""
    torch.set_num_threads(1)
    engine = Engine(model, 512)
    requests = [Request(str(i), *pair) for i, pair in enumerate(pairs)]
    answers = complete(engine, requests)
    assert sum(len(one.table) for one in requests) <= 512  # no block was used again
    return answers, [gather(engine.cache, one.table, one.n_cached) for one in requests]


def test_blocks_are_freed_once():
    pool = BlockPool(3)
    taken = pool.take(2)
    assert pool.take(2) is None
    pool.free(taken)
    with pytest.raises(KeyError):
        pool.free(taken)
    assert pool.n_free == 3


CASES = [
    ("none", "both@cpu", "tiny"),
    ("gloo", PAIR, "tiny"),
    ("sockets", PAIR, "tiny"),
    ("hetccl", PAIR, "tiny"),
    ("hetccl", PAIR, "tiny-gpt"),
    ("hetccl-whole", PAIR, "tiny"),
    ("hetccl", "prefill@cpu,prefill@cpu,decode@cpu,decode@cpu", "tiny"),
]


@pytest.mark.parametrize(("transport", "workers", "shape"), mostly_long(CASES, 4))
def test_tokens_are_equal_for_every_transport_and_split(start, transport, workers, shape):
    pairs = prompts(12)
    wanted = monolithic(shape, pairs)
    with start(workers, transport, "--shape", shape, "--blocks", "64") as router:
        completions = [router.submit(*pair) for pair in pairs]
        assert [list(tokens_of(one)) for one in completions] == wanted
        assert all(one.attempt == 0 for one in completions)
        stats = check_blocks(router)
    n_prefilled = sum(len(prompt) - 1 for prompt, _ in pairs)
    moved = 0 if transport == "none" else n_prefilled * SHAPES[shape].cell_bytes(torch.float32)
    assert sum(one["bytes"] for one in stats.values()) == moved


def test_int8_moves_fewer_bytes(start):
    prompt = prompts(3)[2][0]
    with start(PAIR, "hetccl-int8") as router:
        assert len(list(tokens_of(router.submit(prompt, 5)))) == 5
        stats = check_blocks(router)
    bound = len(prompt) * SHAPES["tiny"].cell_bytes(torch.float32) / 2
    assert 0 < stats["prefill-0"]["bytes"] < bound


@pytest.mark.parametrize("transport", ["hetccl", "sockets"])
def test_aborted_requests_leave_nothing(start, transport):
    """Half of the requests are aborted, each at another moment; the others do not notice."""
    pairs = prompts(24, seed=2)
    wanted = monolithic("tiny", pairs)
    chance = random.Random(3)
    with start(PAIR, transport, "--blocks", "80") as router:
        completions = [router.submit(*pair) for pair in pairs]
        for completion in completions[::2]:
            time.sleep(chance.random() * 0.03)
            router.abort(completion, "the user left")
        for completion, answer in zip(completions[1::2], wanted[1::2], strict=True):
            assert list(tokens_of(completion)) == answer
        check_blocks(router)
        for completion, answer in zip(completions[::2], wanted[::2], strict=True):
            if completion.tokens != answer:  # it was aborted before its end
                with pytest.raises(FailedError, match="the user left"):
                    list(tokens_of(completion))


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_requests_that_are_aborted_before_they_come_are_forgotten(role):
    """A decode worker knows the last ones, whose cells may come; a prefill worker needs none."""
    cache = torch.zeros(1, 1, 2, 4, 1, 1)
    one = Sockets("one", role, cache, lambda request, table: None, "127.0.0.1")
    for number in range(10_000):
        one.abort(str(number), "the user left")
    assert len(one._aborted) == (4096 if role == "decode" else 0)
    one.close()


def begin_long(router, count=4):
    """Begins long answers, and waits for a token of the first one, which has nothing to prefill."""
    pairs = [(prompt, 200) for prompt, _ in prompts(count, seed=4)]
    completions = [router.submit(*pair) for pair in pairs]
    return pairs, completions, completions[0].next(HANG)


LOSSES = {
    "one of two decode workers": (PAIR + ",decode@cpu", ["decode-0"]),
    "the only decode worker": (PAIR, ["decode-0"]),
    "the only prefill worker": (PAIR, ["prefill-0"]),
    "one of each": ("prefill@cpu," * 2 + "decode@cpu,decode@cpu", ["prefill-0", "decode-1"]),
}


@pytest.mark.parametrize("transport", mostly_long(["hetccl", "sockets"], 1))
@pytest.mark.parametrize("loss", mostly_long(LOSSES, 2))
def test_requests_of_lost_workers_are_computed_again(start, loss, transport):
    workers, lost = LOSSES[loss]
    with start(workers, transport) as router:
        for name in lost[1:]:
            os.kill(router.workers[name], signal.SIGKILL)
        if lost[0] == "prefill-0":  # it takes requests, and never ends one
            os.kill(router.workers[lost[0]], signal.SIGSTOP)
        pairs, completions, first = begin_long(router)
        os.kill(router.workers[lost[0]], signal.SIGKILL)
        for completion, wanted in zip(completions, monolithic("tiny", pairs), strict=True):
            is_begun = completion is completions[0]
            rest = [completion.next(HANG) for _ in range(200 - is_begun)]
            assert [first] * is_begun + rest == wanted
        assert any(one.attempt for one in completions)
        assert not set(lost) & router.workers.keys()
        check_blocks(router)


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_a_lost_worker_comes_back(start, name):
    pairs = prompts(6, seed=6)
    wanted = monolithic("tiny", pairs)
    with start(PAIR, "hetccl") as router:
        with pytest.raises(ValueError, match=f"{name} is not a worker that is lost"):
            router.restart(name)
        os.kill(router.workers[name], signal.SIGKILL)
        wait_until(lambda: name not in router.workers)
        router.restart(name, HANG)
        completions = [router.submit(*pair) for pair in pairs]
        assert [list(tokens_of(one)) for one in completions] == wanted
        assert all(len(one.workers) == 2 and one.attempt == 0 for one in completions[1:])
        check_blocks(router)


def test_a_worker_that_dies_while_others_connect_holds_up_nobody(start):
    with start(PAIR, "hetccl") as router:
        victim = router.workers["decode-0"]
        os.kill(router.workers["prefill-0"], signal.SIGKILL)
        wait_until(lambda: "prefill-0" not in router.workers)
        os.kill(victim, signal.SIGSTOP)
        thread = threading.Thread(target=router.restart, args=("prefill-0", HANG))
        thread.start()
        wait_until(lambda: router._connecting == {"decode-0"})
        os.kill(victim, signal.SIGKILL)
        thread.join(HANG)
        assert len(list(tokens_of(router.submit([1, 2, 3], 4)))) == 4
        assert [*router.workers] == ["prefill-0"]


def test_a_worker_that_does_not_start_is_named(start, tmp_path):
    with start("both@cpu,both@cpu", "none") as router:
        os.kill(router.workers["both-1"], signal.SIGKILL)
        wait_until(lambda: "both-1" not in router.workers)
        works, router._python = router._python, "/bin/false"
        with pytest.raises(RuntimeError, match="both-1 has ended"):
            router.restart("both-1", HANG)
        assert list(tokens_of(router.submit([1, 2], 3)))
        router._python = works
        router.restart("both-1", HANG)
        assert len(router.workers) == 2
    with start(PAIR, "sockets") as router, pytest.raises(ValueError, match="none can come back"):
        router.restart("decode-0")


def test_a_worker_that_reads_nothing_holds_up_nobody(start):
    """Its messages take more than a socket holds."""
    with start("both@cpu,both@cpu", "none") as router:
        os.kill(router.workers["both-1"], signal.SIGSTOP)
        try:
            first = router.submit([1, 2, 3], 100)
            submitted = threading.Event()
            thread = threading.Thread(
                target=lambda: (router.submit([1] * 1_000_000, 1), submitted.set()), daemon=True
            )
            thread.start()
            assert len(list(tokens_of(first))) == 100
            assert submitted.wait(HANG)
        finally:
            os.kill(router.workers["both-1"], signal.SIGCONT)
        check_blocks(router)


@pytest.mark.smoke
def test_requests_fail_by_name_once_no_worker_is_left(start):
    with start("both@cpu", "none") as router:
        _, completions, _ = begin_long(router)
        os.kill(router.workers["both-0"], signal.SIGKILL)
        for completion in completions:
            with pytest.raises(FailedError, match="both-0 is lost, and no worker is left") as error:
                while True:
                    completion.next(HANG)
            assert error.value.kind == "failed"
        with pytest.raises(FailedError, match="no worker is left"):
            router.submit([1], 1)


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    connection.request("POST", "/v1/completions", body if type(body) is str else json.dumps(body))
    return connection, connection.getresponse()


@pytest.fixture
def served(start):
    """A router of two workers, and the port of its front."""
    with start(PAIR, "hetccl") as router, Front(("127.0.0.1", 0), router) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield router, front.server_port
        front.shutdown()


def test_the_front_answers_like_openai(served):
    router, port = served
    [(prompt, most)] = prompts(3)[2:]
    [wanted] = monolithic("tiny", [(prompt, most)])
    _, response = post(port, {"prompt": prompt, "max_tokens": most})
    body = json.loads(response.read())
    assert response.status == 200
    assert body["object"] == "text_completion"
    assert body["choices"][0]["token_ids"] == wanted
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == len(prompt) + most
    _, response = post(port, {"prompt": prompt, "max_tokens": most, "stream": True})
    lines = response.read().split(b"\n\n")
    assert lines[-2:] == [b"data: [DONE]", b""]
    pieces = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]
    assert [piece["choices"][0]["token_ids"][0] for piece in pieces] == wanted
    wrong = {
        "no": "JSONDecodeError",
        '{"max_tokens": 3}': "KeyError",
        '{"prompt": "text"}': "list of token ids",
        '{"prompt": [], "max_tokens": 1}': "at least 1",
        '{"prompt": [512], "max_tokens": 1}': "[0, 512)",
        '{"prompt": [1], "max_tokens": 512}': "512 together",
        '{"prompt": [1], "max_tokens": 0}': "positive",
    }
    for text, cause in wrong.items():
        _, response = post(port, text)
        error = json.loads(response.read())["error"]
        assert response.status == 400
        assert error["type"] == "refused"
        assert cause in error["message"]
    check_blocks(router)


def test_a_request_larger_than_the_cache_is_refused_and_others_wait_for_blocks(start):
    """11 requests of 4 blocks each share 9 blocks of each worker."""
    pairs = [([token] * 40, 20) for token in range(11)]
    wanted = monolithic("tiny", pairs)
    with start(PAIR, "hetccl", "--blocks", "9") as router:
        completions = [router.submit(*pair) for pair in pairs]
        with pytest.raises(FailedError, match="13 blocks of 9 are needed") as error:
            list(tokens_of(router.submit([1] * 200, 2)))
        assert error.value.kind == "refused"
        assert [list(tokens_of(one)) for one in completions] == wanted
        check_blocks(router)


def test_strangers_that_connect_to_workers_end_nothing(served):
    """One that knows the endpoints' secret, and talks nonsense; and bytes at their sockets."""
    router, _ = served
    pairs = prompts(8, seed=8)
    completions = [router.submit(*pair) for pair in pairs]
    with Endpoint("stranger", "host") as stranger:
        for name in ("prefill-0", "decode-0"):
            metadata = json.loads(json.loads(router._remotes[name].metadata)[1])
            stranger.notify(stranger.connect(metadata["endpoint"]), b"nonsense")
            ports = listening(router.workers[name])
            assert ports
            for port in ports:
                with socket.create_connection(("127.0.0.1", port), HANG) as raw:
                    raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        wait_until(lambda: all(one["gone"] for one in stranger.peers()))
    assert [list(tokens_of(one)) for one in completions] == monolithic("tiny", pairs)
    assert all(one.attempt == 0 for one in completions)
    check_blocks(router)


def listening(pid):
    """The TCP ports at which a process listens."""
    places = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    lines = [
        line for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net", table).read_text().splitlines()[1:]
    ]  # fmt: skip
    rows = [line.split() for line in lines]
    held = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in places]
    return [int(row[1].partition(":")[2], 16) for row in held]


@pytest.mark.parametrize("cause", ["", "decode-0 is lost"])
def test_layers_leave_while_a_gpu_computes(cause, monkeypatch):
    """A double of a GPU that is done at the fourth look; the hand-over may fail before that."""
    looks, calls = [], []

    class Event:
        record = staticmethod(lambda stream: None)
        query = staticmethod(lambda: looks.append(1) or len(looks) > 3)

    class Handover:
        by_layer, bytes_sent = True, 0

        def poll(self):
            calls.append("poll")
            return [Ended("r", cause)] if cause and len(calls) == 2 else []

        def commit(self, request):
            calls.append(f"commit {request}")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    ours, theirs = multiprocessing.Pipe()
    one = worker.Worker(worker.parser().parse_args(
        ["--name", "p", "--role", "prefill", "--control", "", "--transport", "none"]
    ), theirs)  # fmt: skip
    one._engine.cache = types.SimpleNamespace(is_cuda=True, device="cuda:0")
    one._handover = Handover()
    job = worker.Job(Request("r", [1, 2], 1), "prefill", "decode-0", "handover")
    one._jobs["r"] = job
    one._end_prefill(job)
    assert calls == ["poll"] * 3 + ["commit r"] * (not cause)
    told = json.loads(ours.recv_bytes())
    assert told["op"] == ("failed" if cause else "prefilled")
    assert not ours.poll()


def test_a_client_that_leaves_aborts_its_request(served):
    router, port = served
    connection, response = post(port, {"prompt": [1, 2, 3], "max_tokens": 500, "stream": True})
    assert response.readline().startswith(b"data: ")
    response.close()
    connection.close()
    check_blocks(router)
    assert not router._live


def test_the_drivers_table_parses(start, tmp_path):
    options = drive.parse(["--requests", "8", "--rate", "40", "--prompt", "2:90"])
    trace = drive.make_trace(options)
    assert trace == drive.make_trace(options)
    with start(PAIR, "hetccl", *options.rest) as router:
        run = drive.run(router, "hetccl", trace)
    text = table([run], drive.reference(options, trace))
    head, _, row = [line.strip("| ").split(" | ") for line in text.splitlines()]
    assert head == COLUMNS
    values = dict(zip(head, row, strict=True))
    assert (values["transport"], values["equal tokens"], values["failed"]) == ("hetccl", "8/8", "0")
    texts = ("transport", "equal tokens")
    numbers = {name: float(value) for name, value in values.items() if name not in texts}
    assert numbers["TTFT P99 ms"] >= numbers["TTFT median ms"] > 0
    assert numbers["total tokens/s"] > numbers["output tokens/s"] > 0
    n_prefilled = sum(len(one.prompt) - 1 for one in trace)
    assert run.kv_bytes == n_prefilled * SHAPES["tiny"].cell_bytes(torch.float32)
    pytest.importorskip("matplotlib")
    plot([run], str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_the_columns_are_of_the_requests_that_ended_well():
    """Two requests whose hand-overs overlap, one without the other, and one that failed."""
    times = [{"sending": 1.0, "prefilled": 1.1, "arrived": 3.0, "decoding": 3.1},
             {"sending": 2.0, "prefilled": 2.1, "arrived": 4.0, "decoding": 4.1}, {}]  # fmt: skip
    good = [Result(0.0, 10, [1, 2, 3], [one, one + 0.1, one + 0.4], when, "")
            for one, when in zip((1.0, 2.0, 3.0), times, strict=True)]  # fmt: skip
    run = Run("x", [*good, Result(0.0, 10, error="lost")], 6_000_000_000)
    values = dict(zip(COLUMNS, run.row([[1, 2, 3], [1, 2, 4], [1, 2, 3], [1]]), strict=True))
    assert run.moving_seconds() == 3.0
    assert values["KV GB/s"] == "2.000"
    assert values["TTFT mean ms"] == values["TTFT median ms"] == "2000.0"
    assert values["TTFT P99 ms"] == "3000.0"
    assert values["TPOT ms"] == "200.0"
    assert values["prefill to decode ms"] == "2000.0"
    assert values["output tokens/s"] == f"{9 / 3.4:.1f}"
    assert values["total tokens/s"] == f"{39 / 3.4:.1f}"
    assert (values["equal tokens"], values["failed"]) == ("2/4", "1")


@pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)
@pytest.mark.parametrize("transport", ["hetccl", "gloo"])
def test_caches_cross_the_link_of_emulated_hosts(start, transport):
    pairs = prompts(6, seed=5)
    wanted = monolithic("tiny", pairs)
    with EmulatedHosts(2) as hosts, start(PAIR, transport, hosts=hosts) as router:
        completions = [router.submit(*pair) for pair in pairs]
        assert [list(tokens_of(one)) for one in completions] == wanted
        stats = check_blocks(router)
        assert hosts.tx_bytes(0) > stats["prefill-0"]["bytes"] > 0


@pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)
def test_a_cut_link_fails_requests_by_name_and_heals(start, monkeypatch):
    """In mid-transfer: the shape's caches keep the slow link busy."""
    monkeypatch.setenv("HETCCL_LIVENESS_MS", milliseconds(1000))
    chance = random.Random(7)
    pairs = [([chance.randrange(512) for _ in range(500)], 4) for _ in range(4)]
    with EmulatedHosts(2, rate="2mbit") as hosts, start(PAIR, "hetccl", hosts=hosts) as router:
        completions = [router.submit(*pair) for pair in pairs]
        wait_until(lambda: hosts.tx_bytes(0) > 100_000)
        hosts.cut(0)
        for completion in completions:
            with pytest.raises(FailedError, match="prefill-0") as error:
                list(tokens_of(completion))
            assert error.value.kind == "failed"
        assert len(router.workers) == 2
        check_blocks(router)
        hosts.restore(0)
        hosts.shape("1gbit")

        def is_served():
            completion = router.submit(*pairs[0])
            with contextlib.suppress(FailedError):
                return list(tokens_of(completion)) == wanted
            time.sleep(0.1)
            return False

        [wanted] = monolithic("tiny", pairs[:1])
        wait_until(is_served)
        check_blocks(router)
