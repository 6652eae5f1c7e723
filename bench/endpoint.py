"""Endpoints: blocks put and got between two processes, beside what carries them at best.

    python endpoint.py [--devices host,host] [--apart | --link 1gbit] [--sizes 16384,65536,1048576]
                       [--pin]

`--pin`: each end, of the plain streams too, has a core of its own: what is compared then is work.
`--devices`: of the two ends, "host" or "cuda:0". `--apart`: as if they were on two hosts, over TCP
and loopback. `--link`: on two emulated hosts, joined by a link of that rate (root only).
The best, of the same run: on one host a copy of memory, or a GPU's copies out and in through pinned
memory; over TCP as many plain streams as a channel has, each with a thread at either end, from and
into memory of the same length; with `--link` the link's rate. HETCCL_TCP_THREADS tells how many
threads move a channel's streams, beside the engine's: an eighth of the cores, or what is set.
Short transfers stand beside a ping: 8 bytes there and back by a communicator of both ends, between
the same memories and over the same transport.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
from places import finish

import hetccl
from hetccl.endpoint import Blocks, Endpoint
from hetccl.hosts import INTERFACE, EmulatedHosts

TOTAL = 256 << 20
TOTAL_BY_LINK = 32 << 20
REPEATS = 5
PINGS = 1000
LONGEST = 600.0  # seconds


def memory_on(device: str, size: int) -> torch.Tensor:
    """Zeros there."""
    return torch.zeros(size, dtype=torch.uint8, device="cpu" if device == "host" else device)


def ping(uid: bytes, rank: int, device: str) -> list[float]:
    """Seconds of 8 bytes there and back between two ranks' memories, both in calls."""
    data = memory_on(device, 8)
    times = []
    with hetccl.Communicator(uid, rank, 2, device=device) as communicator:
        for _ in range(PINGS):
            began = time.perf_counter()
            if rank == 0:
                communicator.send(data, 1)
                communicator.recv(data, 1)
            else:
                communicator.recv(data, 0)
                communicator.send(data, 0)
            if device != "host":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
    return times


def serve(arguments: argparse.Namespace, pipe: Connection) -> None:
    """The other end: registers memory twice as long as what moves, and tells its sums."""
    device = arguments.devices.split(",")[1]
    if device != "host":
        torch.cuda.set_device(device)
    with Endpoint("decode", device) as endpoint:
        memory = memory_on(device, 2 * arguments.total)
        endpoint.register(memory, "memory")
        pipe.send(endpoint.metadata())
        ping(pipe.recv(), 1, device)
        while (asked := pipe.recv()) is not None:
            value = asked
            if value >= 0:
                memory.fill_(value)
            if device != "host":
                torch.cuda.synchronize()
            pipe.send(int(memory.sum(dtype=torch.int64)))


