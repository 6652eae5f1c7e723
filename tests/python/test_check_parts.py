"""The conclusions of a check from what it has seen, the order in which links are measured, its
panel and page."""

import contextlib
import json
import socket
import struct
import threading
import time
from itertools import combinations

import pytest
from patience import PROMPT

from hetccl.check import facts as facts_of
from hetccl.check import findings, page, panel, reach, schedule, text
from hetccl.check.panel import Follow, Lead, PanelError

KEY = bytes(32)


def facts(host, **other):
    return {
        "version": "1.0.0", "host": f"id-{host}", "name": f"host{host}", "device": "host",
        "addresses": [f"10.0.0.{host}"], "interfaces": [{"name": "eth0", "mbps": 10_000,
        "mtu": 9000}], "libraries": {"host": "1"}, "transports": ["tcp", "shm"], "torch": "2.13",
        "python": "3.11", "kernel": "6.1", "cores": 8, "memlock": -1, "nofile": 1 << 20,
        "shm": 1 << 34, "ports": None, **other,
    }  # fmt: skip


def document(hosts, each=1, rate=9e9, seconds=2e-5, mbps=10_000, every_pair=True):
    """A job in which nothing is wrong. `rate` is in bits per second."""
    ranks = hosts * each
    members = [list(range(h * each, (h + 1) * each)) for h in range(hosts)]
    nic = {"name": "eth0", "mbps": mbps, "distance": 0}
    links = [[] for _ in range(ranks)]
    for pairs in schedule.rounds(members, every_pair):
        for a, b in pairs:
            for source, target in ((a, b), (b, a)):
                links[source].append(
                    {"peer": target, "wrong": 0, "seconds": seconds, "rate": rate / 8}
                )
    return {
        "ranks": [facts(rank // each) for rank in range(ranks)], "hosts": members, "closed": [],
        "refused": {}, "stopped": "", "every_pair": every_pair, "lost": {}, "clocks": {},
        "topology": {
            "ranks": [{"vendor": "host", "model": "CPU", "nics": [nic]} for _ in range(ranks)],
            "clusters": [{"ranks": list(range(ranks)), "cards": [["eth0"]] * ranks}],
        },
        "results": [{"speed": 1e9, "collectives": [], "links": links[r]} for r in range(ranks)],
    }  # fmt: skip


def texts(found):
    return [f"{one.severity}: {one.text}" for one in findings.find(found)]


def change_rate(found, factor, chosen):
    """Multiplies the rate of links for which `chosen(source, target)`."""
    for rank, result in enumerate(found["results"]):
        for one in result["links"]:
            one["rate"] *= factor if chosen(rank, one["peer"]) else 1


def test_nothing_is_found_where_nothing_is_wrong():
    found = document(4, 2)
    assert texts(found) == []
    assert findings.status([]) == 0
    assert text.verdict([]) == "nothing is wrong"


@pytest.mark.parametrize(
    ("hosts", "chosen", "expected"),
    [
        (4, lambda a, b: 3 in (a, b), ["host3: all links to and from it are slow"]),
        (4, lambda a, b: a == 3, ["host3: all links from it are slow"]),
        (4, lambda a, b: b == 3, ["host3: all links to it are slow"]),
        (4, lambda a, b: (a, b) == (1, 2), ["from rank 1 on host1 to rank 2 on host2"]),
        (2, lambda a, b: a == 0, ["from rank 0 on host0 to rank 1 on host1"]),
        (6, lambda a, b: {1, 4} & {a, b}, ["host1: all links to and", "host4: all links to and"]),
        (4, lambda a, b: True, ["between 4 hosts: at most 900 Mbit/s, 9% of the 10 Gbit/s"]),
    ],
)
def test_a_slow_link_is_told_from_a_slow_host(hosts, chosen, expected):
    found = document(hosts)
    change_rate(found, 0.1, chosen)
    said = texts(found)
    assert len(said) == len(expected)
    for line, part in zip(said, expected, strict=True):
        assert line.startswith(f"warning: {part}")


def test_hosts_whose_slow_links_are_told_already_are_not_told_again():
    found = document(3)
    change_rate(found, 0.1, lambda source, target: (source, target) != (2, 1))
    said = texts(found)
    assert said
    assert all("slow" in one for one in said)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", None), ("20-30", (20, 30)), ("30-20", None), ("70000-70010", None), ("0-9", None)],
)
def test_a_port_range_that_is_none_is_left_to_the_library(monkeypatch, given, expected):
    monkeypatch.setenv("HETCCL_PORT_RANGE", given)
    assert facts_of.port_range() == expected


def test_links_inside_hosts_are_no_measure_of_those_between():
    found = document(3, 2)
    change_rate(found, 10, lambda a, b: a // 2 == b // 2)
    assert texts(found) == []
    change_rate(found, 0.1, lambda a, b: {a, b} == {4, 5})
    assert len(texts(found)) == 2
    assert "from rank 4 on host2 to rank 5 on host2" in texts(found)[0]


def test_a_slow_rank_is_named_and_not_its_links():
    found = document(4)
    found["results"][2]["speed"] = 0.2e9
    change_rate(found, 0.1, lambda a, b: 2 in (a, b))
    (line,) = texts(found)
    assert line.startswith("warning: rank 2 on host2, device host: it works at 20% of the speed")
    found["topology"]["ranks"][2]["model"] = "another"  # and so is not like the others
    assert "all links" in texts(found)[0]


def test_a_late_link_is_named():
    found = document(4)
    found["results"][0]["links"][0]["seconds"] = 0.05
    peer = found["results"][0]["links"][0]["peer"]
    (line,) = texts(found)
    assert line.startswith(f"warning: between rank 0 on host0 and rank {peer}")
    assert "takes 50 ms, and 20 us" in line


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"version": "0.9.0"}, "error: rank 1 on host1: hetccl 0.9.0, and 1.0.0 elsewhere"),
        ({"libraries": {"host": "2"}}, "warning: rank 1 on host1: host 2, and 1 elsewhere"),
        ({"interfaces": [{"name": "eth0", "mbps": 1, "mtu": 1500}]},
         "warning: host1: MTU 1500, and 9000 elsewhere"),
        ({"nofile": 100}, "error: host1: a process may open 100 files (ulimit -n), and a rank"),
        ({"memlock": 65536, "transports": ["verbs"]},
         "warning: host1: a process may lock 64 KiB (ulimit -l)"),
        ({"memlock": 65536}, None),
        ({"shm": 1000}, None),
    ],
)  # fmt: skip
def test_what_hosts_say_of_themselves_is_compared(changed, expected):
    found = document(3)
    found["ranks"][1].update(changed)
    said = texts(found)
    assert len(said) == (1 if expected else 0)
    assert not expected or said[0].startswith(expected)


