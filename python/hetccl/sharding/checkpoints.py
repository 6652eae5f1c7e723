"""Reads checkpoints of torch.distributed.checkpoint without running code that they hold.

A checkpoint's metadata and its objects are pickles, and a pickle may name any function to call.
torch reads them with the plain unpickler, so whoever can write to the folder would run code as the
user who loads it. Here metadata may name only torch's own classes of metadata, and torch's
weights-only loader reads the objects.
"""

from __future__ import annotations

import io
import os
import pickle
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as torch_metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load

_PLAIN = {
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # Python 3.13
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}


def _member_of(owner: Any, name: str) -> Any:
    """A member of an enum, which Python 3.11.0 to 3.11.3 pickle as a `getattr` of it."""
    if isinstance(owner, type) and issubclass(owner, Enum):
        return owner[name]
    raise pickle.UnpicklingError(f"its metadata ask for {name} of what is no enum")


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member_of
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        found = getattr(torch_metadata, name, None) if module == torch_metadata.__name__ else None
        if isinstance(found, type) and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(
            f"its metadata names {module}.{name}, which no checkpoint needs: it may be an attack, "
            "so nothing of it has been run"
        )


class _Reader(FileSystemReader):
    """A reader whose metadata are not trusted."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            found = _MetadataUnpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError("its metadata are none of torch")
        for info in (found.storage_data or {}).values():
            if Path(info.relative_path).name != info.relative_path:
                raise pickle.UnpicklingError(
                    f"it has data outside its folder: {info.relative_path}"
                )
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _Planner(DefaultLoadPlanner):
    """A planner that takes tensors, numbers, texts and lists of these, and no other objects."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        clean = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), clean)
        clean.seek(0)
        super().load_bytes(read_item, clean)  # which would unpickle anything


def read_metadata(path: str | os.PathLike[str]) -> Metadata:
    """Returns the metadata of the checkpoint in a folder. Raises OSError if there is none, and
    pickle.UnpicklingError or another exception if the folder holds no checkpoint.
    """
    return _Reader(path).read_metadata()


def load_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Loads a folder into `state` by torch.distributed.checkpoint.load. Collective. All ranks raise
    CheckpointException if one of them cannot read it.
    """
    load(state, storage_reader=_Reader(path), planner=_Planner())
