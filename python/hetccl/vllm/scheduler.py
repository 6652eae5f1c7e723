"""The connector's part in the engine's scheduler: decides which requests to send and to load."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

from hetccl.kv.errors import KvError
from hetccl.vllm.door import Door
from hetccl.vllm.settings import Load, Remote, Send, Settings, StepMetadata, read_remote

logger = logging.getLogger("vllm.hetccl")
_DONE = ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")


class SchedulerSide:
    """Keeps the state of requests until the workers have reported their ends.

    vLLM reports the end of each request once, by `finish`. It keeps the blocks of a sent request,
    and of one that is aborted while it loads, until the workers report them.
    """

    def __init__(
        self,
        settings: Settings,
        engine: str,
        block_size: int,
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._engine, self._block_size = settings, engine, block_size
        self._host, self._clock = host, clock
        self._session = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._door: Door | None = None
        self._next = StepMetadata()
        self._offered: dict[str, tuple[str, Remote]] = {}  # not loaded yet: their leases are held
        self._local: dict[str, int] = {}  # tokens of the prefix that this engine holds
        self._loading: dict[str, str] = {}  # names, by request
        self._sending: set[str] = set()
        self._hold_at = 0.0

    def open_door(self, metadata: list[str]) -> None:
        """Begins to hand out the workers' metadata to decode engines."""
        has_file = bool(os.environ.get("HETCCL_SECRET_FILE"))
        host = self._settings.host or (self._host if has_file else "127.0.0.1")
        if not has_file and host not in ("127.0.0.1", "localhost", "::1"):
            raise KvError(
                f"host is {host}, but HETCCL_SECRET_FILE is not set: anybody who reaches the "
                "side channel would learn the workers' secrets; give both engines that file"
            )
        self._door = Door(host, self._settings.port, self._session, metadata)
        logger.info("hetccl: sessions are found at %s:%d", self._door.host, self._door.port)

    def close(self) -> None:
        """Closes the side channel."""
        if self._door is not None:
            self._door.close()
            self._door = None

    # Decode.

    def add(self, request: Any) -> None:
        """Notes a new request, so that the lease of its remote blocks is held while it waits."""
        if (found := self._remote_of(request)) is not None:
            self._offered[request.request_id] = found[:2]

    def count_tokens(self, request: Any, n_computed: int) -> tuple[int, bool]:
        """Returns how many tokens beyond `n_computed` can be loaded, and whether the load is
        asynchronous. May be called again for a request.
        """
        found = self._remote_of(request)
        if found is None:
            return 0, False
        self._local[request.request_id] = n_computed
        count = min(found[2], request.num_prompt_tokens) - n_computed
        return (count, True) if count > 0 else (0, False)

    def allocate(self, request: Any, blocks: Any, n_external: int) -> None:
        """Begins the load of `n_external` tokens into the request's blocks. If there are none,
        tells the other end to free its blocks.
        """
        found = self._remote_of(request)
        if found is None:
            return
        request.kv_transfer_params["do_remote_prefill"] = False  # once: a retry is recomputed
        name, remote, _ = found
        identity = request.request_id
        self._offered.pop(identity, None)
        first = self._local.pop(identity, 0)
        if n_external <= 0:
            self._drop(identity, name, remote)
            return
        table = [int(block) for block in blocks.get_block_ids()[0]]
        tokens = (first, first + n_external)
        self._next.loads.append(Load(identity, name, remote, table, tokens, True))
        self._loading[identity] = name

    def _remote_of(self, request: Any) -> tuple[str, Remote, int] | None:
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_prefill"):
            return None
        try:
            return read_remote(params)
        except KvError as error:
            params["do_remote_prefill"] = False
            logger.warning("hetccl: request %s is computed here: %s", request.request_id, error)
            return None

    def _drop(self, identity: str, name: str, remote: Remote) -> None:
        self._next.loads.append(Load(identity, name, remote, [], (0, 0), False))

    # Both.

    def finish(self, request: Any, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Takes the end of a request. Returns whether its blocks are still read, and the params
        for the decode engine."""
        identity, params = request.request_id, request.kv_transfer_params
        self._local.pop(identity, None)
        self._offered.pop(identity, None)
        if (found := self._remote_of(request)) is not None:  # it was never scheduled
            params["do_remote_prefill"] = False
            self._drop(identity, found[0], found[1])
        if identity in self._loading:
            self._next.aborts.append((self._loading.pop(identity), identity))
            return False, None
        n_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
        is_wanted = params and params.get("do_remote_decode") and request.status.name in _DONE
        if not is_wanted or self._door is None or n_tokens <= 0:
            return False, None
        name = f"{self._engine[:64]}/{self._session}/{next(self._numbers)}"
        table = [int(block) for block in blocks[: -(-n_tokens // self._block_size)]]
        self._next.sends[identity] = Send(name, table, n_tokens)
        self._sending.add(identity)
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._engine,
            "remote_request_id": identity,
            "remote_name": name,
            "remote_host": self._door.host,
            "remote_port": self._door.port,
            "remote_session": self._session,
            "remote_num_tokens": n_tokens,
        }

    def build(self) -> StepMetadata:
        """Returns the workers' tasks, each once."""
        now = self._clock()
        if self._offered and now >= self._hold_at:
            self._hold_at = now + self._settings.lease / 6
            self._next.holds = list(self._offered.values())
        made, self._next = self._next, StepMetadata()
        return made

    def take(self, received: Iterable[str] | None, sent: Iterable[str] | None) -> None:
        """Forgets requests that the workers have reported."""
        for identity in received or ():
            self._loading.pop(identity, None)
        self._sending.difference_update(sent or ())

    @property
    def has_work(self) -> bool:
        """Whether the engine has to make another step, though no request runs."""
        return bool(self._sending) or not self._next.is_empty
