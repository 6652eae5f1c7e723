"""``hetccl nccl-lib`` and ``hetccl info --pid``: NCCL programs that run over hetccl."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_FOLDER = Path(__file__).parent / "lib"
LIBRARY = _FOLDER / "libhetccl_nccl.so"
"""The library that programs preload."""
STAND_INS = _FOLDER / "hetccl-nccl"
"""The same library as libnccl.so.2 and librccl.so.1, for LD_LIBRARY_PATH."""

_VENDORS = ("libnccl.so", "librccl.so")


@dataclass
class Loaded:
    """The libraries with NCCL's functions that a process has loaded."""

    stand_ins: list[str] = field(default_factory=list)
    vendors: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Returns one line about the library that serves the process's calls."""
        vendor = ", ".join(self.vendors) or "no vendor's library"
        if self.stand_ins:
            return (
                f"hetccl ({', '.join(self.stand_ins)}), before {vendor}. What the program calls "
                "in a library that it opens by a path goes to that library"
            )
        if self.vendors:
            return f"{vendor}; hetccl is not in between"
        return "no library with NCCL's functions is loaded"


def is_stand_in(path: Path) -> bool:
    """Whether a library is hetccl's, whatever its name."""
    return path.name == LIBRARY.name or path.parent.name == STAND_INS.name


def loaded_by(pid: int) -> Loaded:
    """Returns the libraries that process `pid` has loaded. Raises OSError if there is no such
    process or it is another user's.
    """
    found = Loaded()
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        path = line.partition("/")[2]
        if not path:
            continue
        library = Path("/" + path)
        if is_stand_in(library):
            names = found.stand_ins
        elif library.name.startswith(_VENDORS):
            names = found.vendors
        else:
            continue
        if str(library) not in names:
            names.append(str(library))
    return found
