"""The planner of sharding: the paper's tables, levels on unlike hosts, `hetccl shard`.

The paper is Xu et al., "Scaling Large Language Model Training on Frontier with Low-Bandwidth
Partitioning". It counts codes of 8 and 4 bits without scales, so its formulas are compared with
`scale_bits=0`, to rounding; with scales the volumes are 1.6 % (int8) and 3.1 % (int4) larger. Its
"bytes" of tables VII and VIII are elements of 2 bytes.
"""

import itertools
import json
import math
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hetccl import _lib, cli
from hetccl.sharding import PRESETS, Sharding, ShardingError, plan
from hetccl.sharding import text as tables
from hetccl.sharding.command import parse_bandwidths, parse_model
from hetccl.sharding.costs import (
    PHASES,
    Training,
    find_costs,
    find_memory,
    find_phases,
)
from hetccl.sharding.degrees import Degrees, Tree, find_degrees
from hetccl.sharding.devices import find_bandwidths, find_device
from hetccl.sharding.planner import count_parameters
from hetccl.sharding.reach import Reaches
from hetccl.sharding.wires import wire_bytes
from hetccl.topology import layout

P = 8  # GCDs of a node of Frontier
PSI = 20_000_000_000
PAPER = Training(PSI, scale_bits=0)
FRONTIER = {"pair": 200e9, "host": 50e9, "cluster": 100e9, "all": 100e9}  # section IV

# The secondary partition of the paper's ZeRO++ is not encoded.
EXACT_SECONDARY = Sharding("all", "all", "all", "host")
OURS_8 = Sharding("pair", "host", "all", 8, "int8", "int4")
OURS_2 = Sharding("pair", "host", "all", 2, "int8", "int4")
ZERO_PP = PRESETS["zero++"]

nodes = pytest.mark.parametrize("n", [2, 48])


def frontier(n):
    """The GCDs of `n` nodes: one cluster, which RCCL joins."""
    return Tree(tuple(range(P * n)), (P,) * n, (P * n,))


def costs_of(sharding, n, training=PAPER):
    tree = frontier(n)
    return find_costs(training, sharding, find_degrees(sharding, tree), Reaches(tree), FRONTIER)


def topology_of(*arguments, **options):
    made = layout.to_json(layout.parse(*arguments, **options))
    return json.loads(_lib.topology(made))


def volumes(costs, phase):
    """In elements of 2 bytes, as the paper counts; ranks and levels."""
    found = costs.of_phase(phase)
    return [(each.volume / 2, each.reach.ranks, each.reach.level) for each in found]


def share(d):
    return (d - 1) / d


@nodes
@pytest.mark.parametrize(
    ("sharding", "weights"),
    [
        (PRESETS["zero3"], lambda n: 2 * PSI / (n * P)),
        (EXACT_SECONDARY, lambda n: 2 * PSI / (n * P) + 2 * PSI / P),
        (OURS_8, lambda n: 2 * PSI / 2 + PSI / 8),
        (OURS_2, lambda n: 2 * PSI / 2 + PSI / 2),
    ],
    ids=["ZeRO-3", "ZeRO++", "ours, 8", "ours, 2"],
)
def test_table_5_memory_of_weights(n, sharding, weights):
    memory = costs_of(sharding, n).memory
    assert memory.weights + memory.secondary == pytest.approx(weights(n), rel=1e-12)


@nodes
@pytest.mark.parametrize(
    ("sharding", "gradients"),
    [
        (PRESETS["zero3"], lambda n: 2 * PSI / (n * P)),
        (ZERO_PP, lambda n: 2 * PSI / (n * P)),
        (OURS_2, lambda n: 2 * PSI / 8),
    ],
    ids=["ZeRO-3", "ZeRO++", "ours"],
)
def test_table_6_memory_of_gradients(n, sharding, gradients):
    assert costs_of(sharding, n).memory.gradients == pytest.approx(gradients(n), rel=1e-12)


