"""Endpoints from Python: within a process, between processes, and what goes wrong."""

import gc
import multiprocessing
import os
import select
import signal
import threading
import time
import weakref

import numpy as np
import pytest
from patience import PROMPT as PATIENCE

import hetccl
from hetccl.endpoint import Blocks, Endpoint


def rows(*blocks):
    return np.array(blocks, np.int64).reshape(-1, 5)


@pytest.mark.smoke
def test_blocks_move_both_ways_between_two_endpoints():
    with Endpoint("prefill", "host") as prefill, Endpoint("decode", "host") as decode:
        cache = np.zeros(1000, np.uint8)
        source = np.arange(1000).astype(np.uint8)
        there, here = decode.register(cache, "cache"), prefill.register(source)
        peer = prefill.connect(decode.metadata())
        assert peer.name == "decode"
        assert peer.region("cache") == there.id
        blocks = rows((here.id, 0, there.id, 500, 100), (here.id, 200, there.id, 0, 300))
        prefill.put(peer, blocks, b"done").wait(PATIENCE)
        [(sender, payload)] = decode.notifications(PATIENCE)
        assert (sender.name, payload) == ("prefill", b"done")
        assert (cache[500:600] == source[:100]).all()
        assert (cache[:300] == source[200:500]).all()
        # The other end knows its peer by the notification.
        decode.put(sender, [(there.id, 0, here.id, 900, 50)]).wait(PATIENCE)
        assert (source[900:950] == cache[:50]).all()
        listed = Blocks(prefill, [(here.id, 0, there.id, 0, 10)])
        for _ in range(3):
            transfer = prefill.get(peer, listed)
            transfer.wait(PATIENCE)
            assert transfer.done()
        state = peer.state()
        assert (state["bytes_put"], state["bytes_got"], state["failed"]) == (400, 30, 0)
        there.close()
        with pytest.raises(hetccl.HetcclError, match="is not registered, or not any more"):
            prefill.get(peer, listed).wait(PATIENCE)


@pytest.mark.smoke
def test_wrong_arguments_are_named():
    with Endpoint("one", "host") as one, Endpoint("other", "host") as other:
        memory = one.register(bytearray(100))
        peer = one.connect(other.metadata())
        with pytest.raises(
            hetccl.HetcclError, match="block 0: 100 bytes from byte 50 on lie outside"
        ):
            one.put(peer, [(memory.id, 50, 1, 0, 100)])
        with pytest.raises(ValueError, match=r"must be \[n, 5\]"):
            one.put(peer, np.zeros((2, 4), np.int64))
        with pytest.raises(ValueError, match="64 bits"):
            one.put(peer, np.zeros((2, 5), np.int32))
        with pytest.raises(ValueError, match="read-only"):
            one.register(b"constant")
        with pytest.raises(hetccl.HetcclError, match="metadata is none of"):
            one.connect("{}")
        with pytest.raises(KeyError, match="other has no region 'x': it has"):
            peer.region("x")
        with pytest.raises(hetccl.HetcclError, match="at most 32768"):
            one.notify(peer, bytes(40_000))
        peer.close()
        with pytest.raises(hetccl.HetcclError, match="there is no peer"):
            one.notify(peer, b"")
    with pytest.raises(hetccl.HetcclError, match="name is empty"):
        Endpoint("", "host")
    with pytest.raises(hetccl.HetcclError, match="endpoint is none"):
        one.metadata()
    one.close()


def test_a_descriptor_is_readable_while_there_is_news():
    def has_news(seconds=0):
        return bool(select.select([decode], [], [], seconds)[0])

    with Endpoint("decode", "host") as decode:
        assert not has_news()
        with Endpoint("prefill", "host") as prefill:
            peer = prefill.connect(decode.metadata())
            assert not has_news()
            prefill.notify(peer, b"1")
            prefill.notify(peer, b"2")
            assert has_news(PATIENCE)
            taken = []
            while len(taken) < 2:
                taken += decode.notifications(PATIENCE)
            assert not has_news()
        assert has_news(PATIENCE)  # the peer is gone
        assert decode.notifications() == []
        assert has_news()
        assert decode.peers()[0]["gone"] is not None
        assert not has_news()


