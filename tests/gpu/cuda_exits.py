"""Interpreters that end as they are, with work under way: with what ends soon, and what cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 30  # seconds from the end of a rank's program to the end of its process
START = 60  # seconds until then

BEGINS = """
import sys, time, torch, torch.distributed as dist, hetccl
from datetime import timedelta
from pathlib import Path
rank, size, path, device = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.cuda.set_device(device)
dist.init_process_group("hetccl", init_method=f"file://{path}", rank=rank, world_size=size)
held = torch.ones(1_000_000, device=device)
dist.all_reduce(held)
dist.all_reduce(held, async_op=True).wait()  # streams are made, which waits for the device
torch.cuda.synchronize()
"""
LEAVES = """
torch.cuda._sleep(int(1e9))
work = dist.all_reduce(held, async_op=True)
dist.all_reduce(held, async_op=True)
work.get_future().then(lambda done: done.value()[0] + 1)
work.get_future_result()
if 0 < rank == size - 1:
    dist.isend(held, 0)  # which nobody receives
"""
# A collective to which the others never come. They live on meanwhile.
MISSED = """
if rank == 0:
    work = dist.all_reduce(held, async_op=True)
else:
    time.sleep(5)
"""
# The stream is busy far beyond the deadline of what follows on it.
SPINS = """
dist.group.WORLD._get_backend(torch.device(device)).set_timeout(timedelta(seconds=2))
if rank == 0:
    torch.cuda._sleep(int(10 * 1.9e9))
work = dist.all_reduce(held, async_op=True)
"""
ENDS = """
Path(f"{path}.left.{rank}").touch()
"""


def programs(text: str, devices: list[str], labels: str) -> list[str]:
    """Runs `text` as each rank's program; who ends late, and the status of each."""
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        command = [sys.executable, "-c", BEGINS + text + ENDS]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(len(devices)), store, device],
                env={**os.environ, "HETCCL_CLUSTER": labels[rank : rank + 1]},
            )
            for rank, device in enumerate(devices)
        ]
        started, running = time.monotonic(), set(range(len(ranks)))
        try:
            while running and not failures:
                time.sleep(0.05)
                running = {rank for rank in running if ranks[rank].poll() is None}
                for rank in running:
                    left = Path(f"{store}.left.{rank}")
                    if left.exists() and time.time() - left.stat().st_mtime > LIMIT:
                        failures.append(f"rank {rank} has not ended {LIMIT} s after its program")
                if running and time.monotonic() - started > START + LIMIT:
                    failures.append(f"ranks {sorted(running)} hang")
            unfinished = [r for r in range(len(ranks)) if not Path(f"{store}.left.{r}").exists()]
        finally:
            for process in ranks:
                process.kill()
                process.wait(10)
    if unfinished:
        failures.append(f"programs without an end: {unfinished}")
    codes = [process.returncode for process in ranks]
    return failures + ([f"ended with {codes}"] if any(codes) else [])


def leave(devices: list[str], labels: str) -> list[str]:
    """Processes that end with work under way, which ends soon."""
    return programs(LEAVES, devices, labels)


def leave_missed(devices: list[str], labels: str) -> list[str]:
    """Processes of which one ends in a collective that can never end."""
    return programs(MISSED, devices, labels)


def leave_spinning(devices: list[str], labels: str) -> list[str]:
    """Processes of which one has a stream that is busy for longer than the exit's grace."""
    return programs(SPINS, devices, labels)
