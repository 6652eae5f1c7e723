"""Measures how long this rank computes, without its waits for other ranks."""

from __future__ import annotations

import time
from typing import Any

import torch

from hetccl.torch_backend import seconds_waited


def synchronize(device: torch.device) -> None:
    """Waits until the device has done what was asked of it."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)


class Stopwatch:
    """Measures forward and backward passes on `device`. Not thread-safe.

    A pass ends when its last gradient is computed, before the model waits for the other ranks. In
    host memory, waits in the middle of it (FSDP2's) are subtracted. On a GPU they are not.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin: Any = None
        self._passes: list[Any] = []
        self._complete = True

    def begin(self) -> None:
        """A pass begins now."""
        self._complete = self._complete and self._begin is None
        self._begin = self._read()

    def end_with(self, loss: torch.Tensor) -> None:
        """The pass ends with the backward pass of `loss`."""

        def end() -> None:
            if self._begin is not None:
                self._passes.append((self._begin, self._read()))
            self._begin = None

        # This hook runs before any gradient is computed, so its callback is queued first. torch
        # calls callbacks in that order, and those of the model wait.
        engine: Any = torch.autograd.Variable._execution_engine
        tensor: Any = loss
        tensor.register_hook(lambda _: engine.queue_callback(end))

    def take(self) -> list[Any] | None:
        """Returns all passes since the last call, for `seconds`; None if one had no end."""
        is_whole = self._complete and self._begin is None and bool(self._passes)
        passes, self._passes = self._passes, []
        self._begin, self._complete = None, True
        return passes if is_whole else None

    def seconds(self, passes: list[Any]) -> float:
        """Returns how long the passes took together. On a GPU the host waits for their end."""
        return sum(self._between(begin, end) for begin, end in passes)

    def synchronize(self) -> None:
        """Waits until the device has done what was asked of it."""
        synchronize(self._device)

    def _read(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter() - seconds_waited()
        make_event: Any = torch.cuda.Event
        event = make_event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _between(self, begin: Any, end: Any) -> float:
        if self._device.type == "cpu":
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
