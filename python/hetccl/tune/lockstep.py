"""All ranks measure one setting: rank 0 orders, the others follow.

Orders travel through the communicator itself, so the ranks set a setting between the same calls.
"""

from __future__ import annotations

import json
import time
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hetccl._lib import HetcclError, Result
from hetccl.bench.operations import CASES, Case
from hetccl.bench.options import Options as CaseOptions
from hetccl.communicator import Communicator
from hetccl.devices.memory import Memory, lent
from hetccl.tune.grid import Setting

_ORDER_BYTES = 4096
_SAMPLE_US = 500.0  # short calls are timed together, until they take about as long
_MOST_CALLS = 8


@dataclass(frozen=True)
class Refusal:
    """Why a setting could not be used."""

    text: str


class Rank:
    """One rank's part of a sweep. Rank 0 calls `order`, the others `follow`, which ends with it.

    `memory` is that of the rank's device: `reserve` it for the largest case.
    """

    def __init__(self, comm: Communicator, dtype: str, memory: Memory) -> None:
        self._comm = comm
        self._dtype = dtype
        self._case: Case | None = None
        self._memory, self._notes = memory, memory.another()
        self._lent = ExitStack()  # of the case's buffers

    def order(self, order: dict[str, Any]) -> list[float] | Refusal | None:
        """On rank 0: makes every rank follow this order. Returns the outcome."""
        text = json.dumps(order).encode()
        with lent(self._notes, bytearray(text.ljust(_ORDER_BYTES, b"\0"))) as shared:
            self._comm.broadcast(shared, dtype="uint8")
        return self._follow_order(order)

    def follow(self) -> None:
        """On other ranks: follows rank 0's orders until the empty one."""
        while True:
            text = bytearray(_ORDER_BYTES)
            with lent(self._notes, text) as shared:
                self._comm.broadcast(shared, dtype="uint8")
            order = json.loads(text.rstrip(b"\0"))
            if not order:
                self._lent.close()
                return
            self._follow_order(order)

    def prepare(self, collective: str, size: int, key: dict[str, Any], default: Setting) -> int:
        """On rank 0: takes buffers, and returns the number of calls for a sample."""
        self.order({"collective": collective, "bytes": size})
        alone = self.measure(key, default, default, calls=1, pairs=2, warm=True)
        assert not isinstance(alone, Refusal)
        return max(1, min(_MOST_CALLS, round(_SAMPLE_US / max(min(alone), 1e-3))))

    def measure(
        self, key: dict[str, Any], default: Setting, setting: Setting, *,
        calls: int, pairs: int, warm: bool,
    ) -> list[float] | Refusal:  # fmt: skip
        """On rank 0: returns the microseconds of a call, with default and setting in turn, as
        `Trial` takes them.

        A sample is the mean of `calls` calls on the slowest rank. `warm`: a pair comes before that
        is not timed, since a setting may have to connect ranks, or take memory.
        """
        result = self.order(
            {"key": key, "default": default, "setting": setting, "calls": calls, "pairs": pairs,
             "warm": warm}
        )  # fmt: skip
        assert result is not None
        return result

    def end(self) -> None:
        """On rank 0: ends `follow` on the other ranks."""
        self.order({})
        self._lent.close()

    def _follow_order(self, order: dict[str, Any]) -> list[float] | Refusal | None:
        if "collective" in order:
            self._lent.close()
            self._case = None  # frees its buffers
            options = CaseOptions(operation=order["collective"], dtype=self._dtype)
            kind = CASES[order["collective"]]
            self._case = kind(self._comm, options, order["bytes"], in_place=False)
            self._case.fill()
            self._lent.enter_context(self._memory.lend(self._case))
        elif "key" in order:
            return self._measure(order)
        return None

    def _measure(self, order: dict[str, Any]) -> list[float] | Refusal:
        key, default, setting = order["key"], order["default"], order["setting"]
        self._comm.set_tuning(key, default)
        if refusal := self._try_to_set(key, setting):
            self._comm.set_tuning(key, default)
            return refusal
        times = array("d", bytes(16 * order["pairs"]))
        if order["warm"]:
            for one in (default, setting):
                self._sample(key, one, 1)
        for pair in range(order["pairs"]):
            turn = ((0, default), (1, setting))
            # Each goes first in every other pair: so does what follows a pause.
            for place, one in turn if pair % 2 == 0 else turn[::-1]:
                times[2 * pair + place] = self._sample(key, one, order["calls"])
        self._comm.set_tuning(key, default)
        with lent(self._notes, times) as shared:
            self._comm.all_reduce(shared, op="max", dtype="float64")
        return list(times)

    def _try_to_set(self, key: dict[str, Any], setting: Setting) -> Refusal | None:
        """Returns a refusal if some rank cannot use the setting. The ranks agree on it by a call of
        one element, a size at which no key is swept.
        """
        text = ""
        try:
            self._comm.set_tuning(key, setting)
        except HetcclError as error:
            if error.result is not Result.INVALID_ARGUMENT:
                raise
            text = str(error)
        refused = bytearray([bool(text)])
        with lent(self._notes, refused) as shared:
            self._comm.all_reduce(shared, op="max", dtype="uint8")
        return Refusal(text or "another rank refuses it") if refused[0] else None

    def _sample(self, key: dict[str, Any], setting: Setting, calls: int) -> float:
        assert self._case is not None
        self._comm.set_tuning(key, setting)
        self._comm.barrier()
        self._memory.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            self._case.call(None)
        self._memory.synchronize()
        return 1e6 * (time.perf_counter() - start) / calls
