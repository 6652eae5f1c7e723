"""Messages between a sender and a receiver: bounded JSON, each field checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from hetccl.kv.errors import KvError, check_integer, check_list, check_text, read_object
from hetccl.kv.shares import Share
from hetccl.kv.wire import ENCODINGS, Segment

VERSION = 1
MOST_BYTES = 4 << 20
MODES = ("push", "pull")
KINDS = ("aborted", "lease", "peer", "transfer", "checksum", "protocol", "refused", "closed")
_PART, _LAST_PART = b"\1", b"\2"  # first bytes of parts; a message begins with {
_MOST_CAUSE, _MOST_BLOCKS, _MOST_SEGMENTS = 2000, 1 << 19, 1 << 16
Checker = Callable[[str, Any], Any]


def _number(name: str, value: Any) -> int:
    return check_integer(name, value, 0, 1 << 62)


def _count(name: str, value: Any) -> int:
    return check_integer(name, value, 0)


def _text(most: int) -> Checker:
    return lambda name, value: check_text(name, value, most)


def _choice(*values: str) -> Checker:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise KvError(f"{name} is {value!r:.80}: it must be one of {values}")
        return value

    return check


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or not (math.isfinite(value) and 0 < value < 1e7):
        raise KvError(f"{name} is {value!r:.80}: it must be seconds")
    return float(value)


def _numbers(low: int, most: int) -> Checker:
    def check(name: str, value: Any) -> list[int]:
        return [check_integer(name, one, low, 1 << 62) for one in check_list(name, value, 0, most)]

    return check


def _tokens(name: str, value: Any) -> tuple[int, int]:
    first, last = _numbers(0, 2)(name, check_list(name, value, 2, 2))
    if first > last:
        raise KvError(f"{name} is {value}: it must be [first, last)")
    return first, last


def _shares(name: str, value: Any) -> list[Share]:
    rows = check_list(name, value, 0, _MOST_SEGMENTS)
    return [Share(*_numbers(0, 3)(name, check_list(name, row, 3, 3))) for row in rows]


def _segments(name: str, value: Any) -> list[Segment]:
    rows = check_list(name, value, 1, _MOST_SEGMENTS)
    return [Segment(*_numbers(0, 6)(name, check_list(name, row, 6, 6))) for row in rows]


def _checksum(name: str, value: Any) -> int | None:
    return None if value is None else check_integer(name, value, 0, (1 << 32) - 1)


_ENDING: dict[str, Checker] = {
    "number": _number,
    "reason": _choice(*KINDS),
    "cause": _text(_MOST_CAUSE),
}
# The fields of each kind of message.
SCHEMA: dict[str, dict[str, Checker]] = {
    # The end that has connected, first: its session's metadata, without the endpoint's.
    "hello": {"metadata": _text(2 << 20)},
    # Receiver: a hand-off, with its blocks.
    "offer": {
        "number": _number, "request": _text(256), "mode": _choice(*MODES), "tokens": _tokens,
        "blocks": _numbers(-1, _MOST_BLOCKS), "shares": _shares,
        "encoding": _choice("", *ENCODINGS), "lease": _seconds, "receivers": _count,
    },
    # Push. Sender: it has chunks to send. Receiver: staging slots for them.
    "want": {"number": _number, "slots": _count},
    "grant": {"number": _number, "slots": _numbers(0, 1 << 16)},
    # Push: notifications of puts to blocks, and to staging.
    "landed": {"number": _number, "segments": _segments, "checksum": _checksum},
    "chunk": {"number": _number, "slot": _count, "segments": _segments, "checksum": _checksum},
    # Pull. Sender: cells in its blocks, or in its staging. Receiver: a slot that it has read.
    "ready": {
        "number": _number, "layers": _numbers(0, 4096), "tokens": _tokens,
        "blocks": _numbers(-1, _MOST_BLOCKS), "least": _count, "checksum": _checksum,
    },
    "staged": {"number": _number, "slot": _count, "segments": _segments, "checksum": _checksum},
    "read": {"number": _number, "slot": _count},
    # Sender: it has sent all. Receiver: it has all.
    "commit": {"number": _number, "cells": _count},
    "finish": {"number": _number},
    # Receiver: it has no transfer under way. Sender (pull): the receiver shall stop.
    "abort": _ENDING,
    # Sender: no byte of this hand-off moves any more.
    "aborted": _ENDING,
    "renew": {"numbers": _numbers(0, 1 << 16)},
    # Receiver: it will offer this request.
    "hold": {"request": _text(256)},
}  # fmt: skip


def encode(kind: str, token: str, **values: Any) -> bytes:
    """Returns a message of the session `token`. Raises KvError if it is too long."""
    data = json.dumps({"v": VERSION, "k": kind, "s": token, **values}, separators=(",", ":"))
    if len(data) > MOST_BYTES:
        raise KvError(f"a message of kind {kind} takes {len(data)} bytes of {MOST_BYTES}")
    return data.encode()


def decode(data: bytes) -> tuple[str, str, dict[str, Any]]:
    """Returns kind, session token and checked fields. Raises KvError that names a wrong field."""
    values = read_object("a message", data, MOST_BYTES)
    if values.pop("v", None) != VERSION:
        raise KvError(f"a message is not of version {VERSION}: run the same hetccl at both ends")
    kind, token = values.pop("k", None), check_text("s", values.pop("s", None), 64)
    if not isinstance(kind, str) or kind not in SCHEMA:
        raise KvError(f"a message of the unknown kind {kind!r:.80}")
    fields = SCHEMA[kind]
    if unlike := fields.keys() ^ values.keys():
        raise KvError(f"{kind} lacks or does not know the field {min(unlike)[:80]}")
    return (
        kind,
        token,
        {name: check(f"{kind}.{name}", values[name]) for name, check in fields.items()},
    )


def cut(message: bytes, most: int) -> list[bytes]:
    """Returns a message as notifications of at most `most` bytes: itself, or its parts."""
    if len(message) <= most:
        return [message]
    step = most - 1
    pieces = [message[at : at + step] for at in range(0, len(message), step)]
    return [*(_PART + one for one in pieces[:-1]), _LAST_PART + pieces[-1]]


class Parts:
    """Joins the parts of one link's messages, which arrive in their order; whole messages may come
    between them."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, notification: bytes) -> bytes | None:
        """Returns a message that is whole, or None. Raises KvError if one is too long."""
        first = notification[:1]
        if first not in (_PART, _LAST_PART):
            return notification
        if len(self._held) + len(notification) > MOST_BYTES + 1:
            raise KvError(f"a message takes more than {MOST_BYTES} bytes")
        self._held += notification[1:]
        if first == _PART:
            return None
        message, self._held = bytes(self._held), bytearray()
        return message


def rows_of(segments: Sequence[Segment]) -> list[list[int]]:
    """Returns segments as lists, for a message."""
    return [
        [one.layer, one.part, one.first_token, one.last_token, one.first_head, one.last_head]
        for one in segments
    ]
