"""Brings the ranks of a job together: all of them need rank 0's unique id."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetccl import files
from hetccl._lib import UniqueId, unique_id
from hetccl.communicator import Communicator
from hetccl.launchers.board import share
from hetccl.launchers.placement import RendezvousError, Service, find_placement

_MOST_BYTES = 500  # of what a launcher's store carries
MOST_NOTE = _MOST_BYTES - UniqueId.BYTES
_stores = itertools.count()  # keys of this process's meetings by torch's store


@dataclass(frozen=True)
class Meeting:
    """A meeting of the ranks: the unique id, the bytes that rank 0 has added, and the objects that
    must live until the ranks have met.
    """

    uid: bytes
    held: object = None
    note: bytes = b""


def init_from_launcher(*, init_timeout: float = 60.0, **options: Any) -> Communicator:
    """Returns the communicator of all ranks that the launcher has started. Collective.

    The launcher is torchrun, mpirun (Open MPI, MPICH and its relatives), srun or flux run; no
    setting, file or address is needed (docs/launchers.md). `init_timeout`, in seconds, is the
    deadline for the ranks to meet, and again for them to join. `options` are those of
    `Communicator`.

    A program that uses MPI, too, initialises it first, by mpi4py, and the ranks meet by that; the
    page lists other orders that work. Raises RendezvousError if no launcher has started this
    process or the ranks cannot meet, HetcclError if they cannot join.
    """
    placement = find_placement()
    if placement is None:
        raise RendezvousError(
            "no launcher has started this process: start it by torchrun, mpirun, srun or flux run"
        )
    meeting = exchange(placement.rank, None, init_timeout, keep=True)
    options["init_timeout"] = init_timeout
    return Communicator(meeting.uid, placement.rank, placement.size, **options)


def has_master() -> bool:
    """Whether the environment names the address of torch's store."""
    return "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ


def exchange(
    rank: int, path: Path | None, timeout: float, *, keep: bool = False,
    note: Callable[[], bytes] | None = None,
) -> Meeting:  # fmt: skip
    """Returns rank 0's unique id on every rank: through the file `path`, by MASTER_ADDR and
    MASTER_PORT, or by the launcher's own store. `timeout` is in seconds.

    `keep` leaves the session with the launcher open, for a program that may start MPI later. The
    bytes that `note` returns on rank 0, up to `MOST_NOTE`, go to all ranks with the id; all ranks
    pass a `note`, or none.
    """
    found = _find(rank, path, timeout, keep, lambda: unique_id() + (note() if note else b""))
    size = len(found.uid)
    if size != UniqueId.BYTES and not (note and UniqueId.BYTES < size <= _MOST_BYTES):
        where = f"{path} holds" if path is not None else "rank 0 has shared"
        raise RendezvousError(f"{where} no unique id: {size} bytes")
    return Meeting(found.uid[: UniqueId.BYTES], found.held, found.uid[UniqueId.BYTES :])


def _find(
    rank: int, path: Path | None, timeout: float, keep: bool, make: Callable[[], bytes]
) -> Meeting:
    """Makes the id on rank 0, and returns it on all ranks as the `uid` of a meeting."""
    if path is not None:
        return Meeting(_by_file(rank, path, timeout, make))
    if has_master():
        return _by_store(rank, timeout, make)
    placement = find_placement()
    if placement is not None and placement.launcher.services != (Service.STORE,):
        mine = make() if placement.rank == 0 else None
        return Meeting(share(placement, mine, timeout, keep=keep))
    found = ""
    if placement is not None:
        found = f" ({placement.launcher.rank} and {placement.launcher.size} are set, but not these)"
    raise RendezvousError(
        "the ranks need a place to meet: give --rendezvous PATH, a file that all of them can see, "
        f"or set MASTER_ADDR and MASTER_PORT{found}, or start them by mpirun, srun or flux run"
    )


def _by_file(rank: int, path: Path, timeout: float, make: Callable[[], bytes]) -> bytes:
    """Meets by a file, which appears complete or not at all. Only its owner can read the secret in
    it.
    """
    if rank == 0:
        if path.is_symlink() or path.exists():
            raise RendezvousError(f"{path} exists, from an earlier run perhaps: remove it")
        uid = make()
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
        return files.read_own(path, _MOST_BYTES + 1)
    except OSError as error:  # with another user's id this rank would join that user's job
        raise RendezvousError(
            f"{path} holds no unique id of rank 0's: {error.strerror}; remove it, or give a path "
            "in a folder that only you can write to"
        ) from None


def _by_store(rank: int, timeout: float, make: Callable[[], bytes]) -> Meeting:
    """Meets by torch's store, which torchrun serves itself, and otherwise rank 0."""
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        raise RendezvousError(
            "MASTER_ADDR is served by torch, which is not installed: unset MASTER_ADDR under "
            "mpirun, srun and flux run, or give --rendezvous PATH"
        ) from None
    from datetime import timedelta

    from hetccl.launchers.torch_store import open_store

    port = os.environ["MASTER_PORT"]
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise RendezvousError(f"MASTER_PORT must be a port's number, not {port[:40]!r}")
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves = rank == 0 and not served
    limit = timedelta(seconds=timeout)
    try:
        store = open_store(os.environ["MASTER_ADDR"], int(port), limit, serves=serves)
    except RendezvousError as error:
        raise RendezvousError(
            f"{error}: MASTER_ADDR must be an address of rank 0's host and MASTER_PORT a free port "
            "there, both the same on every rank"
        ) from error
    key = f"hetccl/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_stores)}"
    try:
        if rank == 0:
            store.set(key, make().hex())
        uid = bytes.fromhex(store.get(key).decode())
    except (RuntimeError, ValueError) as error:
        reason = type(error).__name__  # its text may quote the store
        raise RendezvousError(
            f"rank 0 has not shared its id within {timeout:.0f} s by torch's store at "
            f"MASTER_ADDR, port {port} ({reason}): are all ranks started?"
        ) from None
    return Meeting(uid, store)  # rank 0's serves the others
