"""Shows a sweep's progress on rank 0: a live bar on a terminal, else a line for each key."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hetccl.tune.findings import Finding
from hetccl.tune.words import change_text, key_text
from hetccl.units import counted


class Progress:
    """A context manager around a sweep of `n_points` points; it writes to standard error."""

    def __init__(self, n_points: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Bar(
            BarColumn(24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=n_points)

    def begin(self, key: dict[str, Any]) -> None:
        """Begins the points of this key."""
        self._bar.update(self._task, description=key_text(key))

    def advance(self, n_points: int = 1) -> None:
        """Counts points that are measured, were found in the file, or are left out."""
        self._bar.advance(self._task, n_points)

    def end(self, finding: Finding) -> None:
        """A key is done."""
        if self._console.is_terminal:
            return
        best = change_text(finding.best.setting, finding.best.default)
        points = counted(len(finding.points), "point")
        print(
            f"{key_text(finding.key)}: {points}, best {finding.gain:.2f}x: {best}",
            file=self._console.file, flush=True,
        )  # fmt: skip

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
