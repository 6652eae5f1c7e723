"""Removes private texts from a report: names, addresses, folders."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import socket
from typing import Any

_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:%\w+)?(?![\w:.])")
_FOLDERS = re.compile(r"(?<![\w.)])(?:~|\.{1,2})?(?:/[^\s/:;,\"']+)*/(?=[^\s/:;,\"'])")
_SHORT = 3  # shorter names would be found in other words


def _names() -> dict[str, str]:
    host = socket.gethostname()
    found = {host: "(host)", host.split(".")[0]: "(host)"}
    with contextlib.suppress(KeyError):  # a container's user may have no name
        found[pwd.getpwuid(os.geteuid()).pw_name] = "(user)"
    found.pop("root", None)
    return {name: word for name, word in found.items() if len(name) >= _SHORT}


def clean(text: str, names: dict[str, str]) -> str:
    """A text without addresses, folders and the `names` of host and user."""
    for name, word in names.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    for pattern in (_IPV4, _IPV6):
        text = pattern.sub("(address)", text)
    return _FOLDERS.sub("", text)


def remove_from(document: Any, names: dict[str, str] | None = None) -> Any:
    """A copy of a JSON document whose strings are clean. Keys are ours, and stay."""
    names = _names() if names is None else names
    if isinstance(document, str):
        return clean(document, names)
    if isinstance(document, list):
        return [remove_from(one, names) for one in document]
    if isinstance(document, dict):
        return {key: remove_from(value, names) for key, value in document.items()}
    return document