def test_the_levels_of_tables_7_and_8():
    """B_inter, B_intra and B_GCD. The GCDs of all nodes are one cluster: its level is B_inter."""
    reaches = Reaches(frontier(48))
    found = {d: reaches.find(Degrees(384, d, 384, 384))["weights"] for d in (2, 8, 384)}
    assert {d: reach.level for d, reach in found.items()} == {2: "pair", 8: "host", 384: "cluster"}
    assert [any(found[d].gathers) for d in (2, 8, 384)] == [False, False, True]


@nodes
@pytest.mark.parametrize(
    ("sharding", "forward", "backward"),
    [
        (PRESETS["zero3"], (1, None, "cluster"), (1, None, "cluster")),
        (ZERO_PP, (1 / 2, None, "cluster"), (1 / 2, P, "host")),
        (OURS_8, (1 / 2, 2, "pair"), (1 / 2, 8, "host")),
        (OURS_2, (1 / 2, 2, "pair"), (1 / 2, 2, "pair")),
    ],
    ids=["ZeRO-3", "ZeRO++", "ours, 8", "ours, 2"],
)
def test_table_7_gathers_of_weights(n, sharding, forward, backward):
    costs = costs_of(sharding, n)
    for phase, (part, devices, level) in (("forward", forward), ("backward", backward)):
        d = devices or n * P
        [found] = volumes(costs, phase)
        assert found == (pytest.approx(PSI * part * share(d), rel=1e-12), d, level)


@nodes
@pytest.mark.parametrize(
    ("sharding", "part", "devices", "level"),
    [
        (PRESETS["zero3"], 1, None, "cluster"),
        (ZERO_PP, 1 / 4, None, "cluster"),
        (OURS_2, 1 / 4, P, "host"),
    ],
    ids=["ZeRO-3", "ZeRO++", "ours"],
)
def test_table_8_reduce_scatter_of_gradients(n, sharding, part, devices, level):
    """Ours takes two steps, over 2 and 4 GCDs, which send as much as one over 8."""
    found = volumes(costs_of(sharding, n), "gradients")
    d = devices or n * P
    assert sum(volume for volume, _, _ in found) == pytest.approx(PSI * part * share(d), rel=1e-12)
    assert math.prod(ranks for _, ranks, _ in found) == d
    assert found[-1][2] == level


@nodes
def test_tables_7_and_8_with_scales(n):
    """Encodings have scales: 1/64 more for int8, 1/32 more for int4."""
    for sharding in (ZERO_PP, OURS_8, OURS_2):
        real, paper = costs_of(sharding, n, Training(PSI)), costs_of(sharding, n)
        for phase, more in (("forward", 1 / 64), ("backward", 1 / 64), ("gradients", 1 / 32)):
            for a, b in zip(volumes(real, phase), volumes(paper, phase), strict=True):
                assert a[0] == pytest.approx(b[0] * (1 + more), rel=1e-12)


@nodes
def test_section_5d_updated_weights(n):
    """The paper gathers psi (d - 1)/d over all ranks. Half of the weights are enough here."""
    found = volumes(costs_of(OURS_2, n), "update")
    assert [ranks for _, ranks, _ in found] == [n, 4]
    sent = sum(volume for volume, _, _ in found)
    assert sent == pytest.approx(PSI * (1 / 2 - 1 / (n * P)), rel=1e-12)
    assert sent < PSI * share(n * P) / 1.8


@nodes
def test_section_3b_memory_of_zero(n):
    """4 psi + K psi / N, 2 psi + (2 + K) psi / N, (4 + K) psi / N, K = 12 with Adam."""
    ranks, k = n * P, 12
    kept = {name: costs_of(PRESETS[name], n).memory.kept / PSI for name in PRESETS}
    assert kept["zero1"] == pytest.approx(4 + k / ranks, rel=1e-12)
    assert kept["zero2"] == pytest.approx(2 + (2 + k) / ranks, rel=1e-12)
    assert kept["zero3"] == pytest.approx((4 + k) / ranks, rel=1e-12)


def test_section_2_llama_7b_on_one_gpu():
    memory = find_memory(Training(7_000_000_000), Sharding(1, 1, 1), Degrees(1, 1, 1, 1))
    assert memory.kept == 112e9


