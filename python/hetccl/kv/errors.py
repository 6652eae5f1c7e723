"""The error of the key-value layer, and checks of values that come from a peer."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 1 << 50  # bytes of a region, and so every offset and stride


class KvError(ValueError):
    """A description, a plan or a hand-off is refused. The text names the field and both ends."""


def check_integer(name: str, value: Any, low: int, high: int = LARGEST) -> int:
    """Returns `value` if it is an integer from `low` to `high`. Raises KvError with `name`."""
    if type(value) is not int or not low <= value <= high:
        raise KvError(f"{name} is {value!r:.80}: it must be an integer from {low} to {high}")
    return value


def check_text(name: str, value: Any, most: int = 256) -> str:
    """Returns `value` if it is a text of at most `most` characters. Raises KvError with `name`."""
    if not isinstance(value, str) or len(value) > most:
        raise KvError(f"{name} is {value!r:.80}: it must be a text of at most {most}")
    return value


def check_list(name: str, value: Any, low: int, high: int) -> list[Any]:
    """Returns `value` as a list of `low` to `high` entries. Raises KvError with `name`."""
    if not isinstance(value, list | tuple) or not low <= len(value) <= high:
        raise KvError(f"{name} is {value!r:.80}: it must be a list of {low} to {high}")
    return list(value)


def read_object(what: str, data: bytes | str, most: int) -> dict[str, Any]:
    """Returns the JSON object in `data`, at most `most` long. Raises KvError that says `what` it
    should have been."""
    if len(data) > most:
        raise KvError(f"{what} takes {len(data)} bytes, and {most} is the most")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise KvError(f"{what} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise KvError(f"{what} is no JSON object")
    return values
