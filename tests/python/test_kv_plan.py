"""Plans of transfers between unlike caches, against copies element by element."""

import itertools
import sys
import time

import numpy as np
import pytest
from kv_caches import LATENT_ORDERS, ORDERS, End, Model, split_evenly, table_of
from patience import WHOLE, mostly_long

from hetccl.kv import KvError, Share, divide, plan, readers
from hetccl.kv.pieces import make_pieces, refine
from hetccl.kv.plan import Planner
from hetccl.kv.wire import cut

CASES = 10_000 if WHOLE else 2_000


def choose(chance, values):
    return values[int(chance.integers(len(values)))]


def make_case(chance):
    """A target, the sources that fill it, and the request's tables."""
    is_latent = chance.random() < 0.1
    size = int(choose(chance, [2, 4, 8]))
    n_heads = 1 if is_latent else int(chance.integers(1, 7))
    sizes = (size,) if is_latent else (size, size)
    model = Model(int(chance.integers(1, 4)), n_heads, sizes)
    orders = LATENT_ORDERS if is_latent else ORDERS
    fused = [one for one in ORDERS if "C" in one]
    if not is_latent and chance.random() < 0.2:  # unlike sizes of K and V
        model.sizes = (size, int(choose(chance, [2, 4, 6])))
        orders = [*fused, ("BNHD", "BHND")]
    n_tokens = int(chance.integers(1, 20))
    first = int(chance.integers(0, n_tokens))
    dtype = str(choose(chance, ["float32", "float16", "float8_e5m2"]))
    source_order, target_order = choose(chance, orders), choose(chance, orders)
    source_size, target_size = (int(chance.integers(1, 9)) for _ in range(2))
    p, d = (int(chance.integers(1, 5)) for _ in range(2))
    if chance.random() < 0.3:  # equal ends, whose cells go direct
        target_order, target_size = source_order, source_size
    layer_at = int(chance.integers(0, 6))
    rank = int(chance.integers(0, d))
    target = End(
        "decode", model, target_order, heads=split_evenly(n_heads, d)[rank], rank=rank, ranks=d,
        block_size=target_size, n_blocks=-(-n_tokens // target_size) + 1, dtype=dtype,
        layer_at=int(chance.integers(0, 6)), chance=chance,
    )  # fmt: skip
    stages = split_evenly(model.n_layers, int(chance.integers(1, model.n_layers + 1)))
    sources = [
        End(
            f"prefill {stage}.{heads}", model, source_order, layers=range(*stage), heads=heads,
            block_size=source_size, n_blocks=-(-n_tokens // source_size) + 1, dtype=dtype,
            layer_at=layer_at, chance=chance, ranks=p, rank=i,
        )
        for stage in stages for i, heads in enumerate(split_evenly(n_heads, p))
    ]  # fmt: skip
    tables = [
        table_of(chance, source_size and s.description.n_blocks, source_size, n_tokens, first)
        for s in sources
    ]
    target_table = table_of(chance, target.description.n_blocks, target_size, n_tokens, first)
    return model, sources, target, tables, target_table, (first, n_tokens)


def apply(made, source, target, source_table, target_table, elements, written):
    """Carries out a plan on the target's `elements`; counts the writes of each in `written`."""
    item = source.storages[0].itemsize
    source_starts = np.cumsum([0, *(len(one) for one in source.storages)])
    target_starts = np.cumsum([0, *(len(one) for one in target.storages)])
    found = source.elements
    for from_region, at, to_region, to, size in made.pieces.tolist():
        assert size % item == at % item == to % item == 0
        begin = to // item + target_starts[to_region]
        origin = at // item + source_starts[from_region]
        elements[begin : begin + size // item] = found[origin : origin + size // item]
        written[begin : begin + size // item] += 1
    for one in made.packed:
        tokens, heads = (one.first_token, one.last_token), (one.first_head, one.last_head)
        origin = source.cells(source_table, tokens, one.layer, one.part, heads)
        to = target.cells(target_table, tokens, one.layer, one.part, heads)
        elements[to] = found[origin]
        np.add.at(written, to, 1)


def check_case(seed):
    chance = np.random.default_rng(seed)
    model, sources, target, tables, target_table, tokens = make_case(chance)
    elements = target.elements
    wanted = elements.copy()
    written = np.zeros(len(elements), int)
    cells = np.zeros(len(elements), int)
    shares = divide([one.description for one in sources], target.description)
    least = int(choose(chance, [0, 8, 64, 10**6]))
    n_bytes = 0
    for source, table, share in zip(sources, tables, shares, strict=True):
        arguments = (source.description, target.description, table, target_table, tokens)
        plans = [plan(*arguments, shares=share, least_bytes=least)]
        if seed % 2:  # layer by layer, as senders do
            planner = Planner(*arguments, least_bytes=least)
            layers = [[one for one in share if one.layer == layer] for layer in source.layers]
            plans = [planner.plan(one) for one in layers]
        for made in plans:
            apply(made, source, target, table, target_table, elements, written)
            n_bytes += made.direct_bytes
            n_bytes += sum(one.n_cells * made.wire.cell_bytes(one.part) for one in made.packed)
        for one, part in itertools.product(share, range(len(model.sizes))):
            heads = (one.first, one.last)
            to = target.cells(target_table, tokens, one.layer, part, heads)
            wanted[to] = source.elements[source.cells(table, tokens, one.layer, part, heads)]
    for layer, part in itertools.product(target.layers, range(len(model.sizes))):
        cells[target.cells(target_table, tokens, layer, part, target.heads)] += 1
    assert (written == cells).all(), "an element is written twice, or never, or is none of ours"
    assert (elements == wanted).all()
    assert n_bytes == cells.sum() * target.storages[0].itemsize
    return bool(sum(len(one) for one in shares))


@pytest.mark.parametrize("part", mostly_long(range(4), 1))
def test_sources_fill_each_cell_of_a_target_once(part):
    """Layouts, block sizes, tensor and pipeline degrees and token ranges at random. A failing seed
    is in the message; `check_case(seed)` replays it."""
    began = time.process_time()
    for seed in range(part * CASES // 4, (part + 1) * CASES // 4):
        try:
            check_case(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    print(f"{CASES // 4} cases in {time.process_time() - began:.1f} s")


def test_cases_are_of_all_kinds():
    """The generator reaches what the property test is for."""
    seen = set()
    for seed in range(300):
        chance = np.random.default_rng(seed)
        _, sources, target, tables, target_table, tokens = make_case(chance)
        ends = [one.description for one in sources]
        shares = divide(ends, target.description)
        seen.add(("sources", min(sum(map(bool, shares)), 3)))
        seen.add(("idle replica", not all(shares)))
        size = ends[0].block_size, target.description.block_size
        seen.add(("blocks", (size[0] > size[1]) - (size[0] < size[1]), max(size) % min(size) > 0))
        seen.add(("partial", tokens[0] % size[0] > 0, tokens[1] % size[1] > 0))
        made = plan(ends[0], target.description, tables[0], target_table, tokens, least_bytes=32)
        seen |= {("direct", bool(len(made.pieces))), ("packed", bool(made.packed))}
    expected = {("sources", 1), ("sources", 2), ("sources", 3), ("idle replica", True)}
    expected |= {("blocks", sign, True) for sign in (-1, 1)} | {("blocks", 0, False)}
    expected |= {("partial", *both) for both in itertools.product((True, False), repeat=2)}
    expected |= {(kind, flag) for kind in ("direct", "packed") for flag in (True, False)}
    assert expected <= seen, expected - seen


QWEN = Model(3, 8, (64, 64))


def pieces_between(
    source_order, target_order, tokens=(0, 64), heads=(0, 8), sizes=(16, 16), **more
):
    source = End("p", QWEN, source_order, block_size=sizes[0], n_blocks=16, layer_at=0)
    target = End("d", QWEN, target_order, block_size=sizes[1], n_blocks=16, layer_at=0, heads=heads)
    tables = [np.arange(0, 2 * -(-64 // size), 2) for size in sizes]  # no neighbours
    return plan(source.description, target.description, *tables, tokens, **more)


@pytest.mark.parametrize(
    ("orders", "options", "pieces", "size"),
    [
        (("SBNHD", "SBNHD"), {}, 3 * 2 * 4, 16 * 8 * 64 * 2),  # a piece for each block of K, of V
        (("BSNHD", "BSNHD"), {}, 3 * 4, 2 * 16 * 8 * 64 * 2),  # K and V of a block are neighbours
        (("BNHC", "BNHC"), {}, 3 * 4, 16 * 8 * 128 * 2),  # fused
        (("SBNHD", "SBNHD"), {"sizes": (16, 32)}, 3 * 2 * 4, 16 * 8 * 64 * 2),
        (("SBHND", "SBHND"), {"heads": (2, 4)}, 3 * 2 * 4, 2 * 16 * 64 * 2),  # a slice of heads
        ((("BHDND", "BHDN"),) * 2, {}, 3 * 2 * 4, 16 * 8 * 64 * 2),  # x-packed at both ends
        (("SBNHD", "SBNHD"), {"tokens": (3, 16)}, 3 * 2, 13 * 8 * 64 * 2),  # a partial hit
    ],
)
def test_neighbours_are_one_piece(orders, options, pieces, size):
    made = pieces_between(*orders, **options)
    assert not made.packed
    assert len(made.pieces) == pieces
    assert (made.pieces[:, 4] == size).all()


def test_short_pieces_are_packed_in_the_wire_order():
    made = pieces_between("SBNHD", "SBHND")
    assert len(made.pieces) == 0
    order = [(one.layer, one.part) for one in made.packed]
    assert order == [(layer, part) for layer in range(3) for part in range(2)]
    assert made.packed_bytes == 3 * 2 * 64 * 8 * 64 * 2
    assert len(pieces_between("SBNHD", "SBHND", least_bytes=0).pieces) == 3 * 2 * 64 * 8


def test_chunks_fit_staging_and_keep_the_order():
    made = pieces_between("SBNHD", "SBHND", tokens=(1, 64))
    chunks = list(cut(made.packed, made.wire, 10_000))
    assert all(sum(map(made.wire.bytes_of, chunk)) <= 10_000 for chunk in chunks)
    whole = [
        (one.layer, one.part, token)
        for chunk in chunks for one in chunk for token in range(one.first_token, one.last_token)
    ]  # fmt: skip
    assert whole == sorted(whole)
    assert len(whole) == 3 * 2 * 63
    with pytest.raises(KvError, match="a token takes 1024 bytes, and a staging slot has 1000"):
        list(cut(made.packed, made.wire, 1000))


def test_replicas_share_the_load():
    """MLA's latent is on every source; each of two targets reads each layer once."""
    model = Model(12, 1, (8,))
    sources = [End(f"p{i}", model, "BND", rank=i, ranks=3).description for i in range(3)]
    loads = [0] * 3
    for rank in range(2):
        target = End("d", model, "BND", rank=rank, ranks=2).description
        shares = divide(sources, target)
        assert [len(one) for one in shares] == [4, 4, 4]
        assert sorted(one.layer for share in shares for one in share) == list(range(12))
        loads = [load + len(share) for load, share in zip(loads, shares, strict=True)]
    assert loads == [8, 8, 8]
    targets = [End("d", model, "BND", rank=r, ranks=2).description for r in range(2)]
    assert readers(sources, targets) == [2, 2, 2]


@pytest.mark.smoke
def test_degrees_that_divide_nothing():
    model = Model(1, 6)
    sources = [
        End(f"p{i}", model, "SBNHD", heads=heads).description
        for i, heads in enumerate(split_evenly(6, 2))
    ]
    target = End("d1", model, "SBNHD", heads=(2, 4)).description
    assert divide(sources, target) == [(Share(0, 2, 3),), (Share(0, 3, 4),)]


def test_what_cannot_be_planned_is_named():
    model = Model(2, 4)
    source = End("p0", model, "SBNHD").description
    target = End("d0", model, "SBNHD").description
    tables, tokens = ([0, 1, 2], [3, 4, 5]), (0, 12)
    for wrong, text in (
        (([0, 1], [3, 4, 5]), "p0: token 11 needs 3 blocks of 4, and the table has 2"),
        (([0, 1, 2], [3, 6, 5]), "d0: block 6 of 6"),
        (([0, -1, 2], [3, 4, 5]), "p0: block -1 of 6"),
        (([0, 1, 2], [3, 4, 3]), "d0: the table lists a block twice"),
    ):
        with pytest.raises(KvError, match=text):
            plan(source, target, *wrong, tokens)
    with pytest.raises(KvError, match="tokens are"):
        plan(source, target, *tables, (5, 2))
    with pytest.raises(KvError, match="p0 holds 0 to 3"):
        plan(source, target, *tables, tokens, shares=[Share(0, 2, 5)])
    with pytest.raises(KvError, match="one cache"):
        plan(source, source, *tables, tokens)
    half = End("p1", model, "SBNHD", heads=(0, 2)).description
    with pytest.raises(KvError, match="no source holds heads 2 to 3 of layer 0"):
        divide([half], target)
    assert len(plan(source, target, *tables, tokens, layers=[1], least_bytes=0).direct) == 2


@pytest.mark.parametrize("orders", [("BSNHD", "BSNHD"), ("SBNHD", "BSNHD")])
def test_layers_share_the_work_of_a_planner(orders, monkeypatch):
    model = Model(6, 2, (64, 64))
    p, d = (End(name, model, order, n_blocks=8) for name, order in zip("pd", orders, strict=True))
    made = []
    monkeypatch.setattr(
        sys.modules["hetccl.kv.plan"],
        "make_pieces",
        lambda *arguments: made.append(1) or make_pieces(*arguments),
    )
    ends = (p.description, d.description, [3, 0, 6], [1, 2, 7], (0, 11))
    planner = Planner(*ends, least_bytes=64)
    found = [planner.plan([Share(layer, 0, 2)]) for layer in range(6)]
    assert len(made) <= 2, "once for each part"
    for layer, one in enumerate(found):
        alone = plan(*ends, layers=[layer], least_bytes=64)
        assert (one.pieces == alone.pieces).all()
        assert one.direct == alone.direct and not one.packed
    assert len({one.pieces.tobytes() for one in found}) == 6


def test_splits_refine():
    assert refine(((8, 64), (16, 2)), ((128, 2),)) == [(16, 2, 2), (8, 64, 32)]
    assert refine(((4, 64), (3, 2)), ((3, 64), (4, 2))) is None


def test_a_long_request_is_planned_fast():
    """128 blocks in each of 28 layers: no step may be quadratic."""
    model = Model(28, 8, (16, 16))
    source = End("p", model, "SBNHD", block_size=16, n_blocks=128)
    target = End("d", model, "SBNHD", block_size=16, n_blocks=128)
    chance = np.random.default_rng(0)
    tables = [chance.permutation(128) for _ in range(2)]
    began = time.process_time()
    made = plan(source.description, target.description, *tables, (0, 2048))
    assert len(made.pieces) > 28 * 200
    assert time.process_time() - began < 10  # 0.03 s where nothing is quadratic
