"""Two hosts with a firewall between them: the ranks that wait name each other, and none waits for
long.
"""

import re
import subprocess
import time
from pathlib import Path

import pytest
from patience import FACTOR, HANG, PROMPT

pytest.importorskip("torch")

from hetccl.hosts import EmulatedHosts

pytestmark = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)

FIRST, LAST = 21_000, 21_007  # host 0's ranks, then host 1's: two for each rank
RANK = """
import os, pathlib, time
import torch.distributed as dist
from hetccl import torch_backend
torch_backend.register()
here = pathlib.Path(os.environ["MEETING"])
(here / os.environ["RANK"]).touch()
while len(list(here.iterdir())) < 4: time.sleep(0.01)  # their waits begin together
dist.init_process_group("hetccl")  # 30 minutes, says torch
"""
LIMIT_MS = round(20_000 * FACTOR)  # a reminder comes after 10 seconds


def start_behind(
    hosts: EmulatedHosts, python: str, blocked_host: int, meeting: Path
) -> list[subprocess.Popen]:
    """Four ranks on two hosts, where the other host does not reach the ports of `blocked_host`."""
    meeting.mkdir()
    hosts.block(blocked_host, FIRST, LAST)
    return [
        hosts.popen(
            rank // 2,
            [python, "-c", RANK],
            env={
                "MASTER_ADDR": hosts.address(0),
                "MASTER_PORT": "29517",
                "MEETING": str(meeting),
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


def texts_of(ranks: list[subprocess.Popen], start: float) -> tuple[list[str], float]:
    """Returns the stderr of each rank, and the seconds from `start` to the end of all."""
    said = [rank.communicate(timeout=HANG)[1] for rank in ranks]
    assert all(rank.returncode != 0 for rank in ranks), said
    return said, time.monotonic() - start


def test_an_id_on_loopback_says_on_another_host_that_it_is_anothers(forked_python, tmp_path):
    """Before it has dialled 127.0.0.1, which is its own host."""
    bench = [forked_python, "-m", "hetccl", "bench", "--rendezvous", str(tmp_path / "id")]
    with EmulatedHosts(2, rate=None) as hosts:
        first, second = (
            hosts.popen(
                rank, bench, stderr=subprocess.PIPE, text=True,
                env={"RANK": str(rank), "WORLD_SIZE": "2", "HETCCL_SOCKET_IFNAME": "=lo"},
            )
            for rank in range(2)
        )  # fmt: skip
        said = second.communicate(timeout=HANG)[1]
        assert second.returncode == 1
        assert first.poll() is None  # it waits for rank 1, and is killed
    assert "the unique id was made on another host, and its only address, 127.0.0.1:" in said
    assert "HETCCL_SOCKET_IFNAME" in said


@pytest.mark.long
def test_ports_that_are_not_reached(forked_python, tmp_path):
    """Two jobs at once, since both wait for as long as a rank may take to join."""
    start = time.monotonic()
    with EmulatedHosts(2, rate=None) as hosts, EmulatedHosts(2, rate=None) as others:
        jobs = [
            start_behind(hosts, forked_python, 0, tmp_path / "first"),
            start_behind(others, forked_python, 1, tmp_path / "second"),
        ]
        told = [texts_of(ranks, start) for ranks in jobs]
    check_coordinator(*told[0])
    check_rank(*told[1])


def check_coordinator(said: list[str], took: float) -> None:
    """Nobody reaches the coordinator from the other host."""
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


def check_rank(said: list[str], took: float) -> None:
    """Nobody reaches ranks 2 and 3 from the other host; they reach the coordinator."""
    text = "".join(said)
    assert "warn: cannot reach rank 2 at 10.77.0.2:210" in text
    assert "[rank 2] warn: waiting for rank 0 to connect to this rank at 10.77.0.2:210" in text
    for mine in said:
        assert "10.77.0.2:210" in mine
        assert "HETCCL_PORT_RANGE" in mine
    assert took < LIMIT_MS / 1000 + 2 * PROMPT  # not torch's 30 minutes