@pytest.mark.smoke
def test_an_endpoint_that_nobody_holds_ends_before_its_memory_goes():
    with Endpoint("stays", "host") as stays:
        goes = Endpoint("goes", "host")
        cache = np.zeros(100, np.uint8)
        goes.register(cache, "cache")
        held = weakref.ref(cache)
        peer = stays.connect(goes.metadata())
        here = stays.register(np.ones(100, np.uint8))
        del goes, cache
        gc.collect()
        assert held() is None
        with pytest.raises(hetccl.HetcclError, match="goes"):
            stays.put(peer, [(here.id, 0, peer.region("cache"), 0, 100)]).wait(PATIENCE)
        with (
            Endpoint("other", "host") as other,
            pytest.raises(ValueError, match="another endpoint"),
        ):
            other.notify(peer, b"")


@pytest.mark.smoke
def test_who_waits_for_notifications_learns_that_the_endpoint_is_closed():
    endpoint = Endpoint("closes", "host")
    told = []

    def wait():
        with pytest.raises(hetccl.HetcclError, match="destroyed"):
            endpoint.notifications(PATIENCE)
        told.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    endpoint.close()
    thread.join(PATIENCE)
    assert told == [True]


def decode_process(pipe):
    """Registers a cache, and answers what lies there after the first notification."""
    with Endpoint("decode", "host") as decode:
        cache = np.zeros(1 << 20, np.uint8)
        decode.register(cache, "cache")
        pipe.send(decode.metadata())
        while True:
            for _, payload in decode.notifications(PATIENCE):
                pipe.send((payload, int(cache.sum(dtype=np.int64))))
                if payload == b"end":
                    return


@pytest.fixture
def decode():
    """A process of its own, its pipe, and its metadata."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=decode_process, args=(theirs,))
    process.start()
    assert ours.poll(PATIENCE)
    yield process, ours, ours.recv()
    process.kill()
    process.join()


@pytest.mark.smoke
def test_between_processes(decode):
    process, pipe, metadata = decode
    with Endpoint("prefill", "host") as prefill:
        source = np.full(1 << 20, 3, np.uint8)
        here = prefill.register(source)
        peer = prefill.connect(metadata)
        blocks = rows(
            *[(here.id, at, peer.region("cache"), at, 4096) for at in range(0, 1 << 20, 8192)]
        )
        prefill.put(peer, blocks, b"end").wait(PATIENCE)
        assert pipe.poll(PATIENCE)
        assert pipe.recv() == (b"end", 3 << 19)
        process.join(PATIENCE)
        assert process.exitcode == 0


def test_a_killed_peer_ends_its_transfers_by_name(decode):
    process, _, metadata = decode
    with Endpoint("prefill", "host") as prefill:
        here = prefill.register(np.zeros(1 << 20, np.uint8))
        peer = prefill.connect(metadata)
        os.kill(process.pid, signal.SIGSTOP)
        many = [
            prefill.get(peer, [(here.id, 0, peer.region("cache"), 0, 1 << 20)]) for _ in range(20)
        ]
        process.kill()
        began = time.monotonic()
        for transfer in many:
            with pytest.raises(hetccl.HetcclError, match=r'"decode" \(host .*, pid'):
                transfer.wait(PATIENCE)
        assert time.monotonic() - began < PATIENCE
        here.close()
        assert peer.state()["gone"]


def test_a_transfer_can_be_cancelled_and_dropped(decode):
    process, _, metadata = decode
    with Endpoint("prefill", "host") as prefill:
        here = prefill.register(np.zeros(1 << 20, np.uint8))
        peer = prefill.connect(metadata)
        os.kill(process.pid, signal.SIGSTOP)
        block = [(here.id, 0, peer.region("cache"), 0, 1 << 20)]
        transfer = prefill.get(peer, block)
        with pytest.raises(TimeoutError):
            transfer.wait(0.05)
        transfer.cancel()
        late = prefill.get(peer, block, timeout=0.05)
        os.kill(process.pid, signal.SIGCONT)
        with pytest.raises(hetccl.HetcclError, match="the transfer was cancelled"):
            transfer.wait(PATIENCE)
        try:
            late.wait(PATIENCE)
        except hetccl.HetcclError as error:
            assert "is not done in its time" in str(error)
        del transfer, late
        prefill.get(peer, block)  # dropped at once
        prefill.get(peer, block).wait(PATIENCE)
