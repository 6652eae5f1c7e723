"""Descriptions of vLLM's caches: heads of ranks, latents, fp8, and the CPU back-end's orders."""

import pytest
import torch
import vllm_interface

from hetccl.kv import KvError
from hetccl.kv.wire import Segment
from hetccl.vllm.caches import Shape, find_order, make_cache, number_layers

SIZE = 32


def shape(**more):
    facts = {
        "name": "e.0", "model": "m", "n_layers": 2, "n_heads": 4, "tp_rank": 0, "tp_size": 1,
        "head_size": SIZE, "is_latent": False, "cache_type": "auto",
    }  # fmt: skip
    return Shape(**(facts | more))


def names(count=2):
    return [f"model.layers.{i}.self_attn.attn" for i in range(count)]


@pytest.mark.parametrize(
    ("heads", "ranks", "wanted"),
    [(4, 2, [(0, 2), (2, 4)]), (2, 4, [(0, 1), (0, 1), (1, 2), (1, 2)]), (1, 2, [(0, 1), (0, 1)])],
)
def test_heads_of_ranks(heads, ranks, wanted):
    found = [shape(n_heads=heads, tp_rank=i, tp_size=ranks).heads for i in range(ranks)]
    assert found == wanted


def test_numbers_of_layers():
    assert number_layers(["model.layers.10.attn", "model.layers.2.attn"]) == {
        "model.layers.10.attn": 10, "model.layers.2.attn": 2,
    }  # fmt: skip
    for wrong in (["attn"], ["a.1.b.2"], ["model.layers.1.attn", "draft.layers.1.attn"]):
        with pytest.raises(KvError, match="layer"):
            number_layers(wrong)


def test_latents_and_fp8():
    latents = {name: torch.zeros(5, 1, 16, 24) for name in names()}
    one = make_cache(shape(is_latent=True, n_heads=1, head_size=24), latents, {"FLASHMLA"}, {})
    assert one.description.head_sizes == (24,)
    bytes_ = {name: torch.zeros(5, 4, 16, 2 * SIZE, dtype=torch.uint8) for name in names()}
    scales = dict.fromkeys(names(), (0.5, 2.0))
    for is_fnuz, wanted in ((False, "float8_e4m3fn"), (True, "float8_e4m3fnuz")):
        fp8 = shape(cache_type="fp8", is_fnuz=is_fnuz)
        found = make_cache(fp8, bytes_, {"TRITON_ATTN"}, scales).description
        assert (found.dtype, found.layers[1].scales) == (wanted, (0.5, 2.0))


def test_unknown_orders_are_refused():
    tensors = {name: torch.zeros(5, 4, 16, 2 * SIZE) for name in names()}
    with pytest.raises(KvError, match="ROCM_ATTN have an order that hetccl does not know"):
        make_cache(shape(), tensors, {"ROCM_ATTN"}, {})
    with pytest.raises(KvError, match=r"must be \[blocks, 2 heads"):
        make_cache(shape(tp_size=2), tensors, {"FLASH_ATTN"}, {})

    def shuffled(key, value, cache):
        flat = torch.cat([key.flatten(), value.flatten()])
        order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(1))
        cache.view(-1)[order] = flat

    with pytest.raises(KvError, match="an order that hetccl does not know"):
        find_order(shuffled, 16, SIZE, torch.float32)


def packed(lanes):
    """A way to store as some processors have it: K as [token / lanes, dim, lanes]."""

    def store(key, value, cache):
        n_tokens, _, size = key.shape
        keys, values = cache.view(2, -1)
        keys[:] = key.view(n_tokens // lanes, lanes, size).transpose(1, 2).flatten()
        values[:] = value.flatten()

    return store


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("lanes", [1, 16, 32])
def test_the_cpu_back_ends_order_is_found(lanes, dtype):
    """Cells that its kernel has stored are gathered in the wire order."""
    check_cpu(packed(lanes), 64, dtype)


@pytest.mark.skipif(not vllm_interface.IS_REAL, reason="vLLM is not installed")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("n_tokens", [32, 128])
def test_this_processors_order_is_found(n_tokens, dtype):
    from hetccl.vllm.engine import _store

    check_cpu(_store, n_tokens, dtype)


def check_cpu(store, n_tokens, dtype):
    tensor = torch.zeros(3, 4, n_tokens, 2 * SIZE, dtype=dtype)
    keys, values = (torch.randn(n_tokens, 4, SIZE).to(dtype) for _ in range(2))
    for head in range(4):
        block = torch.zeros(1, 1, n_tokens, 2 * SIZE, dtype=dtype)
        store(keys[:, head : head + 1].contiguous(), values[:, head : head + 1].contiguous(), block)
        tensor[2, head] = block[0, 0]
    cache = make_cache(shape(n_layers=1), {names()[0]: tensor}, {"CPU_ATTN"}, {}, store)
    for part, wanted in enumerate((keys, values)):
        found = cache.gather([2], Segment(0, part, 3, n_tokens - 1, 0, 4))
        assert torch.equal(found, wanted[3 : n_tokens - 1])
