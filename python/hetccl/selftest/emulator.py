"""Finds out whether this machine's devices are emulated: a self test on these shows nothing of
hardware.
"""

from __future__ import annotations

from pathlib import Path

_LIBRARIES = ("librocjitsu",)  # of emulators, which a program has preloaded


def find(maps: Path = Path("/proc/self/maps")) -> str:
    """Returns the emulator's library if this process has mapped one, else ""."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux: --emulator says it there
        return ""
    names = {Path(line.split(maxsplit=5)[5]).name for line in lines if line.count("/")}
    return next((one for one in _LIBRARIES if any(name.startswith(one) for name in names)), "")
