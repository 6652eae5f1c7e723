"""vLLM's connector interface: the real one where it can be imported, else the recorded one.

`IS_REAL` says which. The record is that of VERSION; test_vllm_interface compares it with the real
one. `SIGNATURES` are the parameters, by name and kind, of what the connector overrides or calls.
"""

import abc
import dataclasses
import enum
import importlib.machinery
import importlib.util
import sys
import types

VERSION = "0.32.0"
IS_REAL = importlib.util.find_spec("vllm") is not None

ABSTRACT = {
    "start_load_kv", "wait_for_layer_load", "save_kv_layer", "wait_for_save",
    "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
}  # fmt: skip
SIGNATURES = {
    "__init__": "self vllm_config role kv_cache_config",
    "register_kv_caches": "self kv_caches",
    "start_load_kv": "self forward_context **kwargs",
    "wait_for_layer_load": "self layer_name",
    "save_kv_layer": "self layer_name kv_layer attn_metadata **kwargs",
    "wait_for_save": "self",
    "get_finished": "self finished_req_ids",
    "get_transfer_results": "self finished_req_ids",
    "get_handshake_metadata": "self",
    "get_kv_connector_stats": "self",
    "shutdown": "self",
    "on_new_request": "self request",
    "get_num_new_matched_tokens": "self request num_computed_tokens",
    "update_state_after_alloc": "self request blocks num_external_tokens",
    "build_connector_meta": "self scheduler_output",
    "update_connector_output": "self connector_output",
    "request_finished": "self request block_ids",
    "has_pending_push_work": "self",
    "set_xfer_handshake_metadata_pp_aware": "self metadata",
    "build_kv_connector_stats": "data",
    "build_prom_metrics": "vllm_config metric_types labelnames per_engine_labelvalues",
    "bind_connector_metadata": "self connector_metadata",
    "clear_connector_metadata": "self",
    "_get_connector_metadata": "self",
}
_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"


class _Base:
    """The part of KVConnectorBase_V1 that the connector uses."""

    def __init__(self, vllm_config, role, kv_cache_config):
        self._connector_metadata = None
        self._vllm_config, self._role = vllm_config, role
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._kv_cache_config = kv_cache_config

    @property
    def requires_kv_delivery(self):
        return self._kv_transfer_config.is_kv_producer

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata

    def get_block_ids_with_load_errors(self):
        return set()

    def build_connector_worker_meta(self):
        return None

    def finish_forward(self):
        return None

    def handle_preemptions(self, kv_connector_metadata):
        return None


_members = {name: abc.abstractmethod(lambda self, *_, **__: None) for name in ABSTRACT}
_Connector = abc.ABCMeta("KVConnectorBase_V1", (_Base,), _members)


class _Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


@dataclasses.dataclass
class _Results:
    finished_sending: set = dataclasses.field(default_factory=set)
    finished_recving: set = dataclasses.field(default_factory=set)
    failed_recving: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class _Stats:
    data: dict = dataclasses.field(default_factory=dict)


class _Prom:
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        self._counter_cls, self._histogram_cls = metric_types["counter"], metric_types["histogram"]
        self._labelnames, self.per_engine_labelvalues = labelnames, per_engine_labelvalues


class _SupportsHMA(abc.ABC):
    @abc.abstractmethod
    def request_finished_all_groups(self, request, block_ids):
        raise NotImplementedError


def _install(name, **members):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        at = ".".join(parts[:i])
        module = sys.modules.setdefault(at, types.ModuleType(at))
        module.__path__, module.__spec__ = [], importlib.machinery.ModuleSpec(at, None)
    for key, value in members.items():
        setattr(sys.modules[name], key, value)


if not IS_REAL:
    _install(
        _BASE, KVConnectorBase_V1=_Connector, KVConnectorRole=_Role, SupportsHMA=_SupportsHMA,
        KVConnectorTransferResults=_Results, KVConnectorMetadata=type("Meta", (abc.ABC,), {}),
        KVConnectorHandshakeMetadata=type("Handshake", (abc.ABC,), {}),
    )  # fmt: skip
    _install(
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics",
        KVConnectorStats=_Stats, KVConnectorPromMetrics=_Prom,
    )  # fmt: skip
    _install(
        "vllm.v1.metrics.utils",
        create_metric_per_engine=lambda metric, values: {
            at: metric.labels(*one) for at, one in values.items()
        },
    )  # fmt: skip
    _install("vllm.utils.network_utils", get_ip=lambda: "127.0.0.1")
base = importlib.import_module(_BASE)
