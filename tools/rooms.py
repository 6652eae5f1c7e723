"""The picture of the rooms of src/ and compat/, drawn from the arrows that tools/tidy checks."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from hetccl.drawing import Drawing, colour_of, text_width

WIDTH, ROW, HEIGHT = 960, 84, 36
# The lowest row, from left to right: rooms above stand over what they use.
BOTTOM = ["topology", "host", "net", "public"]
# Rooms of other folders than src/.
ELSEWHERE = {
    "mpi": "compat/mpi", "nccl": "compat/nccl", "nccl-tuner": "compat/nccl-tuner",
    "csrc": "python/csrc", "public": "include/hetccl",
}  # fmt: skip


def read_arrows() -> dict[str, set[str]]:
    """Returns `uses_of_rooms` of tools/tidy, and the C API, which uses nothing."""
    loader = SourceFileLoader("tidy", str(Path(__file__).parent / "tidy"))
    spec = spec_from_loader("tidy", loader)
    assert spec is not None
    tidy = module_from_spec(spec)
    loader.exec_module(tidy)
    return {"public": set(), **tidy.uses_of_rooms()}


def reaches(uses: dict[str, set[str]], room: str, other: str) -> bool:
    """Whether arrows lead from `room` to `other`."""
    return any(one == other or reaches(uses, one, other) for one in uses[room])


def level(uses: dict[str, set[str]], room: str) -> int:
    """Its row, counted from the bottom: one above the highest room that it uses."""
    return 1 + max((level(uses, one) for one in uses[room]), default=-1)


def draw() -> str:
    """Rooms in rows: each uses rooms below it. Arrows that others imply are left out."""
    uses = read_arrows()
    levels = {room: level(uses, room) for room in uses}
    top = max(levels.values())
    drawing = Drawing()
    drawing.arrowheads()
    places: dict[str, tuple[float, float]] = {}

    def middle(room: str) -> tuple[float, str]:
        below = [places[one][0] for one in uses[room]]
        return (sum(below) / len(below) if below else BOTTOM.index(room)), room

    for row in range(top + 1):
        rooms = sorted((room for room in uses if levels[room] == row), key=middle)
        for index, room in enumerate(rooms):
            places[room] = (WIDTH * (index + 0.5) / len(rooms), (top - row) * ROW + 24)
    for room, (x, y) in places.items():
        for used in sorted(uses[room]):
            if any(reaches(uses, one, used) for one in uses[room] - {used}):
                continue
            to_x, to_y = places[used]
            begin, end, bend = y + HEIGHT, to_y - 4, ROW * 0.4
            from_end, to_end = f"{x:g} {begin + bend:g}", f"{to_x:g} {end - bend:g}"
            drawing.path(
                f"M{x:g} {begin:g} C{from_end} {to_end} {to_x:g} {end:g}",
                colour=colour_of(levels[room]), arrow=True, title=f"{room} uses {used}",
            )  # fmt: skip
    for room, (x, y) in places.items():
        name = ELSEWHERE.get(room, room)
        width = text_width(name) + 24
        used = ", ".join(sorted(uses[room])) or "no other room"
        drawing.box(x - width / 2, y, width, HEIGHT, title=f"{room} may use {used}")
        drawing.text(x, y + 23, name, anchor="middle")
    drawing.text(16, (top + 1) * ROW + 24, "Every room uses base.", look="muted")
    drawing.reserve(WIDTH, 0)
    return drawing.to_svg(described="The rooms of hetccl's sources, and which uses which")
