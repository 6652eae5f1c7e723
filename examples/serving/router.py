"""Starts workers, gives them requests, and computes requests again when a worker is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MOST_ATTEMPTS = 3


class FailedError(Exception):
    """A request that has ended without all its tokens. `kind`: "refused", "aborted", or "failed"
    if it may work at another time."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(cause)
        self.kind = kind


@dataclasses.dataclass
class Completion:
    """A request and its answer so far. `times`: monotonic seconds of the last attempt's events."""

    number: int
    prompt: Sequence[int]
    most: int
    attempt: int = 0
    tokens: list[int] = dataclasses.field(default_factory=list)
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    workers: list[Remote] = dataclasses.field(default_factory=list)
    events: queue.Queue[int | FailedError] = dataclasses.field(default_factory=queue.Queue)
    is_over: bool = False

    @property
    def id(self) -> str:
        """The name of this attempt: workers' late messages of others are ignored."""
        return f"{self.number}.{self.attempt}"

    def next(self, timeout: float | None = None) -> int:
        """Waits for the next token. Raises queue.Empty after `timeout` seconds, and FailedError."""
        event = self.events.get(timeout=timeout)
        if isinstance(event, FailedError):
            raise event
        return event


@dataclasses.dataclass(eq=False)
class Remote:
    """A worker, as the router sees it. `parts`: what it computes now. `is_ready`: it is connected
    to all others, and takes requests."""

    name: str
    role: str
    pid: int
    metadata: str
    control: Connection
    parts: set[str] = dataclasses.field(default_factory=set)
    is_ready: bool = False
    outbox: queue.SimpleQueue[bytes | None] = dataclasses.field(default_factory=queue.SimpleQueue)

    def send(self, op: str, **values: Any) -> None:
        """Queues a message for `write`, so that a worker which reads none holds up nobody."""
        self.outbox.put(json.dumps({"op": op, **values}).encode())

    def write(self) -> None:
        """Sends the messages, in a thread of its own, until None comes, or the worker is gone:
        then its reader notices."""
        with contextlib.suppress(OSError):
            while (message := self.outbox.get()) is not None:
                self.control.send_bytes(message)


def parse_workers(text: str) -> list[tuple[str, str, str]]:
    """Reads "prefill@cpu,decode@cuda:0" as (name, role, device) of each worker."""
    counts: dict[str, int] = {}
    found = []
    for one in text.split(","):
        role, _, device = one.partition("@")
        if role not in ("prefill", "decode", "both") or not device:
            raise ValueError(f"{one!r}: a worker is prefill, decode or both, @, and its device")
        counts[role] = counts.get(role, -1) + 1
        found.append((f"{role}-{counts[role]}", role, device))
    return found


