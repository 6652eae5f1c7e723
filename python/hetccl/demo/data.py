"""Training text: the source of Python's own standard library, as bytes."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor


def text(limit: int = 8 << 20) -> Tensor:
    """Returns the first `limit` bytes of the standard library's top-level modules, by name."""
    root = Path(sysconfig.get_path("stdlib"))
    out = bytearray()
    for path in sorted(root.glob("*.py")):
        out += path.read_bytes()
        if len(out) >= limit:
            break
    if len(out) < 1 << 16:
        raise RuntimeError(f"no text to train on: {root} holds {len(out)} bytes of *.py")
    return torch.frombuffer(out[:limit], dtype=torch.uint8).long()


def batch(data: Tensor, step: int, sequences: int, length: int) -> tuple[Tensor, Tensor]:
    """Returns the whole step's (tokens, targets), each (sequences, length). It depends only on
    `step`.
    """
    generator = torch.Generator().manual_seed(1_000_003 * step + 17)
    starts = torch.randint(len(data) - length - 1, (sequences,), generator=generator)
    rows = torch.stack([data[start : start + length + 1] for start in starts.tolist()])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
