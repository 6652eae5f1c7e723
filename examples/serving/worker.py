"""A worker: an engine, and one end of a hand-over. The router (router.py) starts it and talks JSON
to it.

Role "prefill" computes prompts for other workers, "decode" continues them, and "both" does all of
it. Each request says which part of it a worker does, so a decode worker can also do a whole request
when no prefill worker is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import torch
from baselines import Gloo, Sockets
from engine import Engine, Request
from handover import Ended, Endpoints, Handover
from model import SHAPES, Model

import hetccl
from hetccl import kv

IDLE_SECONDS = 0.001
# The ways to move a cache: drive.py and front.py take these names; "none" moves nothing.
TRANSPORTS: dict[str, Any] = {
    "hetccl": Endpoints,
    "hetccl-whole": functools.partial(Endpoints, by_layer=False),
    "hetccl-int8": functools.partial(Endpoints, encoding="int8"),
    "sockets": Sockets,
    "gloo": Gloo,
}


@dataclasses.dataclass(eq=False)
class Job:
    """A request here. `part` is "whole", "prefill" or "decode", with `peer` for the other part.
    `owner` of its blocks: "" before it has any, "handover" or "engine"."""

    request: Request
    part: str
    peer: str
    owner: str = ""
    sending: float = 0.0
    is_begun: bool = False


class Worker:
    """Runs one engine. Times are of this machine's monotonic clock."""

    def __init__(self, options: argparse.Namespace, control: Connection) -> None:
        self._control, self._name = control, options.name
        self._jobs: dict[str, Job] = {}
        model = Model(
            SHAPES[options.shape], options.device, getattr(torch, options.dtype), rows=options.rows
        )
        self._engine = Engine(model, options.blocks, options.block_size, options.chunk)
        self._handover: Handover | None = None
        arguments = (options.name, options.role, self._engine.cache)
        if options.transport.startswith("hetccl"):
            self._handover = TRANSPORTS[options.transport](*arguments, options.shape, self._release)
        elif options.transport != "none":
            make = TRANSPORTS[options.transport]
            self._handover = make(*arguments, self._release, options.address)

    def run(self) -> None:
        """Works until the router says stop, or is gone."""
        self._send(
            "ready", name=self._name, pid=os.getpid(),
            metadata=self._handover.metadata() if self._handover else "",
        )  # fmt: skip
        is_busy = False
        while True:
            while self._control.poll(0 if is_busy else IDLE_SECONDS):
                message = json.loads(self._control.recv_bytes())
                if message["op"] == "stop":
                    return
                self._take(message)
                is_busy = True
            for ended in self._handover.poll() if self._handover else ():
                self._end_handover(ended)
            is_busy = self._step()

    def close(self) -> None:
        """Leaves the other workers."""
        if self._handover:
            self._handover.close()

    def _send(self, op: str, **values: Any) -> None:
        self._control.send_bytes(json.dumps({"op": op, **values}).encode())

    def _take(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "start":
            self._start(message)
        elif op == "abort" and message["id"] in self._jobs:
            self._abort(self._jobs[message["id"]], message["cause"])
        elif op == "connect":
            try:
                if self._handover:
                    self._handover.connect(message["peers"])
            except OSError as error:  # a peer that has just died
                print(f"{self._name}: {error}", file=sys.stderr)
            self._send("connected", round=message["round"])
        elif op == "stats":
            pool = self._engine.pool
            self._send(
                "stats", number=message["number"], jobs=len(self._jobs), blocks=pool.count,
                free=pool.n_free, bytes=self._handover.bytes_sent if self._handover else 0,
                in_use=self._handover.in_use if self._handover else {},
            )  # fmt: skip

    def _start(self, message: dict[str, Any]) -> None:
        request = Request(message["id"], message["prompt"], message["most"])
        job = Job(request, message["part"], message["peer"])
        try:
            self._engine.submit(request, decodes=job.part != "prefill")
        except ValueError as error:
            self._send("failed", id=request.id, kind="refused", cause=str(error))
            return
        self._jobs[request.id] = job

    def _abort(self, job: Job, cause: str) -> None:
        self._engine.drop(job.request)
        if job.owner == "handover" and self._handover:
            self._handover.abort(job.request.id, cause)  # it releases the blocks, and ends the job
            return
        if job.owner == "engine":
            if self._engine.cache.is_cuda:  # its work may still write there
                torch.cuda.synchronize(self._engine.cache.device)
            self._engine.pool.free(job.request.table)
        del self._jobs[job.request.id]

    def _release(self, request: str, blocks: Sequence[int]) -> None:
        self._engine.pool.free(blocks)

    def _step(self) -> bool:
        """Takes requests in, prefills a chunk, decodes a token of a batch. Returns whether there
        was anything to do."""
        for request in self._engine.admit():
            self._admit(self._jobs[request.id])
        ready = self._engine.prefill(self._computed)
        if ready is not None:
            self._end_prefill(self._jobs[ready.id])
        for request in self._engine.next_decoded():
            job = self._jobs[request.id]
            if not job.is_begun:
                job.is_begun = True
                self._send("decoding", id=request.id, at=time.monotonic())
        decoded = self._engine.decode()
        for request in decoded:
            number = len(request.answer) - 1
            self._send("token", id=request.id, number=number, token=request.answer[-1])
            if len(request.answer) == request.most:
                del self._jobs[request.id]
        return ready is not None or bool(decoded) or self._engine.is_prefilling

    def _admit(self, job: Job) -> None:
        request = job.request
        job.owner = "engine" if job.part == "whole" else "handover"
        if job.part == "whole":
            self._engine.start_prefill(request)
            return
        assert self._handover is not None
        try:
            arguments = (request.id, request.table, request.n_prefill, job.peer)
            if job.part == "prefill":
                self._handover.begin(*arguments)
                self._engine.start_prefill(request)
            else:
                self._handover.expect(*arguments)
        except (hetccl.HetcclError, kv.KvError) as error:
            self._engine.pool.free(request.table)
            self._fail(job, str(error))

    def _computed(self, request: Request, layer: int, tokens: tuple[int, int]) -> None:
        job = self._jobs[request.id]
        if job.part == "prefill" and self._handover:
            job.sending = job.sending or time.monotonic()
            self._handover.computed(request.id, layer, tokens)

    def _end_prefill(self, job: Job) -> None:
        if job.part == "whole":
            self._engine.start_decode(job.request)
            return
        assert self._handover is not None
        self._await_device()
        if self._jobs.get(job.request.id) is not job:
            return  # its hand-over has failed meanwhile
        now = time.monotonic()
        sending = job.sending if self._handover.by_layer else now
        self._send("prefilled", id=job.request.id, at=now, sending=sending)
        self._handover.commit(job.request.id)

    def _await_device(self) -> None:
        """Waits for the work of a GPU, which computes while layers before are sent."""
        if not self._engine.cache.is_cuda:
            return
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self._engine.cache.device))
        while not done.query():
            for ended in self._handover.poll() if self._handover else ():
                self._end_handover(ended)

    def _end_handover(self, ended: Ended) -> None:
        job = self._jobs[ended.request]
        if ended.cause:
            self._engine.drop(job.request)
            self._fail(job, ended.cause)
        elif job.part == "prefill":
            del self._jobs[ended.request]
        else:
            job.owner = "engine"
            self._send("arrived", id=ended.request, at=time.monotonic())
            self._engine.start_decode(job.request)

    def _fail(self, job: Job, cause: str) -> None:
        del self._jobs[job.request.id]
        self._send("failed", id=job.request.id, kind="handover", cause=cause)


