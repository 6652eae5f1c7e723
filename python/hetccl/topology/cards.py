"""The models of devices that hetccl knows, and the network card that a layout gives each of them
when nobody names its bandwidth."""

from __future__ import annotations

import re
from typing import NamedTuple


class _Models(NamedTuple):
    """`names` are for people, `pattern` is what a model's name holds. `mbps` is one card's."""

    vendor: str
    names: str
    pattern: str
    mbps: int


_OF_GPU = 100_000  # older or smaller ones: DGX-2, and clouds' servers of L40S or A10
_OF_HOST = 10_000  # what servers without accelerators have at least
# The first that fits counts. Each bandwidth is what the maker's own server has per device, so that
# a plan on a laptop resembles the cluster to come.
_MODELS = (
    _Models("cuda", "B300, GB300", r"G?B300", 800_000),  # DGX B300: a ConnectX-8 for each GPU
    _Models("cuda", "B200, B100, GB200", r"G?B[12]00", 400_000),  # DGX B200: a ConnectX-7 each
    _Models("cuda", "H200, H100, H800, H20, GH200", r"G?H[128]00|H20", 400_000),  # DGX H100
    # Servers of eight MI300X: a card of 400 Gbit/s for each.
    _Models("hip", "MI355X, MI350X, MI325X, MI308X, MI300X, MI300A", r"MI3\d\d[AX]?", 400_000),
    _Models("cuda", "A100, A800", r"A[18]00", 200_000),  # DGX A100: a ConnectX-6 for each GPU
    # Frontier: a Slingshot of 200 Gbit/s for each MI250X.
    _Models("hip", "MI250X, MI250, MI210", r"MI2\d\dX?", 200_000),
    _Models("cuda", "V100, P100, L40S, L40, L20, L4, A40, A30, A16, A10, A2, T4, RTX and GTX ...",
            r"[VP]100|L40S?|L20|L4|A40|A30|A16|A10[GM]?|A2|T4|[RG]TX(?: PRO)? ?[A-Z]?\d{4}",
            _OF_GPU),
    _Models("hip", "MI100, MI60, MI50, Radeon ...", r"MI100|MI[56]0|RADEON", _OF_GPU),
)  # fmt: skip


def _find(model: str) -> _Models | None:
    name = model.upper()
    return next(
        (one for one in _MODELS if re.search(rf"(?<![A-Z0-9])(?:{one.pattern})(?!\d)", name)), None
    )


def vendor_of(model: str) -> str:
    """The vendor of a model; "" of one that is not known."""
    found = _find(model)
    return found.vendor if found else ""


def known_models(vendor: str) -> str:
    """Returns the names of a vendor's models, for people; "" if none is known."""
    return ", ".join(one.names for one in _MODELS if one.vendor == vendor)


def default_mbps(vendor: str, model: str) -> int:
    """Mbit/s of a card beside a device of that vendor and model ("cuda", "NVIDIA H100 80GB")."""
    if vendor == "host":
        return _OF_HOST
    found = _find(model)
    return found.mbps if found else _OF_GPU
