"""``hetccl info`` for people: version, backend and the JSON of hetcclGetInfo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hetccl.units import bandwidth

_STYLES = {True: "green", False: "yellow"}
_FIRST = ("name", "vendor", "available", "version", "address", "value")
_PROSE = ("reason", "path", "ports", "help")  # columns that may be wrapped; names stay whole

_MOST_ROWS = 8  # of a part, in brief
# The libraries that are of no use without a device of this vendor.
_NEEDED = {"cuda": ("cuda driver", "nvrtc", "nccl"), "hip": ("hip runtime", "hiprtc", "rccl")}
_REMEDIES = {
    "cuda": "install NVIDIA's driver; in a container, pass it in (docker run --gpus all)",
    "nvrtc": "pip install nvidia-cuda-nvrtc, or set HETCCL_NVRTC_LIBRARY",
    "nccl": "pip install nvidia-nccl-cu13, or set HETCCL_NCCL_LIBRARY",
    "hip": "install ROCm's HIP runtime, or set HETCCL_HIP_LIBRARY",
    "hiprtc": "install ROCm's hipRTC, or set HETCCL_HIPRTC_LIBRARY",
    "rccl": "install RCCL, or set HETCCL_RCCL_LIBRARY",
}


def _cell(value: Any) -> Text:
    if isinstance(value, bool):
        return Text("yes" if value else "no", style=_STYLES[value])
    if isinstance(value, list):
        return Text(", ".join(map(str, value)))
    return Text("" if value is None else str(value))


def _title(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _rows_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """One column per key."""
    found = {key: None for row in rows for key in row}
    keys = [*(key for key in _FIRST if key in found), *(key for key in found if key not in _FIRST)]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for key in keys:
        table.add_column(key.replace("_", " "), overflow="fold", no_wrap=key not in _PROSE)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    return table


def _show_rows(title: str, rows: list[dict[str, Any]], console: Console) -> None:
    """Prints a table, or a paragraph for each row if a table would break names."""
    table = _rows_table(title, rows)
    unbounded = console.options.update(max_width=10_000)
    if Measurement.get(console, unbounded, table).minimum <= console.width:
        return console.print(table)
    console.print(Text(title, style="bold"))
    for row in rows:
        facts = (
            f"{key.replace('_', ' ')} {_cell(value)}" for key, value in row.items() if value != ""
        )
        console.print(Padding(Text(", ".join(facts)), (0, 0, 0, 2)))
    return None


def _interface(interface: dict[str, Any]) -> dict[str, Any]:
    """Returns an interface for people: an address without a port, a speed with its unit."""
    address = str(interface["address"]).removesuffix(":0").strip("[]")
    return {"name": interface["name"], "address": address, "speed": bandwidth(interface["mbps"])}


def _show_backend(backend: dict[str, Any], console: Console) -> None:
    if backend["available"]:
        built_for = ", ".join(backend["built_for"])
        state = Text.assemble(
            ("loads", "green"), f" with torch {backend['torch']}, built for {built_for}"
        )
    else:
        state = Text.assemble(("not available", "yellow"), f": {backend['reason']}")
    console.print(Text.assemble(("PyTorch backend: ", "bold"), state), soft_wrap=True)


def _show_settings(settings: list[dict[str, Any]], console: Console, everything: bool) -> None:
    """Prints a line for each changed setting, or for all, with its help below."""
    changed = [one for one in settings if str(one["value"]) != str(one["default"])]
    listed = settings if everything else changed
    hint = "" if everything else f" (hetccl info --settings lists all {len(settings)})"
    title = "Settings" if listed else "Settings: all at their defaults"
    console.print(Text.assemble((title, "bold"), (hint, "dim")))
    for one in listed:
        value = Text.assemble((f"  {one['name']}={one['value']}", "bold" if one in changed else ""))
        if one in changed:
            value.append(f"  (default: {one['default'] or 'not set'})", style="dim")
        console.print(value, soft_wrap=True)
        console.print(Padding(Text(one["help"], style="dim"), (0, 0, 0, 6)))


def _shorten(reason: str) -> str:
    """A reason without the loader's words for each file that it has tried."""
    said, found, tried = reason.partition("no library found: ")
    if not found:
        return reason
    names = dict.fromkeys(one.partition(":")[0] for one in tried.split("; "))
    said = said.rstrip(": ") or "not found"
    return f"{said} ({next(iter(names))})"