def parser() -> argparse.ArgumentParser:
    """Returns the options, which the router gives."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--name", required=True)
    made.add_argument("--role", choices=["prefill", "decode", "both"], required=True)
    made.add_argument("--control", required=True, help="path of the router's socket")
    made.add_argument("--address", default="127.0.0.1", help="of this worker, for its peers")
    made.add_argument("--transport", choices=[*TRANSPORTS, "none"], default="none")
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="float32")
    made.add_argument("--shape", choices=SHAPES, default="tiny")
    made.add_argument("--blocks", type=int, default=512, help="of the cache")
    made.add_argument("--block-size", type=int, default=16, help="tokens")
    made.add_argument("--chunk", type=int, default=256, help="most tokens of a prefill step")
    made.add_argument("--rows", type=int, default=8, help="most requests of a decode step")
    made.add_argument("--threads", type=int, default=1, help="of the CPU's matrix products")
    return made


def main() -> None:
    """Runs a worker."""
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    faulthandler.register(signal.SIGUSR1)  # prints what each thread does
    key = os.environ["SERVING_KEY"].encode()
    worker = Worker(options, Client(options.control, authkey=key))
    try:
        worker.run()
        worker.close()
    except (EOFError, ConnectionError):
        sys.stderr.write(f"{options.name}: the router is gone\n")
    sys.stderr.flush()
    os._exit(0)  # threads of Gloo wait for peers, and would keep the process


if __name__ == "__main__":
    main()
