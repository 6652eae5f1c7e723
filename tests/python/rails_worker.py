"""One rank of test_rails.py: times of collectives over the rails of emulated hosts, with checks.

    python tests/python/rails_worker.py BYTES CALLS [COLLECTIVE]

Rank 0 prints JSON: seconds of each call, by collective, and how many bytes must leave each host.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable

from hetccl import Communicator
from hetccl.rendezvous import init_from_launcher

HOSTS = 2
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")


def calls_of(
    comm: Communicator, size: int
) -> dict[str, tuple[Callable[[], None], Callable[[], None], int]]:
    """By name: a call, a check of its result, and the bytes that leave each host, about `size`."""
    ranks, rank = comm.size, comm.rank
    part = size * HOSTS // 4 // ranks  # elements that each rank has of an all-gather
    summed = array("f", [1.0 + rank]) * (size // 4)
    sums = array("f", bytes(size // 4 * 4))
    mine = array("f", [1.0 + rank]) * part
    gathered = array("f", bytes(4 * part * ranks))
    block = part * HOSTS // ranks  # elements that each rank sends to each other
    sent = array("f", [1.0 + rank]) * (block * ranks)
    got = array("f", bytes(4 * block * ranks))
    blocks = [1.0 + one for one in range(ranks)]

    def check(result: array[float], values: list[float]) -> None:
        part = len(result) // len(values)
        for one, value in enumerate(values):
            block = result[one * part : (one + 1) * part]
            assert block[0] == block[part // 2] == block[-1] == value, "a wrong value"

    return {
        "all_reduce": (
            lambda: comm.all_reduce(summed, sums),
            lambda: check(sums, [sum(blocks)]),
            4 * len(sums),
        ),
        "all_gather": (
            lambda: comm.all_gather(mine, gathered),
            lambda: check(gathered, blocks),
            4 * len(gathered) // HOSTS,
        ),
        "all_to_all": (
            lambda: comm.all_to_all(sent, got),
            lambda: check(got, blocks),
            4 * len(got) * (ranks // HOSTS) // HOSTS,
        ),
    }


def main() -> None:
    size, n_calls = int(sys.argv[1]), int(sys.argv[2])
    only = sys.argv[3:] or COLLECTIVES
    result = {}
    with init_from_launcher() as comm:
        known = calls_of(comm, size)
        for name in only:
            call, check, leaving = known[name]
            seconds = []
            for _ in range(n_calls + 1):
                comm.barrier()
                started = time.perf_counter()
                call()
                comm.barrier()
                seconds.append(time.perf_counter() - started)
                check()
            result[name] = {"seconds": seconds[1:], "leaving": leaving, "calls": n_calls + 1}
        if comm.rank == 0:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
