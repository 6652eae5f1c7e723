"""The connector fits vLLM's interface: the real one where vLLM can be imported, else the record."""

import dataclasses
import inspect
import pickle
import types

import pytest
import vllm_interface
from vllm_engine import config_of
from vllm_interface import ABSTRACT, SIGNATURES, VERSION, base

from hetccl.vllm import HetcclConnector
from hetccl.vllm.settings import Handshake, Load, Remote, Send, StepMetadata
from hetccl.vllm.stats import COUNTERS, HetcclProm, HetcclStats

real = pytest.mark.skipif(not vllm_interface.IS_REAL, reason="vLLM is not installed")


def parameters(method):
    """The parameters as in SIGNATURES."""
    stars = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    found = inspect.signature(method).parameters.values()
    return " ".join(stars.get(one.kind, "") + one.name for one in found)


@real
def test_the_record_is_that_of_this_vllm():
    import vllm

    assert vllm.__version__ == VERSION
    assert base.KVConnectorBase_V1.__abstractmethods__ == ABSTRACT
    for name, wanted in SIGNATURES.items():
        assert parameters(getattr(base.KVConnectorBase_V1, name)) == wanted, name
    fields = [one.name for one in dataclasses.fields(base.KVConnectorTransferResults)]
    assert fields == ["finished_sending", "finished_recving", "failed_recving"]


@real
def test_vllms_factory_loads_the_class():
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    config = KVTransferConfig(
        kv_connector="HetcclConnector", kv_connector_module_path="hetccl.vllm",
        kv_role="kv_both", kv_connector_extra_config={"mode": "pull"},
    )  # fmt: skip
    assert KVConnectorFactory.get_connector_class(config) is HetcclConnector
    assert KVConnectorFactory.supports_hma_config(config)
    whole = config_of("e", 0, 1, {})
    whole.kv_transfer_config = config
    whole.scheduler_config = types.SimpleNamespace(disable_hybrid_kv_cache_manager=False)
    spec = type("FullAttentionSpec", (), {"block_size": 16, "head_size": 8})()
    groups = types.SimpleNamespace(kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=spec)])
    made = KVConnectorFactory.create_connector(whole, base.KVConnectorRole.SCHEDULER, groups)
    assert isinstance(made, HetcclConnector) and made.requires_kv_delivery


def test_the_connector_overrides_by_the_recorded_signatures():
    """Also for the base that stands for vLLM's: nothing abstract is left, and no override has
    parameters of its own."""
    print("vLLM's own" if vllm_interface.IS_REAL else "recorded", "interface of", VERSION)
    assert not HetcclConnector.__abstractmethods__
    assert issubclass(HetcclConnector, (base.KVConnectorBase_V1, base.SupportsHMA))
    for name, wanted in SIGNATURES.items():
        if name in vars(HetcclConnector):
            assert parameters(getattr(HetcclConnector, name)) == wanted, name
    unknown = {
        name for name, one in vars(HetcclConnector).items()
        if inspect.isfunction(one) and name not in SIGNATURES and not name.startswith("_")
    }  # fmt: skip
    assert unknown == {"request_finished_all_groups"}


def test_messages_between_the_sides_are_pickled():
    """Scheduler and workers are processes; vLLM pickles what they exchange."""
    remote = Remote("h", 1, "s")
    metadata = StepMetadata(
        {"r": Send("n", [1, 2], 7)}, [Load("r", "n", remote, [3], (0, 4), True)],
        [("n", "r")],
        [("n", remote)],
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert not metadata.is_empty and StepMetadata().is_empty
    assert pickle.loads(pickle.dumps(Handshake("text"))).sender == "text"


class Metric:
    """A Prometheus metric that keeps what it is given."""

    made: dict = {}  # noqa: RUF012

    def __init__(self, name, documentation, labelnames, buckets=()):
        assert documentation and labelnames == ["engine"]
        self.values = []
        Metric.made[name] = self

    def labels(self, *values):
        assert values == ("e0",)
        return self

    def inc(self, value):
        self.values.append(value)

    observe = inc


def test_metrics_are_added_up_and_exported():
    first, second = HetcclStats(), HetcclStats()
    assert first.is_empty() and HetcclConnector.build_kv_connector_stats(None).is_empty()
    first.data |= {"bytes_sent": 3 << 20, "load_seconds": [0.25, 0.5, 0.125]}
    second.data |= {"bytes_sent": 1 << 20, "transfers": 7.0}
    whole = HetcclConnector.build_kv_connector_stats(first.aggregate(second).data)
    reduced = whole.reduce()
    assert (reduced["Sent MiB"], reduced["Transfers"], reduced["Median load ms"]) == (4, 7, 250)
    if vllm_interface.IS_REAL:
        from prometheus_client import Counter, Gauge, Histogram

        kinds = dict.fromkeys((Counter, Gauge, Histogram), Metric)
    else:
        kinds = dict.fromkeys(("counter", "gauge", "histogram"), Metric)
    config = config_of("e", 0, 1, {})
    prom = HetcclConnector.build_prom_metrics(config, kinds, ["engine"], {0: ["e0"]})
    assert isinstance(prom, HetcclProm)
    prom.observe(whole.data)
    assert Metric.made["vllm:hetccl_kv_bytes_sent"].values == [4 << 20]
    assert Metric.made["vllm:hetccl_kv_load_seconds"].values == [0.25, 0.5, 0.125]
    assert Metric.made["vllm:hetccl_kv_requests_failed"].values == []
    assert Metric.made.keys() == {f"vllm:hetccl_kv_{one}" for one in (*COUNTERS, "load_seconds")}
