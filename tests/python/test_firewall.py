"""Two hosts with a firewall between them: who waits says for whom, and nobody waits for long."""

import re
import subprocess
import sys
import time

import pytest
from patience import FACTOR, HANG, PROMPT

pytest.importorskip("torch")

from hetccl.hosts import EmulatedHosts

pytestmark = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)

FIRST, LAST = 21_000, 21_007  # host 0's ranks, then host 1's: two for each rank
RANK = """
import os
import torch.distributed as dist
from hetccl import torch_backend
torch_backend.register()
dist.init_process_group("hetccl")  # 30 minutes, says torch
"""
LIMIT_MS = round(12_000 * FACTOR)


def ranks_behind(blocked_host: int) -> tuple[list[str], float]:
    """What four ranks on two hosts write to stderr, and how long they take, where the other host
    does not reach the ports of `blocked_host`."""
    start = time.monotonic()
    with EmulatedHosts(2, rate=None) as hosts:
        hosts.block(blocked_host, FIRST, LAST)
        ranks = [
            hosts.popen(
                rank // 2,
                [sys.executable, "-c", RANK],
                env={
                    "MASTER_ADDR": hosts.address(0),
                    "MASTER_PORT": "29517",
                    "RANK": str(rank),
                    "WORLD_SIZE": "4",
                    "HETCCL_HOSTID": f"host{rank // 2}",
                    "HETCCL_SHM": "0",
                    "HETCCL_INIT_TIMEOUT_MS": str(LIMIT_MS),
                    "HETCCL_PORT_RANGE": f"{FIRST}-{LAST}",
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(4)
        ]
        said = [rank.communicate(timeout=HANG)[1] for rank in ranks]
        assert all(rank.returncode != 0 for rank in ranks), said
        return said, time.monotonic() - start


def test_a_coordinator_that_is_not_reached():
    said, took = ranks_behind(0)
    assert "warn: waiting for ranks 2, 3 of 4 at 10.77.0.1:210" in said[0]
    for rank in (2, 3):
        assert f"hetccl [rank {rank}] warn: cannot reach the coordinator" in said[rank]
        assert "no connection to 10.77.0.1:210" in said[rank]
    for text in said:
        assert "HETCCL_PORT_RANGE" in text
        assert "HETCCL_SOCKET_IFNAME" in text
        assert "firewall" in text
    for rank in (0, 1):
        waited = re.search(r"ranks 2, 3 of 4 never came within (\d+) ms to 10.77.0.1:", said[rank])
        assert 0 < int(waited[1]) <= LIMIT_MS
    assert took < LIMIT_MS / 1000 + 2 * PROMPT  # not torch's 30 minutes


def test_a_rank_that_is_not_reached():
    said, took = ranks_behind(1)
    text = "".join(said)
    assert "warn: cannot reach rank 2 at 10.77.0.2:210" in text
    assert "[rank 2] warn: waiting for rank 0 to connect to this rank at 10.77.0.2:210" in text
    for mine in said:
        assert "10.77.0.2:210" in mine
        assert "HETCCL_PORT_RANGE" in mine
    assert took < LIMIT_MS / 1000 + 2 * PROMPT  # not torch's 30 minutes