@nodes
def test_section_3b_and_3c_volumes(n):
    """ZeRO-3 sends 1.5 times what ZeRO-1 and 2 send; between nodes 3M, and ZeRO++ 0.75M."""
    m, d = 2 * PSI, n * P
    sent = {name: sum(p.volume for p in costs_of(PRESETS[name], n).phases) for name in PRESETS}
    assert sent["zero1"] == pytest.approx(2 * m * share(d))
    assert sent["zero2"] == pytest.approx(2 * m * share(d))
    assert sent["zero3"] == pytest.approx(3 * m * share(d))
    between = [p.volume for p in costs_of(ZERO_PP, n).phases if p.reach.busiest["all_gather"]]
    assert sum(between) == pytest.approx(0.75 * m * share(d))


def test_the_largest_models_of_the_introduction():
    """Two nodes, 16 GCDs of 64 GiB, Adam: "around 68B" with ZeRO-3, "around 55B" with ZeRO++."""
    largest = {
        name: 2**36 / (costs_of(sharding, 2).memory.kept / PSI) / 1e9
        for name, sharding in {"zero3": PRESETS["zero3"], "zero++": EXACT_SECONDARY}.items()
    }
    assert largest["zero3"] == pytest.approx(68.72, abs=0.005)
    assert largest["zero++"] == pytest.approx(54.98, abs=0.005)


@nodes
def test_table_4_degrees(n):
    found = {name: find_degrees(sharding, frontier(n)) for name, sharding in PRESETS.items()}
    chains = {
        name: (each.weights, each.gradients, each.optimizer_states) for name, each in found.items()
    }
    every = n * P
    assert chains == {
        "zero1": (1, 1, every),
        "zero2": (1, every, every),
        "zero3": (every, every, every),
        "zero++": (every, every, every),
        "mics": (8, 8, 8),
        "exact": (2, 8, every),
        "three-level": (2, 8, every),
    }
    assert [name for name, each in found.items() if each.secondary] == ["zero++"]


def test_micro_batches_and_the_secondary_partition():
    """The first gather after an update takes the primary weights, all others the secondary."""
    four = costs_of(ZERO_PP, 2, Training(PSI, micro_batches=4, scale_bits=0))
    calls = [(p.phase, p.calls, p.reach.ranks) for p in four.phases]
    assert calls == [
        ("forward", 1, 16), ("forward", 3, 8), ("backward", 4, 8), ("gradients", 4, 16),
    ]  # fmt: skip
    one, many = (costs_of(OURS_2, 2, Training(PSI, micro_batches=m)) for m in (1, 5))
    for phase, times in zip(PHASES, (5, 5, 5, 1, 1), strict=True):
        a, b = (sum(p.volume for p in costs.of_phase(phase)) for costs in (one, many))
        assert b == pytest.approx(times * a)


def test_bytes_that_leave_a_host_and_time():
    """Two nodes, three-level, by hand: psi/8 of each GCD is summed over 2 nodes, psi/16 each."""
    costs = costs_of(PRESETS["three-level"], 2)
    boundary, update = costs.of_phase("boundary"), costs.of_phase("update")
    assert [p.collective for p in boundary] == ["reduce_scatter"]  # no replicas: O = N
    assert boundary[0].leaving == pytest.approx((PSI / 4,) * 2)  # 8 groups, half of psi/16 bytes
    assert sum(update[0].leaving) == pytest.approx(PSI * 2)
    assert costs.leaving == pytest.approx((PSI / 4 + PSI,) * 2)
    assert update[0].seconds(FRONTIER, "host") == pytest.approx(PSI / 100e9)
    assert update[1].seconds(FRONTIER, "host") == pytest.approx(2 * PSI / 2 * share(4) / 50e9)
    assert update[0].seconds({"host": 1.0}, "host") is None
    replicas = costs_of(Sharding(1, 2, 4), 2).of_phase("boundary")[1]
    assert (replicas.collective, replicas.reach.ranks) == ("all_reduce", 4)
    assert replicas.volume == pytest.approx(2 * (PSI / 4) * 2 * share(4))
    mics = costs_of(PRESETS["mics"], 2).of_phase("boundary")
    assert [(p.collective, p.reach.ranks) for p in mics] == [("all_reduce", 2)]
    assert mics[0].volume == pytest.approx(2 * (PSI / 8) * 2 / 2)
    assert mics[0].leaving == pytest.approx((2 * PSI,) * 2)  # all of psi, there and back


