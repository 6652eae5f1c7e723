"""`hetccl check`: each fault of emulated hosts is found and named, and a healthy job has none."""

import json
import os
import re
import subprocess

import commands
import pytest
from compiled import ADAPTORS, compile_to
from patience import FACTOR, HANG

from hetccl.bench.operations import CASES
from hetccl.hosts import EmulatedHosts

needs_hosts = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)
FIRST, LAST = 21_100, 21_199
NAMES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
CHECK = """
import sys
from hetccl import _lib, cli
from hetccl.communicator import Communicator
{fault}
sys.argv = ["hetccl", "check", *sys.argv[1:]]
cli.main()
"""


# Each rank's device is as fast as the others', however busy the cores are: links of a rank that is
# slow itself are not judged.
EQUAL = """
from hetccl.check import trials
trials.measure_speed = lambda comm, memory: 1e9
"""


class Job:
    """A check of emulated hosts, one rank each. `faults` has what ranks run first."""

    def __init__(self, hosts, python, folder, faults=None, absent=(), wait=60):
        shared = {"HETCCL_PORT_RANGE": f"{FIRST}-{LAST}", "HETCCL_CARD_MBPS": hosts.card_mbps()}
        self.ranks = [
            hosts.popen(
                rank,
                [python, "-c", CHECK.format(fault=(faults or {}).get(rank, "")),
                 "--rendezvous", str(folder / "id"), "--json", "--wait", str(wait),
                 "--report", str(folder / "page.html")],
                env={**shared, **dict(zip(NAMES, (str(rank), str(hosts.n), "0"), strict=True))},
                stdout=-1, stderr=-1, text=True,
            )
            for rank in range(hosts.n) if rank not in absent
        ]  # fmt: skip
        self.page = folder / "page.html"

    def finish(self):
        """Returns rank 0's exit status and findings, and the others' output."""
        ends = [rank.communicate(timeout=HANG) for rank in self.ranks]
        assert ends[0][0], ends
        return self.ranks[0].returncode, json.loads(ends[0][0]), [end[1] for end in ends[1:]]


def said(document, severity):
    return [one["text"] for one in document["findings"] if one["severity"] == severity]


@pytest.mark.long
@needs_hosts
def test_a_slow_link_is_named(forked_python, tmp_path):
    with EmulatedHosts(3, rate="400mbit") as hosts:
        hosts.shape("40mbit", host=2)
        faults = dict.fromkeys(range(3), EQUAL)
        status, document, _ = Job(hosts, forked_python, tmp_path, faults).finish()
    assert status == 3
    assert said(document, "error") == []
    texts = [text for text in said(document, "warning") if "links" in text]
    assert len(texts) == 1
    assert "(10.77.0.3): all links to and from it are slow: " in texts[0]
    assert "bandwidth" in (tmp_path / "page.html").read_text().lower()
    pairs = {(rank, one["peer"]) for rank, result in enumerate(document["results"])
             for one in result["links"]}  # fmt: skip
    assert pairs == {(a, b) for a in range(3) for b in range(3) if a != b}


@needs_hosts
def test_links_that_carry_less_than_their_cards_should(forked_python, tmp_path):
    with EmulatedHosts(2, rate="400mbit") as hosts:
        hosts.rates = ["4gbit"]  # as a driver would say
        faults = dict.fromkeys(range(2), EQUAL)
        status, document, _ = Job(hosts, forked_python, tmp_path, faults).finish()
    assert status == 3
    assert any(
        "(10.77.0.1) and vm (10.77.0.2)" in text.replace(document["ranks"][0]["name"], "vm")
        and "of the 4 Gbit/s that the cards should carry" in text
        for text in said(document, "warning")
    )


@needs_hosts
def test_another_version_is_named(forked_python, tmp_path):
    with EmulatedHosts(3, rate=None) as hosts:
        faults = {2: "_lib.version = lambda: (0, 0, 9)"}
        status, document, others = Job(hosts, forked_python, tmp_path, faults).finish()
    assert status == 1
    errors = said(document, "error")
    assert len(errors) == 1
    assert errors[0].startswith("rank 2 on ")
    assert "hetccl 0.0.9, and 0.1.0 elsewhere" in errors[0]
    assert document["stopped"] == "versions of hetccl differ"
    assert others == ["", ""]


