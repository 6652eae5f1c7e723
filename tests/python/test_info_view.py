"""`hetccl info` for people, on a document of its own."""

import io
import json

from rich.console import Console

from hetccl import info_view

DOCUMENT = {
    "host": "b0/net1",
    "devices": [
        {"available": True, "vendor": "host", "model": "EPYC"},
        {"available": False, "vendor": "cuda", "reason": "libcuda.so.1 not found"},
    ],
    "interfaces": [],
    "settings": [
        {"default": "0", "help": "slices in flight", "name": "HETCCL_DEPTH", "value": "4"},
        {"default": "1", "help": "shared memory", "name": "HETCCL_SHM", "value": "1"},
    ],
    "warnings": ["HETCCL_DEPHT is no setting: did you mean HETCCL_DEPTH?"],
    "later": {"invention": 3},
}


def shown() -> list[str]:
    out = io.StringIO()
    info_view.show(json.dumps(DOCUMENT), Console(file=out, width=120))
    return out.getvalue().splitlines()


def line_with(*words: str) -> str:
    return next(line for line in shown() if all(word in line for word in words))


def test_what_is_missing_says_why():
    assert "no" in line_with("cuda", "libcuda.so.1 not found")
    assert "yes" in line_with("EPYC")


def test_settings_show_name_value_and_default_in_that_order():
    heading = line_with("name", "value", "default")
    assert heading.index("name") < heading.index("value") < heading.index("default")
    assert "4" in line_with("HETCCL_DEPTH", "slices in flight")


def test_warnings_come_last():
    assert shown()[-1].startswith("warning: HETCCL_DEPHT")


def test_parts_that_this_version_does_not_know_are_shown_too():
    assert "3" in line_with("invention")
    assert line_with("Host:", "b0/net1")