def test_hosts_of_several_ranks_need_memory_and_cores():
    found = document(1, 4)
    for one in found["ranks"]:
        one.update(shm=1 << 20, cores=2)
    assert texts(found) == [
        "warning: host0: /dev/shm has 1 MiB left for 4 ranks",
        "note: host0: 4 ranks of the host share 2 cores",
    ]
    assert findings.status(findings.find(found)) == 3


def test_clocks_that_differ_by_more_than_the_error():
    found = document(3)
    found["clocks"] = {"1": [-90.0, 0.01], "2": [0.7, 0.4]}
    assert texts(found) == ["warning: rank 1 on host1: its clock is 90 s behind rank 0's"]


def test_what_kept_a_communicator_from_being_made():
    found = document(3)
    found["refused"] = {"0": "HETCCL_DEPTH differs", "2": "HETCCL_DEPTH differs"}
    found["lost"] = {"1": "nothing came"}
    found["ranks"][1] = None
    found["hosts"] = [[0], [2]]
    found["closed"] = [
        {"from": 0, "to": 1, "port": port, "reason": "no answer"} for port in (20, 21, 23)
    ]
    found["topology"], found["results"] = None, []
    assert texts(found) == [
        "error: rank 1 of 3 is missing: nothing came",
        "error: host2: port 20-21, 23 cannot be reached from host0: no answer",
        "error: the ranks cannot make a communicator; ranks 0, 2 on host0, host2: HETCCL_DEPTH "
        "differs",
    ]
    assert findings.status(findings.find(found)) == 1
    assert text.verdict(findings.find(found)) == "3 errors"
    assert text.verdict(findings.find(found)[:1]) == "1 error"
    assert "HETCCL_PORT_RANGE" in findings.find(found)[1].remedy


