"""``init_process_group("hetccl", init_method="hetccl://")``: torch's store by any launcher.

Rank 0 serves the store at a free port. Its addresses travel through the launcher's own store.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hetccl import _lib
from hetccl.launchers.board import share
from hetccl.launchers.placement import Placement, RendezvousError, Service, find_placement
from hetccl.machine import addresses

SCHEME = "hetccl"
_KEY = "hetccl/token"  # by which a rank knows that it has found rank 0's store
_MOST_ADDRESSES = 6
_DIAL_SECONDS = 2.0  # for one address, which may be one that does not answer from here
_JOIN_SECONDS = 10.0  # for the store at an address, where somebody else may listen


def register() -> None:
    """Makes torch know the scheme. May be called any number of times."""
    from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

    if SCHEME not in _rendezvous_handlers:
        register_rendezvous_handler(SCHEME, meet)  # type: ignore[no-untyped-call,unused-ignore]


def open_store(address: str, port: int, timeout: timedelta, *, serves: bool) -> Any:
    """Returns torch's store. A thread makes it, because torch may wait for an answer that never
    comes.

    Raises RendezvousError.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]

    made: list[Any] = []

    def make() -> None:
        try:
            store = TCPStore(
                address, port, is_master=serves, wait_for_workers=False, timeout=timeout,
                multi_tenant=True,
            )  # fmt: skip
            made.append(store)
        except RuntimeError as error:  # DistNetworkError, DistStoreError
            made.append(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    what = "serve torch's store" if serves else "reach torch's store"
    if not made:
        seconds = timeout.total_seconds()
        raise RendezvousError(f"cannot {what} at {address}, port {port}, within {seconds:.0f} s")
    if isinstance(made[0], RuntimeError):
        reason = str(made[0]).splitlines()[0] if str(made[0]) else type(made[0]).__name__
        raise RendezvousError(f"cannot {what} at {address}, port {port}: {reason}") from made[0]
    return made[0]


def _serve(placement: Placement, timeout: timedelta) -> Any:
    """Makes rank 0's store, and shares the address by which the others find it."""
    store = open_store("localhost", 0, timeout, serves=True)
    token = secrets.token_hex(8)
    store.set(_KEY, token)
    card = [store.port, token, *addresses(json.loads(_lib.info()))[:_MOST_ADDRESSES]]
    share(placement, json.dumps(card).encode(), timeout.total_seconds(), keep=True)
    return store


def _answers(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), _DIAL_SECONDS):
            return True
    except OSError:
        return False


def _find(placement: Placement, timeout: timedelta) -> Any:
    """Returns rank 0's store, by the first of its addresses that this rank reaches."""
    card = share(placement, None, timeout.total_seconds(), keep=True)
    try:
        port, token, *addresses = json.loads(card)
    except ValueError:
        raise RendezvousError(
            "rank 0 has not shared where its store is: do all ranks run the same program?"
        ) from None
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        for address in addresses:
            if not _answers(address, port):
                continue
            seconds = min(_JOIN_SECONDS, max(0.1, deadline - time.monotonic()))
            left = timedelta(seconds=seconds)
            try:
                store = open_store(address, port, left, serves=False)
                if store.check([_KEY]) and store.get(_KEY).decode() == token:
                    store.set_timeout(timeout)
                    return store
            except (RendezvousError, RuntimeError):  # it is somebody else's
                continue
        time.sleep(0.1)
    raise RendezvousError(
        f"rank 0's store answers at none of its addresses ({', '.join(addresses)}; port {port}): "
        "choose others with HETCCL_SOCKET_IFNAME, or open that port in the firewall"
    )


def meet(url: str, timeout: timedelta = timedelta(minutes=5), **_: Any) -> Iterator[Any]:
    """torch's handler of the scheme: yields (store, rank, number of ranks)."""
    from torch.distributed.rendezvous import rendezvous

    from hetccl.rendezvous import has_master

    placement = find_placement()
    if placement is None:
        raise RendezvousError(
            "init_method='hetccl://': no launcher has started this process; start it by torchrun, "
            "mpirun, srun or flux run"
        )
    given = parse_qs(urlsplit(url).query)
    for name, value in (("rank", placement.rank), ("world_size", placement.size)):
        if given.get(name, [str(value)]) != [str(value)]:
            raise ValueError(
                f"{name} is {given[name][0]}, but {placement.launcher.name} says {value}: leave it "
                "out with init_method='hetccl://'"
            )
    if has_master() or placement.launcher.services == (Service.STORE,):
        yield from rendezvous("env://", placement.rank, placement.size, timeout=timeout)
        return
    store = (_serve if placement.rank == 0 else _find)(placement, timeout)
    yield store, placement.rank, placement.size
