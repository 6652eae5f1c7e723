"""Paper 004, AutoCCL: the slides on the space, the search, and experiments."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import measure
from entry import Entry, Found

from hetccl.tune.landscape import lines
from hetccl.tune.records import parse

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
A40 = "eight A40 of a node"
SPACE = """
import json, sys
from hetccl.rendezvous import init_from_launcher
with init_from_launcher() as comm:
    space = comm.tuning_space("all_reduce", 1 << 20)
    if comm.rank == 0: print(json.dumps(space))
"""


def measure_space(quick: bool) -> Found:
    """Measures the values of each parameter of an all-reduce between two clusters."""
    measure.need_hosts()
    from places import place_of, run_ranks

    with place_of(2, measure.RATE) as place:
        env = {"MASTER_ADDR": place.address, "MASTER_PORT": "29406"}
        argvs = [[sys.executable, "-c", SPACE]] * 2
        space = json.loads(run_ranks(place, argvs, (0, 1), env, 120, "space"))
    parts = space["subspaces"]
    values: dict[str, float | str] = {"subspaces": len(parts)}
    for name in dict.fromkeys(axis for part in parts for axis in part["axes"]):
        values[name] = max(len(part["axes"].get(name, ())) for part in parts)
    values["all settings"] = sum(
        math.prod(len(axis) for axis in part["axes"].values()) for part in parts
    )
    return Found("an all-reduce of 4 MiB between two CPU ranks in two clusters", values)


def tune_and_compare(quick: bool) -> Found:
    """Compares the default with the result of `HETCCL_TUNE=online`: by collective, the largest
    gain.
    """
    sizes = measure.sweep(64 << 10, 1 << 20, 20)  # more is as fast as the link by any setting
    calls = ["-n", "150" if quick else "400"]
    values, series = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in COLLECTIVES:
            file = {"HETCCL_TUNE_FILE": str(Path(folder) / f"{name}.json")}
            search = {"HETCCL_TUNE": "online", "HETCCL_TUNE_BUDGET": "10000", **file}
            measure.over_link("AABB", name, [*sizes, *calls, "--check", "0"], search)
            took = measure.alternate(2 if quick else 3, {
                "default": lambda name=name: measure.over_link("AABB", name, sizes),
                "tuned": lambda name=name, file=file: measure.over_link(
                    "AABB", name, sizes, {"HETCCL_TUNE": "frozen", **file}
                ),
            })  # fmt: skip
            default, tuned = took["default"], took["tuned"]
            values[name] = max(default[size] / tuned[size] for size in default)
            series |= {f"{name}, {what}": measure.rates(by) for what, by in took.items()}
    return Found("AABB: CPU ranks, two clusters, a link of 1 Gbit/s", values, series)


def tune_nccl(quick: bool, beside: bool) -> Found:
    """NCCL's choices beside the best of an exhaustive search, which the plug-in serves."""
    seconds = "30" if quick else "100"
    rows = measure.script("nccl_tuner.py", "--seconds", seconds)
    found = [row for row in rows if row["loaded"] == beside]
    values = {f"{row['collective']}, {row['bytes'] >> 10} KiB": row["nccl"] / row["plug-in"]
              for row in found}  # fmt: skip
    return Found(f"NCCL over sockets, four ranks on {measure.n_gpus()} GPUs", values)


def measure_alone(quick: bool) -> Found:
    return tune_nccl(quick, beside=False) if measure.n_gpus() else tune_and_compare(quick)


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """A process that computes for as long as this lasts."""
    hog = subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"])
    try:
        yield
    finally:
        hog.kill()
        hog.wait()


def measure_beside(quick: bool) -> Found:
    if measure.n_gpus():
        return tune_nccl(quick, beside=True)
    with busy_core():
        found = tune_and_compare(quick)
    found.where += ", beside a process that computes"
    return found


