"""Checkpoints by torch.distributed.checkpoint (DCP) in the shapes and names of the plain model.

A rank owns contiguous ranges of the elements of parameters. DCP knows boxes, so a range is written
as a few of them, and can be read by other degrees, other numbers of ranks, or one plain process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from hetccl.sharding.layout import boxes


class OwnedTensor(torch.Tensor):
    """A tensor of the plain model of which this rank owns a range, for DCP to save and load."""

    _boxes: list[tuple[ChunkStorageMetadata, torch.Tensor]]

    @staticmethod
    def __new__(cls, shape: Sequence[int], first: int, values: torch.Tensor) -> Any:
        """`values` are elements [first, first + values.numel()) of the tensor of `shape`, seen
        flat. Loading writes to their memory."""
        return torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=values.dtype, device=values.device
        )

    def __init__(self, shape: Sequence[int], first: int, values: torch.Tensor) -> None:
        self._boxes = []
        begin = 0
        for offsets, sizes in boxes(shape, first, first + values.numel()):
            chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
            end = begin + chunk.sizes.numel()
            self._boxes.append((chunk, values[begin:end].view(chunk.sizes)))
            begin = end

    @classmethod
    def _dispatch(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        if func is torch.ops.aten.new_empty.default:  # by async_save, which then copies the boxes
            one, shape = args
            values = torch.empty(0, dtype=one.dtype, device=(kwargs or {}).get("device"))
            return cls(shape, 0, values)
        raise NotImplementedError(
            f"{func}: this is a rank's part of a sharded tensor, which only "
            "torch.distributed.checkpoint can read and write"
        )

    __torch_dispatch__ = _dispatch  # type: ignore[assignment]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OwnedTensor({list(self.shape)}, {len(self._boxes)} boxes here)"

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        properties = TensorProperties(dtype=self.dtype)
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.size()),
            )
            for chunk, _ in self._boxes
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [chunk for chunk, _ in self._boxes]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        for chunk, values in self._boxes:
            if chunk.offsets == index.offset:
                return values
        raise ValueError(f"{index} is no part of what this rank owns")