def test_wires():
    assert wire_bytes("weight_wire", "", 4) == 4
    assert wire_bytes("weight_wire", "int8", 2) == 8.125 / 8
    assert wire_bytes("gradient_wire", "int4:64:stochastic", 2) == 4.5 / 8
    assert wire_bytes("weight_wire", "e5m2:512", 2) == 8.0625 / 8
    for bad in ("int3", "int8:100", "int8:fast", ":64", "int8:stochastic"):
        with pytest.raises(ShardingError, match="weight_wire"):
            wire_bytes("weight_wire", bad, 2)


def test_optimizers_and_types():
    found = [
        find_memory(Training(16, size, states), Sharding(1, 1, 1), Degrees(1, 1, 1, 1))
        for size, states in ((4, 0), (2, 1), (2, 2))
    ]
    assert [memory.optimizer_states for memory in found] == [64, 128, 192]
    assert [memory.weights for memory in found] == [64, 32, 32]
    assert found[2].peak == found[2].kept + 32  # float32 gradients in place of the others


def test_devices():
    assert find_device("hip", "AMD Instinct MI250X") == (200, 50, 64, 191.5)
    assert find_device("cuda", "NVIDIA A100-SXM4-80GB") == (300, 300, 80, 312)
    assert find_device("cuda", "NVIDIA H100 80GB HBM3").host == 450
    assert find_device("cuda", "NVIDIA L40S") == (25, 25, 0, 0)
    assert find_device("host", "") == (10, 10, 0, 0)
    mixed = topology_of("A2B2", hosts=1, kinds=["A=cuda:H100", "B=hip:MI250X"], nics=["100G"])
    rates = find_bandwidths(mixed, False)
    assert rates == {"pair": 200e9, "host": 50e9, "cluster": 25e9, "all": 25e9}


def chains(size):
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    for weights, gradients, states in itertools.combinations_with_replacement(divisors, 3):
        if gradients % weights == 0 and states % gradients == 0:
            for secondary in (0, *divisors) if weights > 1 else (0,):
                yield Degrees(size, weights, gradients, states, secondary)


def every_costs(made, wires=()):
    """The best of all valid degrees, by exhaustive search."""
    reaches = Reaches(made.tree)
    for degrees in chains(made.tree.size):
        sharding = Sharding(
            degrees.weights, degrees.gradients, degrees.optimizer_states,
            degrees.secondary or None, *wires,
        )  # fmt: skip
        yield find_costs(made.training, sharding, degrees, reaches, made.bandwidths)


@pytest.mark.parametrize("memory", [None, 40 << 30, 12 << 30])
@pytest.mark.parametrize("wires", [(), ("int8", "int4")])
def test_the_best_is_the_fastest_that_fits(memory, wires):
    topology = topology_of("A16", hosts=2, kinds=["hip:MI250X"], cards=4)
    encodings = dict(zip(("weight_wire", "gradient_wire"), wires, strict=False))
    made = plan(7_000_000_000, topology, memory=memory, micro_batches=3, **encodings)
    assert made.memory == memory or (memory is None and made.memory == 64 << 30)
    assert made.bandwidths == FRONTIER
    fit = [costs for costs in every_costs(made, wires) if costs.memory.peak <= made.memory]
    assert made.best.costs.seconds == pytest.approx(min(costs.seconds for costs in fit))
    assert made.fits(made.best)
    schemes = {scheme.name: scheme for scheme in made.schemes}
    assert list(schemes) == list(PRESETS)
    for scheme in made.schemes:
        if made.fits(scheme) and bool(scheme.sharding.gradient_wire) == bool(wires):
            assert scheme.costs.seconds >= made.best.costs.seconds
        one_more = Training(scheme.largest_model + 2)
        peak = find_memory(one_more, scheme.sharding, scheme.costs.degrees).peak
        assert peak > made.memory


