"""Emulated hosts: shaped, counted, cut and healed, and never left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from patience import HANG, PROMPT

from hetccl.hosts import EmulatedHosts

pytestmark = pytest.mark.skipif(
    EmulatedHosts.unavailable() is not None, reason=str(EmulatedHosts.unavailable())
)

RECEIVE = """
import socket, sys, time
server = socket.create_server(("0.0.0.0", 5000)); server.settimeout(300)
print("ready", flush=True)
peer, _ = server.accept()
start, got = time.monotonic(), 0
while data := peer.recv(1 << 20):
    got += len(data)
print(got, time.monotonic() - start)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=300) as peer:
    peer.sendall(bytes(int(sys.argv[2])))
"""
HOLD = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from hetccl.hosts import EmulatedHosts
with EmulatedHosts(2) as hosts:
    hosts.popen(1, ["sleep", "60"])
    print(hosts.namespace(0), flush=True)
    time.sleep(60)
"""


def namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], check=True, capture_output=True, text=True
    ).stdout


def transfer(hosts: EmulatedHosts, size: int) -> float:
    """Seconds that `size` bytes take from host 1 to host 0."""
    receiver = hosts.popen(0, [sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout.readline() == "ready\n"
    sender = hosts.popen(1, [sys.executable, "-c", SEND, hosts.address(0), str(size)])
    assert sender.wait(HANG) == 0
    out, _ = receiver.communicate(timeout=HANG)
    got, seconds = out.split()
    assert int(got) == size
    return float(seconds)


def test_links_are_shaped_and_counted():
    size = 8 << 20
    with EmulatedHosts(2, rate="200mbit") as hosts:
        before = hosts.tx_bytes(1)
        seconds = transfer(hosts, size)
        sent = hosts.tx_bytes(1) - before
    assert 0.5 * 8 * size / 200e6 < seconds < PROMPT
    assert size < sent < 1.05 * size


def test_no_setting_leads_a_job_past_the_shaped_links(monkeypatch):
    monkeypatch.setenv("HETCCL_TRANSPORT", "verbs")
    with EmulatedHosts(1) as hosts:
        for env in (None, {"HETCCL_TRANSPORT": ""}, dict(os.environ)):
            told = hosts.popen(
                0, ["printenv", "HETCCL_TRANSPORT"], env, stdout=subprocess.PIPE, text=True
            )
            assert told.communicate(timeout=HANG)[0] == "tcp\n"


def test_a_cut_uplink_carries_nothing_until_it_heals():
    probe = [sys.executable, "-c", SEND.replace("timeout=300", "timeout=0.7")]
    with EmulatedHosts(2) as hosts:
        hosts.cut(0)
        refused = hosts.popen(1, [*probe, hosts.address(0), "1"], stderr=subprocess.DEVNULL)
        assert refused.wait(HANG) != 0
        hosts.restore(0)
        transfer(hosts, 1000)


def test_blocked_ports_are_silent():
    probe = [sys.executable, "-c", SEND.replace("timeout=300", "timeout=0.7")]
    with EmulatedHosts(2) as hosts:
        hosts.block(0, 4999, 5000)
        listener = hosts.popen(0, [sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE)
        assert listener.stdout.readline() == b"ready\n"
        shut_out = hosts.popen(1, [*probe, hosts.address(0), "1"], stderr=subprocess.PIPE)
        assert b"timed out" in shut_out.communicate(timeout=HANG)[1]
        inside = hosts.popen(0, [sys.executable, "-c", SEND, hosts.address(0), "1"])
        assert inside.wait(HANG) == 0


def test_two_sets_of_hosts_do_not_meet():
    with EmulatedHosts(1) as one, EmulatedHosts(1) as other:
        assert one.namespace(0) != other.namespace(0)
        assert one.address(0) == other.address(0)


def test_hosts_go_down_after_an_exception_with_their_processes():
    with pytest.raises(RuntimeError, match="on purpose"), EmulatedHosts(2) as hosts:
        process = hosts.popen(0, ["sleep", "60"])
        name = hosts.namespace(0)
        assert name in namespaces()
        raise RuntimeError("on purpose")
    assert process.poll() == -signal.SIGKILL
    assert name not in namespaces()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_hosts_go_down_with_a_signal(how):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    name = holder.stdout.readline().strip()
    assert name in namespaces()
    holder.send_signal(how)
    assert holder.wait(HANG) != 0
    assert name not in namespaces()


def test_the_hosts_of_a_killed_process_are_swept_by_the_next():
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    name = holder.stdout.readline().strip()
    assert name in namespaces()
    holder.kill()
    holder.wait(HANG)  # from now on another test's hosts may sweep it
    with EmulatedHosts(1):
        assert name not in namespaces()


def test_a_forked_child_leaves_its_parents_hosts_alone():
    with EmulatedHosts(1) as hosts:
        child = os.fork()
        if child == 0:
            hosts._down()
            os._exit(0)
        os.waitpid(child, 0)
        assert hosts.namespace(0) in namespaces()


def test_hosts_are_up_soon():
    start = time.monotonic()
    with EmulatedHosts(4):
        pass
    assert time.monotonic() - start < PROMPT


def test_rails_are_apart_shaped_each_and_cut_one_by_one():
    probe = [sys.executable, "-c", SEND.replace("timeout=300", "timeout=0.7")]
    with EmulatedHosts(2, rate=["500mbit", "200mbit"]) as hosts:
        assert hosts.rails == 2
        assert hosts.card_mbps() == "up0=500,up1=200"
        assert hosts.interface(1) == "up1"
        assert hosts.address(1, 1) == "10.77.1.2"
        shown = subprocess.run(
            ["tc", "-n", hosts.namespace(0), "qdisc", "show", "dev", "up1"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert "rate 200Mbit" in shown
        hosts.cut(0, 1)
        refused = hosts.popen(1, [*probe, hosts.address(0, 1), "1"], stderr=subprocess.DEVNULL)
        assert refused.wait(HANG) != 0
        transfer(hosts, 1000)  # by the other rail
        with pytest.raises(IndexError):
            hosts.cut(0, 2)
    for rates in ([], ["1gbit"] * 5):
        with pytest.raises(ValueError, match="rails"):
            EmulatedHosts(2, rates)
    with pytest.raises(ValueError, match="rails"):
        EmulatedHosts(2, ["1gbit", "1gbit"], sites=2)
    with pytest.raises(ValueError, match="500mbit"):
        EmulatedHosts(2, ["fast", "1gbit"]).card_mbps()
