"""Conversions between element types, and codes of 8 bits for the wire."""

from __future__ import annotations

import functools

import torch

from hetccl.kv.errors import KvError

TORCH_TYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
}
# Integers of the same size: torch moves and indexes them on every device, unlike fp8.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_FN, _FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
_E4M3_LARGEST, _INT8_LARGEST = 448.0, 127.0
# The largest subnormal: a scale up to it loses bits, so such rows become zero.
_BELOW_LEAST = 2.0**-126 - 2.0**-149


def fold_scale(source: str, target: str, scale: float) -> float:
    """Returns the scale with which a cache of `target` keeps the bits of one of `source`.

    A code of e4m3fnuz is worth half of the same code of e4m3fn, so the scale doubles from fn to
    fnuz and halves back; between other types it stays. A worker whose scales follow this rule
    receives fp8 bits unchanged, apart from the codes that `convert` names.
    """
    if (source, target) == (_FN, _FNUZ):
        return 2 * scale
    if (source, target) == (_FNUZ, _FN):
        return scale / 2
    return scale


def convert(
    values: torch.Tensor,
    source: str,
    target: str,
    source_scale: float = 1.0,
    target_scale: float = 1.0,
) -> torch.Tensor:
    """Returns `values`, elements of `source`, as `target`, on the same device, in the same shape.

    * bfloat16, float16, float32: to nearest, ties to even; a finite value beyond the target's range
      becomes its largest (65,504 for float16). Infinities and NaN stay. The error is half the
      distance of neighbours: at most |x| / 2,048 for float16 from 2^-14 on, 2^-25 below, and
      |x| / 256 for bfloat16. Widening is exact.
    * e4m3fn and e4m3fnuz whose scales follow `fold_scale`: bits stay. -0 becomes 0 in fnuz; codes
      of 240 in fnuz (0x7F, 0xFF) become 448 (for 480), the only loss.
    * other pairs of fp8 types or scales: code times source_scale / target_scale, rounded to
      nearest, saturated; NaN stays. Between equal types and scales nothing changes.

    Raises KvError for pairs without a conversion. Thread-safe.
    """
    if source == target and source_scale == target_scale:
        return values
    floats = {"bfloat16", "float16", "float32"}
    if {source, target} <= floats:
        return _narrow(values, TORCH_TYPES[target])
    if source != target and {source, target} != {_FN, _FNUZ}:
        raise KvError(f"there is no conversion from {source} to {target}")
    if source in floats:
        raise KvError(f"{source} has no scales")
    table = _code_table(source, target, source_scale, target_scale).to(values.device)
    codes = values.contiguous().view(torch.uint8)
    found = torch.index_select(table, 0, codes.flatten().to(torch.int32))
    return found.view(values.shape).view(TORCH_TYPES[target])


def encode(values: torch.Tensor, encoding: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Encodes rows of floats, [..., n], in a byte an element.

    Returns scales, float32 [...], one of each row (a token's head), and codes, uint8 [..., n]. With
    a the largest |x| of a row, the error of `decode` is at most a / 254 for "int8", and the larger
    of |x| / 16 and a / 458,752 for "e4m3", besides a rounding of float32 (a / 2^22). A row with
    NaN or an infinity becomes NaN. A row with a scale below 2^-126 becomes zero.
    """
    if encoding not in ("int8", "e4m3"):
        raise KvError(f'encoding is {encoding!r}: it must be "int8" or "e4m3"')
    # Few operations: on a GPU each is a launch. The norm reads any float type as float32, and is
    # NaN if one element is.
    scales = torch.linalg.vector_norm(values, torch.inf, dim=-1, dtype=torch.float32)
    scales.div_(_INT8_LARGEST if encoding == "int8" else _E4M3_LARGEST)
    scales.nan_to_num_(nan=torch.nan, posinf=torch.nan)
    # Rows without a scale are tiny, so that they round to zero, or become NaN whatever the codes.
    divisors = torch.threshold(scales, _BELOW_LEAST, 1.0)
    scales = torch.threshold(scales, _BELOW_LEAST, 0.0)
    # No code needs a limit: the largest quotient exceeds 127 or 448 by a rounding of float32.
    wide = values / divisors.unsqueeze(-1)
    codes = wide.round_().to(torch.int8) if encoding == "int8" else wide.to(torch.float8_e4m3fn)
    return scales, codes.view(torch.uint8)


def decode(
    scales: torch.Tensor, codes: torch.Tensor, encoding: str, target: str = "float32"
) -> torch.Tensor:
    """Returns what `encode` has encoded, of the codes' shape, rounded to nearest as `target`. A
    finite value beyond the target's range becomes its largest."""
    stored = torch.int8 if encoding == "int8" else torch.float8_e4m3fn
    wide = codes.view(stored).to(torch.float32).mul_(scales.unsqueeze(-1))
    if target != "float32":
        largest = torch.finfo(TORCH_TYPES[target]).max
        wide = wide.clamp_(-largest, largest).to(TORCH_TYPES[target])
    return wide


def _narrow(values: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    largest = torch.finfo(target).max
    found = values.to(target)
    if torch.finfo(values.dtype).max <= largest:
        return found
    return torch.where(torch.isinf(values), found, found.clamp(-largest, largest))


@functools.lru_cache(maxsize=256)
def _code_table(source: str, target: str, source_scale: float, target_scale: float) -> torch.Tensor:
    """Returns the code of `target` for each code of `source`, uint8 [256]."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    if source != target and target_scale == fold_scale(source, target, source_scale):
        table = codes.clone()
        if source == _FN:
            table[0x80] = 0x00
            table[0x7F] = table[0xFF] = 0x80
        else:
            table[0x80] = 0x7F
            table[0x7F], table[0xFF] = 0x7E, 0xFE
        return table
    values = codes.view(TORCH_TYPES[source]).to(torch.float64) * (source_scale / target_scale)
    largest = torch.finfo(TORCH_TYPES[target]).max
    rounded = values.clamp(-largest, largest).to(torch.float32).to(TORCH_TYPES[target])
    return rounded.view(torch.uint8)