def test_the_best_of_what_nobody_asked_to_encode_is_exact():
    made = plan(7_000_000_000, topology_of("A16", hosts=2, kinds=["hip:MI250X"], cards=4))
    best = made.best.sharding
    assert (best.weight_wire, best.gradient_wire, best.update_wire) == ("", "", "")
    out = shard("7B", "--layout", "A16", "--hosts", "2", "--kind", "hip:MI250X", "--nics", "4")
    assert "wire=" not in out.splitlines()[-1]
    asked = shard("7B", "--layout", "A16", "--hosts", "2", "--kind", "hip:MI250X", "--nics", "4",
                  "--weight-wire", "int8", "--gradient-wire", "int4")  # fmt: skip
    assert "weight_wire='int8', gradient_wire='int4'" in asked.splitlines()[-1]


def test_a_plan_without_best_degrees_says_why():
    topology = topology_of("A8", hosts=1, kinds=["cuda:H100"])
    tight = plan(70_000_000_000, topology)
    assert tight.best is None
    assert tight.reason == "the smallest take 158 GB of a rank's memory, which has 85.9 GB"
    blind = plan(1000, frontier(2), bandwidths={"pair": 1e9, "host": 1e9})
    assert blind.best is None
    assert blind.reason == "the bandwidth of these levels is unknown, so give bandwidths=: cluster"
    assert blind.memory is None
    assert blind.schemes[2].costs.seconds is None
    assert blind.fits(blind.schemes[2]) is None
    assert plan(1000, frontier(2), bandwidths=FRONTIER).best is not None


def test_an_impossible_preset_has_its_reason():
    made = plan(345_000_000, topology_of("A1", hosts=1))
    reasons = {scheme.name: scheme.reason for scheme in made.schemes if scheme.costs is None}
    assert list(reasons) == ["zero++"]
    assert "secondary=1 has no use with weights=1" in reasons["zero++"]


def test_topologies_made_by_hand_are_completed():
    cards = [{"name": "eth0", "mbps": 10_000}, {"name": "eth1", "mbps": 0}]
    topology = {"ranks": [
        {"rank": rank, "host": "ab"[rank % 2], "vendor": "host", "nics": cards}
        for rank in range(4)
    ]}  # fmt: skip
    made = plan(1_000_000, topology)
    assert made.tree.order == (0, 2, 1, 3)
    assert made.host_names == ("a", "b")
    assert made.bandwidths == {"pair": 10e9, "host": 10e9, "cluster": 1.25e9, "all": 1.25e9}
    with pytest.raises(_lib.HetcclError):
        plan(1_000_000, {"ranks": []})


def test_damaged_topologies_are_named():
    def spoil(**changes):
        return {**topology_of("A2B2"), **changes}

    first, *others = topology_of("A2B2")["ranks"]
    for topology in (
        spoil(clusters=None), spoil(clusters=[]), spoil(clusters=[{}]), spoil(ranks={}),
        spoil(ranks=None), spoil(ranks=[], clusters=[]), spoil(ranks=[first, first, *others]),
        spoil(ranks=others), spoil(ranks=[{**first, "rank": "x"}, *others]),
        spoil(ranks=[{**first, "nics": [{"name": "a", "mbps": "fast"}]}, *others]),
        spoil(ranks=[{**first, "vendor": "cuda", "model": 5}, *others]), "clusters", 5,
    ):  # fmt: skip
        with pytest.raises(_lib.HetcclError, match=r"topology: .*give the content"):
            plan(1_000_000, topology)


