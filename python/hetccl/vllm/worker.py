"""The connector's part in a worker: sessions, which a thread of their own drives."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from hetccl._lib import HetcclError
from hetccl.endpoint import Endpoint
from hetccl.kv import Cache, KvError, Outcome, Receiver, Sender
from hetccl.kv.wire import Segment
from hetccl.vllm.door import fetch
from hetccl.vllm.settings import Handshake, Load, Remote, Send, Settings, StepMetadata
from hetccl.vllm.stats import HetcclStats, counts_of

logger = logging.getLogger("vllm.hetccl")
_BUSY = 0.0002  # seconds between polls while something moves
_LEFT = "the decode engine left it"
_CLOSE = 2.0  # seconds that peers have to acknowledge the end
Opened = list[tuple[str, Any]]  # metadata and link of each worker of an engine


@contextlib.contextmanager
def _all_cores() -> Iterator[None]:
    """Lets threads that start here run on all cores of the process that started this one. vLLM
    binds a CPU worker's thread to one core, and threads inherit that: heartbeats would wait there
    until a step is computed, and peers would count as lost."""
    own = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, own | os.sched_getaffinity(os.getppid()))
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@dataclasses.dataclass
class _Loading:
    load: Load
    began: float


@dataclasses.dataclass
class Results:
    """Requests that have ended since the last call; each is in one result only."""

    sent: set[str] = dataclasses.field(default_factory=set)
    received: set[str] = dataclasses.field(default_factory=set)
    failed: set[str] = dataclasses.field(default_factory=set)


class WorkerSide:
    """Moves the cache of one rank. `submit` and `take` are for the engine's thread; all else runs
    in the side's own, so progress does not depend on the engine's steps.

    `cache` holds `ratio` blocks for each block of the engine. `n_ranks` workers of this engine make
    the same loads. `device` is the endpoints'. `clock` and `make_endpoint` are for tests.
    """

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        n_ranks: int,
        device: str,
        ratio: int = 1,
        clock: Callable[[], float] = time.monotonic,
        make_endpoint: Callable[[str, str], Any] = Endpoint,
    ) -> None:
        self._settings, self._cache, self._n_ranks = settings, cache, n_ranks
        self._device, self._ratio, self._clock = device, ratio, clock
        name = cache.description.name[:100]
        options = settings.options()
        with _all_cores():
            ends = ("send", "receive")
            self._endpoints = [make_endpoint(f"{name}/{one}", device) for one in ends]
        self._sender = Sender(self._endpoints[0], cache, options, clock=clock)
        self._receiver = Receiver(self._endpoints[1], cache, options, clock=clock)
        self.handshake = Handshake(self._sender.metadata())
        self._orders: queue.SimpleQueue[StepMetadata] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._results, self._seconds = Results(), list[float]()
        self._counted: dict[str, float] = {}
        self._n_good = self._n_failed = 0  # loads
        self._sends: dict[str, str] = {}  # requests, by name
        self._loads: dict[str, _Loading] = {}  # by name
        self._engines: dict[Remote, list[int]] = {}  # peers of the receiver
        self._opening: dict[Remote, Future[Opened]] = {}
        self._waiting: dict[Remote, list[Load]] = {}  # loads that wait for a connection
        self._pool = ThreadPoolExecutor(4, "hetccl-connect")
        self._error: BaseException | None = None
        self._is_stopped = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # rung for the thread
        self._news = select.poll()  # not select: vLLM may have more than 1,024 descriptors
        for watched in (self._bell, self._sender, self._receiver):
            self._news.register(watched, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="hetccl-kv", daemon=True)
        with _all_cores():
            self._thread.start()

    # The engine's thread.

    def submit(self, metadata: StepMetadata) -> None:
        """Gives the thread its orders of a step."""
        if not metadata.is_empty:
            self._orders.put(metadata)
            self._ring()

    def take(self) -> Results:
        """Returns the requests that have ended. Raises KvError once the thread has failed: nothing
        is known of what it moved, so the engine must not go on."""
        if self._error is not None:
            raise KvError("the thread that moves caches has failed") from self._error
        with self._lock:
            found, self._results = self._results, Results()
        return found

    def take_stats(self) -> HetcclStats | None:
        """Returns the counts since the last call, or None if there are none."""
        metrics = (self._sender.metrics, self._receiver.metrics)
        counts = counts_of(*metrics, self._n_good, self._n_failed)
        found = HetcclStats()
        for name, count in counts.items():
            found.data[name] = count - self._counted.get(name, 0)
        self._counted = counts
        with self._lock:
            found.data["load_seconds"], self._seconds = self._seconds, []
        return None if found.is_empty() else found

    def close(self) -> None:
        """Ends all hand-offs, and gives the memory back. Idempotent."""
        self._is_stopped = True
        self._ring()
        self._thread.join()

    def _ring(self) -> None:
        """Wakes the thread. Any thread may call it, also when the thread has ended."""
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    # The side's own thread.

    def _run(self) -> None:
        if self._cache.device.type == "cuda":
            torch.cuda.set_device(self._cache.device)
            own = torch.cuda.Stream(self._cache.device)  # type: ignore[no-untyped-call]
            torch.cuda.set_stream(own)
        try:
            while not self._is_stopped:
                self._advance()
                self._wait()
        except BaseException as error:
            logger.exception("hetccl: the thread that moves caches has failed")
            self._error = error
        finally:
            self._end()
            with self._lock:
                os.close(self._bell)
                self._bell = -1

    def _wait(self) -> None:
        """Waits until something moves: orders, connections, news of peers, or the time is due."""
        times = [one.due for one in (self._sender, self._receiver)]
        left = min((one - self._clock() for one in times if one is not None), default=None)
        if left is not None and left < _BUSY:
            time.sleep(_BUSY)
            return
        news = self._news.poll(None if left is None else left * 1000)
        if any(descriptor == self._bell for descriptor, _ in news):
            os.eventfd_read(self._bell)

    def _advance(self) -> None:
        while True:
            try:
                orders = self._orders.get_nowait()
            except queue.Empty:
                break
            self._follow_orders(orders)
        for remote in [one for one, future in self._opening.items() if future.done()]:
            self._adopt(remote, self._opening.pop(remote))
        for outcome in self._sender.poll():
            self._end_send(outcome)
        for outcome in self._receiver.poll():
            self._end_load(outcome)

    def _end(self) -> None:
        """Ends every request that the engine waits for, and every transfer."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for session, endpoint in zip((self._sender, self._receiver), self._endpoints, strict=True):
            outcomes = session.close(_CLOSE)
            for outcome in outcomes:
                end = self._end_send if session is self._sender else self._end_load
                end(outcome)
            endpoint.close()
        for loading in list(self._loads.values()):
            self._report(loading.load.name, "this worker was shut down")

    def _follow_orders(self, orders: StepMetadata) -> None:
        for request, send in orders.sends.items():
            self._begin_send(request, send)
        for load in orders.loads:
            self._begin_load(load)
        for name, request in orders.aborts:
            self._abort(name, request)
        for name, remote in orders.holds:
            self._open(remote)
            self._receiver.hold(name, self._engines.get(remote, ()))

    def _table(self, blocks: list[int]) -> Any:
        """Returns the blocks of the cache that stand for blocks of the engine."""
        each = np.arange(self._ratio, dtype=np.int64)
        return (np.array(blocks, np.int64).reshape(-1, 1) * self._ratio + each).ravel()

    # Prefill.

    def _begin_send(self, request: str, send: Send) -> None:
        self._sends[send.name] = request
        layers = [layer.number for layer in self._cache.description.layers]
        try:
            self._sender.begin(send.name, self._table(send.blocks), send.n_tokens, receivers=None)
            self._sender.send_layers(send.name, layers, (0, send.n_tokens))
            self._sender.commit(send.name)
        except KvError as error:
            logger.warning("hetccl: request %s is not sent: %s", request, error)
            self._report_sent(send.name)

    def _end_send(self, outcome: Outcome) -> None:
        if not outcome.ok:
            logger.warning("hetccl: %s was not sent: %s", outcome.request, outcome.cause)
        self._report_sent(outcome.request)

    def _report_sent(self, name: str) -> None:
        if (request := self._sends.pop(name, None)) is not None:
            with self._lock:
                self._results.sent.add(request)

    # Decode.

    def _begin_load(self, load: Load) -> None:
        """Begins a load, unless another request uses its name. That happens if a client sends its
        params twice, or if vLLM's server cleans up after a client that has left, by a request of
        its own.
        """
        if load.name in self._loads:
            self._report_load(load, "another request loads by the same kv_transfer_params")
            return
        self._loads[load.name] = _Loading(load, self._clock())
        self._waiting.setdefault(load.remote, []).append(load)
        self._open(load.remote)

    def _open(self, remote: Remote) -> None:
        """Connects to an engine in another thread, unless it is done; then begins its loads."""
        numbers = self._engines.get(remote)
        if numbers is not None and all(number in self._receiver.peers for number in numbers):
            self._offer_waiting(remote)
        elif remote not in self._opening:
            self._engines.pop(remote, None)
            self._opening[remote] = self._pool.submit(self._connect, remote)
            self._opening[remote].add_done_callback(lambda _: self._ring())

    def _connect(self, remote: Remote) -> Opened:
        seconds = self._settings.connect_timeout
        metadata = fetch(remote.host, remote.port, remote.session, seconds)
        links: Opened = []
        try:
            for one in metadata:
                links.append((one, self._receiver.open(one, seconds)))
        except BaseException:
            for _, link in links:
                link.close()
            raise
        return links

    def _adopt(self, remote: Remote, future: Future[Opened]) -> None:
        try:
            opened = future.result()
            self._engines[remote] = [
                self._receiver.connect(metadata, link=link) for metadata, link in opened
            ]
        except (KvError, HetcclError) as error:
            for load in self._waiting.pop(remote, []):
                self._report(load.name, str(error))
            return
        self._offer_waiting(remote)

    def _offer_waiting(self, remote: Remote) -> None:
        for load in self._waiting.pop(remote, []):
            self._offer(load, self._engines[remote])

    def _offer(self, load: Load, peers: list[int]) -> None:
        try:
            self._receiver.offer(
                load.name, self._table(load.blocks), load.tokens, peers, mode=self._settings.mode,
                encoding=self._settings.encoding, receivers=self._n_ranks,
            )  # fmt: skip
        except (KvError, HetcclError) as error:
            self._report(load.name, str(error))

    def _abort(self, name: str, request: str) -> None:
        """Ends a load that the engine no longer waits for; its blocks are fenced until it is
        reported."""
        loading = self._loads.get(name)
        if loading is None or loading.load.request != request:
            return
        if self._receiver.abort(name, _LEFT):
            return
        load = loading.load
        waiting = self._waiting.get(load.remote, [])
        if load in waiting:
            waiting.remove(load)
            # Offered without tokens, so the other end frees its blocks.
            dropped = dataclasses.replace(load, tokens=(0, 0), is_awaited=False)
            self._report(name, _LEFT)
            self._loads[name] = _Loading(dropped, self._clock())
            waiting.append(dropped)

    def _end_load(self, outcome: Outcome) -> None:
        loading = self._loads.get(outcome.request)
        cause = outcome.cause
        if outcome.ok and loading is not None and loading.load.is_awaited:
            self._clear_tail(loading.load)
            with self._lock:
                self._seconds.append(self._clock() - loading.began)
        self._report(outcome.request, cause)

    def _report(self, name: str, cause: str) -> None:
        """Reports the end of a load, once."""
        if (loading := self._loads.pop(name, None)) is not None:
            self._report_load(loading.load, cause)

    def _report_load(self, load: Load, cause: str) -> None:
        if not load.is_awaited:
            return
        if cause:
            logger.warning("hetccl: request %s was not loaded: %s", load.request, cause)
        with self._lock:
            self._results.received.add(load.request)
            if not cause:
                self._n_good += 1
            else:
                self._results.failed.add(load.request)
                self._n_failed += 1

    def _clear_tail(self, load: Load) -> None:
        """Zeroes the cells behind a prompt in its last block: kernels read them, and multiply them
        by 0, so they must be finite."""
        one = self._cache.description
        last = load.tokens[1]
        table = self._table(load.blocks)
        end = min(-(-last // one.block_size), len(table)) * one.block_size
        if end <= last:
            return
        for layer in one.layers:
            for part, size in enumerate(one.head_sizes):
                segment = Segment(layer.number, part, last, end, *one.heads)
                bits = torch.zeros(end - last, one.n_held, size * one.item_bytes, dtype=torch.uint8)
                self._cache.scatter(table, segment, bits.to(self._cache.device))
        if self._cache.device.type == "cuda":
            torch.cuda.current_stream(self._cache.device).synchronize()
