"""``hetccl info`` for people: the JSON of hetcclGetInfo as tables."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_STYLES = {True: "green", False: "yellow"}
_FIRST = ("name", "vendor", "available", "version", "address", "value", "default", "type")


def _cell(value: Any) -> Text:
    if isinstance(value, bool):
        return Text("yes" if value else "no", style=_STYLES[value])
    if isinstance(value, list):
        return Text(", ".join(map(str, value)))
    return Text("" if value is None else str(value))


def _title(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _rows_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """One column per key; what differs from its default stands out."""
    found = {key: None for row in rows for key in row}
    keys = [*(key for key in _FIRST if key in found), *(key for key in found if key not in _FIRST)]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for key in keys:
        table.add_column(key.replace("_", " "), overflow="fold")
    for row in rows:
        changed = "default" in row and str(row.get("value")) != str(row["default"])
        table.add_row(*(_cell(row.get(key)) for key in keys), style="bold" if changed else None)
    return table


def show(text: str, console: Console | None = None) -> None:
    """Prints every part of the document: lists of objects as tables, the rest as lines.

    The parts are the library's to choose, so that a newer one shows what it knows.
    """
    console = console or Console()
    document: dict[str, Any] = json.loads(text)
    warnings = document.pop("warnings", [])
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            console.print(_rows_table(_title(key), value))
        elif isinstance(value, dict):
            rows = [{"name": name, "value": entry} for name, entry in value.items()]
            console.print(_rows_table(_title(key), rows))
        else:
            console.print(Text.assemble((f"{_title(key)}: ", "bold"), _cell(value)))
    for warning in warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), str(warning)))
