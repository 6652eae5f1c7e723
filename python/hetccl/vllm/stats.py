"""Metrics of the connector, for vLLM's log and for Prometheus."""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from hetccl.kv.metrics import Metrics

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
# The counters, and their help.
COUNTERS = {
    "requests_sent": "hand-offs that a prefill rank has finished",
    "requests_received": "hand-offs that a decode rank has loaded",
    "requests_failed": "hand-offs that failed at a rank, aborted ones too",
    "bytes_sent": "payload that a prefill rank has sent",
    "bytes_packed": "the part of bytes_sent that went through staging, as on the wire",
    "transfers": "puts and gets that a rank has begun",
    "pieces": "contiguous pieces of direct transfers",
    "transfer_seconds": "seconds of transfers, added up",
    "pack_seconds": "seconds of packing and unpacking, added up",
    "credit_waits": "waits of a prefill rank for a staging slot at a decode rank",
    "staging_waits": "polls of a hand-off without a staging slot at this end",
    "leases_expired": "leases that expired at a rank",
    "peers_lost": "connections that a rank has lost",
    "messages_refused": "wrong messages that a rank was sent",
}
_SERIES = "load_seconds"


def counts_of(
    sender: Metrics, receiver: Metrics, good_loads: int, failed_loads: int
) -> dict[str, float]:
    """Returns the counters of one rank since its start. Loads are those that the engine waits for:
    offers without tokens do not count; loads that no session has begun do.
    """
    both = [dataclasses.asdict(one) for one in (sender, receiver)]

    def add(name: str) -> float:
        return float(sum(one[name] for one in both))

    found = {name: add(name) for name in COUNTERS if name in both[0]}
    return found | {
        "requests_sent": sender.requests_ok,
        "requests_received": good_loads,
        "requests_failed": sender.requests_failed + failed_loads,
        "bytes_sent": sender.direct_bytes + sender.packed_bytes,
        "bytes_packed": sender.packed_bytes,
        "transfer_seconds": add("transfer_ms") / 1000,
        "pack_seconds": add("pack_ms") / 1000,
    }


@dataclasses.dataclass
class HetcclStats(KVConnectorStats):  # type: ignore[misc]
    """Counts of an interval, and the seconds of each load."""

    data: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    def reset(self) -> None:
        """Sets all counts to 0."""
        self.data = {**dict.fromkeys(COUNTERS, 0.0), _SERIES: []}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the counts of another rank or interval."""
        for name in COUNTERS:
            self.data[name] += other.data[name]
        self.data[_SERIES] += other.data[_SERIES]
        return self

    def reduce(self) -> dict[str, int | float]:
        """Returns a line's worth of numbers for the log."""
        loads = sorted(self.data[_SERIES])
        seconds = self.data["transfer_seconds"]
        return {
            "Sent": int(self.data["requests_sent"]),
            "Received": int(self.data["requests_received"]),
            "Failed": int(self.data["requests_failed"]),
            "Sent MiB": round(self.data["bytes_sent"] / 2**20, 3),
            "Transfers": int(self.data["transfers"]),
            "Transfer s": round(seconds, 3),
            "Median load ms": round(1000 * loads[len(loads) // 2], 2) if loads else 0,
            "Slowest load ms": round(1000 * loads[-1], 2) if loads else 0,
            "Leases expired": int(self.data["leases_expired"]),
        }

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not any(self.data.values())


class HetcclProm(KVConnectorPromMetrics):  # type: ignore[misc]
    """Prometheus metrics `vllm:hetccl_kv_*`, of each engine."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._counters = {
            name: create_metric_per_engine(
                self._counter_cls(
                    name=f"vllm:hetccl_kv_{name}", documentation=text, labelnames=self._labelnames
                ),
                self.per_engine_labelvalues,
            )
            for name, text in COUNTERS.items()
        }
        self._loads = create_metric_per_engine(
            self._histogram_cls(
                name=f"vllm:hetccl_kv_{_SERIES}",
                documentation="seconds from the order to load a prompt until its cells are here",
                buckets=list(_SECONDS),
                labelnames=self._labelnames,
            ),
            self.per_engine_labelvalues,
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds an interval's counts."""
        for name, counters in self._counters.items():
            if transfer_stats_data[name]:
                counters[engine_idx].inc(transfer_stats_data[name])
        for seconds in transfer_stats_data[_SERIES]:
            self._loads[engine_idx].observe(seconds)
