"""`hetccl topo`: files, layouts, a job, this machine; as text, JSON and SVG."""

import io
import json
import random
import re
from xml.etree import ElementTree

import commands
import pytest
from rich.console import Console

from hetccl import _lib
from hetccl.topology import graph, layout, svg, text

SVG = "{http://www.w3.org/2000/svg}"


def topology_of(*arguments, **options):
    made = layout.parse(*arguments, **options)
    return graph.parse(_lib.topology(layout.to_json(made)))


def hetccl(*arguments, status=0):
    done = commands.run_to(status, *arguments, env={"COLUMNS": "200"})
    return done.stdout + done.stderr


def shown(topology, **options):
    out = io.StringIO()
    text.show(topology, Console(file=out, width=120), **options)
    return out.getvalue()


def test_a_letter_is_a_rank_and_a_number_repeats_it():
    assert layout.parse_groups("AABB") == layout.parse_groups("A2B2") == "AABB"
    assert layout.parse_groups("A1b12") == "A" + 12 * "b"


@pytest.mark.parametrize("bad", ["", "A-B", "2A", "A0", "A99999", "A B"])
def test_a_layout_that_says_nothing_or_too_much_is_refused(bad):
    with pytest.raises(layout.LayoutError):
        layout.parse_groups(bad)


def test_bandwidths():
    assert [layout.parse_bandwidth(text) for text in ("100M", "2.5G", "400g")] == [
        100,
        2500,
        400000,
    ]
    for bad in ("", "fast", "1T", "-1G", "G"):
        with pytest.raises(layout.LayoutError):
            layout.parse_bandwidth(bad)


def test_host_ranks_cluster_by_host_and_gpus_by_vendor():
    hosts = topology_of("A4", hosts=2)
    assert [cluster.ranks for cluster in hosts.clusters] == [(0, 1), (2, 3)]
    gpus = topology_of("A4B4", hosts=2, kinds=["A=cuda:H100", "B=hip:MI300X"], nics=["400G"])
    assert [cluster.vendor for cluster in gpus.clusters] == ["cuda", "hip"]
    assert len(gpus.hosts) == 4
    assert gpus.links[0] == graph.Link(0, 1, "tcp", 1_600_000)


def test_letters_may_share_hosts():
    both = topology_of("A2B2", hosts=1, together=True)
    assert [cluster.label for cluster in both.clusters] == ["A", "B"]
    assert both.links[0].kind == "shm"
    vendors = topology_of("A2B2", hosts=2, kinds=["A=cuda", "B=hip"], together=True)
    assert [len(vendors.parts(host)) for host in vendors.hosts] == [1, 1]


def test_border_ranks_are_those_next_to_a_card():
    few = topology_of("A8B1", kinds=["A=cuda"], nics=["100G", "B=450G"], cards=2)
    assert few.clusters[0].cards[1] == (graph.Nic("nic1", 100_000, 0),)
    assert [few.clusters[0].share_of(rank) for rank in (0, 1, 2)] == ["1/2", "1/2", ""]
    assert few.links[0].mbps == 200_000
    each = topology_of("A8B1", kinds=["A=cuda"], nics=["100G", "B=450G"])
    assert each.clusters[0].share_of(7) == "1/8"
    assert each.links[0].mbps == 450_000
    assert topology_of("A8B1").clusters[0].share_of(7) == "1/8"


def test_cards_equally_near_are_dealt_out():
    hosts = topology_of("A4B1", nics=["25G"], cards=2)
    assert [hosts.clusters[0].cards[rank][0].name for rank in range(4)] == ["nic0", "nic1"] * 2
    assert [card.name for card in hosts.clusters[1].cards[4]] == ["nic0", "nic1"]
    assert hosts.links[0].mbps == 50_000
    assert "nic1 25 Gbit/s" in shown(hosts)


def test_a_layout_names_a_letter_that_it_has_not():
    with pytest.raises(layout.LayoutError, match="'C'"):
        layout.parse("AB", kinds=["C=cuda"])


@pytest.mark.parametrize(
    ("kind", "gbit"),
    [
        ("host", 10),
        ("cuda:NVIDIA H100 80GB HBM3", 400),
        ("cuda:H200", 400),
        ("cuda:NVIDIA GB200", 400),
        ("cuda:B300", 800),
        ("cuda:A100-SXM4-80GB", 200),
        ("cuda:NVIDIA RTX A1000", 100),
        ("cuda:L40S", 100),
        ("cuda", 100),
        ("cuda:GeForce RTX 4090", 100),
        ("hip:MI300X", 400),
        ("hip:MI100", 100),
        ("hip:AMD Instinct MI250X", 200),
    ],
)
def test_a_card_without_a_speed_is_what_its_device_usually_has(kind, gbit):
    assert topology_of("AB", kinds=[kind]).clusters[0].cards[0][0].mbps == gbit * 1000
    assert topology_of("AB", kinds=[kind], nics=["25G"]).clusters[0].cards[0][0].mbps == 25_000


