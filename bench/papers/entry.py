"""An entry of the registry: one figure or table of a paper, and how it is measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PAPERS = {
    "000": "HetCCL (SNU, Moreh, Samsung): one library over NVIDIA's and AMD's GPUs",
    "001": "HetCCL (PKU, BAAI): collectives over clusters of several vendors",
    "002": "MPI4AI: RCCL in MPICH",
    "003": "Three-level sharding on Frontier",
    "004": "AutoCCL: tuning of collectives while a model trains",
}
Number = float | int


class MissingError(Exception):
    """Something that the measurement takes is not on this machine; the text names it."""


@dataclass
class Found:
    """A measurement. `values` stand beside the paper's values of the same labels; a text is a cell
    of the paper's table. `series` are lines: y by x, on axes of these titles."""

    where: str  # the ranks and links that were measured
    values: dict[str, Number | str]
    series: dict[str, dict[float, Number]] = field(default_factory=dict)
    axes: tuple[str, str] = ("bytes", "GB/s")


@dataclass(frozen=True)
class Entry:
    """`measure` takes True for a quick run, and raises MissingError if something that it needs is
    missing.

    `seconds` are those of one full measurement on an idle machine of two cores. `gpus` are the
    least that it takes, `needs` is what else. `page` has more numbers of the same.
    """

    paper: str
    piece: str
    claim: str
    unit: str
    paper_values: dict[str, Number | str]
    measured: str
    limits: str
    seconds: int
    measure: Callable[[bool], Found]
    gpus: int = 0
    page: str = ""
    needs: str = ""

    @property
    def name(self) -> str:
        """The name on the command line, such as 000-figure-7."""
        return f"{self.paper}-{self.piece.replace(' ', '-')}"

    @property
    def deadline(self) -> float:
        """Seconds that both measurements may take, on a loaded machine, too."""
        return 120.0 + 10 * self.seconds

    @property
    def lacking(self) -> str:
        """The reason why there is no result in the tree, for the page."""
        gpus = ("", "a GPU", "two GPUs", "three GPUs", "four GPUs")[self.gpus]
        needs = self.needs or gpus
        return f"needs {needs}" if needs else "not run yet"
