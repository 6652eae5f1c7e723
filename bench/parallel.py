"""Pipelines of unlike stages: predicted against measured, on two emulated hosts of unequal speed.

    python bench/parallel.py [--steps 6] [--batch 48] [--rate 100mbit] [--json FILE]

Six ranks: control groups give two on the first host 0.4 of a processor each, and four on the second
0.2 each. The ranks measure a layer, the head and their links; `hetccl.parallel` plans and
predicts, and each strategy is trained: a pipeline across the link with layers by speed and with
even ones, and data parallelism across it. A machine with other work measures that work: run it
alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from parallel_worker import LAYERS, SHAPE
from places import place_of, run_ranks
from quotas import limited
from rich.console import Console
from rich.table import Table

from hetccl import machine
from hetccl.hosts import INTERFACE
from hetccl.parallel import Model, Price, Site, model_of, plan, read_site

HERE = Path(__file__).parent
HOSTS = (0, 0, 1, 1, 1, 1)
PROCESSORS = (0.4, 0.4, 0.2, 0.2, 0.2, 0.2)
LAYER_FLOPS = 1e9  # a unit: speeds are measured in layers


def run(options: argparse.Namespace, case: str, **env: str) -> dict[str, Any]:
    """One job of six ranks: what its rank 0 tells."""
    with (
        tempfile.TemporaryDirectory() as folder,
        place_of(2, options.rate) as hosts,
        limited(hosts, len(HOSTS), Path(folder) / "processors") as place,
    ):
        given = {
            "CASE": case, "FOLDER": folder, "PROCESSORS": json.dumps(PROCESSORS),
            "HETCCL_CARD_MBPS": f"{INTERFACE}={options.mbps}", "TORCH_CPP_LOG_LEVEL": "ERROR",
        }  # fmt: skip
        argvs = [[sys.executable, str(HERE / "parallel_worker.py")]] * len(HOSTS)
        said = run_ranks(place, argvs, list(HOSTS), {**given, **env}, 600, case)
        return dict(json.loads(said.splitlines()[-1]))


def describe(found: dict[str, Any]) -> tuple[Model, Site]:
    """The model and the site of what the ranks have measured."""
    heads = [of_head / of_layer for of_head, of_layer in
             zip(found["head"], found["layer"], strict=True)]  # fmt: skip
    model = model_of(
        {
            "name": "gpt", "layers": LAYERS, "hidden": SHAPE.width, "heads": SHAPE.heads,
            "vocabulary": SHAPE.vocabulary, "sequence": SHAPE.context, "type_bytes": 4,
            "layer_flops": LAYER_FLOPS, "head_flops": LAYER_FLOPS * statistics.median(heads),
        }
    )  # fmt: skip
    speeds = [3 * LAYER_FLOPS / seconds for seconds in found["layer"]]
    return model, read_site(found["topology"], speeds, bandwidths=found["rates"])


def choose(model: Model, site: Site, batch: int) -> dict[str, Price]:
    """The strategies to compare, by name."""
    across = plan(model, site, batch, tensor=1, pipeline=2, data=(2, 4))
    planned = across.best
    assert planned is not None
    fixed = {"schedule": "1f1b", "micro_batches": planned.strategy.micro_batches, "tensor": 1}
    uneven = plan(model, site, batch, data=(2, 4), **fixed).best
    even = plan(model, site, batch, data=(2, 4), layers=(LAYERS // 2,) * 2, **fixed).best
    data = plan(model, site, batch, tensor=1, pipeline=1).best
    assert uneven is not None and even is not None and data is not None
    return {
        "pipeline, planned": planned,
        "pipeline, layers by speed": uneven,
        "pipeline, even layers": even,
        "data, rows by speed": data,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--rate", default="100mbit", help="of the link between the hosts")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    if not options.rate.endswith("mbit") or not options.rate[:-4].isdigit():
        parser.error("--rate: give it in whole Mbit/s, such as 100mbit")
    options.mbps = int(options.rate[:-4])
    found = run(options, "measure", ROWS="4")
    model, site = describe(found)
    console = Console(width=100)
    rates = ", ".join(f"{level} {rate / 1e6:.1f} MB/s" for level, rate in found["rates"].items())
    each = ", ".join(f"{1e3 * seconds:.2f}" for seconds in found["layer"])
    console.print(f"ms of a layer and sample, by rank: {each}; {rates}; link {options.rate}")
    table = Table("strategy", "[T, D, P]", "layers", "schedule", "m", "predicted", "measured",
                  "error", box=None, header_style="dim")  # fmt: skip
    told = []
    for name, price in choose(model, site, options.batch).items():
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            price.strategy.save(file.name)
            trained = run(options, "train", STRATEGY=file.name, STEPS=str(options.steps))
        seconds = statistics.median(trained["seconds"])
        error = price.seconds / seconds - 1
        strategy = price.strategy
        counts = ", ".join(str(stage.count) for stage in strategy.stages)
        console.print(f"{name}: {seconds:.2f} s", style="dim", highlight=False)
        table.add_row(name, strategy.degrees, counts, strategy.schedule,
                      str(strategy.micro_batches), f"{price.seconds:.2f} s", f"{seconds:.2f} s",
                      f"{error:+.1%}")  # fmt: skip
        told.append({"name": name, "predicted": price.seconds, "strategy": strategy.to_values(),
                     **trained})  # fmt: skip
    console.print(table)
    if options.json:
        values = {"machine": machine.facts(), "rate": options.rate, "measured": found,
                  "cases": told}  # fmt: skip
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