def measure_training(quick: bool) -> Found:
    """Steps by default, and while HETCCL_TUNE searches by call and by step."""
    model, tokens, search = ["--model", "gpt-125m"], "8192", "1000"
    if measure.n_gpus() < 2:
        model, tokens, search = ["--model", "gpt-tiny", "--devices", "cpu"], "1024", "300"
    found = measure.script(
        "gpu_training.py", *model, "--roles", "hetccl", "online", "step", "--tokens", tokens,
        "--search-steps", "100" if quick else search, "--loss-steps", "3",
        "--repeats", "3" if quick else "9",
    )["steps"][0]["rounds"]  # fmt: skip
    middle = {role: sorted(rounds)[len(rounds) // 2] for role, rounds in found.items()}
    values = {f"default / {role}": middle["hetccl"] / middle[role] for role in ("online", "step")}
    rounds = {role: dict(enumerate(1e3 * one for one in each)) for role, each in found.items()}
    where = f"{model[1]}, DDP, two clusters, TCP over loopback"
    return Found(where, dict(values), rounds, ("round", "ms a step"))


def measure_valleys(quick: bool) -> Found:
    """The share of lines through measured settings that have one valley; `hetccl tune` measures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.jsonl"
        budget = "20" if quick else "120"
        measure.hetccl("tune", "--collective", "all_gather", "--sizes", "1M,4M", "--no-save",
                       "--budget-seconds", budget, "-o", str(path))  # fmt: skip
        points = [parse(line) for line in path.read_text().splitlines()]
    points = [point for point in points if not point.failed]
    values: dict[str, float | str] = {}
    keys = {json.dumps(point.key, sort_keys=True) for point in points}
    for name in ("slice_bytes", "depth"):
        found = [
            line
            for key in keys
            for line in lines([p for p in points if json.dumps(p.key, sort_keys=True) == key], name)
            if len(line.points) > 2
        ]
        if not found:
            raise RuntimeError(f"{budget} s gave no line of three points along {name}")
        values[name] = sum(line.valleys == 1 for line in found) / len(found)
    return Found("all-gathers of 1 and 4 MiB, four CPU ranks of a host in two clusters", values)


ENTRIES = (
    Entry(
        paper="004",
        piece="space",
        claim=(
            "Of NCCL's 158 parameters six matter: 2 algorithms, 3 protocols, 2 transports, 128 "
            "channels, 20 threads, 8192 chunks, over a million settings."
        ),
        unit="values",
        paper_values={"all settings": 2 * 3 * 2 * 128 * 20 * 8192},
        measured=(
            "The space that hetccl searches between clusters. Of NCCL it chooses algorithm, "
            "protocol and channels (tuning), since the plug-in's interface passes no more."
        ),
        limits="Nothing.",
        seconds=5,
        measure=measure_space,
        page="tuning",
    ),
    Entry(
        paper="004",
        piece="valleys",
        claim=(
            "Along each resource parameter the bandwidth has one maximum, so coordinate descent"
            " finds it."
        ),
        unit="of lines",
        paper_values={"slice_bytes": 1.0, "depth": 1.0},
        measured=(
            "The share of lines through the settings that `hetccl tune` measures which have one"
            " valley."
        ),
        limits=f"{A40}; NCCL's threads and chunks.",
        seconds=120,
        measure=measure_valleys,
        page="tuning",
    ),
    Entry(
        paper="004",
        piece="alone",
        claim=(
            "All-gather, reduce-scatter and all-reduce of 1 MB to 1 GB are faster tuned than by"
            " NCCL's choice."
        ),
        unit="times as fast",
        paper_values={},
        measured=(
            "The defaults beside what an online search finds; on GPUs NCCL's beside the plug-in's."
        ),
        limits=f"{A40}.",
        seconds=180,
        measure=measure_alone,
        page="gpus",
    ),
    Entry(
        paper="004",
        piece="beside",
        claim="The same beside computation, where other settings are best.",
        unit="times as fast",
        paper_values={},
        measured=(
            "As before, beside a process that computes; on GPUs beside products of matrices."
        ),
        limits=f"{A40}.",
        seconds=180,
        measure=measure_beside,
        page="gpus",
    ),
    Entry(
        paper="004",
        piece="training",
        claim=(
            "Training is up to 1.32 times as fast, within 2 iterations (Phi-2, Llama 3.1 8B, Yi"
            " 1.5 34B, VGG 19)."
        ),
        unit="times as fast",
        paper_values={"default / online": 1.32, "default / step": 1.32},
        measured="A GPT by DDP, by default and after searches by call and by step.",
        limits=f"{A40}; those models.",
        seconds=180,
        measure=measure_training,
        page="gpus",
    ),
)
