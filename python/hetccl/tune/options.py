"""Options of a sweep: its measurements, and the ranks that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hetccl.devices.choice import AUTO

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


@dataclass(frozen=True)
class Options:
    """The options of a sweep. `sizes` are bytes of whole buffers, as `hetccl bench` counts them."""

    output: Path
    sizes: tuple[int, ...]
    collectives: tuple[str, ...] = COLLECTIVES
    dtype: str = "float32"
    points: int = 5  # values of a parameter that are tried, at most
    budget_seconds: float | None = None
    save: bool = True
    labels: tuple[str, ...] | None = None  # each rank's cluster; None: as the machines are
    rendezvous: Path | None = None
    devices: str = AUTO  # as --devices has it
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)  # paths by name
    timeout: float = 60.0  # seconds for the ranks to find each other
    met: Callable[[], None] = lambda: None  # called by each rank once all have met
