"""The demo's report: one HTML page that needs nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from hetccl import _lib, machine, pages
from hetccl.demo import charts
from hetccl.hosts import INTERFACE
from hetccl.topology import graph, svg
from hetccl.units import size

Run = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """The page's contents. `runs` begins with hetccl's; `rate` is the link's, as tc writes it."""

    runs: Sequence[Run]
    verdict: str
    command: str
    rate: str | None  # None: no link was emulated


@dataclass(frozen=True)
class Figure:
    """A chart, as SVG, with its words."""

    title: str
    caption: str
    chart: Markup
    is_wide: bool = False


def _shaped(topology: str, rate: str | None) -> str:
    """Returns the topology with the rate to which the link was shaped: the kernel reports 10 Gbit/s
    for a veth.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate or "", re.IGNORECASE)
    if not match:
        return topology
    mbps = round(float(match[1]) * {"k": 1e-3, "m": 1, "g": 1e3}[match[2].lower()])
    document = json.loads(topology)
    for rank in document["ranks"]:
        for nic in rank["nics"]:
            if nic["name"] == INTERFACE:
                nic["mbps"] = mbps
    return _lib.topology(json.dumps(document))


def _tiles(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    ours = runs[0]
    step = f"{1e3 * ours['step_seconds']:.0f} ms"
    if len(runs) > 1:
        times = runs[1]["step_seconds"] / ours["step_seconds"]
        yield f"{times:.2f}x", f"as fast as Gloo: {step} a step, median"
        difference = abs(ours["loss"] - runs[1]["loss"])
        text = f"{difference:.1e}" if difference else "0"
        yield text, "difference of the two losses on unseen text"
    else:
        yield step, "a step, median"
    crossed = ours["link_bytes"] or ours["payload_bytes"]
    if crossed:
        where = "on the wire, headers included" if ours["link_bytes"] else "sent between clusters"
        yield f"{crossed / ours['least_bytes']:.2f}x", f"the least possible bytes {where}"
    yield f"{ours['communication_share']:.0%}", "of a step only waits for communication"


def _byte_rows(runs: Sequence[Run]) -> Iterator[tuple[str, str, float, str]]:
    least = runs[0]["least_bytes"]
    yield "least possible", "least", least, size(least)
    for run in runs:
        for key, what in (("payload_bytes", "payload"), ("link_bytes", "on the wire")):
            if run[key]:
                text = f"{size(run[key])}, {run[key] / least:.2f} of the least"
                yield f"{charts.name_of(run)}, {what}", run["backend"], run[key], text


def _charts(runs: Sequence[Run]) -> Iterator[Figure]:
    yield Figure("Loss", "mean over all ranks; faint: as measured, strong: smoothed",
                 Markup(charts.loss(runs)))  # fmt: skip
    yield Figure("Step time", "rank 0; dotted: the median", Markup(charts.step_time(runs)))
    rows = list(_byte_rows(runs))
    if len(rows) > 1:
        caption = "over the whole run, both ways; on the wire: counted by the kernel"
        yield Figure("Bytes between the clusters", caption, Markup(charts.bars(rows)), True)


def _facts(page: Page, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    ours = page.runs[0]
    yield from machine.facts().items()
    yield "torch, hetccl", f"{ours['torch']}, {'.'.join(map(str, _lib.version()))}"
    yield "link", f"{page.rate} each way, shaped by the kernel" if page.rate else "loopback"
    yield "model", f"GPT over bytes, {ours['parameters']:,} parameters, {ours['steps']} steps"
    yield "gradients of step 1", f"within {ours['gradient_error']:.0e} of one process's"
    yield "parameters at the end", f"{ours['hash'][:16]}, equal on all ranks"
    for name, value in sorted(environment.items()):
        if name.startswith("HETCCL_") and "SECRET" not in name:
            yield name, value
    yield "command", page.command


def render(page: Page, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the page."""
    ours = page.runs[0]
    names = " and ".join(map(charts.name_of, page.runs))
    picture = svg.draw(graph.parse(_shaped(ours["topology"], page.rate)))
    return pages.render(
        "demo", "demo/report.html", heading="One model, two clusters, one slow link",
        subtitle=f"{ours['steps']} steps of DistributedDataParallel over {names}",
        verdict=page.verdict, tiles=_tiles(page.runs), charts=_charts(page.runs),
        topology=Markup(picture), facts=_facts(page, environment),
    )  # fmt: skip
