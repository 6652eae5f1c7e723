"""Descriptions of caches: from tensors, to and from bytes, and each wrong field by its name."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from kv_caches import LATENT_ORDERS, ORDERS, End, Model

from hetccl.kv import Description, KvError, Layout, Region, check_joinable, describe, storages
from hetccl.kv.description import DTYPES


@pytest.mark.parametrize("layer_at", range(3))
@pytest.mark.parametrize("order", ORDERS + LATENT_ORDERS, ids=str)
def test_layouts_name_the_place_of_each_element(order, layer_at):
    model = Model(2, 1, (4,)) if order in LATENT_ORDERS else Model(2, 3, (4, 4))
    end = End("d0", model, order, block_size=6, layer_at=layer_at)
    one, item = end.description, end.storages[0].itemsize
    starts = np.cumsum([0, *(storage.nbytes for storage in end.storages)])
    for layer in one.layers:
        for part, layout in enumerate(layer.parts):
            places = (
                starts[layout.region] + layout.offset
                + np.arange(one.n_blocks)[:, None, None, None] * layout.block
                + layout.token_offsets()[:, None, None]
                + np.arange(one.n_held)[:, None] * layout.head
                + layout.dim_offsets()
            )  # fmt: skip
            assert (places == end.places[layer.number][part] * item).all()


@pytest.mark.parametrize("order", ORDERS + LATENT_ORDERS, ids=str)
def test_bytes_keep_everything(order):
    model = Model(2, 1, (4,)) if order in LATENT_ORDERS else Model(2, 3, (4, 4))
    one = End("d0", model, order).description
    assert Description.from_bytes(one.to_bytes()) == one
    moved = one.at_regions([7 + i for i in range(len(one.regions))])
    assert [region.id for region in moved.regions] == [7 + i for i in range(len(one.regions))]


def test_a_permuted_view_gives_its_true_strides():
    """vLLM shows HND caches as permuted NHD views."""
    stored = torch.zeros(5, 2, 3, 4, 8, dtype=torch.float16)  # block, K|V, head, token, dim
    one = describe({0: stored.permute(1, 0, 3, 2, 4)}, "SBNHD", name="d", n_layers=1, n_heads=3)
    layout = one.layers[0].parts[1]
    assert layout.offset == 3 * 4 * 8 * 2
    assert (layout.block, layout.token, layout.head) == (2 * 3 * 4 * 8 * 2, ((4, 16),), 4 * 16)


def test_layers_in_one_storage_are_one_region():
    whole = torch.zeros(2, 2, 5, 4, 3, 8)
    caches = {0: whole[0], 1: whole[1]}
    one = describe(caches, "SBNHD", name="d", n_layers=2, n_heads=3)
    assert one.regions == (Region(0, whole.nbytes),)
    (flat,) = storages(caches)
    flat[one.layers[1].parts[0].offset] = 1
    assert caches[1].view(torch.uint8)[0, 0, 0, 0, 0] == 1


def test_fp8_in_uint8_tensors_takes_its_name_from_the_caller():
    cache = {0: torch.zeros(2, 5, 4, 3, 8, dtype=torch.uint8)}
    facts = {"name": "d", "n_layers": 1, "n_heads": 3}
    one = describe(cache, "SBNHD", dtype="float8_e4m3fnuz", scales={0: (0.5, 2.0)}, **facts)
    assert (one.dtype, one.layers[0].scales) == ("float8_e4m3fnuz", (0.5, 2.0))
    with pytest.raises(KvError, match="dtype is 'uint8'"):
        describe(cache, "SBNHD", **facts)
    with pytest.raises(KvError, match="dtype is 'float16'"):
        describe(cache, "SBNHD", dtype="float16", **facts)


@pytest.mark.parametrize(
    ("order", "shape", "text"),
    [
        ("SBNHX", (2, 5, 4, 3, 8), "order is 'SBNHX'"),
        ("SBNHDC", (2, 5, 4, 3, 8, 2), "either D or C"),
        ("SBNHC", (2, 5, 4, 3, 8), "S does not go with C"),
        ("SBNHD", (3, 5, 4, 3, 8), "S has 3 entries"),
        ("SBNHD", (2, 5, 4, 2, 8), "heads is"),
        ("SBNHD", (2, 5, 4, 3), "a tensor of 4 dimensions"),
    ],
)
def test_wrong_orders_are_named(order, shape, text):
    with pytest.raises(KvError, match=text):
        describe({0: torch.zeros(shape)}, order, name="d", n_layers=1, n_heads=3)


def test_unlike_layers_are_refused():
    caches = {0: torch.zeros(2, 5, 4, 3, 8), 1: torch.zeros(2, 6, 4, 3, 8)}
    with pytest.raises(KvError, match="d's layers must be alike"):
        describe(caches, "SBNHD", name="d", n_layers=2, n_heads=3)


GOOD = End("d0", Model(2, 3, (4, 4)), "SBNHD").description
LAYOUT = GOOD.layers[0].parts[0].to_values()


def changed(**fields):
    values = json.loads(GOOD.to_bytes())
    values.update(fields)
    return json.dumps(values).encode()


def with_layout(index, value):
    values = json.loads(GOOD.to_bytes())
    values["layers"][1][1][1][index] = value
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (changed(version=2), "description of version 2"),
        (changed(other=1), "the field other"),
        (changed(name=3), "name is 3"),
        (changed(model="m" * 300), "model is"),
        (changed(dtype="int8"), "dtype is 'int8'"),
        (changed(dtype=["float16"]), "dtype is"),
        (changed(n_layers=0), "n_layers is 0"),
        (changed(n_layers=True), "n_layers is True"),
        (changed(n_heads=1 << 40), "n_heads is"),
        (changed(heads=[0]), "heads is"),
        (changed(heads=[2, 2]), "heads: last is 2"),
        (changed(heads=[0, 4]), "heads: last is 4"),
        (changed(head_sizes=[4]), "n_heads is 3"),
        (changed(head_sizes=[4, 8]), "layer 0, V: dim counts"),
        (changed(block_size=5), "do not make block_size 5"),
        (changed(n_blocks=1 << 30), "it ends at byte"),
        (changed(rank=1), "rank is 1"),
        (changed(regions=[[0, 10]]), "it ends at byte"),
        (changed(regions=[[-1, 10]]), "regions: id is -1"),
        (changed(regions=[]), "regions is"),
        (changed(layers=[]), "layers is"),
        (changed(layers=[[0, [LAYOUT, LAYOUT], [1, 1]]]), "K and V"),
        (changed(layers=[[5, [LAYOUT, LAYOUT], [1, 1]]]), "layers: number is 5"),
        (changed(layers=[[0, [LAYOUT], [1]]]), "parts, scales and head_sizes"),
        (changed(layers=[[0, [LAYOUT, LAYOUT], [1, 2]]]), "scales hold 2"),
        (changed(layers=[[0, [LAYOUT, LAYOUT], [1, "x"]]]), "scales hold 'x'"),
        (changed(layers=[[0, [LAYOUT, LAYOUT[:5]], [1, 1]]]), "layer 0, V is"),
        (with_layout(0, 9), "region 9 of 1"),
        (with_layout(1, 3), "no multiple of 2 bytes"),
        (with_layout(2, -8), "layer 1, V.block is -8"),
        (with_layout(3, [[4, 0]]), "elements overlap"),
        (with_layout(4, 2), "elements overlap"),
        (with_layout(5, [[4, 2, 1]]), "layer 1, V.dim is"),
        (with_layout(5, [[2, 2]] * 9), "layer 1, V.dim is"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no JSON object"),
        (b" " * (1 << 21), "1048576 is the most"),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_wrong_fields_are_named(data, text):
    with pytest.raises(KvError, match=text):
        Description.from_bytes(data)


def test_random_bytes_raise_nothing_else():
    """A peer's bytes, spoilt at random: read as they were, or refused."""
    chance = np.random.default_rng(0)
    good = np.frombuffer(GOOD.to_bytes(), np.uint8)
    for _ in range(3000):
        data = good.copy()
        at = chance.integers(0, len(data), chance.integers(1, 4))
        data[at] = chance.choice(np.frombuffer(b'0123456789[]{},:"-e.ntf', np.uint8), len(at))
        try:
            assert isinstance(Description.from_bytes(data.tobytes()), Description)
        except KvError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("model", "qwen", "model is '' at p0 and 'qwen' at d0"),
        ("n_layers", 3, "n_layers is 2 at p0 and 3 at d0"),
        ("n_heads", 4, "n_heads is 3 at p0 and 4 at d0"),
        ("dtype", "float8_e5m2", "p0 holds float16, d0 float8_e5m2, and there is no conversion"),
    ],
)
def test_ends_that_cannot_be_joined_are_both_named(field, value, text):
    source = dataclasses.replace(GOOD, name="p0")
    target = dataclasses.replace(GOOD, **{field: value})
    with pytest.raises(KvError, match="p0 and d0 cannot be joined: " + text.split(":")[0]):
        check_joinable(source, target)


def test_all_types_are_known_to_torch():
    for name, size in DTYPES.items():
        assert getattr(torch, name).itemsize == size


def test_interleaved_parts_do_not_pass_for_apart():
    layout = Layout(0, 0, 64, ((4, 16),), 8, ((4, 2),))
    shifted = dataclasses.replace(layout, offset=4)
    with pytest.raises(KvError, match="K and V"):
        dataclasses.replace(
            GOOD,
            heads=(0, 2),
            layers=(dataclasses.replace(GOOD.layers[0], parts=(layout, shifted)),),
        )
