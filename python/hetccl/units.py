"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterable


def size(count: float) -> str:
    """Returns bytes in the unit that gives three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB" if count < 1000 else f"{count:,.0f} TB"


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def binary_size(count: int) -> str:
    """Returns bytes in units of 1024: "4 MiB", "97.6 KiB"."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {_BINARY[unit]}"


def duration(seconds: float) -> str:
    """Seconds in the unit that gives three digits."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def bandwidth(mbps: int) -> str:
    """Returns a bandwidth for people: "25 Gbit/s". 0 is "unknown speed"."""
    if mbps <= 0:
        return "unknown speed"
    return f"{mbps / 1000:g} Gbit/s" if mbps >= 1000 else f"{mbps} Mbit/s"


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Returns a number with its noun: "1 rank", "2 ranks"."""
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def ranges(numbers: Iterable[int]) -> str:
    """Returns numbers as ranges: "0-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