def random_topology(seed):
    rng = random.Random(seed)
    groups = "".join(rng.choice("ABCDEF"[: 1 + seed % 6]) for _ in range(rng.randint(1, 20)))
    speeds = [f"{letter}={rng.choice(['100M', '1G', '1G', '40G'])}" for letter in set(groups)]
    return topology_of(groups, hosts=rng.randint(1, 3), nics=speeds, together=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(60))
def test_two_clusters_use_the_first_line_that_they_share(seed):
    topology = random_topology(seed)
    lines = topology.lines()
    assert len(lines) <= len(topology.clusters) + len(topology.hosts)
    for link in topology.links:
        first = next(line for line in lines if {link.a, link.b} <= set(line.clusters))
        assert (first.kind, first.mbps) == (link.kind, link.mbps)


def test_text_shows_hosts_clusters_ranks_borders_and_links():
    lines = shown(topology_of("AAB", kinds=["A=cuda:H100"], nics=["10G", "B=25G"]))
    for part in ("3 ranks, 2 hosts, 2 clusters", "host a0", "cluster 0", "library nccl", "H100",
                 "1/2", "nic1 10 Gbit/s", "0 - 1", "tcp"):  # fmt: skip
        assert part in lines
    assert "0-1 " in shown(topology_of("AAB"))


def test_text_of_many_ranks_is_short_unless_asked_for():
    many = topology_of("A64B64", kinds=["A=cuda", "B=hip"], cards=64)
    assert len(shown(many).splitlines()) < 50
    assert "rows more: --all" in shown(many)
    assert len(shown(many, show_all=True).splitlines()) > 128


def test_many_clusters_are_joined_by_a_few_lines():
    many = topology_of("A40", hosts=40)
    assert "any two of 0-39" in shown(many)


def drawn(topology):
    return ElementTree.fromstring(svg.draw(topology))


def test_svg_has_every_host_cluster_rank_and_line():
    root = drawn(topology_of("AABBC", nics=["10G", "C=1G"]))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert [text for text in texts if text.isdigit()] == list("01234")
    assert {"host a0", "host c0", "cluster 2", "tcp 10 Gbit/s", "tcp 1 Gbit/s"} <= set(texts)
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert any(title.startswith("rank 4: host; border rank: carries 1/1") for title in titles)
    width, height = (float(root.get(side)) for side in ("width", "height"))
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width")) <= width
        assert float(box.get("y", 0)) + float(box.get("height")) <= height


def test_svg_escapes_what_names_contain():
    ranks = {"rank": 0, "host": '<&">', "vendor": "host", "model": "<script>alert(1)</script>"}
    markup = svg.draw(graph.parse(_lib.topology(json.dumps({"ranks": [ranks]}))))
    assert "<script" not in markup
    assert ElementTree.fromstring(markup) is not None


def test_svg_of_many_ranks_stays_small():
    assert len(svg.draw(topology_of("A4096B4096", kinds=["A=cuda", "B=hip"]))) < 100_000


def test_hosts_of_one_name_are_told_apart():
    ranks = [
        {"rank": rank, "host": f"id{rank}", "host_name": "vm", "vendor": "host"} for rank in (0, 1)
    ]
    named = graph.parse(_lib.topology(json.dumps({"ranks": ranks})))
    assert list(named.hosts.values()) == ["vm (1)", "vm (2)"]


@pytest.mark.smoke
def test_command_makes_saves_and_reads_a_topology(tmp_path):
    saved, picture = tmp_path / "t.json", tmp_path / "t.svg"
    made = hetccl("topo", "--layout", "A2B2", "--kind", "A=cuda:H100", "--kind", "B=host",
                  "--nic", "100G", "--save", saved, "--svg", picture)  # fmt: skip
    assert "H100" in made
    assert hetccl("topo", saved) == made
    assert json.loads(hetccl("topo", saved, "--json")) == json.loads(saved.read_text())
    assert ElementTree.parse(picture).getroot().tag == f"{SVG}svg"


def test_command_shows_this_machine():
    alone = json.loads(hetccl("topo", "--json"))
    assert [rank["pid"] > 0 for rank in alone["ranks"]] == [True]
    assert "1 rank, 1 host, 1 cluster" in hetccl("topo")


