"""One rank of `make bench`: times torch.distributed collectives of one backend, and checks them.

Takes RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment; rank 0 prints JSON.
Times are the slowest rank's, per repeat. ``bytes`` is the whole buffer: the reduced tensor, the
gathered one, the input of reduce_scatter and of all_to_all, the root's tensor of broadcast.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

WARM_UPS = 2
IDLE_SECONDS = 2.0
SMALL_BYTES = 4096


class Case:
    """A collective over `count` float32: how to fill, run and check it with exact values."""

    def __init__(self, count: int) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.count = count // self.world * self.world
        self.full = torch.empty(self.count)
        self.part = torch.empty(self.count // self.world)
        self.other = torch.empty(self.count)
        # Small integers: sums over ranks are exact in float32, whatever the order.
        self.pattern = torch.arange(self.count, dtype=torch.float32).remainder_(1021)

    def shard(self, rank: int) -> slice:
        """Rank's part of the whole buffer."""
        return slice(rank * len(self.part), (rank + 1) * len(self.part))

    def ranks_sum(self) -> Tensor:
        """Returns the sum of (pattern + rank) over all ranks."""
        return self.pattern * self.world + self.world * (self.world - 1) // 2

    def fill(self, name: str) -> None:
        """Sets the inputs."""
        if name == "all_gather_into_tensor":
            self.part.copy_(self.pattern[self.shard(self.rank)] + self.rank)
            self.full.fill_(-1)
        else:
            torch.add(self.pattern, self.rank, out=self.full)
            self.part.fill_(-1)

    def run(self, name: str) -> None:
        """Runs one collective, and waits until it is complete."""
        if name == "all_reduce":
            dist.all_reduce(self.full)
        elif name == "all_gather_into_tensor":
            dist.all_gather_into_tensor(self.full, self.part)
        elif name == "reduce_scatter_tensor":
            dist.reduce_scatter_tensor(self.part, self.full)
        elif name == "all_to_all_single":
            dist.all_to_all_single(self.other, self.full)
        else:
            dist.broadcast(self.full, 0)

    def right(self, name: str) -> bool:
        """Returns whether this rank's result is exact after fill and run."""
        if name == "all_reduce":
            return torch.equal(self.full, self.ranks_sum())
        if name == "all_gather_into_tensor":
            shards = (self.pattern[self.shard(r)] + r for r in range(self.world))
            return all(torch.equal(self.full[self.shard(r)], want) for r, want in enumerate(shards))
        if name == "all_to_all_single":
            mine = self.pattern[self.shard(self.rank)]
            return all(torch.equal(self.other[self.shard(r)], mine + r) for r in range(self.world))
        if name == "reduce_scatter_tensor":
            return torch.equal(self.part, self.ranks_sum()[self.shard(self.rank)])
        return torch.equal(self.full, self.pattern)


OPERATIONS = (
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "broadcast",
    "all_to_all_single",
)


def slowest(times: list[float]) -> list[float]:
    """Returns the slowest rank's time of each repeat. Collective."""
    worst = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return [float(seconds) for seconds in worst]


def timed(run: Callable[[], None], repeats: int) -> list[float]:
    """Returns the seconds of each repeat on this rank. All ranks start together."""
    for _ in range(WARM_UPS):
        run()
    times = []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def is_right_everywhere(here: bool) -> bool:
    """Returns whether the result is right on every rank. Collective."""
    verdict = torch.tensor([int(here)])
    dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
    return bool(verdict.item())


def link_bytes(interface: str | None) -> int:
    """Returns the bytes that this host has sent over `interface`, as the kernel counts them."""
    if interface is None:
        return 0
    with open(f"/sys/class/net/{interface}/statistics/tx_bytes") as counter:  # noqa: PTH123
        return int(counter.read())


def crossed(case: Case, name: str, interface: str | None, first_of_host: bool) -> int:
    """Returns the bytes that all hosts send over `interface` for one operation. Collective."""
    dist.barrier()
    time.sleep(0.05)  # acknowledgements of what came before
    before = link_bytes(interface)
    dist.barrier()  # nobody starts before everybody has read
    case.run(name)
    dist.barrier()  # a sender is done before the wire is
    time.sleep(0.05)
    sent = torch.tensor([link_bytes(interface) - before if first_of_host else 0])
    dist.all_reduce(sent)
    return int(sent.item())


def large(options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Measures all collectives on the large buffer."""
    case = Case(options.bytes // 4)
    first_of_host = int(os.environ.get("LOCAL_RANK", "0")) == 0
    out: dict[str, dict[str, object]] = {}
    for name in OPERATIONS:
        case.fill(name)
        case.run(name)
        right = is_right_everywhere(case.right(name))
        times = slowest(timed(lambda name=name: case.run(name), options.repeats))
        row: dict[str, object] = {
            "bytes": 4 * case.count,
            "seconds": statistics.median(times),
            "right": right,
        }
        if options.interface is not None:
            row["link_bytes"] = crossed(case, name, options.interface, first_of_host)
        out[name] = row
    return out


def small(repeats: int) -> dict[str, object]:
    """Measures all-reduces of 4 KiB."""
    case = Case(SMALL_BYTES // 4)
    case.fill("all_reduce")
    case.run("all_reduce")
    right = is_right_everywhere(case.right("all_reduce"))
    case.full.zero_()
    times = sorted(slowest(timed(lambda: case.run("all_reduce"), repeats)))
    return {
        "bytes": 4 * case.count,
        "seconds": statistics.median(times),
        "p99_seconds": times[min(len(times) - 1, int(0.99 * len(times)))],
        "right": right,
    }


def idle() -> float:
    """Returns the CPU seconds that a process uses while its communicator idles; those of the worst
    rank.
    """
    dist.barrier()
    time.sleep(0.2)
    start = time.process_time()
    time.sleep(IDLE_SECONDS)
    return slowest([time.process_time() - start])[0]


def main() -> int:
    """Runs one rank. Returns 1 if a value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("hetccl", "gloo"), required=True)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--small-repeats", type=int, default=200)
    parser.add_argument("--interface", help="count the bytes that hosts send over it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Newer torch renames what older ones have only under these names.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
    if options.backend == "hetccl":
        from hetccl import torch_backend

        torch_backend.register()
    dist.init_process_group(options.backend, timeout=timedelta(seconds=120))
    result: dict[str, object] = {
        "backend": options.backend,
        "world_size": dist.get_world_size(),
        "torch": torch.__version__,
        "large": (rows := large(options)),
        "small": (tiny := small(options.small_repeats)),
        "idle_seconds": IDLE_SECONDS,
        "idle_cpu_seconds": idle(),
    }
    right = all(row["right"] for row in (*rows.values(), tiny))
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()
    if not right:
        print(f'{options.backend}: wrong values, see "right" above', file=sys.stderr)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