@needs_hosts
def test_closed_ports_are_named(forked_python, tmp_path):
    """The closed ports are those of a host that others dial, and those of rank 0's host."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with EmulatedHosts(3, rate=None) as hosts, EmulatedHosts(2, rate=None) as others:
        hosts.block(1, FIRST, LAST)
        others.block(0, FIRST, LAST)
        jobs = [Job(hosts, forked_python, tmp_path / "first"),
                Job(others, forked_python, tmp_path / "second", wait=4 * FACTOR)]  # fmt: skip
        (status, document, _), (lonely, alone, told) = [job.finish() for job in jobs]
    assert status == 1
    (text,) = said(document, "error")
    assert "(10.77.0.2): port 211" in text
    assert "cannot be reached from" in text
    assert "(10.77.0.1), " in text
    assert "(10.77.0.3): no answer: a firewall drops it" in text
    assert f"open ports {FIRST}-{LAST} in the firewall of" in document["findings"][0]["remedy"]
    assert lonely == 1
    (text,) = said(alone, "error")
    assert text.startswith("rank 1 of 2 is missing: nothing came to rank 0's port 211")
    assert "it cannot reach rank 0 at 10.77.0.1:211" in told[0]


SLOW = """
def encode(self, *arguments, original=Communicator.encode, **options):
    for _ in range(8):
        original(self, *arguments, **options)
Communicator.encode = encode
"""


@needs_hosts
def test_a_slow_rank_is_named(forked_python, tmp_path):
    """Its device has eight times the work, whatever else this machine does."""
    with EmulatedHosts(3, rate=None) as hosts:
        status, document, _ = Job(hosts, forked_python, tmp_path, {2: SLOW}).finish()
    assert status == 3
    assert any(
        text.startswith("rank 2 on ") and "of the speed of ranks like it" in text
        for text in said(document, "warning")
    )
    assert not any("all links" in text for text in said(document, "warning"))


def launch(python, folder, faults, size=3, **settings):
    """A check of this host's ranks by a launcher."""
    ranks = [
        subprocess.Popen(
            [python, "-c", CHECK.format(fault=faults.get(rank, "")), "--devices", "cpu",
             "--rendezvous", str(folder / "id"), "--json", "--wait", str(settings.get("wait", 60))],
            env={**os.environ,
                 **dict(zip(NAMES, (str(rank), str(size), str(rank)), strict=True))},
            stdout=-1, stderr=-1, text=True,
        )
        for rank in range(size) if rank not in settings.get("absent", ())
    ]  # fmt: skip
    ends = [rank.communicate(timeout=HANG) for rank in ranks]
    assert ends[0][0], ends
    return ranks[0].returncode, json.loads(ends[0][0])


WRONG_RESULT = """
def all_gather(self, *arguments, original=Communicator.all_gather, **options):
    original(self, *arguments, **options)
    arguments[1][-1] ^= 64
Communicator.all_gather = all_gather
"""
WRONG_MESSAGE = """
def send(self, buffer, *arguments, original=Communicator.send, **options):
    buffer[-1] ^= 64
    original(self, buffer, *arguments, **options)
Communicator.send = send
"""


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (WRONG_RESULT, r"rank 1 on .*: all_gather of .* gave 1 wrong element"),
        (WRONG_MESSAGE, r"rank 2 on .*: a message from rank 1 on .* came with 1 wrong byte"),
    ],
)
def test_wrong_values_are_found_with_the_rank(fault, expected, forked_python, tmp_path):
    status, document = launch(forked_python, tmp_path, {1: fault})
    assert status == 1
    errors = said(document, "error")
    assert any(re.fullmatch(expected, text) for text in errors), errors
    assert all("rank 1 on " in text or "send_recv" in text for text in errors)


SUSPECT = """
from hetccl.check import graph
graph.suspects = lambda document: [(1, 2)]
"""
WORSE_EACH_TIME = """
times = 0
def send(self, buffer, peer, *arguments, original=Communicator.send, **options):
    global times
    if peer == 2 and len(buffer) == 65_537:
        times += 1
        for at in range(times):
            buffer[at] ^= 64
    original(self, buffer, peer, *arguments, **options)
Communicator.send = send
"""


