"""The network card that a layout gives a rank when nobody names its bandwidth."""

from __future__ import annotations

import re

# Mbit/s of one card, by what a model's name holds; the first that fits counts. Each is what the
# maker's own server has per device, so that a plan on a laptop resembles the cluster to come.
_OF_MODEL = (
    (r"G?B300", 800_000),  # DGX B300: a ConnectX-8 for each GPU
    (r"G?B[12]00", 400_000),  # DGX B200: a ConnectX-7 for each GPU
    (r"G?H[128]00|H20", 400_000),  # DGX H100: a ConnectX-7 for each GPU
    (r"MI3\d\d[AX]?", 400_000),  # servers of eight MI300X: a card of 400 Gbit/s for each
    (r"A[18]00", 200_000),  # DGX A100: a ConnectX-6 for each GPU
    (r"MI2\d\dX?", 200_000),  # Frontier: a Slingshot of 200 Gbit/s for each MI250X
)
_OF_GPU = 100_000  # older or smaller ones: DGX-2, and clouds' servers of L40S or A10
_OF_HOST = 10_000  # what servers without accelerators have at least


def default_mbps(vendor: str, model: str) -> int:
    """Mbit/s of a card beside a device of that vendor and model ("cuda", "NVIDIA H100 80GB")."""
    if vendor == "host":
        return _OF_HOST
    for pattern, mbps in _OF_MODEL:
        if re.search(rf"(?<![A-Z0-9])(?:{pattern})(?!\d)", model.upper()):
            return mbps
    return _OF_GPU
