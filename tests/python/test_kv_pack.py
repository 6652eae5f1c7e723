"""Packing into the wire order, conversions between types, and codes: exact, or within the bound."""

import os

import numpy as np
import pytest
import torch
from kv_caches import LATENT_ORDERS, ORDERS, TYPES, End, Model, table_of
from torch.utils._python_dispatch import TorchDispatchMode

from hetccl.kv import Cache, KvError, convert, describe, fold_scale, plan
from hetccl.kv.codes import decode, encode
from hetccl.kv.pack import pack, unpack
from hetccl.kv.wire import Segment, cut

DEVICE = os.environ.get("HETCCL_TEST_DEVICE", "cpu")  # "cuda": conversions and codes run there
FN, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
ALL_CODES = torch.arange(256, dtype=torch.int32).to(torch.uint8).to(DEVICE)


def caches_of(end):
    return Cache(end.description, end.caches)


@pytest.mark.parametrize("order", ORDERS + LATENT_ORDERS, ids=str)
def test_the_wire_order_is_layer_part_token_head_dim(order):
    model = Model(2, 1, (4,)) if order in LATENT_ORDERS else Model(2, 3, (4, 4))
    chance = np.random.default_rng(1)
    end = End("p", model, order, block_size=6, chance=chance)
    table = table_of(chance, 6, 6, 20)
    cache = caches_of(end)
    heads = (0, 1) if order in LATENT_ORDERS else (1, 3)
    for layer in range(2):
        for part in range(len(model.sizes)):
            found = cache.gather(table, Segment(layer, part, 3, 20, *heads))
            wanted = end.elements[end.cells(table, (3, 20), layer, part, heads)]
            assert found.shape == wanted.shape
            assert (found.view(torch.int16).numpy() == wanted).all()


def transfer(source, target, tables, tokens, slot_bytes=333, encoding=""):
    """Packs and unpacks all cells in chunks, as sessions do."""
    made = plan(
        source.description, target.description, *tables, tokens, encoding=encoding,
        least_bytes=10**9,
    )  # fmt: skip
    assert not len(made.pieces)
    ends = caches_of(source), caches_of(target)
    for chunk in cut(made.packed, made.wire, slot_bytes):
        staging = torch.full((slot_bytes,), 0x77, dtype=torch.uint8)
        size = pack(ends[0], tables[0], chunk, made.wire, target.description, staging)
        unpack(ends[1], tables[1], chunk, made.wire, staging[:size])


@pytest.mark.parametrize("seed", range(200))
def test_packed_cells_arrive_in_unlike_layouts(seed):
    chance = np.random.default_rng(seed)
    is_latent = seed % 8 == 0
    model = Model(2, 1, (4,)) if is_latent else Model(2, 3, (4, 4))
    orders = LATENT_ORDERS if is_latent else ORDERS
    dtype = list(TYPES)[seed % len(TYPES)]
    sizes = chance.integers(1, 9, 2)
    n_tokens = int(chance.integers(2, 20))
    tokens = (int(chance.integers(0, n_tokens)), n_tokens)
    ends = [
        End(
            name, model, orders[int(chance.integers(len(orders)))], block_size=int(size),
            n_blocks=-(-n_tokens // int(size)) + 1, dtype=dtype, chance=chance,
            layer_at=int(chance.integers(6)),
        )
        for name, size in zip("pd", sizes, strict=True)
    ]  # fmt: skip
    source, target = ends
    tables = [
        table_of(chance, one.description.n_blocks, int(size), n_tokens, tokens[0])
        for one, size in zip(ends, sizes, strict=True)
    ]
    wanted = target.elements
    for layer in range(2):
        for part in range(len(model.sizes)):
            places = target.cells(tables[1], tokens, layer, part, target.heads)
            origin = source.cells(tables[0], tokens, layer, part, source.heads)
            wanted[places] = source.elements[origin]
    transfer(source, target, tables, tokens)
    assert (target.elements == wanted).all()


TABLES = [np.array([2, 0, 4]), np.array([1, 5, 3])]
FLOATS = ("bfloat16", "float16", "float32")


def device_cache(end, order):
    """A cache on the device under test, with the end's layout of each layer and its values."""
    caches = {
        layer: [one.to(DEVICE) for one in held] if isinstance(held, list) else held.to(DEVICE)
        for layer, held in end.caches.items()
    }
    one = end.description
    made = describe(
        caches, order, name=one.name, n_layers=one.n_layers, n_heads=one.n_heads,
        head_size=one.head_sizes[0], dtype=one.dtype,
    )  # fmt: skip
    return Cache(made, caches)


@pytest.mark.parametrize("types", [("bfloat16",) * 2, ("bfloat16", "float16"), (FN, FNUZ)], ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_caches_on_the_device_under_test(order, types):
    """From a cache of another layout on the host, through staging on the device, and back."""
    model, chance = Model(2, 3, (8, 8)), np.random.default_rng(2)
    host = End("p", model, "SBNHD", block_size=4, chance=chance, dtype=types[0])
    device = device_cache(End("d", model, order, block_size=6, dtype=types[1]), order)
    back = End("b", model, "BSHND", block_size=4, dtype=types[1])
    tables = [np.array([2, 0, 4]), np.array([5, 1])]
    ends = (caches_of(host), device, caches_of(back))
    for source, target, table, other in (
        (ends[0], ends[1], tables[0], tables[1]),
        (ends[1], ends[2], tables[1], tables[0]),
    ):
        made = plan(
            source.description, target.description, table, other, (1, 11), least_bytes=10**9
        )
        for chunk in cut(made.packed, made.wire, 600):
            staging = torch.zeros(600, dtype=torch.uint8, device=DEVICE)
            pack(source, table, chunk, made.wire, target.description, staging)
            unpack(target, other, chunk, made.wire, staging)
    for part in (0, 1):
        cells = Segment(1, part, 1, 11, 0, 3)
        wanted = convert(ends[0].gather(tables[0], cells), *types)
        found = ends[2].gather(tables[0], cells)
        assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))


