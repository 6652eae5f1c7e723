"""A prefill or a decode process of its own: `serve` runs in it, by a pipe."""

import multiprocessing
import os
import signal
import time

from kv_caches import End, Model
from patience import PROMPT as PATIENCE

from hetccl import Endpoint
from hetccl.kv import Cache, Options, Receiver, Sender

MODEL = Model(4, 8, (64, 64))
TOKENS = 4096
OPTIONS = Options(lease=1e5, grace=1e5, slots=4, slot_bytes=1 << 16)


def make(kind, name, order):
    """An end with room for one request, which is filled by a sender."""
    end = End(name, MODEL, order, block_size=16, n_blocks=TOKENS // 16)
    released = []
    session = kind(
        Endpoint(name, "host"), Cache(end.description, end.caches), OPTIONS,
        release=lambda request, blocks: released.append(request),
    )  # fmt: skip
    return session, end, released


def start(session, mode, request="r"):
    """Begins the request, or offers it. The last layer is never sent, so it cannot end well."""
    table = range(TOKENS // 16)
    if isinstance(session, Sender):
        session.begin(request, table, TOKENS)
        for layer in range(MODEL.n_layers - 1):
            session.send_layers(request, [layer], (0, TOKENS))
    else:
        session.offer(request, table, (0, TOKENS), mode=mode)


def has_begun(session):
    """Whether cells are under way, or have come."""
    metrics = session.metrics
    links = [link for peer in session._peers.values() for link in peer.handoffs.values()]
    return bool(
        metrics.transfers or metrics.pieces or metrics.chunks
        or any(getattr(link, "coverage", None) and link.coverage.cells for link in links)
    )  # fmt: skip


def serve(pipe, kind, name, order, mode):
    """Plays one end, and stops itself by a signal as soon as cells are under way."""
    session, _, _ = make(kind, name, order)
    pipe.send(session.metadata())
    while not session.peers:
        session.poll()
    start(session, mode)
    while not has_begun(session):
        session.poll()
    pipe.send("in mid-transfer")
    os.kill(os.getpid(), signal.SIGSTOP)


def play(kind, order, mode):
    """A process of the other kind that is killed in mid-transfer. Returns this end, after it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = (Sender, "p0") if kind is Receiver else (Receiver, "d0")
    arguments = (theirs, *other, "BHNC", mode)
    process = context.Process(target=serve, args=arguments, daemon=True)
    process.start()
    try:
        session, end, released = make(kind, "d0" if kind is Receiver else "p0", order)
        assert ours.poll(PATIENCE)
        session.connect(ours.recv(), PATIENCE)
        start(session, mode)
        outcomes, deadline = [], time.monotonic() + PATIENCE
        while not outcomes:
            outcomes += session.poll()
            if ours.poll() and ours.recv():
                process.kill()
                process.join()
            assert time.monotonic() < deadline
    finally:
        process.kill()
        process.join()
    held = end.elements
    for _ in range(200):
        time.sleep(0.001)
        outcomes += session.poll()
    assert (end.elements == held).all(), "a byte has landed after the release"
    return session, outcomes, released
