"""Degrees of sharding, who shares what, and how far: the dependency rule, hosts of unlike size."""

import itertools
import json
import random
from collections import Counter

import pytest

from hetccl import _lib
from hetccl.sharding import Sharding, ShardingError
from hetccl.sharding.degrees import (
    PRESETS,
    Degrees,
    Tree,
    find_degrees,
    find_place,
    tree_of,
)
from hetccl.sharding.reach import Reaches
from hetccl.topology import layout

TWO_NODES = Tree(tuple(range(16)), (8, 8), (16,))  # of Frontier


def topology_of(*arguments, **options):
    made = layout.to_json(layout.parse(*arguments, **options))
    return json.loads(_lib.topology(made))


@pytest.mark.parametrize(
    ("sharding", "says"),
    [
        (Sharding(8, 2, 16), "weights=8 does not divide gradients=2"),
        (Sharding(2, 16, 8), "gradients=16 does not divide optimizer_states=8"),
        (Sharding(1, 1, 3), "optimizer_states=3 does not divide the number of ranks=16"),
        (Sharding("host", "pair", "all"), "weights=8 does not divide gradients=2"),
        (Sharding(2, 8, 16, 5), "secondary=5 does not divide"),
        (Sharding(1, 8, 16, 2), "secondary=2 has no use"),
        (Sharding("rack", 8, 16), "'rack' is no level"),
        (Sharding(0, 8, 16), "weights=0 is no number of ranks"),
    ],
)
def test_the_dependency_rule_and_other_errors_of_degrees(sharding, says):
    with pytest.raises(ShardingError) as caught:
        find_degrees(sharding, TWO_NODES)
    assert says in str(caught.value)
    if "divide" in says and sharding.secondary is None:
        assert "gradients only for weights" in str(caught.value)


def test_degrees_on_uneven_hosts():
    tree = Tree(tuple(range(12)), (8, 4), (8, 4))
    degrees = {level: tree.find_degree("weights", level) for level in ("pair", "host", "all")}
    assert degrees == {"pair": 2, "host": 4, "all": 12}
    odd = Tree(tuple(range(5)), (3, 2), (3, 2))
    assert odd.find_degree("weights", "host") == odd.find_degree("weights", "pair") == 1
    alone = Tree(tuple(range(4)), (1, 1, 1, 1), (4,))
    assert find_degrees(PRESETS["three-level"], alone) == Degrees(4, 1, 1, 4)


def test_levels_on_uneven_hosts():
    """Blocks of 3 on hosts of 4 and 2 ranks: the second spans both, so all steps do."""
    reaches = Reaches(Tree(tuple(range(6)), (4, 2), (4, 2)))
    found = {d: reaches.find(Degrees(6, d, 6, 6))["weights"] for d in (1, 2, 3, 6)}
    assert [found[d].level for d in (2, 3, 6)] == ["pair", "all", "all"]
    assert found[3].gathers == pytest.approx((1 / 3, 2 / 3))
    assert found[6].gathers == pytest.approx((4 / 6, 2 / 6))
    assert found[6].reduces == pytest.approx((2 / 6, 4 / 6))
    assert found[6].busiest["all_reduce"] == pytest.approx(1)
    odd = Reaches(Tree(tuple(range(6)), (3, 3), (3, 3)))
    assert odd.find(Degrees(6, 3, 6, 6))["weights"].level == "host"


def test_clusters_inside_hosts_are_the_smaller_level():
    """Two clusters of CPUs on each host meet in the host's memory."""
    topology = topology_of("ABABABAB", hosts=2, together=True)
    tree = tree_of(topology)
    assert (tree.hosts, tree.clusters) == ((4, 4), (2, 2, 2, 2))
    reaches = Reaches(tree)
    levels = [reaches.find(Degrees(8, d, 8, 8))["weights"].level for d in (2, 4, 8)]
    assert levels == ["pair", "host", "all"]
    assert (
        Reaches(Tree(tuple(range(6)), (6,), (3, 3))).find(Degrees(6, 3, 6, 6))["weights"].level
        == "cluster"
    )
    assert reaches.inside == "cluster"