def _missing(parts: dict[str, Any]) -> Iterator[Text]:
    """A line for each thing that is not here, and how to get it; what needs a driver that is not
    here is left out."""
    rows = {
        str(row.get("name", row.get("vendor"))): str(row.get("reason", ""))
        for value in parts.values() if isinstance(value, list)
        for row in value if isinstance(row, dict) and row.get("available") is False
    }  # fmt: skip
    for vendor, needed in _NEEDED.items():
        if vendor in rows:
            for name in needed:
                rows.pop(name, None)
    for name, reason in rows.items():
        remedy = f": {_REMEDIES[name]}" if name in _REMEDIES else ""
        yield Text.assemble((f"  {name}", "yellow"), f"  {_shorten(reason)}{remedy}")


def _brief_row(row: dict[str, Any]) -> Text:
    keys = [key for key in _FIRST if key in row and key != "available"]
    keys += [key for key in row if key not in (*keys, "available", "bus_id", "pinned_bytes")]
    facts = [str(_cell(row[key])) for key in keys if row[key] not in ("", None)]
    return Text("  " + "  ".join(facts))


def _show_brief(parts: dict[str, Any], console: Console) -> None:
    """Prints lines that are not broken: found parts, then missing ones."""
    for key, value in parts.items():
        if isinstance(value, dict):
            value = [{"name": name, "value": entry} for name, entry in value.items()]
        if not (isinstance(value, list) and value and all(isinstance(row, dict) for row in value)):
            console.print(Text.assemble((f"{_title(key)}: ", "bold"), _cell(value)), soft_wrap=True)
            continue
        rows = [_interface(row) for row in value] if key == "interfaces" else value
        here = [row for row in rows if row.get("available") is not False]
        if key == "transports":
            names = ", ".join(str(row["name"]) for row in here)
            console.print(Text.assemble(("Transports: ", "bold"), names), soft_wrap=True)
            continue
        console.print(Text(_title(key), style="bold"))
        for row in here[:_MOST_ROWS]:
            console.print(_brief_row(row), soft_wrap=True)
        if len(here) > _MOST_ROWS:
            console.print(Text(f"  and {len(here) - _MOST_ROWS} more: --verbose", style="dim"))
    missing = list(_missing(parts))
    if missing:
        console.print(Text("Not here (--verbose: all that was tried)", style="bold"))
    for line in missing[:_MOST_ROWS]:
        console.print(line, soft_wrap=True)


def _show_whole(parts: dict[str, Any], console: Console) -> None:
    """Lists of objects as tables, the rest as lines."""
    for key, value in parts.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            rows = [_interface(row) for row in value] if key == "interfaces" else value
            _show_rows(_title(key), rows, console)
        elif isinstance(value, dict):
            rows = [{"name": name, "value": entry} for name, entry in value.items()]
            _show_rows(_title(key), rows, console)
        else:
            console.print(Text.assemble((f"{_title(key)}: ", "bold"), _cell(value)))


def show(
    document: dict[str, Any],
    console: Console | None = None,
    *,
    all_settings: bool = False,
    verbose: bool = False,
) -> None:
    """Prints every part of the document: at most 40 lines where few settings are changed, or all
    that is known where `verbose`.

    The parts are the library's to choose, so that a newer one shows what it knows.
    """
    console = console or Console()
    parts = dict(document)
    warnings = parts.pop("warnings", [])
    if "version" in parts:
        console.print(Text(f"hetccl {parts.pop('version')}", style="bold"))
    if "torch_backend" in parts:
        _show_backend(parts.pop("torch_backend"), console)
    settings = parts.pop("settings", None)
    (_show_whole if verbose else _show_brief)(parts, console)
    if settings is not None:
        _show_settings(settings, console, all_settings)
    for warning in warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), str(warning)))
