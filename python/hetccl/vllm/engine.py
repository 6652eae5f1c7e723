"""The facts of a vLLM engine that the connector needs; the only file that reads its configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hetccl.kv import Cache, KvError
from hetccl.vllm.caches import Shape, make_cache
from hetccl.vllm.settings import Settings

_SERVED = ("FullAttentionSpec", "MLAAttentionSpec")


def find_host() -> str:
    """Returns this machine's address, as other engines reach it."""
    from vllm.utils.network_utils import get_ip

    return str(get_ip())


def _group_of(kv_cache_config: Any) -> Any:
    """Returns the only group of layers. Raises KvError for hybrid models."""
    groups = kv_cache_config.kv_cache_groups
    names = {type(one.kv_cache_spec).__name__ for one in groups}
    if len(groups) != 1 or not names <= {*_SERVED}:
        raise KvError(
            f"this model's caches are {len(groups)} groups of {sorted(names)}: the connector "
            f"serves one group of {_SERVED}"
        )
    return groups[0]


def block_size_of(kv_cache_config: Any) -> int:
    """Returns the tokens of a block of the scheduler. Raises KvError for hybrid models."""
    return int(_group_of(kv_cache_config).kv_cache_spec.block_size)


def open_cache(
    vllm_config: Any, kv_cache_config: Any, settings: Settings, tensors: Mapping[str, torch.Tensor]
) -> tuple[Cache, int, int, str]:
    """Returns the cache of this rank, its blocks for each of the scheduler's, the ranks of this
    engine, and the endpoints' device. Raises KvError for caches that are not served."""
    spec = _group_of(kv_cache_config).kv_cache_spec
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    if max(_count(parallel, "decode"), _count(parallel, "prefill")) > 1:
        raise KvError("context parallelism spreads the tokens of a block: it is not served")
    tp_size, pp_size = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    is_latent = type(spec).__name__ == "MLAAttentionSpec"
    device = next(iter(tensors.values())).device
    shape = Shape(
        name=f"{str(vllm_config.kv_transfer_config.engine_id)[:80]}.{parallel.rank}",
        model=settings.model or str(model.model)[:256],
        n_layers=model.hf_text_config.num_hidden_layers,
        n_heads=1 if is_latent else model.get_total_num_kv_heads(),
        tp_rank=parallel.rank % tp_size, tp_size=tp_size, head_size=spec.head_size,
        is_latent=is_latent, cache_type=str(vllm_config.cache_config.cache_dtype),
        is_fnuz=_is_fnuz(device),
    )  # fmt: skip
    names, scales = _backends_and_scales(vllm_config, tensors)
    cache = make_cache(shape, tensors, names, scales, _store if device.type == "cpu" else None)
    ratio, rest = divmod(spec.block_size, cache.description.block_size)
    if rest:
        raise KvError(f"blocks of {cache.description.block_size} do not make {spec.block_size}")
    where = f"cuda:{device.index or 0}" if device.type == "cuda" else "host"
    return cache, ratio, tp_size * pp_size, where


def _count(parallel: Any, kind: str) -> int:
    return int(getattr(parallel, f"{kind}_context_parallel_size", 1))


def _is_fnuz(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    from vllm.platforms import current_platform

    return bool(current_platform.is_fp8_fnuz())


def _backends_and_scales(
    vllm_config: Any, tensors: Mapping[str, torch.Tensor]
) -> tuple[set[str], dict[str, tuple[float, float]]]:
    """Returns the names of the layers' attention back-ends, and the scales of fp8 caches."""
    layers = vllm_config.compilation_config.static_forward_context
    backends: set[str] = set()
    scales = {}
    for name in tensors:
        layer = layers[name]
        backends.add(layer.get_attn_backend().get_name())
        found = [float(getattr(layer, f"_{part}_scale_float", 1.0)) for part in "kv"]
        scales[name] = (found[0], found[1])
    return backends, scales


def _store(key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor) -> None:
    """Fills a cache of one block and head by the CPU back-end's own kernel."""
    from vllm import _custom_ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    _, _, n_tokens, both = cache.shape
    keys, values = cache.view(1, 1, 2 * n_tokens, both // 2).chunk(2, dim=2)
    slots = torch.arange(n_tokens, dtype=torch.int64)
    isa = _get_attn_isa(cache.dtype, n_tokens, both // 2)
    _custom_ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots, isa)