def random_trees():
    chance = random.Random(7)
    for hosts, clusters in [
        ((4, 4), (4, 4)), ((4, 4, 4), (12,)), ((6, 2, 4), (8, 4)), ((8,), (4, 4)),
        ((3, 5), (3, 5)), ((2, 2, 2, 2), (4, 4)), ((4, 4, 8), (4, 4, 4, 4)), ((3, 2, 3), (8,)),
    ]:  # fmt: skip
        for interleaved in (False, True):
            order = list(range(sum(hosts)))
            if interleaved:
                chance.shuffle(order)
            yield Tree(tuple(order), hosts, clusters)
    # Sorted, each block's rank on the second host comes first: these two meet.
    yield Tree((1, 2, 3, 0, 4, 5, 6, 7), (3, 2, 3), (8,))


def chains(size):
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    for weights, gradients, states in itertools.combinations_with_replacement(divisors, 3):
        if gradients % weights == 0 and states % gradients == 0:
            for secondary in (0, *divisors) if weights > 1 else (0,):
                yield Degrees(size, weights, gradients, states, secondary)


STEPS = ("weights", "gradients", "optimizer_states", "replicas")


def groups_of(degrees, tree):
    places = {rank: find_place(rank, degrees, tree) for rank in tree.order}
    return places, {
        name: {getattr(places[rank], name) for rank in tree.order}
        for name in (*STEPS, *(("secondary",) if degrees.secondary else ()))
    }


@pytest.mark.parametrize("tree", list(random_trees()), ids=str)
def test_every_rank_is_in_one_group_of_each_step(tree):
    for degrees in chains(tree.size):
        if degrees.secondary not in (0, degrees.weights):
            continue
        places, groups = groups_of(degrees, tree)
        for name, those in groups.items():
            assert sorted(rank for group in those for rank in group) == sorted(tree.order)
            assert all(rank in getattr(places[rank], name) for rank in tree.order)
        # The ranks that the steps so far join are exactly a block of neighbours.
        reached = {rank: {rank} for rank in tree.order}
        ends = (degrees.weights, degrees.gradients, degrees.optimizer_states, tree.size)
        for name, end in zip(STEPS, ends, strict=True):
            reached = {
                rank: set().union(*(reached[other] for other in getattr(places[rank], name)))
                for rank in tree.order
            }
            for start in range(0, tree.size, end):
                block = tree.order[start : start + end]
                assert all(reached[rank] == set(block) for rank in block)


@pytest.mark.parametrize("tree", list(random_trees()), ids=str)
def test_reaches_are_those_of_the_places(tree):
    """Levels and traffic against a count over the groups of find_place."""
    host_of = dict(zip(tree.order, (h for h, k in enumerate(tree.hosts) for _ in range(k)),
                       strict=True))  # fmt: skip
    cluster_of = dict(zip(tree.order, (c for c, k in enumerate(tree.clusters) for _ in range(k)),
                          strict=True))  # fmt: skip
    reaches = Reaches(tree)
    for degrees in chains(tree.size):
        if degrees.secondary not in (0, degrees.weights // 2):
            continue
        _, groups = groups_of(degrees, tree)
        for name, reach in reaches.find(degrees).items():
            gathers = Counter(dict.fromkeys(range(len(tree.hosts)), 0.0))
            reduces = Counter(gathers)
            for group in groups[name]:
                hosts = {host_of[rank] for rank in group}
                for owner, other in itertools.product(group, hosts):
                    if host_of[owner] != other:  # a part: its owner sends it, or others to it
                        gathers[host_of[owner]] += 1 / len(group)
                        reduces[other] += 1 / len(group)
                assert len(group) == reach.ranks
            assert reach.gathers == pytest.approx([gathers[h] for h in range(len(tree.hosts))])
            assert reach.reduces == pytest.approx([reduces[h] for h in range(len(tree.hosts))])
            within = {
                "pair": all(
                    len({tree.order.index(r) // 2 for r in group}) == 1 for group in groups[name]
                ),
                "host": all(len({host_of[r] for r in group}) == 1 for group in groups[name]),
                "cluster": all(len({cluster_of[r] for r in group}) == 1 for group in groups[name]),
                "all": True,
            }
            assert within[reach.level]
            if reach.ranks > 1 and within["host"]:
                assert reach.level in ("pair", "host", "cluster")
                assert not any(reach.gathers)
