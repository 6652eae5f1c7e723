"""SVG pictures that read well on light and dark pages.

The standard library's ElementTree escapes and serialises; what a drawing library would add to it
(gradients, animations, rasters) no picture here needs. Colours are CSS variables, so that a page
into which a picture is pasted may set its own.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree

CLUSTER_COLOURS = ("#2f6fde", "#d9622b", "#2a9d6f", "#a855c7", "#b8860b", "#d6456b", "#2b93a8")
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"
_STYLE = f"""
.hetccl-picture {{ --paper: #ffffff; --box: #f6f8fa; --line: #c9d1d9; --ink: #1f2328;
  --muted: #59636e; font-family: {FONT}; }}
@media (prefers-color-scheme: dark) {{ .hetccl-picture {{ --paper: #14181d; --box: #1d232b;
  --line: #3d4650; --ink: #e8ecf0; --muted: #9aa5b1; }} }}
.hetccl-picture text {{ fill: var(--ink); font-size: 13px; }}
.hetccl-picture .muted {{ fill: var(--muted); font-size: 12px; }}
.hetccl-picture .title {{ font-weight: 600; }}
.hetccl-picture .on-colour {{ fill: #ffffff; font-weight: 600; font-size: 12px; }}
.hetccl-picture .paper {{ fill: var(--paper); }}
.hetccl-picture .box {{ fill: var(--box); stroke: var(--line); }}
.hetccl-picture .wire {{ fill: none; stroke: var(--muted); stroke-width: 2; }}
.hetccl-picture .thin {{ fill: none; stroke: var(--line); }}
.hetccl-picture .dot {{ fill: var(--muted); }}
"""


def colour_of(cluster: int) -> str:
    """A cluster's colour; they repeat after a while."""
    return CLUSTER_COLOURS[cluster % len(CLUSTER_COLOURS)]


def text_width(text: str, size: float = 13) -> float:
    """About the width of a text, in pixels: enough to reserve room."""
    return math.ceil(0.58 * size * len(text))


class Drawing:
    """Shapes by their corner, in pixels. `title` is the text that a mouse over a shape shows."""

    def __init__(self) -> None:
        self._root = ElementTree.Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "hetccl-picture", "role": "img"}
        )
        ElementTree.SubElement(self._root, "style").text = _STYLE
        self._paper = ElementTree.SubElement(self._root, "rect", {"class": "paper"})
        self._width = self._height = 0.0

    def _add(self, tag: str, title: str, **attributes: object) -> ElementTree.Element:
        named = {
            key.rstrip("_").replace("_", "-"): f"{value:g}" if isinstance(value, float) else value
            for key, value in attributes.items()
            if value not in ("", None)
        }
        texts = {key: str(value) for key, value in named.items()}
        element = ElementTree.SubElement(self._root, tag, texts)
        if title:
            ElementTree.SubElement(element, "title").text = title
        return element

    def box(
        self, x: float, y: float, width: float, height: float, *,
        colour: str = "", opacity: float = 0.12, radius: float = 8, title: str = "",
    ) -> None:  # fmt: skip
        """A rounded box: plain, or in a colour whose fill has `opacity`."""
        look: dict[str, object] = {"class_": "box"}
        if colour:
            look = {"fill": colour, "fill_opacity": opacity, "stroke": colour}
        self._add("rect", title, x=x, y=y, width=width, height=height, rx=radius, **look)
        self._grow(x + width, y + height)

    def text(
        self, x: float, y: float, text: str, *, look: str = "", anchor: str = "", title: str = ""
    ) -> None:
        """A line of text on its baseline; `look` is title, muted or on-colour."""
        self._add("text", title, x=x, y=y, class_=look, text_anchor=anchor).text = text
        if not anchor:
            self._grow(x + text_width(text), y + 4)

    def path(
        self, d: str, *, look: str = "wire", colour: str = "", arrow: bool = False, title: str = ""
    ) -> None:
        """A path of SVG's own commands; its extent is the caller's to reserve."""
        style = f"stroke: {colour}" if colour else ""
        end = "url(#hetccl-arrow)" if arrow else ""
        self._add("path", title, d=d, class_=look, style=style, marker_end=end)

    def dot(
        self, x: float, y: float, radius: float = 4, *, colour: str = "", title: str = ""
    ) -> None:
        """A junction of wires, or a point of a chart."""
        look = f"fill: {colour}" if colour else ""
        self._add("circle", title, cx=x, cy=y, r=radius, class_="dot", style=look)

    def arrowheads(self) -> None:
        """Defines the heads of `path(arrow=True)`; once, before the first."""
        definitions = ElementTree.SubElement(self._root, "defs")
        marker = ElementTree.SubElement(
            definitions, "marker",
            {"id": "hetccl-arrow", "viewBox": "0 0 8 8", "refX": "7", "refY": "4",
             "markerWidth": "4", "markerHeight": "4", "orient": "auto-start-reverse"},
        )  # fmt: skip
        ElementTree.SubElement(marker, "path", {"d": "M0 0 L8 4 L0 8 z", "fill": "context-stroke"})

    def reserve(self, x: float, y: float) -> None:
        """Room up to this corner, for paths and texts that do not reserve their own."""
        self._grow(x, y)

    def _grow(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def to_svg(self, margin: float = 16, described: str = "") -> str:
        """Returns the document. `described` is the text for screen readers."""
        width, height = math.ceil(self._width + margin), math.ceil(self._height + margin)
        self._paper.attrib.update({"width": str(width), "height": str(height), "rx": "10"})
        self._root.attrib.update(
            {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
        )
        if described:
            self._root.set("aria-label", described)
        ElementTree.indent(self._root, " ")
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"
