"""HetcclConnector: vLLM's KVConnectorBase_V1, split into a scheduler's and a worker's side."""

from __future__ import annotations

from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from hetccl.kv.errors import KvError
from hetccl.vllm.engine import block_size_of, find_host, open_cache
from hetccl.vllm.scheduler import SchedulerSide
from hetccl.vllm.settings import Handshake, Settings, StepMetadata
from hetccl.vllm.stats import HetcclProm, HetcclStats
from hetccl.vllm.worker import WorkerSide


class HetcclConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Hands key-value caches from prefill engines to decode engines: docs/vllm.md.

    A prefill engine keeps the blocks of a finished prompt until every decode rank has them, or its
    lease expires. A decode engine loads asynchronously; a load that fails is reported by request,
    and recomputed under `kv_load_failure_policy="recompute"`. No method waits for a peer.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._settings = Settings.read(self._kv_transfer_config.kv_connector_extra_config or {})
        self._block_size = block_size_of(kv_cache_config)
        self._worker: WorkerSide | None = None
        self._scheduler: SchedulerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                self._settings, str(self._kv_transfer_config.engine_id), self._block_size,
                find_host(),
            )  # fmt: skip

    @property
    def _at_scheduler(self) -> SchedulerSide:
        assert self._scheduler is not None, "called on a worker's connector"
        return self._scheduler

    # Worker.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Registers the caches, and begins to serve peers."""
        made = open_cache(self._vllm_config, self._kv_cache_config, self._settings, kv_caches)
        cache, ratio, n_ranks, device = made
        self._worker = WorkerSide(self._settings, cache, n_ranks, device, ratio)

    def get_handshake_metadata(self) -> Handshake | None:
        """Returns the session that decode engines connect to."""
        return None if self._worker is None else self._worker.handshake

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Gives the step's orders to the worker's thread."""
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        if self._worker is not None:
            self._worker.submit(metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing: loads are asynchronous, so no step runs a request that still loads."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Does nothing: prompts are sent once they are whole."""

    def wait_for_save(self) -> None:
        """Does nothing, as `save_kv_layer`."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Returns requests that were sent, received or have failed, each once."""
        if self._worker is None:
            return KVConnectorTransferResults()
        found = self._worker.take()
        return KVConnectorTransferResults(
            finished_sending=found.sent, finished_recving=found.received,
            failed_recving=found.failed,
        )  # fmt: skip

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Returns requests that were sent and received, for callers that know no failures."""
        found = self.get_transfer_results(finished_req_ids)
        return found.finished_sending or None, found.finished_recving or None

    def get_kv_connector_stats(self) -> HetcclStats | None:
        """Returns the counts since the last call."""
        return None if self._worker is None else self._worker.take_stats()

    def shutdown(self) -> None:
        """Ends transfers, and closes the side channel."""
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.close()

    # Scheduler.

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        """Opens the side channel with all workers' sessions."""
        wrong = [one for one in metadata.values() if not isinstance(one, Handshake)]
        if wrong:
            raise KvError(f"handshake metadata of another connector: {type(wrong[0]).__name__}")
        self._at_scheduler.open_door([one.sender for _, one in sorted(metadata.items())])

    def on_new_request(self, request: Any) -> None:
        """Begins to hold the lease of the request's remote blocks."""
        self._at_scheduler.add(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Returns the tokens that the request's prefill engine holds, beyond the local ones."""
        return self._at_scheduler.count_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Begins the load, or the release of the remote blocks."""
        self._at_scheduler.allocate(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Returns the orders of this step."""
        return self._at_scheduler.build()

    def update_connector_output(self, connector_output: Any) -> None:
        """Forgets requests that the workers have reported."""
        output = connector_output
        self._at_scheduler.take(output.finished_recving, output.finished_sending)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Returns (True, params) for a prompt that another engine will load."""
        return self._at_scheduler.finish(request, block_ids)

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Returns the same for the only group."""
        return self._at_scheduler.finish(request, block_ids[0])

    def has_pending_push_work(self) -> bool:
        """Returns whether the engine must step, though no request runs."""
        return self._at_scheduler.has_work

    # Metrics.

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> HetcclStats:
        """Returns counts as they came from a worker."""
        return HetcclStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> HetcclProm:
        """Returns the Prometheus metrics."""
        return HetcclProm(vllm_config, metric_types, labelnames, per_engine_labelvalues)