def rows_of(size: int, total: int, local: int, remote: int) -> Any:
    """Blocks of `size` bytes, every second one of either memory, the remote ones in any order."""
    n = min(total // size, 16384)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
    rows = torch.zeros((n, 5), dtype=torch.int64)
    rows[:, 0], rows[:, 2], rows[:, 4] = local, remote, size
    rows[:, 1], rows[:, 3] = torch.arange(n) * 2 * size, order * 2 * size
    return rows.numpy()


def move(endpoint: Endpoint, kind: str, peer: Any, blocks: Blocks) -> None:
    """Puts or gets them, and waits."""
    getattr(endpoint, kind)(peer, blocks).wait(60)


def seconds_of(action: Any) -> float:
    """The median of some calls."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def seconds_beside(
    endpoint: Endpoint, kind: str, peer: Any, blocks: Blocks, one: Blocks
) -> list[float]:
    """Seconds of moving `one` while `blocks` are being moved the same way."""
    times = []
    for _ in range(REPEATS):
        long = getattr(endpoint, kind)(peer, blocks)
        while not long.done():
            began = time.perf_counter()
            move(endpoint, kind, peer, one)
            times.append(time.perf_counter() - began)
        long.wait(60)
    return times


def n_streams() -> int:
    """How many a channel has over loopback."""
    return max(2, int(os.environ["HETCCL_TCP_THREADS"]) + 1)


def stream_limit(streams: int, pin: bool) -> float:
    """Bytes a second of plain TCP streams over loopback, by threads of two processes."""

    def drain(sink: socket.socket) -> None:
        part = memoryview(bytearray(TOTAL // streams))
        at = 0
        while n := sink.recv_into(part[at:]):
            at = (at + n) % len(part)

    def read(port: int) -> None:
        if pin:
            os.sched_setaffinity(0, {1})
        threads = []
        for _ in range(streams):
            threads.append(
                threading.Thread(
                    target=drain, args=(socket.create_connection(("127.0.0.1", port)),)
                )
            )
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with socket.create_server(("", 0)) as listener:
        reader = multiprocessing.get_context("fork").Process(
            target=read, args=(listener.getsockname()[1],)
        )
        reader.start()
        ends = [listener.accept()[0] for _ in range(streams)]
        part = bytes(TOTAL // streams)

        def send() -> None:
            threads = [threading.Thread(target=end.sendall, args=(part,)) for end in ends]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        took = seconds_of(send)
        for end in ends:
            end.close()
        reader.join()
    return TOTAL / took


def copy_limit(devices: list[str]) -> float:
    """Bytes a second by copies, of a GPU through pinned memory."""
    gpus = [device for device in devices if device != "host"]
    if not gpus:
        source, target = memory_on("host", TOTAL), memory_on("host", TOTAL)
        return TOTAL / seconds_of(lambda: target.copy_(source))
    rates = []
    pinned = torch.empty(TOTAL, dtype=torch.uint8, pin_memory=True)
    for gpu in gpus:
        memory = memory_on(gpu, TOTAL)
        for source, target in ((memory, pinned), (pinned, memory)):

            def copy(source: torch.Tensor = source, target: torch.Tensor = target) -> None:
                target.copy_(source)
                torch.cuda.synchronize()

            rates.append(TOTAL / seconds_of(copy))
    return min(rates)


def measure(arguments: argparse.Namespace, ours: Connection) -> None:
    """Prints the table of one pair."""
    devices = arguments.devices.split(",")
    limit = arguments.limit
    if not limit:
        limit = stream_limit(n_streams(), arguments.pin) if arguments.apart else copy_limit(devices)
    if devices[0] != "host":
        torch.cuda.set_device(devices[0])
    with Endpoint("prefill", devices[0]) as endpoint:
        memory = memory_on(devices[0], 2 * arguments.total)
        region = endpoint.register(memory)
        peer = endpoint.connect(ours.recv())
        how = peer.state()["transport"]
        how += f", {n_streams()} streams" if how == "tcp" else ""
        print(f"{devices[0]} -> {devices[1]}, {how}; at best {limit / 1e9:.3f} GB/s")
        print(f"{'':6} {'block':>10} {'blocks':>7} {'GB/s':>8} {'of best':>8} {'us a block':>11}")
        uid = hetccl.unique_id()
        ours.send(uid)
        round_trip = statistics.median(ping(uid, 0, devices[0]))
        for size in arguments.sizes:
            rows = rows_of(size, arguments.total, region.id, peer.region("memory"))
            blocks, n = Blocks(endpoint, rows), len(rows)
            for kind in ("put", "get"):
                check(kind, endpoint, peer, blocks, memory, ours, n * size)
                took = seconds_of(functools.partial(move, endpoint, kind, peer, blocks))
                rate = n * size / took
                print(
                    f"{kind:6} {size:10} {n:7} {rate / 1e9:8.3f} {rate / limit:8.2f} "
                    f"{took / n * 1e6:11.2f}"
                )
        one = Blocks(endpoint, [(region.id, 0, peer.region("memory"), 0, 8)])
        for kind in ("put", "get"):
            times = []
            for _ in range(PINGS):
                began = time.perf_counter()
                move(endpoint, kind, peer, one)
                times.append(time.perf_counter() - began)
            median = statistics.median(times)
            print(
                f"{kind:6} {8:10} {1:7} median {median * 1e6:.1f} us, of a ping of "
                f"{round_trip * 1e6:.1f} us: {median / round_trip:.2f}"
            )
        for kind in ("put", "get"):
            beside = statistics.median(seconds_beside(endpoint, kind, peer, blocks, one))
            print(
                f"{kind:6} {8:10} {1:7} median {beside * 1e6:.1f} us, beside {n} blocks of {size}"
            )
        ours.send(None)


def start_ends(arguments: argparse.Namespace, hosts: EmulatedHosts | None) -> None:
    """Runs both ends, each in a process of its own, and waits for them."""
    own = [
        sys.executable, __file__, f"--devices={arguments.devices}", f"--sizes={arguments.sizes}",
        f"--total={TOTAL_BY_LINK if hosts else TOTAL}", *(["--apart"] if arguments.apart else []),
        *(["--pin"] if arguments.pin else []),
    ]  # fmt: skip
    workers = []
    threads = min(len(os.sched_getaffinity(0)) // 8, 4)
    for end, pipe in enumerate(multiprocessing.Pipe()):
        command = [*own, f"--end={end}", f"--pipe={pipe.fileno()}"]
        environment = {
            "HETCCL_HOSTID": "ab"[end] if arguments.apart or hosts else "a",
            "HETCCL_TCP_THREADS": os.environ.get("HETCCL_TCP_THREADS", str(threads)),
        }
        if hosts is None:
            started = subprocess.Popen(
                command, env={**os.environ, **environment}, pass_fds=[pipe.fileno()]
            )
        else:
            rate = float(hosts.card_mbps().rpartition("=")[2]) * 1e6 / 8
            environment["HETCCL_SOCKET_IFNAME"] = f"={INTERFACE}"
            environment["HETCCL_CARD_MBPS"] = hosts.card_mbps()
            started = hosts.popen(
                end, [*command, f"--limit={rate}"], environment, pass_fds=[pipe.fileno()]
            )
        pipe.close()
        workers.append(started)
    finish(workers, "endpoints", LONGEST)


def check(
    kind: str,
    endpoint: Endpoint,
    peer: Any,
    blocks: Blocks,
    memory: torch.Tensor,
    pipe: Connection,
    moved: int,
) -> None:
    """Moves them once, and looks at the sum of what came."""
    puts = kind == "put"
    memory.fill_(3 if puts else 0)
    if memory.is_cuda:
        torch.cuda.synchronize()
    pipe.send(0 if puts else 3)
    pipe.recv()
    move(endpoint, kind, peer, blocks)
    if puts:
        pipe.send(-1)
        total = pipe.recv()
    else:
        total = int(memory.sum(dtype=torch.int64))
    if total != 3 * moved:
        raise SystemExit(f"{kind}: the sum is {total}, not {3 * moved}")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", default="host,host")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--apart", action="store_true")
    where.add_argument("--link", metavar="RATE")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--sizes", default="16384,65536,1048576,16777216")
    for name, kind in {"end": int, "pipe": int, "total": int, "limit": float}.items():
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)  # for its own processes
    arguments = parser.parse_args()
    if arguments.end is None:
        version = ".".join(map(str, hetccl.version()))
        print(f"hetccl {version}, {os.cpu_count()} cores", flush=True)
        if arguments.link is None:
            start_ends(arguments, None)
        else:
            with EmulatedHosts(2, arguments.link) as hosts:
                start_ends(arguments, hosts)
        return
    if arguments.pin:
        os.sched_setaffinity(0, {arguments.end})
    arguments.sizes = [int(size) for size in arguments.sizes.split(",")]
    (serve if arguments.end else measure)(arguments, Connection(arguments.pipe))


if __name__ == "__main__":
    main()
