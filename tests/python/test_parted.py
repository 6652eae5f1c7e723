"""Two of three hosts no longer reach each other, while both reach the third, which coordinates."""

import subprocess
import sys

import pytest
from patience import milliseconds

from hetccl.hosts import EmulatedHosts

pytestmark = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)

# Rank 2 takes part for a while, and is then late for its call: the others wait in theirs, or, with
# no data on its way, in a receive.
RANK = """
import sys, time
from array import array
from pathlib import Path
import hetccl
rank, path, late = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
if rank == 0:
    path.with_suffix(".new").write_bytes(hetccl.unique_id())
    path.with_suffix(".new").rename(path)
while not path.exists():
    time.sleep(0.01)
data = array("f", [1.0] * 100_000)
with hetccl.Communicator(path.read_bytes(), rank, 3, host_id=f"host{rank}") as comm:
    for step in range(50):
        comm.all_reduce(data)
    print("running", flush=True)
    sys.stdin.readline()
    if rank == 2:
        time.sleep(late)
    try:
        while True:
            comm.all_reduce(data)
    except hetccl.HetcclError as error:
        print(error, flush=True)
        raise
"""


@pytest.mark.parametrize("late", [0, 1000])
def test_the_cut_between_two_ranks_is_an_error_in_seconds(tmp_path, late):
    with EmulatedHosts(3, rate=None) as hosts:
        ranks = [
            hosts.popen(
                rank,
                [sys.executable, "-c", RANK, str(rank), str(tmp_path / "id"), str(late)],
                env={"HETCCL_LIVENESS_MS": milliseconds(3000), "HETCCL_SHM": "0"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(3)
        ]  # fmt: skip
        for rank in ranks:
            assert rank.stdout.readline() == "running\n"
        hosts.part(1, 2)
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()
        told = [rank.communicate(timeout=120)[0] for rank in ranks[: 2 if late else 3]]
    for text in told:  # within seconds, not the 600 that a collective may take
        assert ("rank 1: " in text and "to rank 2" in text) or (
            "rank 2: " in text and "to rank 1" in text
        )
        assert "its host has acknowledged nothing for" in text or "timed out" in text