def test_clusters_of_several_hosts_that_share_hosts():
    """Traffic that leaves a host counts hosts, not the parts of hosts that the tree has."""
    topology = topology_of("ABABABAB", hosts=2, kinds=["A=cuda:H100", "B=hip:MI300X"],
                           together=True)  # fmt: skip
    made = plan(8_000_000, topology, bandwidths={"host": 1e9})
    assert made.tree.hosts == (2, 2, 2, 2)
    assert len(made.host_names) == 2
    zero3 = next(scheme.costs for scheme in made.schemes if scheme.name == "zero3")
    assert zero3.of_phase("forward")[0].leaving == pytest.approx((8_000_000.0,) * 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"micro_batches": 0}, "micro_batches=0"),
        ({"micro_batches": 1.5}, "micro_batches=1.5 is no whole number"),
        ({"micro_batches": True}, "micro_batches=True is no whole number"),
        ({"micro_batches": 10**400}, "micro_batches: give 1 or more"),
        ({"memory": 0}, "memory=0"),
        ({"memory": "40G"}, "memory='40G' is no whole number"),
        ({"memory": 10**400}, "memory: give 1 or more"),
        ({"bandwidths": {"host": "fast"}}, "host='fast'"),
        ({"bandwidths": {"host": math.inf}}, "host=inf"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"optimizer": "lion"}, "optimizer='lion'"),
        ({"bandwidths": {"rack": 1e9}}, "'rack' is no level"),
        ({"bandwidths": {"host": 0.0}}, "host=0.0"),
        ({"bandwidths": {"host": math.nan}}, "host=nan"),
        ({"gradient_wire": "int2"}, "gradient_wire='int2'"),
        ({"update_wire": "float"}, "update_wire='float'"),
    ],
)
def test_arguments_that_mean_nothing(options, says):
    with pytest.raises(ShardingError, match=says):
        plan(1000, frontier(2), **options)
    for model in (0, -5, True, "20B", 2.5, 10**400):
        with pytest.raises(ShardingError, match="model"):
            plan(model, frontier(2))


def test_modules_on_the_meta_device_are_counted():
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        tied = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 10, bias=False))
        tied[1].weight = tied[0].weight
    assert count_parameters(tied) == 110
    assert plan(tied, frontier(2)).training.parameters == 110


def shard(*arguments, status=0):
    done = CliRunner().invoke(cli.app, ["shard", *arguments], env={"COLUMNS": "120"})
    assert done.exit_code == status, done.output
    return done.output


@pytest.mark.smoke
def test_the_command_prints_tables():
    out = shard("20B", "--layout", "A384", "--hosts", "48", "--kind", "hip:MI250X", "--nics", "4",
                "--weight-wire", "int8", "--gradient-wire", "int4")  # fmt: skip
    assert "20B parameters of 2 bytes" in out
    assert "384 ranks, 48 hosts, 1 cluster" in out
    assert "pair 200 GB/s, host 50 GB/s, cluster 100 GB/s, all 100 GB/s" in out
    assert "64 GiB (68.7 GB) a rank" in out
    rows = {words[0]: words[1:] for line in out.splitlines() if (words := line.split())}
    assert "Sharding(weights=2, gradients=384, optimizer_states=384" in out
    assert rows["gradients"][:5] == ["reduce_scatter", "1", "192", "cluster", "5.13"]
    assert [line for line in out.splitlines() if line.startswith("three-level 2/8/384 ")]


def test_the_command_prints_json():
    out = shard("1e9", "--layout", "A4B2", "--json", "--micro-batches", "2", "--memory", "16G",
                "--optimizer", "momentum", "--type", "float32",
                "--bandwidth", "all=40Gbit/s", "--bandwidth", "host=20GB/s")  # fmt: skip
    made = json.loads(out)
    assert made["training"] == {
        "parameters": 10**9, "type_bytes": 4, "optimizer_states": 1, "micro_batches": 2,
        "scale_bits": 32,
    }  # fmt: skip
    assert (made["ranks"], made["hosts"], made["clusters"]) == (6, 2, 2)
    assert made["memory"] == 16 << 30
    assert made["bandwidths"]["all"] == 5e9
    assert made["bandwidths"]["host"] == 20e9
    schemes = {scheme["name"]: scheme for scheme in [*made["schemes"], made["best"]]}
    assert list(schemes) == [*PRESETS, "best"]
    zero1 = schemes["zero1"]
    assert zero1["memory"]["weights"] == 4 * 10**9
    assert zero1["memory"]["optimizer_states"] == round(8 * 10**9 / 6)
    assert [phase["phase"] for phase in zero1["phases"]] == ["boundary", "update"]
    both = round(4e9 * (2 / 6 + 4 / 6))
    assert [host["leaving_bytes"] for host in zero1["hosts"]] == [both, both]
    assert zero1["seconds"] == pytest.approx(2 * 4e9 * 4 / 6 / 5e9)


