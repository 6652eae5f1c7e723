"""Interpreters that end abruptly, or fork: no process hangs or crashes, and peers get an error."""

import itertools
import os
import subprocess
import sys
import time

import pytest
from patience import HANG, PROMPT, milliseconds, selected

SETUP = """
import os, sys, time
from array import array
import hetccl

rank = int(sys.argv[1])
if rank == 0:
    print(hetccl.unique_id().hex(), flush=True)
comm = hetccl.Communicator(bytes.fromhex(input()), rank, 2, cluster=sys.argv[2 + rank])
value = array("f", [1.0]) * 100_000
"""

# Actions of rank 1; rank 0 waits for it to end, and prints the error that it then gets.
ENDINGS = {
    "idle": ("comm.all_reduce(value)", ""),
    "pending": (
        "comm.all_reduce(value)\ncomm.all_reduce(value, stream=hetccl.Stream())",
        "rank 1: its process exited before",
    ),
    "exception": ("comm.all_reduce(value)\nraise SystemExit(0)", ""),
    "thread": (
        "comm.all_reduce(value)\n"
        "import threading\n"
        "threading.Thread(target=comm.all_reduce, args=(value,), daemon=True).start()\n"
        "while len(comm.dump()['operations']) < 2: time.sleep(0.01)",
        "rank 1: its process exited before",
    ),
}
WATCH = """
comm.all_reduce(value)
input()
end = time.monotonic() + float(sys.argv[4])
try:
    while time.monotonic() < end:
        comm.check()
        time.sleep(0.01)
    print("fine")
except hetccl.HetcclError as error:
    print(error)
"""


def start(rank: int, body: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SETUP + body, str(rank), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HETCCL_LIVENESS_MS": milliseconds(2000)},
    )


CASES = list(itertools.product(ENDINGS, [("A", "A"), ("A", "B")]))


# Every ending once: alternately within a cluster and across two.
@pytest.mark.parametrize(
    ("ending", "clusters"),
    selected(CASES, len(ENDINGS), lambda case: CASES.index(case) % 4 in (1, 2)),
)
def test_an_interpreter_that_ends_tells_its_peers(ending, clusters):
    body, told = ENDINGS[ending]
    watch = str(HANG if told else 0.5)  # seconds: an error comes, or none
    watcher, leaver = start(0, WATCH, *clusters, watch), start(1, body, *clusters)
    try:
        uid = watcher.stdout.readline()
        for process in (watcher, leaver):
            process.stdin.write(uid)
            process.stdin.flush()
        begin = time.monotonic()
        assert leaver.wait(timeout=HANG) == 0
        assert time.monotonic() - begin < PROMPT
        said, _ = watcher.communicate("go on\n", timeout=HANG)
        assert watcher.returncode == 0
        assert (told or "fine") in said
    finally:
        for process in (watcher, leaver):
            process.kill()
            process.communicate()


# Children by fork, as those of a DataLoader, born and ending while work is in flight.
WORKERS = """
import multiprocessing
context = multiprocessing.get_context("fork")
stream = hetccl.Stream()
for _ in range(3):
    value = array("i", [1]) * 500_000
    comm.all_reduce(value, stream=stream)
    numbers = context.Queue()
    process = context.Process(target=lambda: numbers.put(sum(range(10))))
    process.start()
    assert numbers.get(timeout=300) == 45
    process.join(300)
    assert process.exitcode == 0
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # with all that an interpreter does at its end
    assert os.waitpid(pid, 0)[1] == 0
    stream.synchronize(300)
    assert set(value) == {2}
comm.check()
comm.destroy()
print("fine")
"""


def test_forked_workers_leave_their_parents_communicator_alone():
    ranks = [start(rank, WORKERS, "A", "B") for rank in range(2)]
    try:
        uid = ranks[0].stdout.readline()
        for process in ranks:
            process.stdin.write(uid)
            process.stdin.flush()
        for process in ranks:
            said, _ = process.communicate(timeout=HANG)
            assert said == "fine\n"
            assert process.returncode == 0
    finally:
        for process in ranks:
            process.kill()


REST = """
import os, threading, time
from array import array
import hetccl

def state():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

def use():
    uid = hetccl.unique_id()

    def rank_of(rank):
        with hetccl.Communicator(uid, rank, 2, cluster="AB"[rank]) as comm:
            value = array("f", [1.0]) * 1_000_000
            comm.all_reduce(value)
            assert value[0] == 2
            used.append(state())
            stream = hetccl.Stream()
            comm.barrier(stream=stream)
            stream.close()

    ranks = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()

before = state()
for _ in range(2):  # what has rested starts again
    used = []
    use()
    end = time.monotonic() + 60
    while state() != before and time.monotonic() < end:
        time.sleep(0.05)
    print(before, used, state(), state() == before, max(used) > before, flush=True)
"""


def test_what_a_process_had_before_its_first_group_it_has_after_its_last():
    told = subprocess.run([sys.executable, "-c", REST], capture_output=True, text=True, timeout=150)
    lines = told.stdout.splitlines()
    assert [line.endswith("True True") for line in lines] == [True, True], told
