"""How the ranks of a command find each other: who am I, and where is the unique id?"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hetccl import files
from hetccl._lib import UniqueId
from hetccl.communicator import unique_id

# Rank and size, as torchrun and others, Open MPI, and MPICH tell them to their processes.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


class RendezvousError(RuntimeError):
    """The ranks cannot find each other; the text says why and what to do."""


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """(rank, size) where a launcher has set them, else None."""
    for rank_name, size_name in _LAUNCHERS:
        if rank_name in environment and size_name in environment:
            try:
                rank, size = int(environment[rank_name]), int(environment[size_name])
            except ValueError:
                raise RendezvousError(f"{rank_name} and {size_name} must be numbers") from None
            if not 0 <= rank < size:
                raise RendezvousError(f"{rank_name}={rank} is no rank of {size_name}={size}")
            return rank, size
    return None


@dataclass(frozen=True)
class Meeting:
    """The unique id, and what must live until the ranks have met."""

    uid: bytes
    held: object = None


def exchange(rank: int, path: Path | None, timeout: float) -> Meeting:
    """Rank 0's unique id on every rank: through `path`, or by MASTER_ADDR and MASTER_PORT."""
    if path is not None:
        return Meeting(_by_file(rank, path, timeout))
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return _by_store(rank, timeout)
    raise RendezvousError(
        "the ranks need a place to meet: give --rendezvous PATH, a file that all of them can see, "
        "or set MASTER_ADDR and MASTER_PORT"
    )


def _by_file(rank: int, path: Path, timeout: float) -> bytes:
    """The file appears complete or not at all, and only its owner can read the secret in it."""
    if rank == 0:
        if path.is_symlink() or path.exists():
            raise RendezvousError(f"{path} exists, from an earlier run perhaps: remove it")
        uid = unique_id()
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(uid)
        draft.rename(path)
        return uid
    deadline = time.monotonic() + timeout
    while not path.is_symlink() and not path.exists():
        if time.monotonic() > deadline:
            raise RendezvousError(f"rank 0 has not written {path} within {timeout:.0f} s")
        time.sleep(0.01)
    try:
        uid = files.read_own(path, UniqueId.BYTES + 1)
    except OSError as error:  # with another user's id this rank would join that user's job
        raise RendezvousError(
            f"{path} holds no unique id of rank 0's: {error.strerror}; remove it, or give a path "
            "in a folder that only you can write to"
        ) from None
    if len(uid) != UniqueId.BYTES:
        raise RendezvousError(f"{path} holds no unique id: {len(uid)} bytes")
    return uid


def _by_store(rank: int, timeout: float) -> Meeting:
    """Through torch's store, which torchrun serves itself, and rank 0 otherwise."""
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        raise RendezvousError(
            "MASTER_ADDR is served by torch, which is not installed: give --rendezvous PATH"
        ) from None
    from datetime import timedelta

    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not served,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
    )
    key = f"hetccl/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if rank == 0:
        store.set(key, unique_id().hex())
    return Meeting(bytes.fromhex(store.get(key).decode()), store)  # rank 0's serves the others