def test_a_file_is_read_and_one_host_needs_no_network(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"ranks": [
        {"rank": rank, "host": "a", "vendor": "cuda", "model": "NVIDIA H200"} for rank in range(2)
    ]}))  # fmt: skip
    out = shard("7b", "--topology", str(path))
    assert "pair 450 GB/s, host 450 GB/s" in out
    assert "141 GiB" in out
    assert "Sharding(" in out
    one = shard("7b", "--layout", "A")
    assert "memory     unknown: give --memory" in one
    assert "best: the fastest, whether it fits or not; --memory finds one that fits." in one
    assert "largest" not in one


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["7B"], "give either --topology"),
        (["7B", "--hosts", "2"], "give --layout"),
        (["7B", "--layout", "A4", "--topology", "x.json"], "give either --topology"),
        (["7B", "--topology", "nowhere.json"], "No such file"),
        (["much", "--layout", "A4"], "'much' is no model"),
        (["0", "--layout", "A4"], "has no parameter"),
        (["9" * 400, "--layout", "A4"], "too large a model"),
        (["7B", "--layout", "A4", "--memory", "9" * 400], "memory: give 1 or more"),
        (["7B", "--layout", "A4", "--type", "int8"], "'int8' is not one of"),
        (["7B", "--layout", "A4", "--optimizer", "lion"], "'lion' is not one of"),
        (["7B", "--layout", "A4", "--memory", "much"], "is no size"),
        (["7B", "--layout", "A4", "--memory", "40"], "40 bytes: give a unit, such as 40G"),
        (["7B", "--layout", "A4", "--micro-batches", "0"], "greater than or equal"),
        (["7B", "--layout", "A4", "--bandwidth", "host=5"], "write LEVEL=RATE"),
        (["7B", "--layout", "A4", "--bandwidth", "50GB/s"], "write LEVEL=RATE"),
        (["7B", "--layout", "A4", "--bandwidth", "rack=5GB/s"], "'rack' is no level"),
        (["7B", "--layout", "A4", "--weight-wire", "int3"], "weight_wire='int3'"),
        (["nowhere:model", "--layout", "A4"], "No module named 'nowhere'"),
        (["os:getcwd", "--layout", "A4"], "made a str"),
        (["os:sep", "--layout", "A4"], "cannot be called"),
        (["os:absent", "--layout", "A4"], "no attribute 'absent'"),
    ],
)
def test_what_the_command_refuses(arguments, says):
    if ":" in arguments[0]:
        pytest.importorskip("torch")
    words = " ".join(shard(*arguments, status=2).replace("│", " ").split())
    assert says in words


def test_models_and_bandwidths_of_the_command_line():
    texts = ("345M", "20B", "6.7e9", "1.5t", "13b", "7000")
    assert [parse_model(text) for text in texts] == [
        345_000_000, 20_000_000_000, 6_700_000_000, 1_500_000_000_000, 13_000_000_000, 7000,
    ]  # fmt: skip
    given = ["pair=200GB/s", "all=400Gbit/s", "host=500MB/s", "cluster=1TB/s"]
    assert parse_bandwidths(given) == {"pair": 2e11, "all": 5e10, "host": 5e8, "cluster": 1e12}
    assert [tables.parameters(count) for count in (999, 345_000_000, 6_700_000_000, 2 * 10**15)] \
        == ["999", "345M", "6.7B", "2,000T"]  # fmt: skip


def test_a_module_is_made_where_the_command_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef small():\n    return torch.nn.Linear(1000, 1000)\n"
    )
    monkeypatch.chdir(tmp_path)
    made = json.loads(shard("mine:small", "--layout", "A4", "--json"))
    assert made["training"]["parameters"] == 1_001_000
    assert str(tmp_path) not in sys.path


def test_planning_imports_no_torch():
    program = (
        "import sys; from hetccl.sharding import plan; from hetccl.sharding.degrees import Tree;"
        "plan(1000, Tree((0, 1), (2,), (2,))); sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", program], check=False, env=environment)
    assert done.returncode == 0


def test_phases_come_in_their_order():
    for degrees in chains(16):
        phases = find_phases(PAPER, Sharding(1, 1, 1), degrees, Reaches(frontier(2)))
        order = [PHASES.index(phase.phase) for phase in phases]
        assert order == sorted(order)
        assert all(phase.reach.ranks > 1 and phase.calls for phase in phases)