def test_a_link_that_is_measured_again_has_the_wrong_bytes_of_its_worst_message(
    forked_python, tmp_path
):
    status, document = launch(forked_python, tmp_path, {0: SUSPECT, 1: WORSE_EACH_TIME})
    assert status == 1
    errors = said(document, "error")
    assert any(re.fullmatch("rank 2 on .* came with 3 wrong bytes", text) for text in errors)


DEATH = """
import os, signal
def broadcast(self, *arguments, **options): os.kill(os.getpid(), signal.SIGKILL)
Communicator.broadcast = broadcast
"""


# Rank 0 gives up soon, but not before rank 2 has come.
WAITS_FOR_2 = """
import time
from hetccl.check.panel import Lead
def wait(self, seconds, original=Lead.wait):
    while 2 not in self._connections:
        time.sleep(0.01)
    original(self, 0.1)
Lead.wait = wait
"""


def test_a_rank_that_dies_and_one_that_never_comes_are_named(forked_python, tmp_path):
    status, document = launch(forked_python, tmp_path, {2: DEATH})
    assert status == 1
    texts = " ".join(said(document, "error"))
    assert "rank 2 on " in texts and "its process has ended" in texts
    assert "broadcast of 4124 bytes failed: " in texts
    status, document = launch(forked_python, tmp_path, {0: WAITS_FOR_2}, absent=(1,))
    assert status == 1
    (text,) = said(document, "error")
    assert text.startswith("rank 1 of 3 is missing")


LAST_FAILS = """
from hetccl.check.links import Prober
def measure(self, peer): raise OSError("no memory is left")
Prober.measure = measure
"""


def test_a_rank_that_fails_alone_is_named_and_keeps_nobody_waiting(forked_python, tmp_path):
    status, document = launch(forked_python, tmp_path, {1: LAST_FAILS}, size=2)
    assert "timed out" not in document["results"][0]["failed"]["text"]  # it hears of the abort
    assert status == 1
    assert any(
        text.startswith("rank 1 on ")
        and "messages between ranks 1 and 0 failed: no memory is left" in text
        for text in said(document, "error")
    )
    assert document["results"][1]["failed"]["text"] == "no memory is left"
    assert document["topology"]["ranks"]


def test_all_pairs_and_collectives_of_a_machine(tmp_path):
    page = tmp_path / "page.html"
    done = commands.run("check", "--ranks", 3, "--devices", "cpu", "--json", "--report", page)
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    assert said(document, "error") == []
    for rank, result in enumerate(document["results"]):
        assert {one["peer"] for one in result["links"]} == {0, 1, 2} - {rank}
        assert {one["operation"] for one in result["collectives"]} == set(CASES)
        assert all(one["wrong"] == 0 for one in (*result["collectives"], *result["links"]))
        assert all(one["rate"] > 0 and one["seconds"] > 0 for one in result["links"])
        assert result["speed"] > 0
    assert "<script" not in page.read_text()


def test_people_read_lines(tmp_path):
    done = commands.run("check", "--ranks", 2, "--devices", "cpu")
    assert done.returncode in (0, 3), done.stderr
    lines = done.stdout.splitlines()
    assert "# 2 of 2 ranks on 1 host have come" in lines
    assert "2 ranks on 1 host; 1 link: every pair of ranks" in lines
    assert lines[-1].startswith("hetccl check: ")
    refused = commands.run("check", "--ranks", 2, "--report", tmp_path / "no" / "page.html")
    assert refused.returncode == 1
    assert "No such file or directory" in refused.stderr


def test_unlike_devices_are_checked(tmp_path):
    adaptor = tmp_path / "adaptor.so"
    source = str(ADAPTORS / "threads/threads_adaptor.c")
    compile_to(adaptor, "gcc", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-DTHREADS_REDUCE",
               source, "-ldl", "-lpthread")  # fmt: skip
    done = commands.run(
        "check", "--devices", "threads:0,cpu", "--json", env={"HETCCL_ADAPTORS": str(adaptor)}
    )
    document = json.loads(done.stdout)
    assert said(document, "error") == [], done.stderr
    assert [one["device"] for one in document["ranks"]] == ["threads:0", "host"]
    assert all(len(result["links"]) == 1 for result in document["results"])
