"""`hetccl plan`: any collective on any topology file; as text, JSON and SVG."""

import io
import json
from xml.etree import ElementTree

import commands
import pytest
from rich.console import Console

from hetccl import _lib
from hetccl.plan import description, svg, text
from hetccl.topology import graph, layout

SVG = "{http://www.w3.org/2000/svg}"
TWO = _lib.topology(layout.to_json(layout.parse("AAB", nics=["10G", "B=1G"])))
THREE = _lib.topology(layout.to_json(layout.parse("AABBC")))


def collectives():
    """Every one that the library has, from its own words."""
    with pytest.raises(_lib.HetcclError) as caught:
        _lib.plan(TWO, "everything")
    return str(caught.value).partition("none of ")[2].split(", ")


def planned(topology, collective, **options):
    return description.parse(_lib.plan(topology, collective, **options))


def shown(topology, plan, **options):
    out = io.StringIO()
    text.show(plan, graph.parse(topology), Console(file=out, width=140), **options)
    return out.getvalue()


def hetccl(*arguments, status=0):
    done = commands.run_to(status, *arguments, env={"COLUMNS": "200"})
    return done.stdout + done.stderr


@pytest.mark.parametrize("collective", collectives())
@pytest.mark.parametrize("topology", [TWO, THREE])
def test_every_collective_is_explained_and_drawn(topology, collective):
    plan = planned(topology, collective, count=10_000_000, root=1, to=0)
    assert plan["verifier"]["verdict"] == "correct"
    assert plan.of_least in (None, 1.0)
    seen = shown(topology, plan)
    assert "correct" in seen
    for rank in plan.ranks:
        assert f"rank {rank.rank} " in seen
    root = ElementTree.fromstring(svg.draw(plan))
    wires = [path for path in root.iter(f"{SVG}path") if path.get("class") == "wire"]
    clusters = {rank.rank: rank.cluster for rank in plan.ranks}
    messages = [(a.rank, b.rank) for a, _, b, _ in plan.messages()]
    crossing = [ends for ends in messages if clusters[ends[0]] != clusters[ends[1]]]
    assert len(wires) == len(messages)
    assert len(crossing) == plan["verifier"]["messages"]


def test_the_crossing_is_told_for_each_pair_of_clusters_with_the_links_time():
    seen = shown(TWO, planned(TWO, "all_reduce", count=1_000_000, dtype=_lib.DataType.float32))
    assert "8 MB between clusters, 1.000 of the least possible" in seen
    rows = [line.split() for line in seen.splitlines() if line.startswith(("0     1", "1     0"))]
    assert [row[2:5] for row in rows] == [["4", "MB", "50%"]] * 2
    assert all(row[-2:] == ["32", "ms"] for row in rows)


def test_steps_name_what_they_do_where_and_after_what():
    steps = shown(TWO, planned(TWO, "all_reduce", rank=0)).splitlines()
    send = next(line for line in steps if "send to 2" in line)
    assert "scratch[0] 0..1/2" in send
    assert send.split()[-1] == "0"


def test_a_message_is_explained_and_its_mutants_are_rejected():
    text = layout.to_json(layout.parse("AAB", kinds=["A=cuda:H100", "B=hip"], together=True))
    gpus = _lib.topology(text)
    plan = planned(gpus, "send_recv", root=0, to=2, count=1 << 20, mutants=1000)
    assert plan["verifier"]["verdict"] == "correct"
    assert plan["mutants"]["made"] == plan["mutants"]["rejected"] > 10
    assert plan["cross_bytes"] == 4 << 20
    assert [len(rank.steps) for rank in plan.ranks] == [1, 0, 1]
    assert "send_recv of 1,048,576 float32 (4.19 MB) from rank 0 to rank 2" in shown(gpus, plan)


def test_a_message_goes_to_a_rank_of_the_topology():
    with pytest.raises(_lib.HetcclError, match="to is 3: it must be from 0 to 2"):
        planned(TWO, "send_recv", to=3)
    with pytest.raises(_lib.HetcclError, match="leave slice_bytes and depth 0"):
        planned(TWO, "send_recv", depth=3)


