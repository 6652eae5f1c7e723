"""Shows progress on rank 0 while it trains: a live bar on a terminal, else a line now and then."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hetccl.units import size

LINES = 4  # over the whole run, where there is no terminal
SMOOTHING = 0.9  # of what changes from step to step


class Progress:
    """A context manager; `show` is called after every step."""

    def __init__(self, backend: str, steps: int, shown: bool) -> None:
        self._backend, self._steps, self._shown = backend, steps, shown
        self._console = Console()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[facts]}"),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
        )
        self._smooth: list[float] = []
        self._task = self._bar.add_task(f"{backend:6}", total=steps, facts="")

    def show(
        self, step: int, loss: float, tokens: float, share: float, crossed: int | None, least: int
    ) -> None:
        """Shows `tokens` a second, the `share` of the step spent waiting for peers, and the bytes
        across the link.
        """
        if not self._shown:
            return
        now = [loss, tokens, share]
        self._smooth = [
            SMOOTHING * old + (1 - SMOOTHING) * new
            for old, new in zip(self._smooth or now, now, strict=True)
        ]
        loss, tokens, share = self._smooth
        facts = f"loss {loss:.3f}  {tokens:,.0f} tokens/s  {share:4.0%} communication"
        if crossed is not None and least:
            facts += f"  link {size(crossed)} ({crossed / least:.2f} of the least)"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=step, facts=facts)
        elif step % max(1, self._steps // LINES) == 0 or step == self._steps:
            print(f"{self._backend:6} {step:>4}/{self._steps}  {facts}", flush=True)

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
