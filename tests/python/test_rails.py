"""Hosts with several network cards: a job uses all of them, and says which one is cut."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import FACTOR, HANG, mostly_long

from hetccl.hosts import EmulatedHosts

pytestmark = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)

WORKER = Path(__file__).parent / "rails_worker.py"
MIB = 1 << 20
TOPOLOGY = """
import json
from hetccl.rendezvous import init_from_launcher
with init_from_launcher() as comm:
    graph = comm.topology()
    if comm.rank == 0: print(json.dumps(graph))
"""
# Calls without end; a rank that fails says why.
UNTIL_CUT = """
import sys
from array import array
from hetccl import HetcclError
from hetccl.rendezvous import init_from_launcher
comm = init_from_launcher()
own = array("f", [1.0]) * (8 << 20)
try:
    for call in range(1000):
        comm.all_reduce(own, array("f", bytes(4 * len(own))))
        if call == 0 and comm.rank == 0: print("running", flush=True)
except HetcclError as error:
    print(error, flush=True)
    comm.abort()
"""


def start(
    hosts: EmulatedHosts, argv: list[str], ranks: int = 1, stderr: int | None = None, **env: str
) -> list:
    """So many ranks on each of two hosts."""
    given = {
        "MASTER_ADDR": hosts.address(0),
        "MASTER_PORT": "29519",
        "WORLD_SIZE": str(2 * ranks),
        "HETCCL_CARD_MBPS": hosts.card_mbps(),
    }
    return [
        hosts.popen(
            rank // ranks, [sys.executable, *argv],
            env=given | {"RANK": str(rank), "LOCAL_RANK": str(rank % ranks)} | env,
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )
        for rank in range(2 * ranks)
    ]  # fmt: skip


def outputs(ranks: list) -> list[str]:
    found = [rank.communicate(timeout=HANG)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * len(ranks), found
    return found


@pytest.mark.parametrize("ranks", mostly_long([1, 2], 1))
@pytest.mark.parametrize("rates", [[400, 400], [400, 200, 200, 200]])
def test_every_rail_carries_its_part(rates, ranks):
    size = 16 * MIB
    with EmulatedHosts(2, [f"{rate}mbit" for rate in rates]) as hosts:
        out = outputs(start(hosts, [str(WORKER), str(size), "1"], ranks))[0]
        sent = [hosts.tx_bytes(0, rail) for rail in range(hosts.rails)]
    calls = sum(one["calls"] * one["leaving"] for one in json.loads(out).values())
    assert calls < sum(sent) < 1.1 * calls + MIB  # nothing crosses twice
    for rate, bytes_sent in zip(rates, sent, strict=True):
        assert bytes_sent / sum(sent) > 0.5 * rate / sum(rates), sent


def topology_over(rates: list[str], ranks: int, **env: str) -> dict:
    with EmulatedHosts(2, rates) as hosts:
        return json.loads(outputs(start(hosts, ["-c", TOPOLOGY], ranks, **env))[0])


@pytest.mark.long
def test_equal_rails_are_dealt_out_and_the_setting_leaves_one_out():
    graph = topology_over(["1gbit", "1gbit"], 2)
    assert [cluster["cards"] for cluster in graph["clusters"]] == [[["up0"], ["up1"]]] * 2
    assert graph["links"][0]["mbps"] == 2000
    graph = topology_over(["1gbit", "1gbit"], 2, HETCCL_SOCKET_IFNAME="=up0")
    assert [cluster["cards"] for cluster in graph["clusters"]] == [[["up0"], ["up0"]]] * 2
    assert graph["links"][0]["mbps"] == 1000


def test_a_rail_that_is_dead_from_the_first_is_said_and_left_out():
    with EmulatedHosts(2, ["400mbit", "400mbit"]) as hosts:
        hosts.cut(1, 1)
        started = [str(WORKER), str(MIB), "1"]
        dials, answers = start(hosts, started, stderr=subprocess.PIPE)
        _, said = dials.communicate(timeout=HANG)
        answers.communicate(timeout=HANG)
        assert (dials.returncode, answers.returncode) == (0, 0), said
        assert hosts.tx_bytes(0, 1) < MIB // 8
    assert re.search(
        r"no connection to rank 1 at 10\.77\.1\.2:\d+ from 10\.77\.1\.1 \(card up1\)", said
    )
    assert "HETCCL_SOCKET_IFNAME" in said


@pytest.mark.long
def test_a_rail_that_is_cut_in_a_collective_is_named_on_every_rank():
    with EmulatedHosts(2, ["400mbit", "400mbit"]) as hosts:
        liveness = round(2000 * FACTOR)
        ranks = start(hosts, ["-c", UNTIL_CUT], 2, HETCCL_LIVENESS_MS=str(liveness))
        assert ranks[0].stdout.readline() == "running\n"
        hosts.cut(1, 1)
        found = outputs(ranks)
    for text in found:
        assert "by network card up1 is cut" in text, found
        assert "HETCCL_SOCKET_IFNAME" in text
    assert len({text.partition("connection to rank")[2] for text in found}) == 1