def test_a_premultiplied_sum_scales_each_ranks_input_once(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(_lib.topology(layout.to_json(layout.parse("AAB"))))
    seen = hetccl("plan", "all_reduce", "--topology", file, "--op", "premul_sum")
    assert seen.count("times the rank's factor") == 3
    assert "correct" in seen


def test_a_reduce_names_the_receiver_inside_the_roots_cluster():
    seen = shown(TWO, planned(TWO, "reduce", root=1))
    assert "at 0 for 1 alone" in seen


def test_what_a_plan_was_chosen_from_is_explained():
    small, large = (planned(THREE, "all_reduce", count=count) for count in (10, 1 << 24))
    assert (small["plan"], large["plan"]) == ("exchange", "owner")
    rows = [line.split() for line in shown(THREE, small, explain=True).splitlines()]
    (owner,) = (row for row in rows if row[:1] == ["owner"])
    (exchange,) = (row for row in rows if row[:1] == ["exchange"])
    assert (owner[1], exchange[1]) == ("2", "1")
    assert owner[4] == str(small["candidates"][0]["depth"])
    assert exchange[-1] == "chosen"
    assert owner[-1] != "chosen"
    assert "Plans to choose from" not in shown(THREE, small)


def test_one_rank_slices_and_depth_can_be_asked_for():
    plan = planned(THREE, "broadcast", count=32 * 1024, rank=4, root=4, slice_bytes=4096, depth=7)
    assert [rank.rank for rank in plan.ranks] == [4]
    assert plan["slices"]["bytes"] == 4096
    assert plan["slices"]["depth"] == 7
    assert plan["slices"]["number"] == 32


def test_slices_are_those_that_run_at_most_64():
    plan = planned(THREE, "broadcast", slice_bytes=4096)
    assert (plan["slices"]["number"], plan["slices"]["bytes"]) == (64, 65536)
    pairwise = planned(THREE, "all_to_all", slice_bytes=4096)
    assert pairwise["slices"]["number"] == 1


@pytest.mark.smoke
def test_code_lists_every_instruction_and_mutants_are_rejected():
    plan = planned(THREE, "all_reduce", rank=0, code=True, mutants=200, seed=7)
    (mine,) = plan.ranks
    assert mine.code is not None
    listed = mine.code["code"]
    assert listed[-1] == {"op": "finish", "section": "epilogue", "queue": "user", "lag": 0}
    ops = [one["op"] for one in listed]
    sends = sum(step["kind"] == "send" for step in mine.steps)
    assert ops.count("send") + ops.count("send_header") == sends
    assert plan["mutants"]["made"] == 200
    assert plan["mutants"]["rejected"] >= 198
    assert len(plan["mutants"]["survivors"]) == 200 - plan["mutants"]["rejected"]
    lines = shown(THREE, plan)
    assert "instructions; " in lines
    assert "mutants  200 made" in lines


def test_a_wrong_plan_and_one_too_large_are_said_loudly():
    raw = {"verifier": {"verdict": "wrong", "reason": "rank 1 gets nothing"}, "collective": "x"}
    plan = description.Description(raw, [])
    assert not plan.correct
    assert "WRONG: rank 1 gets nothing" in text.verdict(plan).plain
    raw["verifier"] = {"verdict": "too large", "reason": "many ranks"}
    assert "not asked: many ranks" in text.verdict(plan).plain


def test_the_pipeline_shows_each_stage_of_each_slice():
    plan = planned(TWO, "all_reduce")
    texts = [t.text for t in ElementTree.fromstring(svg.draw(plan)).iter(f"{SVG}text")]
    assert texts.count("5") == plan["stages"]
    assert f"in time: {plan['slices']['number']} slices, up to 4 in flight" in texts


def test_a_picture_of_too_many_ranks_is_refused():
    many = _lib.topology(layout.to_json(layout.parse("A33")))
    with pytest.raises(ValueError, match="--rank"):
        svg.draw(planned(many, "barrier"))
    assert svg.draw(planned(many, "barrier", rank=2))


@pytest.mark.smoke
def test_command(tmp_path):
    file, picture = tmp_path / "t.json", tmp_path / "p.svg"
    file.write_text(THREE)
    seen = hetccl("plan", "all_gather", "--topology", file, "--count", 1000, "--type", "bfloat16",
                  "--svg", picture)  # fmt: skip
    assert "all_gather of 1,000 bfloat16" in seen
    assert "Between clusters" in seen
    assert ElementTree.parse(picture).getroot().tag == f"{SVG}svg"
    answer = json.loads(hetccl("plan", "reduce_scatter", "--topology", file, "--op", "avg",
                               "--rank", 1, "--json"))  # fmt: skip
    assert answer["op"] == "avg"
    assert [rank["rank"] for rank in answer["ranks"]] == [1]


def test_explain_shows_which_card_carries_what():
    made = layout.parse("A2B1", nics=["10G"], cards=2)
    complete = _lib.topology(layout.to_json(made))
    plan = planned(complete, "all_reduce", count=1 << 20)
    cards = {(card["host"], card["card"]): card["bytes"] for card in plan["cards"]}
    assert cards == {(host, card): 2 << 20 for host in ("a0", "b0") for card in ("nic0", "nic1")}
    console = Console(file=io.StringIO(), width=120)
    text.show(plan, graph.parse(complete), console, explain=True)
    assert "Cards of the hosts" in console.file.getvalue()
    assert "nic1" in console.file.getvalue()
    without = Console(file=io.StringIO(), width=120)
    text.show(plan, graph.parse(complete), without)
    assert "Cards of the hosts" not in without.file.getvalue()


@pytest.mark.smoke
def test_bad_arguments_are_errors_that_name_them(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(TWO)
    plan = ("plan", "broadcast", "--topology", file)
    assert "all_reduce" in hetccl("plan", "everything", "--topology", file, status=2)
    assert "root is 9" in hetccl(*plan, "--root", 9, status=1)
    assert "rank is 3" in hetccl(*plan, "--rank", 3, status=1)
    assert "slice_bytes is 65" in hetccl(*plan, "--slice-bytes", 65, status=1)
    assert "too large" in hetccl(*plan, "--count", 2**63, status=1)
    assert "2147483647" in hetccl(*plan, "--rank", 2**32, status=2)
    assert "'--type': 'f8' is no type" in hetccl(*plan, "--type", "f8", status=2)
    assert "'--op': 'xor' is no operator" in hetccl(*plan, "--op", "xor", status=2)
    assert "No such file" in hetccl("plan", "barrier", "--topology", tmp_path / "n", status=2)


def test_a_plan_takes_a_layout_as_topo_does(tmp_path):
    layout_of = ("--layout", "A2B2", "--kind", "A=cuda:H100", "--kind", "B=hip:MI300X")
    hetccl("topo", *layout_of, "--save", tmp_path / "mixed.json")
    from_file = hetccl("plan", "all_reduce", "--topology", tmp_path / "mixed.json")
    assert hetccl("plan", "all_reduce", *layout_of) == from_file
    assert "tcp 800 Gbit/s" in from_file


@pytest.mark.parametrize("both", [(), ("--topology", "x.json", "--layout", "AB")])
def test_a_plan_needs_a_topology_or_a_layout(both):
    said = hetccl("plan", "all_reduce", *both, status=2)
    assert "give either --topology FILE or --layout" in said


def test_help_breaks_no_name_at_80_columns():
    done = commands.run_to(0, "plan", "--help", env={"COLUMNS": "80"})
    for whole in ("--slice-bytes", "HETCCL_SLICE_BYTES", "[A=]VENDOR[:MODEL]"):
        assert whole in done.stdout
    assert "9223372036854775" not in done.stdout
