"""Writes the results of a sweep to the file of HETCCL_TUNE_FILE, for later jobs.

The format is the library's: src/tune/knowledge.cc reads and writes it, too.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from hetccl import files
from hetccl.tune.findings import Finding
from hetccl.tune.grid import identity
from hetccl.tune.records import Point
from hetccl.units import counted

FORMAT = 1
_MOST_BYTES = 4 << 20
_MOST_ENTRIES = 8192


class KnowledgeError(RuntimeError):
    """Results cannot be kept; the text tells the reason and the remedy."""


_IN_BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")


def _block_bytes(point: Point) -> int:
    return point.bytes // (point.ranks if point.key["collective"] in _IN_BLOCKS else 1)


def entry(finding: Finding, now: int) -> dict[str, Any]:
    """A finding as an entry of the file. `now`: seconds since the Unix epoch."""
    best = finding.best
    return {
        "key": best.key,
        "setting": best.setting,
        "bytes": _block_bytes(best),
        "us": finding.best_us,
        "default_us": finding.default_us,
        "trials": len(finding.points),
        "place": best.place,
        "summary": best.summary,
        "time": now,
    }


def _entries(text: bytes, path: Path) -> list[dict[str, Any]]:
    """Returns a file's entries; none if it is damaged, as in the library. Raises KnowledgeError."""
    try:
        document = json.loads(text)
    except ValueError:
        return []
    version = document.get("hetccl_tuning") if isinstance(document, dict) else None
    if type(version) is not int:
        return []
    if version != FORMAT:
        raise KnowledgeError(
            f"{path} has format {version}, and this hetccl writes {FORMAT}: name another file in "
            "HETCCL_TUNE_FILE"
        )
    found = document.get("entries")
    return [one for one in found if _is_entry(one)] if isinstance(found, list) else []


def _is_entry(one: object) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("key"), dict)
        and isinstance(one.get("place"), str)
        and re.fullmatch(r".{16}", one["place"]) is not None
        and type(one.get("time")) is int
        and one["time"] >= 0
    )


def merge(text: bytes, new: list[dict[str, Any]], path: Path) -> str:
    """The file's text with `new` entries, which replace older ones of the same place and key."""
    entries = {(one["place"], identity(one["key"])): one for one in _entries(text, path)}
    for one in new:
        where = one["place"], identity(one["key"])
        if where not in entries or entries[where]["time"] <= one["time"]:
            entries[where] = one
    newest = sorted(entries.values(), key=lambda one: one["time"])[-_MOST_ENTRIES:]
    newest.sort(key=lambda one: (one["place"], identity(one["key"])))
    return json.dumps({"hetccl_tuning": FORMAT, "entries": newest}, indent=1) + "\n"


def save(found: list[Finding], tuning: dict[str, Any]) -> str:
    """Merges the findings into the file that `tuning` names. Returns a sentence about the written
    file.

    `tuning` is Communicator.tuning's, on rank 0. Raises KnowledgeError and OSError.
    """
    place, file = tuning.get("place", ""), tuning.get("file", "")
    if not place:
        raise KnowledgeError(
            'this libhetccl.so does not tell the place where it runs ("place" of '
            "hetcclCommGetTuning): install a newer hetccl, or pass --no-save"
        )
    if not file:
        raise KnowledgeError(
            "there is no tuning file: name one in HETCCL_TUNE_FILE, or pass --no-save"
        )
    now = int(time.time())
    # A key without a choice has nothing to remember.
    new = [entry(one, now) for one in found if len(one.points) > 1]
    if not new:
        return "nothing to save: no key has more than one setting"
    path = Path(file)
    files.update(path, _MOST_BYTES, lambda text: merge(text, new, path))
    keys = counted(len(new), "key")
    return f"saved: {keys} in {path}, for jobs with HETCCL_TUNE=frozen or online"