@pytest.mark.parametrize("hosts", [[1], [2], [3, 1], [4, 4], [2, 3, 4, 1], [1] * 7])
def test_every_pair_is_measured_once_and_none_slows_another(hosts):
    members, first = [], 0
    for count in hosts:
        members.append(list(range(first, first + count)))
        first += count
    host_of = {rank: number for number, ranks in enumerate(members) for rank in ranks}
    seen = []
    for pairs in schedule.rounds(members, every_pair=True):
        used = [rank for pair in pairs for rank in pair]
        assert len(set(used)) == len(used)
        across = [host for a, b in pairs if host_of[a] != host_of[b]
                  for host in (host_of[a], host_of[b])]  # fmt: skip
        assert len(set(across)) == len(across)
        inside = [host_of[a] for a, b in pairs if host_of[a] == host_of[b]]
        assert len(set(inside)) == len(inside)
        seen += pairs
    assert sorted(map(sorted, seen)) == sorted(map(list, combinations(range(first), 2)))


def test_a_thousand_ranks_take_as_many_rounds_as_there_are_hosts():
    members = [list(range(h * 8, h * 8 + 8)) for h in range(128)]
    rounds = list(schedule.rounds(members, every_pair=False))
    assert len(rounds) == 127 + 8
    met = {
        tuple(sorted((a // 8, b // 8))) for pairs in rounds for a, b in pairs if a // 8 != b // 8
    }
    assert len(met) == 128 * 127 // 2
    assert {rank for pairs in rounds for pair in pairs for rank in pair} == set(range(1024))


def test_the_page_of_a_thousand_ranks_escapes_and_leaves_out_what_is_fast():
    found = document(128, 8, every_pair=False)
    change_rate(found, 0.1, lambda a, b: (a // 8 == 100) != (b // 8 == 100))
    for one in found["ranks"][800:808]:
        one["name"] = "<script>alert(1)</script>"
    start = time.monotonic()
    listed = findings.find(found)
    made = page.render(found, listed)
    assert time.monotonic() - start < PROMPT
    assert len(listed) == 1
    assert "all links to and from it are slow" in listed[0].text
    assert "<script" not in made
    assert "&lt;script&gt;alert(1)" in made
    bandwidth, _ = page.heat_maps(found)
    assert len(bandwidth.places) == page.MOST_PLACES
    assert bandwidth.left_out == 64
    assert "64 places with faster links are left out" in made
    slow = bandwidth.places.index("<script>alert(1)</script>")
    heats = [cell.heat for cell in bandwidth.rows[slow] if cell.heat >= 0]
    assert sorted(heats)[-2:] == [0.0, 1.0]  # links inside the host are as good as others
    assert len(made) < 1 << 20


def test_a_small_page_has_a_map_of_ranks_with_numbers():
    found = document(2, 2)
    bandwidth, latency = page.heat_maps(found)
    assert bandwidth.places[3] == "rank 3 on host1"
    assert bandwidth.has_numbers
    assert bandwidth.rows[0][3].label == "9"
    assert bandwidth.rows[0][3].title == (
        "rank 0 on host0 to rank 3 on host1: 9 Gbit/s of 10 Gbit/s"
    )
    assert latency.rows[1][2].label == "20"
    slow = page.heat_maps(document(2, 2, rate=39.7e6, seconds=1.274e-3))
    assert [one.rows[0][3].label for one in slow] == ["0.0397", "1270"]
    assert bandwidth.rows[0][0].heat == -1
    assert page.heat_maps({**found, "topology": None}) == []


@pytest.fixture
def lead():
    listener = panel.listen(())
    made = Lead(listener, KEY, 3)
    made.address = ("127.0.0.1", listener.getsockname()[1])
    yield made
    made.close()


def test_ranks_tell_and_are_told(lead):
    told = {}

    def follow(rank):
        mine = Follow([("127.0.0.1", 1), lead.address], KEY, rank, 20)
        mine.collect({"rank": rank}, 20)
        told[rank] = mine.share(None, 20)
        mine.close()

    ranks = [threading.Thread(target=follow, args=(rank,)) for rank in (1, 2)]
    for one in ranks:
        one.start()
    lead.wait(20)
    assert lead.collect({"rank": 0}, 20) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    lead.share(["all"], 20)
    for one in ranks:
        one.join()
    assert told == {1: ["all"], 2: ["all"]}
    assert lead.lost == {}
    for ahead, error in lead.clocks.values():
        assert abs(ahead) <= error + 0.05
    assert lead.collect(0, 20) == [0, None, None]
    assert set(lead.lost) == {1, 2}
    assert "has ended" in lead.lost[1]


def test_strangers_and_silent_ones_keep_nobody_waiting(lead):
    silent = socket.create_connection(lead.address)
    with pytest.raises(PanelError, match="cannot reach rank 0"):
        Follow([lead.address], bytes(31) + b"x", 1, 0.1)
    for rank in (0, 3, 1 << 31):  # which this job does not have
        with pytest.raises(PanelError):
            Follow([lead.address], KEY, rank, 0.1)
    rank = Follow([lead.address], KEY, 1, 20)
    with socket.create_connection(lead.address) as liar:  # proves nothing, and asks for no proof
        panel._read(liar, panel._NONCE)
        liar.sendall(bytes(panel._NONCE) + (2).to_bytes(4, "big") + bytes(panel._PROOF))
        liar.sendall(bytes(8 * panel._PINGS))
        with contextlib.suppress(ConnectionResetError):
            assert liar.recv(1) == b""
        lead.wait(0.5)
    assert set(lead.lost) == {2}
    assert "nothing came to rank 0's port" in lead.lost[2]
    assert lead.collect(0, 0.2) == [0, None, None]
    assert "said nothing" in lead.lost[1]
    rank.close()
    silent.close()


def test_frames_are_bounded_and_an_end_is_heard(lead):
    ranks = [Follow([lead.address], KEY, rank, 20) for rank in (1, 2)]
    lead.wait(20)
    ranks[0]._connection.sendall(struct.pack("!I", 1 << 30))
    ranks[1]._connection.sendall(struct.pack("!I", 3) + b"{x}")
    assert lead.collect(0, 20) == [0, None, None]
    assert "is the most" in lead.lost[1]
    with pytest.raises(PanelError, match="lost rank 0"):
        ranks[0].share(None, 20)
    with pytest.raises(ValueError, match="more than a frame"):
        panel._send(ranks[1]._connection, "x" * (9 << 20))


def test_a_leader_that_does_not_know_the_secret_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend():
            peer, _ = server.accept()
            peer.sendall(bytes(panel._NONCE))
            panel._read(peer, panel._NONCE + 4 + panel._PROOF)
            peer.sendall(bytes(panel._PROOF))

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(PanelError, match="no rank of this job"):
            Follow([server.getsockname()], KEY, 1, 0)


def test_ports_that_are_closed_are_told_from_those_that_answer():
    with reach.listening(None, 1) as ports, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        closed = taken.getsockname()[1]
        listeners = [
            {"addresses": [], "ports": []},
            {"addresses": ["127.0.0.1"], "ports": [*ports, closed]},
            {"addresses": [], "ports": [1]},
        ]
        failed = reach.dial(0, listeners)
    assert [(one["to"], one["port"]) for one in failed] == [(1, closed), (2, 1)]
    assert "refused" in failed[0]["reason"]
    assert failed[1]["reason"] == "it has no address"
    with reach.listening((ports[0], ports[0]), 5) as few:
        assert len(few) <= 1


def test_a_host_dials_a_bounded_number_of_others():
    assert reach.targets(1, 3) == [2, 0]
    many = reach.targets(1000, 1024)
    assert len(many) == reach.MOST_HOSTS
    assert many[0] == 1001 and many[-1] == 40


def test_the_document_is_json():
    found = document(2)
    assert json.loads(json.dumps(found)) == found
