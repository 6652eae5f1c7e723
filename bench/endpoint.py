"""Endpoints: blocks put and got between two processes, beside what carries them at best.

    python endpoint.py [--devices host,host] [--apart] [--sizes 16384,65536,1048576]

`--devices`: of the two ends, "host" or "cuda:0". `--apart`: as if they were on two hosts, over TCP.
The best, of the same run: on one host a copy of memory, or a GPU's copies out and in through pinned
memory; over TCP plain streams, as many as a channel has.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import socket
import statistics
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import torch

import hetccl
from hetccl.endpoint import Blocks, Endpoint

TOTAL = 256 << 20
REPEATS = 5


def memory_on(device: str, size: int) -> torch.Tensor:
    """Zeros there."""
    return torch.zeros(size, dtype=torch.uint8, device="cpu" if device == "host" else device)


def serve(pipe: Connection, device: str, host: str) -> None:
    """The other end: registers memory twice as long as what moves, and tells its sums."""
    os.environ["HETCCL_HOSTID"] = host
    if device != "host":
        torch.cuda.set_device(device)
    with Endpoint("decode", device) as endpoint:
        memory = memory_on(device, 2 * TOTAL)
        endpoint.register(memory, "memory")
        pipe.send(endpoint.metadata())
        while (asked := pipe.recv()) is not None:
            value = asked
            if value >= 0:
                memory.fill_(value)
            if device != "host":
                torch.cuda.synchronize()
            pipe.send(int(memory.sum(dtype=torch.int64)))


def rows_of(size: int, local: int, remote: int) -> Any:
    """Blocks of `size` bytes, every second one of either memory, the remote ones in any order."""
    n = min(TOTAL // size, 16384)
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


def stream_limit(streams: int) -> float:
    """Bytes a second of plain TCP streams over loopback, by threads of two processes."""

    def drain(sink: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        while sink.recv_into(buffer):
            pass

    def read(port: int) -> None:
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


def measure(arguments: argparse.Namespace) -> None:
    """Prints the table of one pair."""
    devices = arguments.devices.split(",")
    hosts = ("a", "b") if arguments.apart else ("a", "a")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=serve, args=(theirs, devices[1], hosts[1]), daemon=True)
    limit = stream_limit(4) if arguments.apart else copy_limit(devices)
    other.start()
    os.environ["HETCCL_HOSTID"] = hosts[0]
    if devices[0] != "host":
        torch.cuda.set_device(devices[0])
    with Endpoint("prefill", devices[0]) as endpoint:
        memory = memory_on(devices[0], 2 * TOTAL)
        region = endpoint.register(memory)
        peer = endpoint.connect(ours.recv())
        how = peer.state()["transport"]
        print(f"{devices[0]} -> {devices[1]}, {how}; at best {limit / 1e9:.2f} GB/s")
        print(f"{'':6} {'block':>10} {'blocks':>7} {'GB/s':>8} {'of best':>8} {'us a block':>11}")
        for size in arguments.sizes:
            rows = rows_of(size, region.id, peer.region("memory"))
            blocks, n = Blocks(endpoint, rows), len(rows)
            for kind in ("put", "get"):
                check(kind, endpoint, peer, blocks, memory, ours, n * size)
                took = seconds_of(functools.partial(move, endpoint, kind, peer, blocks))
                rate = n * size / took
                print(
                    f"{kind:6} {size:10} {n:7} {rate / 1e9:8.2f} {rate / limit:8.2f} "
                    f"{took / n * 1e6:11.2f}"
                )
        one = Blocks(endpoint, [(region.id, 0, peer.region("memory"), 0, 8)])
        for kind in ("put", "get"):
            times = []
            for _ in range(1000):
                began = time.perf_counter()
                move(endpoint, kind, peer, one)
                times.append(time.perf_counter() - began)
            print(f"{kind:6} {8:10} {1:7} median {statistics.median(times) * 1e6:.1f} us")
        ours.send(None)
    other.join()


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
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--sizes", default="16384,65536,1048576,16777216")
    arguments = parser.parse_args()
    arguments.sizes = [int(size) for size in arguments.sizes.split(",")]
    print(f"hetccl {'.'.join(map(str, hetccl.version()))}, {os.cpu_count()} cores")
    measure(arguments)


if __name__ == "__main__":
    main()
