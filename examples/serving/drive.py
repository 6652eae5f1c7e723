"""Starts workers and a front, sends requests with Poisson arrivals, and prints a table.

    python drive.py --workers prefill@cpu,decode@cpu --transport hetccl --requests 100 --rate 2
    python drive.py --transport none,gloo,sockets,hetccl --hosts 1gbit --shape small

Each transport runs alone with the same requests; "none" is one worker that does all. All tokens are
compared with those of one engine in this process. Options of worker.py (--rows, --chunk, ...) go to
the workers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import importlib.util
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import worker
from baselines import gather, scatter
from engine import Engine, Request, complete
from front import Front
from model import SHAPES, Model
from results import Result, Run, plot, table
from router import Router, parse_workers

from hetccl.hosts import EmulatedHosts

_HANG_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A request, `at` seconds after the start."""

    at: float
    prompt: list[int]
    most: int


def make_trace(options: argparse.Namespace) -> list[Arrival]:
    """Returns the requests: their times, lengths and tokens follow from the seed."""
    chance, at = random.Random(options.seed), 0.0
    found = []
    for _ in range(options.requests):
        at += chance.expovariate(options.rate)
        n_prompt, most = chance.randint(*options.prompt), chance.randint(*options.answer)
        vocabulary = SHAPES[options.shape].vocabulary
        found.append(Arrival(at, [chance.randrange(vocabulary) for _ in range(n_prompt)], most))
    return found