def float_ends(source_type, target_type, values):
    model = Model(1, 2, (8, 8))
    source = End("p", model, "SBNHD", dtype=source_type)
    target = End("d", model, "BSHND", dtype=target_type)
    source.caches[0].copy_(values(source.caches[0].shape).to(TYPES[source_type]))
    return source, target


def read(end, table):
    cache = caches_of(end)
    return torch.stack([cache.gather(table, Segment(0, part, 0, 12, 0, 2)) for part in (0, 1)])


@pytest.mark.parametrize("target_type", FLOATS)
@pytest.mark.parametrize("source_type", FLOATS)
def test_caches_of_unlike_types(source_type, target_type):
    torch.manual_seed(0)
    source, target = float_ends(source_type, target_type, lambda shape: torch.randn(shape) * 100)
    transfer(source, target, TABLES, (0, 12))
    wanted = read(source, TABLES[0]).to(TYPES[target_type])
    assert torch.equal(read(target, TABLES[1]), wanted)


@pytest.mark.parametrize("encoding", ["int8", "e4m3"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_encoded_caches_are_within_the_bound(dtype, encoding):
    torch.manual_seed(0)
    source, target = float_ends(dtype, "float32", lambda shape: torch.randn(shape) * 30)
    transfer(source, target, TABLES, (0, 12), encoding=encoding)
    wanted, found = read(source, TABLES[0]).float(), read(target, TABLES[1])
    check_bound(wanted, found, encoding)


class Operations(TorchDispatchMode):
    """Counts operations that are a kernel each on a GPU: views are none."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        schema = function._schema
        self.count += not any(
            one.alias_info is not None and not one.alias_info.is_write for one in schema.returns
        )
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("more", [0, 1], ids=["one tensor", "a tensor each"])
@pytest.mark.parametrize("encoding", ["int8", "e4m3"])
def test_operations_do_not_grow_with_blocks_and_hardly_with_layers(encoding, more):
    """Layers of one tensor take one gather, one encoding and one scatter together; those of other
    tensors, a gather and a scatter each."""
    found = []
    for n_layers, n_blocks in ((2, 3), (2, 24), (10, 3)):
        model, size = Model(n_layers, 2, (8, 8)), 4 * n_blocks
        ends = [End(name, model, "SBNHD", n_blocks=n_blocks) for name in "pd"]
        if more:
            for end in ends:
                end.caches = {layer: held.clone() for layer, held in end.caches.items()}
        caches = [
            Cache(
                describe(
                    end.caches, "SBNHD", name=end.description.name, n_layers=n_layers, n_heads=2,
                    head_size=8, dtype="float16",
                ),
                end.caches,
            )
            for end in ends
        ]  # fmt: skip
        tables = [np.random.default_rng(seed).permutation(n_blocks) for seed in (0, 1)]
        made = plan(*(one.description for one in caches), *tables, (1, size - 1), encoding=encoding)
        staging = torch.zeros(made.packed_bytes, dtype=torch.uint8)
        with Operations() as packed:
            pack(caches[0], tables[0], made.packed, made.wire, caches[1].description, staging)
        with Operations() as unpacked:
            unpack(caches[1], tables[1], made.packed, made.wire, staging)
        found.append((packed.count, unpacked.count))
    assert found[0] == found[1]
    assert [b - a for a, b in zip(*found[::2], strict=True)] == [8 * more] * 2
    assert max(found[0]) <= 16


def check_bound(wanted, found, encoding):
    """The bound that `encode` states."""
    largest = wanted.abs().amax(-1, keepdim=True)
    bound = largest / 254
    if encoding == "e4m3":
        bound = torch.maximum(wanted.abs() / 16, largest / 458_752)
    assert ((wanted - found).abs() <= bound + largest / 2**22).all()


@pytest.mark.parametrize("encoding", ["int8", "e4m3"])
def test_codes_of_rows_of_all_magnitudes(encoding):
    chance = torch.Generator().manual_seed(3)
    exponents = torch.arange(-100, 120).unsqueeze(-1)
    rows = torch.randn(220, 128, generator=chance) * torch.rand(220, 128, generator=chance) ** 9
    rows = (rows * 2.0**exponents).to(DEVICE)
    scales, codes = encode(rows, encoding)
    assert codes.dtype == torch.uint8 and scales.shape == (220,)
    check_bound(rows.double(), decode(scales, codes, encoding).double(), encoding)
    largest = rows.abs().amax(-1).double()  # the bound is tight: some error comes near it
    error = (rows.double() - decode(scales, codes, encoding)).abs().amax(-1)
    assert (error > (largest / 254 if encoding == "int8" else largest / 32) * 0.7).any()


@pytest.mark.parametrize("encoding", ["int8", "e4m3"])
def test_rows_without_a_scale(encoding):
    rows = torch.tensor([[0.0, 0.0], [1.0, float("inf")], [float("nan"), 1.0], [1e-44, 0.0]])
    scales, codes = encode(rows.to(DEVICE), encoding)
    found = decode(scales, codes, encoding).cpu()
    assert torch.equal(found[[0, 3]], torch.zeros(2, 2))
    assert found[1:3].isnan().all()


def test_encodings_are_of_floats_and_have_names():
    model = Model(1, 2, (8, 8))
    source, target = (End(name, model, "SBNHD", dtype=FN) for name in "pd")
    with pytest.raises(KvError, match="p holds float8_e4m3fn already"):
        plan(source.description, target.description, *TABLES, (0, 4), encoding="int8")
    with pytest.raises(KvError, match="encoding is 'int4'"):
        plan(source.description, target.description, *TABLES, (0, 4), encoding="int4")
    with pytest.raises(KvError, match='must be "int8" or "e4m3"'):
        encode(torch.ones(2, 2), "int4")


def values_of(codes, dtype):
    return codes.view(TYPES[dtype]).to(torch.float64)


@pytest.mark.parametrize(("source", "target"), [(FN, FNUZ), (FNUZ, FN)])
def test_all_256_codes_keep_their_bits_where_scales_fold(source, target):
    scale = 0.75
    folded = fold_scale(source, target, scale)
    assert folded == (1.5 if source == FN else 0.375)
    found = convert(ALL_CODES.view(TYPES[source]), source, target, scale, folded)
    before, after = values_of(ALL_CODES, source) * scale, values_of(found, target) * folded
    is_nan = before.isnan()
    assert torch.equal(after.isnan(), is_nan)
    lost = torch.zeros(256, dtype=torch.bool, device=DEVICE)
    if source == FNUZ:
        lost[[0x7F, 0xFF]] = True  # 240 has no code: 224 is left
        assert (before[lost].abs() == 240 * scale).all()
        assert (after[lost].abs() == 224 * scale).all()
    kept = ~is_nan & ~lost
    assert torch.equal(before[kept], after[kept])
    same = kept & (before != 0)
    assert torch.equal(found.view(torch.uint8)[same], ALL_CODES[same])


@pytest.mark.parametrize(("source", "target"), [(FN, FNUZ), (FNUZ, FN), (FN, FN), (FNUZ, FNUZ)])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (3.0, 1.0), (0.1, 0.7)])
def test_all_256_codes_are_rounded_to_the_nearest_where_scales_do_not_fold(source, target, scales):
    found = convert(ALL_CODES.view(TYPES[source]), source, target, *scales)
    wanted = values_of(ALL_CODES, source) * (scales[0] / scales[1])
    after = values_of(found, target)
    assert torch.equal(after.isnan(), wanted.isnan())
    grid = values_of(ALL_CODES, target)
    grid = grid[~grid.isnan()]
    for before, value in zip(wanted.tolist(), after.tolist(), strict=True):
        if before == before:
            nearest = (grid - before).abs().min().item()
            assert abs(value - before) == pytest.approx(nearest, abs=1e-9), (before, value)
    if scales == (1.0, 1.0) and (source, target) == (FN, FNUZ):
        exact = wanted.abs() <= 240
        assert torch.equal(after[exact], wanted[exact])


def test_narrowing_saturates_finite_values_and_keeps_infinities():
    values = torch.tensor([70000.0, -1e30, float("inf"), -float("inf"), float("nan"), 65519.0])
    found = convert(values.bfloat16().to(DEVICE), "bfloat16", "float16").cpu()
    assert found[:4].tolist() == [65504.0, -65504.0, float("inf"), -float("inf")]
    assert found[4].isnan()
    wide = torch.tensor([3.4e38, 1.0], device=DEVICE)
    assert convert(wide, "float32", "bfloat16").isfinite().all()


def test_all_bfloat16_values_become_the_nearest_float16():
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    values = codes.view(torch.bfloat16)
    found = convert(values.to(DEVICE), "bfloat16", "float16").cpu()
    inside = values.float().abs() <= 65504
    error = (found[inside].double() - values[inside].double()).abs()
    size = values[inside].double().abs()
    assert (error <= torch.where(size >= 2.0**-14, size / 2048, 2.0**-25)).all()


def test_conversions_that_do_not_exist_are_named():
    for source, target in ((FN, "float16"), ("float8_e5m2", FN), ("float16", FNUZ)):
        with pytest.raises(KvError, match=f"no conversion from {source} to {target}"):
            convert(torch.zeros(2, dtype=TYPES[source]), source, target)


@pytest.mark.parametrize("scales", [((1.0, 1.0), (2.0, 2.0)), ((1.0, 1.0), (1.0, 1.0))])
def test_fp8_caches_of_unlike_vendors(scales):
    """The values of cells stay, through the scales of both ends."""
    model = Model(1, 2, (8, 8))
    chance = np.random.default_rng(0)
    source = End("p", model, "SBNHD", dtype=FN, chance=chance, scales={0: scales[0]})
    target = End("d", model, "BSHND", dtype=FNUZ, scales={0: scales[1]})
    transfer(source, target, TABLES, (0, 12))
    wanted = read(source, TABLES[0]).double() * scales[0][0]
    found = read(target, TABLES[1]).double() * scales[1][0]
    limit = 240 * scales[1][0]
    kept = ~wanted.isnan() & (wanted.abs() <= limit)
    assert torch.equal(found[kept], wanted[kept])
    assert torch.equal(found.isnan(), wanted.isnan())
    assert kept.float().mean() > 0.9


def test_equal_fp8_types_with_unlike_scales_do_not_go_direct():
    model = Model(1, 2, (8, 8))
    ends = [
        End(name, model, "SBNHD", dtype=FN, scales={0: (s, s)})
        for name, s in (("p", 1.0), ("d", 2.0))
    ]
    made = plan(*(one.description for one in ends), *TABLES, (0, 12), least_bytes=0)
    assert len(made.packed) == 2 and not len(made.pieces)


def test_chunks_that_do_not_fit_are_refused():
    source, target = float_ends("float16", "float16", torch.randn)
    made = plan(source.description, target.description, *TABLES, (0, 12), least_bytes=10**9)
    small = torch.zeros(100, dtype=torch.uint8)
    with pytest.raises(KvError, match="staging has 100 bytes"):
        pack(caches_of(source), TABLES[0], made.packed, made.wire, target.description, small)
    with pytest.raises(KvError, match="a chunk has 100 bytes"):
        unpack(caches_of(target), TABLES[1], made.packed, made.wire, small)
