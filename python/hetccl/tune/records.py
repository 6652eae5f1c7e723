"""The measured points of a sweep: a file with one JSON object a line, appended as they come."""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from hetccl.tune.grid import Setting, identity

_MOST_BYTES = 256 << 20
_MOST_US = 1e12


class RecordsError(RuntimeError):
    """The file cannot be used; the text says where it is damaged and what to do."""


@dataclass(frozen=True)
class Point:
    """One setting of one key, measured beside the default. Times in microseconds."""

    key: dict[str, Any]
    setting: Setting
    default: Setting
    us: float  # median of a call, its slowest rank's; 0: `failed`
    default_us: float
    ratio: float  # of us to default_us, by pairs of calls; 0: `failed`
    error: float  # standard error of the ratio's logarithm
    samples: int  # pairs of calls
    bytes: int  # of the whole buffer
    dtype: str
    ranks: int
    hosts: int
    place: str = ""  # digest of topology, version and settings; "": the library does not tell
    summary: str = ""  # the topology for people
    failed: str = ""  # why the setting could not be used

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The fields that all measurements of this point have in common."""
        return self.place, identity(self.key), identity(self.setting), identity(self.default)


def _is_setting(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("algorithm"), str)
        and all(isinstance(v, (int, str)) for v in value.values())
    )


def _is_key(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("collective"), str):
        return False
    numbers = [v for name, v in value.items() if name != "collective"]
    size_class = value.get("size_class")
    return (
        all(type(v) is int and v >= 0 for v in numbers)
        and type(size_class) is int
        and size_class <= 63
    )


def _is_time(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= _MOST_US


_KINDS: Mapping[str, tuple[type, ...]] = {
    "dict[str, Any]": (dict,), "Setting": (dict,), "float": (float, int), "int": (int,),
    "str": (str,),
}  # fmt: skip


def parse(line: str) -> Point:
    """Returns the point of one line. Raises ValueError if the line is no measured point."""
    raw = json.loads(line)
    names = {field.name: field for field in fields(Point)}
    if not isinstance(raw, dict) or set(raw) != set(names):
        raise ValueError("it has not the fields of a measured point")
    for name, field in names.items():
        if type(raw[name]) not in _KINDS[str(field.type)]:
            raise ValueError(f'"{name}" is {raw[name]!r}')
    if not (_is_key(raw["key"]) and _is_setting(raw["setting"]) and _is_setting(raw["default"])):
        raise ValueError('"key", "setting" or "default" is none')
    point = Point(**raw)
    times = (point.us, point.default_us, point.ratio, point.error)
    positive = point.failed or min(times[:3]) > 0
    if not (all(map(_is_time, times)) and positive and min(point.ranks, point.hosts) > 0):
        raise ValueError("a number is out of its range")
    return point


def _parse_all(path: Path, data: bytes) -> tuple[list[Point], int]:
    """The points, and how many bytes of `data` they fill: a broken last line is left out."""
    points: list[Point] = []
    end = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        last = number == len(lines) or (number == len(lines) - 1 and not lines[-1])
        if number == len(lines):
            break  # what follows the last newline: nothing, or half a line
        try:
            points.append(parse(line.decode()))
        except (ValueError, TypeError) as error:
            if last:
                break
            raise RecordsError(
                f"{path}, line {number}: this is no point that hetccl tune measured: {error}. "
                "Remove the line, or name another file"
            ) from None
        end += len(line) + 1
    return points, end


def _read(descriptor: int, path: Path) -> bytes:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise RecordsError(f"{path} is no regular file: name another one")
    if about.st_size > _MOST_BYTES:
        raise RecordsError(f"{path} has more than {_MOST_BYTES >> 20} MiB: name another file")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def read(path: Path) -> list[Point]:
    """Returns all points of a file, the latest measurement of each. Raises OSError and
    RecordsError.
    """
    # Without O_NONBLOCK a FIFO that nobody writes to would hold the process up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        points, _ = _parse_all(path, _read(descriptor, path))
    finally:
        os.close(descriptor)
    return latest(points)


def latest(points: list[Point]) -> list[Point]:
    """Returns the last measurement of each point."""
    return list({point.identity: point for point in points}.values())


class Records:
    """The file of a sweep, open for appending; one process at a time. A context manager.

    Each point is written at once, so that a killed sweep goes on where it was. Half a line, which
    a killed process may leave at the end, is removed.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        self._path = path
        self._descriptor = os.open(path, flags, 0o666)
        try:
            self._lock()
            points, end = _parse_all(path, _read(self._descriptor, path))
            os.ftruncate(self._descriptor, end)
        except BaseException:
            self.close()
            raise
        self.found = latest(points)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordsError(
                f"another hetccl tune writes to {self._path}: wait for it, or name another file"
            ) from None

    def add(self, point: Point) -> None:
        """Appends one point."""
        line = (json.dumps(asdict(point)) + "\n").encode()
        while line:
            line = line[os.write(self._descriptor, line) :]

    def close(self) -> None:
        """Closes the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
