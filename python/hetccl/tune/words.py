"""Keys and settings as people read them, in the library's own words."""

from __future__ import annotations

from typing import Any

from hetccl.tune.grid import Setting
from hetccl.units import binary_size


def size_of(key: dict[str, Any]) -> str:
    """The largest block of a key's calls: "4 MiB"."""
    return binary_size(1 << int(key["size_class"]))


def key_text(key: dict[str, Any]) -> str:
    """Returns a key for people: "all_reduce, at most 4 MiB, elements of 4 bytes"."""
    text = f"{key['collective']}, at most {size_of(key)}"
    if "element_bytes" in key:
        text += f", elements of {key['element_bytes']} bytes"
    if "root_cluster" in key:
        text += f", root in cluster {key['root_cluster']}"
    return text


def value_text(parameter: str, value: object) -> str:
    """A parameter's value with its unit."""
    return (
        binary_size(value)
        if parameter.endswith("_bytes") and isinstance(value, int)
        else (str(value))
    )


def setting_text(setting: Setting) -> str:
    """Returns a setting for people: "ring, slice_bytes 256 KiB, depth 4"."""
    parts = [str(setting["algorithm"])]
    parts += [
        f"{name} {value_text(name, value)}"
        for name, value in setting.items()
        if name != "algorithm"
    ]
    return ", ".join(parts)


def change_text(setting: Setting, default: Setting) -> str:
    """Returns the differences of a setting from the default; "the default" if there are none."""
    changed = {name: value for name, value in setting.items() if default.get(name) != value}
    algorithm = changed.pop("algorithm", None)
    parts = [str(algorithm)] if algorithm is not None else []
    parts += [f"{name} {value_text(name, value)}" for name, value in changed.items()]
    return ", ".join(parts) or "the default"
