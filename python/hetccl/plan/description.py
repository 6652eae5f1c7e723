"""The JSON of hetcclPlanDescribe as values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hetccl.units import size

Step = dict[str, Any]

_NAMES = {
    "ccl_reduce": "reduce inside",
    "ccl_broadcast": "broadcast inside",
    "ccl_all_reduce": "all-reduce inside",
    "ccl_exchange": "exchange inside",
    "ccl_barrier": "barrier inside",
}


@dataclass(frozen=True)
class RankPlan:
    """One rank's steps."""

    rank: int
    cluster: int
    steps: list[Step]
    code: dict[str, Any] | None = None  # the instructions that run, where asked for


@dataclass(frozen=True)
class Description:
    """A call's plans; `raw` has what is read nowhere else."""

    raw: dict[str, Any]
    ranks: list[RankPlan]

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    @property
    def call(self) -> str:
        """ "all_reduce of 1,048,576 float32, sum"."""
        words = [self["collective"]]
        if self["collective"] != "barrier":
            words.append(f"of {self['count']:,} {self['type']} ({size(self['bytes'])})")
        if self["collective"] == "send_recv":
            words.append(f"from rank {self['root']} to rank {self['to']}")
        text = " ".join(words)
        return f"{text}, {self['op']}" if self["op"] else text

    @property
    def of_least(self) -> float | None:
        """Bytes between clusters as a multiple of the least possible; None if none need cross."""
        return self["cross_bytes"] / self["least_bytes"] if self["least_bytes"] else None

    @property
    def correct(self) -> bool:
        """Whether the verifier has found nothing; it may not have been asked."""
        return bool(self["verifier"]["verdict"] != "wrong")

    def messages(self) -> Iterator[tuple[RankPlan, int, RankPlan, int]]:
        """Sender, its step, receiver, its step; of the ranks that are listed."""
        receivers = {
            step["message"]: (plan, at)
            for plan in self.ranks
            for at, step in enumerate(plan.steps)
            if step["kind"] == "recv"
        }
        for plan in self.ranks:
            for at, step in enumerate(plan.steps):
                if step["kind"] == "send" and step["message"] in receivers:
                    yield (plan, at, *receivers[step["message"]])


def name_of(step: Step) -> str:
    """Returns the step's name without its regions: "send to 3"."""
    kind: str = step["kind"]
    if kind == "send":
        return f"send to {step['peer']}"
    if kind == "recv":
        return f"receive from {step['peer']}"
    return _NAMES.get(kind, kind.replace("_", " "))


def regions_of(step: Step) -> str:
    """From where to where; of a call inside the cluster the shards by root, or the transfers."""
    if "shards" in step:
        regions = "; ".join(map(_shard, step["shards"]))
    elif "transfers" in step:
        regions = "; ".join(map(_transfer, step["transfers"]))
    else:
        sources = " + ".join(step.get("srcs", []))
        regions = " -> ".join(part for part in (sources, step.get("dst", "")) if part)
    scaled = ", times the rank's factor" if step.get("scale") else ""
    average = ", divided by the ranks" if step.get("average") else ""
    return regions + scaled + average


def _shard(shard: dict[str, Any]) -> str:
    """ "output[0] 0..1/2 at 0": by the root, in ranks of the cluster."""
    text = f"{shard['recv']} at {shard['root']}"
    return f"{text} for {shard['receiver']} alone" if "receiver" in shard else text


def _transfer(transfer: dict[str, Any]) -> str:
    """ "output[2] from 2": by the peer, in ranks of the cluster."""
    way = "to" if "to" in transfer else "from"
    return f"{transfer['data']} {way} {transfer[way]}"


def parse(text: str) -> Description:
    """Reads the result of hetcclPlanDescribe."""
    raw: dict[str, Any] = json.loads(text)
    ranks = [
        RankPlan(plan["rank"], plan["cluster"], plan["plan"]["steps"], plan.get("code"))
        for plan in raw.pop("ranks")
    ]
    return Description(raw, ranks)