class Router:
    """Workers and requests. Thread-safe. A context manager: workers end with it.

    `workers` as `parse_workers` reads them; `options` are more of worker.py's. With `hosts`, a
    `hetccl.hosts.EmulatedHosts`, each worker runs on one of them.
    """

    def __init__(
        self,
        workers: str,
        transport: str,
        options: Sequence[str] = (),
        *,
        hosts: Any = None,
        python: str = sys.executable,
        timeout: float = 120.0,
    ) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._remotes: dict[str, Remote] = {}
        self._live: dict[str, Completion] = {}
        self._numbers = itertools.count()
        self._stats: dict[str, dict[str, Any]] = {}  # the last of each worker
        self._awaited: set[str] = set()  # workers that were started, and are not lost
        self._round = 0  # of connecting all to each other
        self._connecting: set[str] = set()  # workers that have not answered in this round
        self._is_closed = False
        self._workers = {
            name: (number, role, device)
            for number, (name, role, device) in enumerate(parse_workers(workers))
        }
        self._transport, self._options = transport, list(options)
        self._hosts, self._python = hosts, python
        self._folder = tempfile.TemporaryDirectory(prefix="serving-")
        self._key = secrets.token_hex(16)
        self._path = str(Path(self._folder.name, "control"))
        self._listener = Listener(self._path, "AF_UNIX", len(self._workers), self._key.encode())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in self._workers:
            self._start(name)
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            self._await_ready(self._workers, timeout)
        except RuntimeError:
            self.close()
            raise

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> dict[str, int]:
        """Name and process id of the workers that live."""
        with self._lock:
            return {name: one.pid for name, one in self._remotes.items()}

    def submit(self, prompt: Sequence[int], most: int) -> Completion:
        """Begins a completion of at most `most` tokens."""
        with self._lock:
            completion = Completion(next(self._numbers), prompt, most)
            self._dispatch(completion)
            return completion

    def restart(self, name: str, timeout: float = 120.0) -> None:
        """Starts a worker that is lost again, and waits until it takes requests. Raises ValueError
        if it lives, or its transport cannot add workers."""
        if self._transport in ("gloo", "sockets"):
            raise ValueError(f"{self._transport} connects the workers once: none can come back")
        with self._lock:
            if name not in self._workers or name in self._awaited:
                raise ValueError(f"{name} is not a worker that is lost")
            self._awaited.add(name)
        lost = self._processes[name]
        lost.kill()  # its connection is gone
        lost.wait()
        with self._lock:
            self._start(name)
        try:
            self._await_ready([name], timeout)
        except RuntimeError:
            self._processes[name].kill()  # if it has joined, its reader notices
            with self._lock:
                self._awaited.discard(name)
                if self._remotes.keys() == self._awaited:  # others wait for it no longer
                    self._connect_all()
            raise

    def abort(self, completion: Completion, cause: str) -> None:
        """Ends a completion, if it has not ended."""
        with self._lock:
            self._end(completion, FailedError("aborted", cause))

    def stats(self, timeout: float = 60.0) -> dict[str, dict[str, Any]]:
        """Asks all workers: jobs, blocks, free (blocks), bytes (of caches that they have sent),
        in_use (of hand-overs)."""
        with self._lock:
            number = next(self._numbers)
            asked = list(self._remotes)  # others may join meanwhile, and these be lost
            for name in asked:
                self._remotes[name].send("stats", number=number)

            def left() -> list[str]:
                return [name for name in asked if name in self._remotes]

            def have_come() -> bool:
                return all(
                    name in self._stats and self._stats[name]["number"] >= number for name in left()
                )

            if not self._changed.wait_for(have_come, timeout):
                raise TimeoutError(f"workers do not answer within {timeout:g} s")
            return {name: self._stats[name] for name in left()}

    def await_idle(self, timeout: float = 60.0) -> dict[str, dict[str, Any]]:
        """Waits until no worker has a job, and returns their stats then."""
        end = time.monotonic() + timeout
        while True:
            found = self.stats(timeout)
            if not any(one["jobs"] for one in found.values()):
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"workers still have jobs: {found}")
            time.sleep(0.02)

    def close(self) -> None:
        """Stops the workers."""
        with self._lock:
            self._is_closed = True
            for remote in self._remotes.values():
                remote.send("stop")
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._listener.close()
        self._folder.cleanup()

    # Workers.

    def _start(self, name: str) -> None:
        number, role, device = self._workers[name]
        address = self._hosts.address(number) if self._hosts else "127.0.0.1"
        command = [
            self._python, "-m", "worker", "--name", name, "--role", role, "--device", device,
            "--dtype", "float32" if device == "cpu" else "bfloat16", "--address", address,
            "--transport", self._transport, "--control", self._path, *self._options,
        ]  # fmt: skip
        environment = {**os.environ, "SERVING_KEY": self._key}
        if self._hosts:
            process = self._hosts.popen(number, command, environment, cwd=HERE)
        else:
            process = subprocess.Popen(command, env=environment, cwd=HERE, start_new_session=True)
        self._processes[name] = process
        self._awaited.add(name)

    def _await_ready(self, names: Iterable[str], timeout: float) -> None:
        """Waits until the workers take requests. Raises RuntimeError that names one that ended, or
        is late."""
        end = time.monotonic() + timeout
        with self._lock:
            for name in names:
                while not (name in self._remotes and self._remotes[name].is_ready):
                    has_ended = self._processes[name].poll() is not None
                    if has_ended or time.monotonic() > end:
                        late = f"has not started within {timeout:g} s"
                        raise RuntimeError(f"{name} {'has ended' if has_ended else late}")
                    self._changed.wait(0.2)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                control = self._listener.accept()
            except (OSError, EOFError):
                continue
            threading.Thread(target=self._read, args=(control,), daemon=True).start()

    def _read(self, control: Connection) -> None:
        """Handles one worker's messages until it is gone."""
        remote = writer = None
        try:
            while True:
                message = json.loads(control.recv_bytes())
                with self._lock:
                    if remote is None:
                        name = message["name"]
                        metadata, pid = message["metadata"], message["pid"]
                        role = self._workers[name][1]
                        remote = Remote(name, role, pid, metadata, control)
                        writer = threading.Thread(target=remote.write, daemon=True)
                        writer.start()
                        self._join(remote)
                    else:
                        self._handle(remote, message)
                    self._changed.notify_all()
        except (EOFError, OSError):
            with self._lock:
                if remote is not None:
                    self._lose(remote)
                self._changed.notify_all()
        if remote is not None and writer is not None:
            remote.outbox.put(None)
            writer.join()
        control.close()

    def _join(self, remote: Remote) -> None:
        self._remotes[remote.name] = remote
        if self._remotes.keys() == self._awaited:
            self._connect_all()

    def _connect_all(self) -> None:
        """Connects the workers to each other, once all that were started are here."""
        self._round += 1
        self._connecting = {*self._remotes}
        peers = {one.name: one.metadata for one in self._remotes.values()}
        for one in self._remotes.values():
            one.send("connect", peers=peers, round=self._round)

    def _end_connect(self, name: str) -> None:
        self._connecting.discard(name)
        if not self._connecting:
            for one in self._remotes.values():
                one.is_ready = True

    def _lose(self, remote: Remote) -> None:
        del self._remotes[remote.name]
        self._awaited.discard(remote.name)
        if self._is_closed:
            return
        self._end_connect(remote.name)
        for completion in list(self._live.values()):
            has_arrived = remote.role == "prefill" and "arrived" in completion.times
            if remote in completion.workers and not has_arrived:
                self._retry(completion, f"worker {remote.name} is lost")

    # Requests.

    def _handle(self, remote: Remote, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "stats":
            self._stats[remote.name] = message
        elif op == "connected":
            if message["round"] == self._round:
                self._end_connect(remote.name)
        elif (completion := self._live.get(message["id"])) is not None:
            if op == "token":
                self._take_token(completion, message["number"], message["token"])
            elif op == "failed" and message["kind"] == "refused":
                self._end(completion, FailedError("refused", message["cause"]))
            elif op == "failed":
                # After the cache has arrived, the prefill worker's end does not matter.
                if remote.role != "prefill" or "arrived" not in completion.times:
                    self._retry(completion, message["cause"])
            else:
                completion.times[op] = message["at"]
                if "sending" in message:
                    completion.times["sending"] = message["sending"]

    def _take_token(self, completion: Completion, number: int, token: int) -> None:
        if number < len(completion.tokens):  # it was computed before, by workers that are lost
            if completion.tokens[number] != token:
                cause = f"token {number} is {token}, and was {completion.tokens[number]} before"
                self._end(completion, FailedError("failed", cause))
            return
        completion.tokens.append(token)
        completion.events.put(token)
        if len(completion.tokens) == completion.most:
            self._end(completion, None)

    def _dispatch(self, completion: Completion) -> None:
        """Gives a completion to the least busy workers: two with different roles, or, if one role
        is missing or there is nothing to prefill, one for the whole."""
        ready = [one for one in self._remotes.values() if one.is_ready]
        remotes = sorted(ready, key=lambda one: (len(one.parts), one.name))
        if not remotes:
            raise FailedError("failed", "no worker is left")
        by_role = {one.role: one for one in reversed(remotes)}
        parts = {"whole": by_role.get("both") or by_role.get("decode") or remotes[0]}
        if {"prefill", "decode"} <= by_role.keys() and len(completion.prompt) > 1:
            parts = {"prefill": by_role["prefill"], "decode": by_role["decode"]}
        completion.times.clear()
        completion.workers = list(parts.values())
        self._live[completion.id] = completion
        for part, remote in parts.items():
            remote.parts.add(completion.id)
            peer = next((one.name for one in parts.values() if one is not remote), "")
            remote.send(
                "start", id=completion.id, part=part, peer=peer, prompt=list(completion.prompt),
                most=completion.most,
            )  # fmt: skip

    def _stop_attempt(self, completion: Completion, cause: str) -> None:
        self._live.pop(completion.id, None)
        for remote in completion.workers:
            remote.parts.discard(completion.id)
            if cause:
                remote.send("abort", id=completion.id, cause=cause)

    def _retry(self, completion: Completion, cause: str) -> None:
        """Computes a completion again, from its prompt."""
        self._stop_attempt(completion, cause)
        completion.attempt += 1
        if completion.attempt == MOST_ATTEMPTS:
            self._end(completion, FailedError("failed", cause))
            return
        try:
            self._dispatch(completion)
        except FailedError as error:
            self._end(completion, FailedError("failed", f"{cause}, and {error}"))

    def _end(self, completion: Completion, failure: FailedError | None) -> None:
        if completion.is_over:
            return
        completion.is_over = True
        self._stop_attempt(completion, str(failure) if failure else "")
        if failure is not None:
            completion.events.put(failure)


def tokens_of(completion: Completion) -> Iterator[int]:
    """Waits for all tokens. Raises FailedError."""
    for _ in range(completion.most):
        yield completion.next()
