"""`hetccl info` for people, on a document of its own."""

import io
import json

import pytest
from rich.console import Console

from hetccl import _lib, info_view, machine

DOCUMENT = {
    "version": "1.2.3",
    "torch_backend": {"available": True, "built_for": ["2.13", "2.14"], "torch": "2.13.0+cpu"},
    "host": "b0/net1",
    "devices": [
        {"available": True, "vendor": "host", "model": "EPYC"},
        {"available": False, "vendor": "cuda", "reason": "libcuda.so.1 not found"},
    ],
    "interfaces": [
        {"address": "192.0.2.2:0", "mbps": 0, "name": "eth0"},
        {"address": "[fd00::2]:0", "mbps": 25000, "name": "eth1"},
    ],
    "settings": [
        {"default": "0", "help": "slices in flight", "name": "HETCCL_DEPTH", "value": "4"},
        {"default": "1", "help": "shared memory", "name": "HETCCL_SHM", "value": "1"},
    ],
    "warnings": ["HETCCL_DEPHT is no setting: did you mean HETCCL_DEPTH?"],
    "later": {"invention": 3},
}


def shown(width=120, all_settings=False, verbose=False, **other) -> list[str]:
    out = io.StringIO()
    info_view.show(
        {**DOCUMENT, **other}, Console(file=out, width=width), all_settings=all_settings,
        verbose=verbose,
    )  # fmt: skip
    return out.getvalue().splitlines()


def line_with(*words: str, verbose=True) -> str:
    return next(line for line in shown(verbose=verbose) if all(word in line for word in words))


def test_version_and_backend_come_first():
    assert shown()[0] == "hetccl 1.2.3"
    assert shown()[1] == "PyTorch backend: loads with torch 2.13.0+cpu, built for 2.13, 2.14"
    missing = {"available": False, "built_for": [], "torch": None, "reason": "torch is not there"}
    assert shown(torch_backend=missing)[1] == "PyTorch backend: not available: torch is not there"


def test_what_is_missing_says_why():
    assert "no" in line_with("cuda", "libcuda.so.1 not found")
    assert "yes" in line_with("EPYC")


NO_LIBRARY = "no library found: libx.so.2: cannot open shared object file; libx.so.1: cannot open"


def test_what_is_missing_takes_a_line_with_the_remedy():
    lines = shown(
        devices=[{"available": False, "vendor": "cuda", "reason": f"no CUDA driver: {NO_LIBRARY}"},
                 {"available": True, "vendor": "hip", "device": "hip:0"}],
        libraries=[{"available": False, "name": name, "reason": NO_LIBRARY}
                   for name in ("cuda driver", "nccl", "rccl", "new")],
    )  # fmt: skip
    start = next(place for place, line in enumerate(lines) if line.startswith("Not here"))
    assert [line.split(":")[0] for line in lines[start + 1 : start + 4]] == [
        "  cuda  no CUDA driver (libx.so.2)",
        "  rccl  not found (libx.so.2)",  # without a driver NCCL is not missed
        "  new  not found (libx.so.2)",
    ]
    assert "install RCCL" in lines[start + 2]
    assert not any("cannot open" in line for line in lines)
    assert any("cannot open" in line for line in shown(
        verbose=True, devices=[{"available": False, "vendor": "cuda", "reason": NO_LIBRARY}]
    ))  # fmt: skip


def test_a_machine_with_everything_takes_40_lines_at_most():
    gpus = [{"available": True, "vendor": "cuda", "device": f"cuda:{n}"} for n in range(16)]
    cards = [{"address": f"10.0.0.{n}:0", "mbps": 1, "name": f"eth{n}"} for n in range(40)]
    names = ("cuda", "hip", "verbs", "ncclnet", "a", "b", "c", "d", "e", "f")
    lost = [{"available": False, "name": name, "reason": NO_LIBRARY} for name in names]
    lines = shown(devices=gpus, interfaces=cards, libraries=[*lost, *lost])
    assert len(lines) <= 40
    assert "  and 8 more: --verbose" in lines
    assert "  and 32 more: --verbose" in lines


def test_addresses_have_no_port_and_speeds_a_unit():
    assert "unknown speed" in line_with("eth0", " 192.0.2.2 ")
    assert "25 Gbit/s" in line_with("eth1", " fd00::2 ")


def test_addresses_for_other_ranks_come_once():
    listed = ["10.0.0.1:0", "[fd00::2]:0", "10.0.0.1:0"]
    found = {"interfaces": [{"address": address} for address in listed]}
    assert machine.addresses(found) == ["10.0.0.1", "fd00::2"]


def test_settings_are_those_that_differ_from_their_defaults():
    text = "\n".join(shown())
    assert "HETCCL_DEPTH=4  (default: 0)\n      slices in flight" in text
    assert "HETCCL_SHM" not in text
    assert "hetccl info --settings lists all 2" in text
    everything = "\n".join(shown(all_settings=True))
    assert "HETCCL_SHM=1\n" in everything
    assert "HETCCL_DEPTH=4  (default: 0)\n" in everything
    same = "\n".join(shown(settings=DOCUMENT["settings"][1:]))
    assert "Settings: all at their defaults (hetccl info --settings lists all 1)" in same


def test_names_are_whole_at_80_columns():
    settings = json.loads(_lib.info())["settings"]
    gpu = {
        "architecture": "sm_90", "available": True, "bus_id": "0000:4f:00.0", "device": "cuda:0",
        "model": "NVIDIA H200", "pinned_bytes": 100663296, "vendor": "cuda",
    }  # fmt: skip
    devices = [*DOCUMENT["devices"], gpu]
    lines = shown(80, all_settings=True, verbose=True, settings=settings, devices=devices)
    assert all(len(line) <= 80 for line in lines)
    for name in [*(one["name"] for one in settings), *map(str, gpu.values())]:
        assert any(name in line for line in lines) or name == "True", name


def test_warnings_come_last():
    assert shown()[-1].startswith("warning: HETCCL_DEPHT")


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [80, 120])
def test_parts_that_this_version_does_not_know_are_shown_too(width, verbose):
    assert any("invention" in line and "3" in line for line in shown(width, verbose=verbose))
    assert line_with("Host:", "b0/net1")
