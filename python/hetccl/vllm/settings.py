"""Settings of the connector, and the facts that its scheduler and worker sides exchange."""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)

from hetccl.kv.errors import KvError, check_integer, check_text
from hetccl.kv.messages import MODES
from hetccl.kv.session import Options
from hetccl.kv.wire import ENCODINGS


@dataclasses.dataclass(frozen=True)
class Settings:
    """`kv_connector_extra_config`; docs/vllm.md explains the fields. Raises KvError."""

    mode: str = "push"
    encoding: str = ""
    lease: float = 30.0
    checksum: bool = False
    slots: int = 16
    slot_bytes: int = 1 << 20
    host: str = ""
    port: int = 0
    connect_timeout: float = 10.0
    model: str = ""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise KvError(f"mode is {self.mode!r}: it must be one of {MODES}")
        if self.encoding not in ("", *ENCODINGS):
            raise KvError(f"encoding is {self.encoding!r}: it must be empty or of {ENCODINGS}")
        check_integer("port", self.port, 0, 65535)

    @classmethod
    def read(cls, extra: dict[str, Any]) -> Settings:
        """Returns the settings of vLLM's `kv_connector_extra_config`."""
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := extra.keys() - {*names}:
            raise KvError(
                f"kv_connector_extra_config has {min(unknown)!r}: the connector knows {names}"
            )
        return cls(**extra)

    def options(self) -> Options:
        """Returns the options of the sessions."""
        return Options(
            slots=self.slots, slot_bytes=self.slot_bytes, lease=self.lease, checksum=self.checksum
        )


@dataclasses.dataclass(frozen=True)
class Remote:
    """The engine that holds a prompt's cache: its door, and its incarnation."""

    host: str
    port: int
    session: str


@dataclasses.dataclass
class Send:
    """Blocks of a prompt that is computed. `name` is never used again."""

    name: str
    blocks: list[int]
    n_tokens: int


@dataclasses.dataclass
class Load:
    """Tokens, [first, last), that a decode engine loads into `blocks`. If it is not awaited, it has
    no tokens, and only tells the other end to free its blocks.
    """

    request: str
    name: str
    remote: Remote
    blocks: list[int]
    tokens: tuple[int, int]
    is_awaited: bool


@dataclasses.dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """Tasks of one step, from the scheduler side to the workers."""

    sends: dict[str, Send] = dataclasses.field(default_factory=dict)  # by request
    loads: list[Load] = dataclasses.field(default_factory=list)
    aborts: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # name, request
    holds: list[tuple[str, Remote]] = dataclasses.field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.sends or self.loads or self.aborts or self.holds)


@dataclasses.dataclass
class Handshake(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """The metadata of a worker's sending session, given to the scheduler side once."""

    sender: str


def read_remote(params: dict[str, Any]) -> tuple[str, Remote, int]:
    """Returns name, engine and tokens of kv_transfer_params that another engine has written, and
    that came by a client. Raises KvError that names a wrong field."""
    name = check_text("remote_name", params.get("remote_name"))
    remote = Remote(
        check_text("remote_host", params.get("remote_host")),
        check_integer("remote_port", params.get("remote_port"), 1, 65535),
        check_text("remote_session", params.get("remote_session"), 64),
    )
    n_tokens = check_integer("remote_num_tokens", params.get("remote_num_tokens"), 0, 1 << 40)
    return name, remote, n_tokens