def ask(port: int, arrival: Arrival, result: Result) -> None:
    """Sends a request at its time and notes its tokens."""
    time.sleep(max(0.0, result.due - time.monotonic()))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_HANG_SECONDS)
    try:
        body = {"prompt": arrival.prompt, "max_tokens": arrival.most, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        for line in connection.getresponse():
            if not line.strip() or line.startswith(b"data: [DONE]"):
                continue
            told = json.loads(line.removeprefix(b"data: "))
            if "error" in told:
                result.error = told["error"]["message"]
                return
            result.at.append(time.monotonic())
            result.tokens += told["choices"][0]["token_ids"]
            if "serving" in told:
                result.times, result.error = told["serving"]["times"], ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        result.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def run(router: Router, transport: str, trace: Sequence[Arrival]) -> Run:
    """Sends all requests of a trace to a router's workers."""
    with Front(("127.0.0.1", 0), router) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        for arrival in trace[:2]:  # the first requests of a process take longer
            ask(front.server_port, arrival, Result(0.0, 0))
        before = sum(one["bytes"] for one in router.await_idle().values())
        start = time.monotonic() + 0.1
        results = [Result(start + one.at, len(one.prompt)) for one in trace]
        clients = [
            threading.Thread(target=ask, args=(front.server_port, arrival, result))
            for arrival, result in zip(trace, results, strict=True)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        front.shutdown()
    stats = router.await_idle()
    for name, one in stats.items():
        if one["free"] != one["blocks"]:
            raise RuntimeError(f"{name} has lost {one['blocks'] - one['free']} blocks")
    return Run(transport, results, sum(one["bytes"] for one in stats.values()) - before)


def reference(options: argparse.Namespace, trace: Sequence[Arrival]) -> list[list[int]]:
    """Returns the tokens of one engine in this process. With unlike devices, one engine prefills
    and another one decodes, and the cache is copied by torch."""
    devices = {role: device for _, role, device in parse_workers(options.workers)}
    decode = devices.get("decode") or devices["both"]
    prefill = devices.get("prefill", decode)
    torch.set_num_threads(options.engine.threads)
    requests = [Request(str(i), one.prompt, one.most) for i, one in enumerate(trace)]
    engine = make_engine(options, decode)
    if prefill == decode:
        return complete(engine, requests)
    other = make_engine(options, prefill)
    for one in requests:
        engine.submit(one)
        engine.admit()
        twin = Request(one.id, one.prompt, one.most)
        other.submit(twin, decodes=False)
        other.admit()
        other.start_prefill(twin)
        while other.prefill(lambda *_: None) is None:
            pass
        scatter(engine.cache, one.table, gather(other.cache, twin.table, one.n_prefill))
        other.pool.free(twin.table)
        engine.start_decode(one)
        while not engine.is_idle:
            engine.decode()
    return [one.answer for one in requests]


def make_engine(options: argparse.Namespace, device: str) -> Engine:
    """Returns an engine like the workers'."""
    one = options.engine
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = Model(SHAPES[options.shape], device, dtype, rows=one.rows)
    return Engine(model, one.blocks, one.block_size, one.chunk)


def workers_of(options: argparse.Namespace, transport: str) -> str:
    """Returns the workers of a transport: for "none", one that does all, on the decode's device."""
    listed = parse_workers(options.workers)
    if transport != "none":
        return str(options.workers)
    return f"both@{next((d for _, role, d in listed if role != 'prefill'), listed[0][2])}"


def span(text: str) -> tuple[int, int]:
    """Reads "64:512"."""
    low, high = map(int, text.split(":"))
    if not 1 <= low <= high:
        raise ValueError(f"{text} is no span")
    return low, high


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the options; `engine` are those of the workers, and `rest` their text."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--workers", default="prefill@cpu,decode@cpu")
    made.add_argument("--transport", default="hetccl", help=", ".join([*worker.TRANSPORTS, "none"]))
    made.add_argument("--requests", type=int, default=100)
    made.add_argument("--rate", type=float, default=2.0, help="requests a second, on average")
    made.add_argument("--prompt", type=span, default=(64, 384), help="tokens, as LOW:HIGH")
    made.add_argument("--answer", type=span, default=(8, 32), help="tokens, as LOW:HIGH")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--shape", choices=SHAPES, default="tiny")
    made.add_argument(
        "--hosts", nargs="?", const="1gbit", metavar="RATE",
        help="emulate a host for each worker, with a link of this rate (takes root)",
    )  # fmt: skip
    made.add_argument("--no-check", action="store_true", help="compare no tokens")
    made.add_argument("--plot", metavar="FILE", help="draw a page of plots (takes matplotlib)")
    options, rest = made.parse_known_args(arguments)
    options.rest = ["--shape", options.shape, *rest]
    given = ["--name", "-", "--role", "both", "--control", "-", *options.rest]
    options.engine = worker.parser().parse_args(given)
    options.transports = options.transport.split(",")
    for name in options.transports:
        if name not in worker.TRANSPORTS and name != "none":
            made.error(f"there is no transport {name}")
    try:
        parse_workers(options.workers)
    except ValueError as error:
        made.error(str(error))
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        made.error("--plot takes matplotlib, which is not installed: pip install matplotlib")
    if options.hosts and (reason := EmulatedHosts.unavailable()):
        made.error(f"--hosts: {reason}")
    return options


def main() -> int:
    """Runs all transports; 1 if a request failed, or tokens of a lossless one differ."""
    options = parse(sys.argv[1:])
    trace = make_trace(options)
    runs = []
    for transport in options.transports:
        workers = workers_of(options, transport)
        with contextlib.ExitStack() as stack:
            hosts = None
            if options.hosts:
                n_hosts = len(parse_workers(workers))
                hosts = stack.enter_context(EmulatedHosts(n_hosts, rate=options.hosts))
            router = stack.enter_context(Router(workers, transport, options.rest, hosts=hosts))
            runs.append(run(router, transport, trace))
        for result in runs[-1].results:
            if result.error:
                print(f"{transport}: a request failed: {result.error}", file=sys.stderr)
    wanted = None if options.no_check else reference(options, trace)
    print(table(runs, wanted))
    if options.plot:
        plot(runs, options.plot)
        print(f"plots: {Path(options.plot).resolve()}", file=sys.stderr)
    exact = [one for one in runs if one.transport != "hetccl-int8"]
    is_equal = wanted is None or all(
        [result.tokens for result in one.results] == wanted for one in exact
    )
    has_failed = any(result.error for one in runs for result in one.results)
    return 0 if is_equal and not has_failed else 1


if __name__ == "__main__":
    sys.exit(main())
