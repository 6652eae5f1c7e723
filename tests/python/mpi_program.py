"""A process of an MPI job that makes some ranks of one communicator, each on a thread.

    mpi_program.py FOLDER SIZE RANKS...   RANKS of each process of this job, as "1,2"

Prints what came of each rank, and whether a forked child ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from pathlib import Path

import hetccl


def sum_of_ranks(rank: int, size: int, folder: Path) -> str:
    """Returns a rank's view of an all-reduce and of its clusters, or the error."""
    shared = folder / "unique_id"
    if rank == 0:
        (folder / "new").write_bytes(hetccl.unique_id())
        (folder / "new").rename(shared)
    while not shared.exists():
        time.sleep(0.01)
    try:
        comm = hetccl.Communicator(shared.read_bytes(), rank, size, timeout=120, init_timeout=120)
        value = array("f", [1.0 + rank])
        comm.all_reduce(value)
        topology = comm.topology()
        comm.destroy()
    except hetccl.HetcclError as error:
        return str(error)
    clusters = [cluster["ranks"] for cluster in topology["clusters"]]
    return f"sum {value[0]:g} clusters {clusters} library {topology['ranks'][rank]['library']}"


def forked_child_ends(within_s: float) -> bool:
    """Whether a child that does nothing ends: it runs what the process does at exit."""
    child = os.fork()
    if child == 0:
        sys.exit(0)
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0] == child:
            return True
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def wait_for_others(ranks: list[int], size: int, folder: Path) -> None:
    """A launcher kills a job's other processes once one ends without MPI_Finalize."""
    for rank in ranks:
        (folder / f"ended{rank}").touch()
    end = time.monotonic() + 120
    while len(list(folder.glob("ended*"))) < size and time.monotonic() < end:
        time.sleep(0.02)


def main() -> None:
    """The process's ranks, then its child."""
    me = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    lines: list[str] = []

    def run(rank: int) -> None:
        lines.append(f"rank {rank}: {sum_of_ranks(rank, size, folder)}")

    ranks = [int(rank) for rank in sys.argv[3 + me].split(",")]
    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.append(f"child: {'ends' if forked_child_ends(60) else 'hangs'}")
    os.write(1, "".join(f"{line}\n" for line in lines).encode())  # in one piece
    wait_for_others(ranks, size, folder)


if __name__ == "__main__":
    main()
