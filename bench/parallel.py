"""Strategies of training by unlike stages: predicted against measured.

    python bench/parallel.py [--steps 6] [--batch 48] [--rate 100mbit] [--json FILE]
    python bench/parallel.py --gpus 4 [--batch 64] ...

Six ranks on two emulated hosts: control groups give two on the first host three times as much of a
processor as each of four on the second. Or two or four GPUs of this machine, as two clusters. The
ranks measure a layer, the head and their links; `hetccl.parallel` plans and predicts, and each
strategy is trained. A machine with other work measures that work: run it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import Place, place_of, run_ranks
from quotas import limited
from rich.console import Console
from rich.table import Table

from hetccl import machine
from hetccl.balance import Profile
from hetccl.hosts import INTERFACE
from hetccl.parallel import Model, Price, Site, model_of, plan, read_site

HERE = Path(__file__).parent
LAYER_FLOPS = 1e9  # a unit: profiles have the seconds


@contextmanager
def place_for(options: argparse.Namespace, folder: Path) -> Iterator[Place]:
    """Yields the place of the ranks."""
    if options.gpus:

        def start(host: int, argv: list[str], env: dict[str, str], out: Any) -> Any:
            return subprocess.Popen(argv, env={**os.environ, **env}, stdout=out, text=True)

        yield Place(start, "127.0.0.1", "lo")
        return
    with (
        place_of(2, options.rate) as hosts,
        limited(hosts, len(options.hosts), folder / "processors") as place,
    ):
        yield place


def run(options: argparse.Namespace, case: str, **env: str) -> dict[str, Any]:
    """Runs one job of all ranks. Returns rank 0's results."""
    with (
        tempfile.TemporaryDirectory() as folder,
        place_for(options, Path(folder)) as place,
    ):
        given = {"CASE": case, "FOLDER": folder, "TORCH_CPP_LOG_LEVEL": "ERROR", **env}
        if options.gpus:
            given["GPUS"] = str(options.gpus)
        else:
            slow = 0.3 if len(os.sched_getaffinity(0)) > 4 else 0.15
            given["PROCESSORS"] = json.dumps([slow * (3 - 2 * host) for host in options.hosts])
            given["HETCCL_CARD_MBPS"] = f"{INTERFACE}={options.mbps}"
        argvs = [[sys.executable, str(HERE / "parallel_worker.py")]] * len(options.hosts)
        said = run_ranks(place, argvs, options.hosts, given, 600, case)
        return dict(json.loads(said.splitlines()[-1]))


def describe(found: dict[str, Any]) -> tuple[Model, Site]:
    """Returns the model and the site, from the ranks' measurements."""
    layers = [Profile.from_values(one) for one in found["layer"]]
    heads = [Profile.from_values(one) for one in found["head"]]
    ratios = [head.time(1) / layer.time(1) for head, layer in zip(heads, layers, strict=True)]
    model = model_of(
        {
            **found["shape"],
            "name": "gpt", "layer_flops": LAYER_FLOPS,
            "head_flops": LAYER_FLOPS * statistics.median(ratios),
        }
    )  # fmt: skip
    return model, read_site(
        found["topology"], bandwidths=found["rates"], profiles=layers, times=found["reduces"]
    )


def choose_across_hosts(model: Model, site: Site, batch: int) -> dict[str, Price]:
    """Returns four strategies: the planned pipeline across the link; pipelines of plain 1F1B with
    layers by speed, and with equally many layers; and data parallelism across the link.
    """
    across = plan(model, site, batch, tensor=1, pipeline=2, data=(2, 4))
    planned = across.best
    assert planned is not None
    fixed = {"schedule": "1f1b", "micro_batches": planned.strategy.micro_batches, "tensor": 1}
    uneven = plan(model, site, batch, data=(2, 4), **fixed).best
    even = plan(model, site, batch, data=(2, 4), layers=(model.layers // 2,) * 2, **fixed).best
    data = plan(model, site, batch, tensor=1, pipeline=1).best
    assert uneven is not None and even is not None and data is not None
    return {
        "pipeline, planned": planned,
        "pipeline, layers by speed": uneven,
        "pipeline, even layers": even,
        "data, rows by speed": data,
    }


def choose_on_gpus(model: Model, site: Site, batch: int) -> dict[str, Price]:
    """Table 9 of paper 001, on two equal clusters: the degrees that the ranks allow."""
    degrees = {
        "data in and across": (1, 1), "data in, pipeline across": (1, 2),
        "tensor in, data across": (2, 1), "tensor in, pipeline across": (2, 2),
        "pipeline in and across": (1, 4),
    }  # fmt: skip
    found = {
        name: plan(model, site, batch, tensor=tensor, pipeline=pipeline).best
        for name, (tensor, pipeline) in degrees.items()
        if tensor <= site.size // 2 and pipeline <= site.size
    }
    across = plan(model, site, batch, tensor=1, pipeline=2, schedule="1f1b").best
    found["data in, pipeline across, 1f1b"] = across
    return {name: price for name, price in found.items() if price is not None}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, help="48, or 64 on GPUs")
    parser.add_argument("--gpus", type=int, choices=(2, 4), help="of this machine")
    parser.add_argument("--rate", default="100mbit", help="of the link between the hosts")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    if not options.rate.endswith("mbit") or not options.rate[:-4].isdigit():
        parser.error("--rate: give it in whole Mbit/s, such as 100mbit")
    options.mbps = int(options.rate[:-4])
    options.batch = options.batch or (64 if options.gpus else 48)
    options.hosts = (0,) * options.gpus if options.gpus else (0, 0, 1, 1, 1, 1)
    choose = choose_on_gpus if options.gpus else choose_across_hosts
    found = run(options, "measure", ROWS="16")
    model, site = describe(found)
    console = Console(width=100)
    rates = ", ".join(f"{level} {rate / 1e6:.1f} MB/s" for level, rate in found["rates"].items())
    each = ", ".join(f"{1e3 * one.time(1):.2f}" for one in site.profiles)
    link = "" if options.gpus else f"; link {options.rate}"
    console.print(f"ms of a layer and one sample, by rank: {each}; {rates}{link}")
    console.print(f"a backward pass in two parts takes {model.split_backward:.2f} times as long")
    table = Table("strategy", "[T, D, P]", "layers", "schedule", "m", "predicted", "measured",
                  "error", box=None, header_style="dim")  # fmt: skip
    told = []
    for name, price in choose(model, site, options.batch).items():
        strategy = price.strategy
        print(f"{name}: {strategy.degrees}, {strategy.schedule}, {price.seconds:.3g} s predicted",
              file=sys.stderr)  # fmt: skip
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            price.strategy.save(file.name)
            trained = run(options, "train", STRATEGY=file.name, STEPS=str(options.steps))
        seconds = statistics.median(trained["seconds"])
        error = price.seconds / seconds - 1
        counts = ", ".join(str(stage.count) for stage in strategy.stages)
        table.add_row(name, strategy.degrees, counts, strategy.schedule,
                      str(strategy.micro_batches), f"{price.seconds:.3g} s", f"{seconds:.3g} s",
                      f"{error:+.1%}")  # fmt: skip
        told.append({"name": name, "predicted": price.seconds, "strategy": strategy.to_values(),
                     **trained})  # fmt: skip
    console.print(table)
    if options.json:
        values = {"machine": machine.facts(), "rate": "" if options.gpus else options.rate,
                  "measured": found, "cases": told}  # fmt: skip
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