@pytest.mark.smoke
def test_command_shows_a_launched_job(tmp_path):
    meeting = tmp_path / "id"
    jobs = []
    for rank in range(3):
        env = {"RANK": str(rank), "WORLD_SIZE": "3", "HETCCL_CLUSTER": "xyx"[rank]}
        jobs.append(commands.Command("topo", "--rendezvous", meeting, env=env))
    done = [job.finish() for job in jobs]
    assert [job.returncode for job in done] == [0, 0, 0]
    outputs = [job.stdout for job in done]
    assert "3 ranks, 1 host, 2 clusters" in outputs[0]
    assert re.search(r"cluster 0 .*x", outputs[0])
    assert outputs[1:] == ["", ""]
    assert not meeting.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "not JSON"), ("[1]", "ranks"), ('{"ranks": [{"rank": 0}]}', "lacks"), ("\xff", "UTF-8")],
)
def test_a_bad_file_is_an_error_that_says_why(tmp_path, content, says):
    bad = tmp_path / "bad.json"
    bad.write_bytes(content.encode("latin-1"))
    status = 2 if says == "UTF-8" else 1
    assert says in hetccl("topo", bad, status=status)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("A=nvidia:H100", "no vendor 'nvidia': give cuda, hip, host, or a device of an adaptor"),
        ("H100", "no vendor 'H100': .* a model follows its vendor: cuda:H100"),
        ("A=cuda:H10O", "cuda has no model 'H10O' that is known: give B300, .*; or cuda alone"),
        ("cuda:MI300X", "cuda has no model 'MI300X' that is known"),
        ("hip:MI3OOX", "hip has no model 'MI3OOX' that is known: give MI355X, .*; or hip alone"),
        ("cuda:", "cuda has no model ''"),
        ("host:EPYC", "give host alone"),
    ],
)
def test_an_unknown_kind_is_refused_with_those_that_are_known(kind, says):
    with pytest.raises(layout.LayoutError, match=says):
        layout.parse("A2B2", kinds=[kind])


@pytest.mark.parametrize("command", [["topo"], ["plan", "all_reduce"], ["shard", "7B"]])
def test_commands_refuse_an_unknown_kind(command):
    said = hetccl(*command, "--layout", "A2B2", "--kind", "A=nvidia:H100", status=2)
    assert "no vendor 'nvidia'" in said


def test_letters_without_a_kind_beside_others_are_said_to_be_hosts():
    told = "B and C: hosts (CPUs), since no --kind names a device"
    for command in (["topo"], ["plan", "all_reduce"], ["shard", "7B"]):
        assert told in hetccl(*command, "--layout", "A2B2C", "--kind", "A=cuda:H100")
    assert "hosts (CPUs)" not in hetccl("topo", "--layout", "A2B2", "--kind", "cuda:H100")
    assert "hosts (CPUs)" not in hetccl("topo", "--layout", "A2B2")


@pytest.mark.parametrize("command", [["topo"], ["plan", "all_reduce", "--topology"],
                                     ["shard", "7B", "--topology"]])  # fmt: skip
def test_a_files_unknown_vendor_is_refused_unless_it_names_its_library(command, tmp_path):
    path = tmp_path / "it.json"
    rank = {"rank": 0, "host": "a", "vendor": "nvidia"}
    path.write_text(json.dumps({"ranks": [rank]}))
    said = hetccl(*command, path, status=1)
    assert (
        'rank at place 0: there is no vendor "nvidia": give cuda, hip, host, or an adaptor' in said
    )
    path.write_text(json.dumps({"ranks": [{**rank, "vendor": "npu", "library": "none"}]}))
    hetccl(*command, path)


def test_bad_arguments_are_usage_errors(tmp_path):
    assert "No such file" in hetccl("topo", tmp_path / "none", status=2)
    assert "not both" in hetccl("topo", tmp_path, "--layout", "A", status=2)
    assert "no layout" in hetccl("topo", "--layout", "4", status=2)
    assert "no bandwidth" in hetccl("topo", "--layout", "A", "--nic", "x", status=2)
    assert "No such file" in hetccl("topo", "--layout", "A", "--svg", tmp_path / "x/y", status=2)


@pytest.mark.parametrize("option", [("--kind", "A=cuda"), ("--hosts", 1), ("--together",)])
def test_an_option_of_layouts_needs_a_layout(option):
    assert f"{option[0]} describes a layout" in hetccl("topo", *option, status=2)
