"""Transfers under way, staging slots, and their limits."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from hetccl._lib import HetcclError
from hetccl.kv.metrics import Metrics

Clock = Callable[[], float]


class Budget:
    """The number of transfers that a session may have under way."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @property
    def is_spent(self) -> bool:
        """Whether another transfer has to wait."""
        return self.used >= self.most


@dataclasses.dataclass
class _Flight:
    transfer: Any
    landed: Callable[[], None] | None
    ended: Callable[[], None] | None
    began: float


class Flights:
    """Transfers of one hand-off. Not thread-safe."""

    def __init__(self, budget: Budget, metrics: Metrics, clock: Clock) -> None:
        self._budget, self._metrics, self._clock = budget, metrics, clock
        self._flights: list[_Flight] = []
        self._is_cancelled = False

    @property
    def is_quiet(self) -> bool:
        """Whether no byte of these transfers moves any more."""
        return not self._flights

    def add(
        self,
        transfer: Any,
        landed: Callable[[], None] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Watches a transfer. `landed` runs if it succeeds, then `ended` in any case."""
        self._budget.used += 1
        self._metrics.transfers += 1
        self._flights.append(_Flight(transfer, landed, ended, self._clock()))

    def cancel(self) -> None:
        """Cancels all transfers; `poll` then waits for their ends. Idempotent."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        for flight in self._flights:
            with contextlib.suppress(HetcclError):  # it is over, by an error
                flight.transfer.cancel()

    def poll(self) -> str:
        """Ends the transfers that are done. Returns the text of the first error, or ""."""
        error = ""
        for flight in list(self._flights):
            try:
                is_done, failed = flight.transfer.done(), ""
            except HetcclError as raised:
                is_done, failed = True, str(raised) or "a transfer failed"
            if not is_done:
                continue
            self._flights.remove(flight)
            self._budget.used -= 1
            self._metrics.transfer_ms += 1000 * (self._clock() - flight.began)
            if not failed and not self._is_cancelled and flight.landed is not None:
                flight.landed()
            if flight.ended is not None:
                flight.ended()
            error = error or failed
        return "" if self._is_cancelled else error


class Slots:
    """Staging memory in slots of one size; each is free, or taken by one user."""

    def __init__(self, count: int, slot_bytes: int, device: torch.device) -> None:
        self.slot_bytes = slot_bytes
        self.memory = torch.zeros(count * slot_bytes, dtype=torch.uint8, device=device)
        self._free = deque(range(count))
        self._taken: set[int] = set()

    @property
    def n_free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def take(self) -> int | None:
        """Returns a free slot, or None."""
        if not self._free:
            return None
        slot = self._free.popleft()
        self._taken.add(slot)
        return slot

    def free(self, slot: int) -> None:
        """Frees a slot. Raises KeyError if it is free: two users would share it."""
        self._taken.remove(slot)
        self._free.append(slot)

    def at(self, slot: int, size: int | None = None) -> torch.Tensor:
        """Returns a slot's memory, uint8 [slot_bytes], or its first `size` bytes."""
        first = slot * self.slot_bytes
        return self.memory[first : first + (self.slot_bytes if size is None else size)]


def settle(device: torch.device) -> None:
    """Waits until the work of the device's current stream is done: transfers know no streams."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
