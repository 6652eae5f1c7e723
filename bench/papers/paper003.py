"""Paper 003, three-level sharding on Frontier: tables IV to X, figures 7 to 10."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from typing import Any

import measure
from entry import Entry, Found, Number

from hetccl.sharding import PRESETS
from hetccl.sharding.costs import Costs, Phase, Training, find_costs
from hetccl.sharding.degrees import Degrees, Tree, find_degrees
from hetccl.sharding.reach import Reaches

NODES, GCDS = 48, 8  # 384 GCDs, the paper's largest run
FRONTIER = Tree(tuple(range(NODES * GCDS)), (GCDS,) * NODES, (NODES * GCDS,))
HERE = f"hetccl.sharding's formulas, {NODES} nodes of {GCDS} GCDs"
ALL = NODES * GCDS
OUTSIDE, INSIDE = 1 - 1 / ALL, 1 - 1 / GCDS  # (d - 1) / d, the paper's factor of volumes
SCHEMES: dict[str, dict[str, Any]] = {
    "ZeRO-3": {"preset": "zero3"},
    "ZeRO++": {"preset": "zero++"},
    "ours, secondary 8": {"preset": "three-level", "secondary": 8},
    "ours, secondary 2": {"preset": "three-level", "secondary": 2},
}


def plan_of(preset: str, **changes: Any) -> tuple[Degrees, Costs]:
    """Degrees and costs of a preset for a parameter of two bytes, on the paper's largest run.

    Encodings carry no scales, as in the paper's formulas.
    """
    sharding = dataclasses.replace(PRESETS[preset], **changes)
    degrees = find_degrees(sharding, FRONTIER)
    training = Training(10**9, scale_bits=0)
    return degrees, find_costs(training, sharding, degrees, Reaches(FRONTIER), {})


def phases_of(preset: str) -> list[Phase]:
    """The collectives of a step."""
    return list(plan_of(preset)[1].phases)


def volume(costs: Costs, phase: str) -> float:
    """Bytes that a rank sends in a phase, as a part of the weights."""
    return sum(one.volume for one in costs.of_phase(phase)) / 2e9


def measure_degrees(quick: bool) -> Found:
    presets = {"ZeRO-1": "zero1", "ZeRO-2": "zero2", "ZeRO-3": "zero3", "ours": "three-level"}
    values: dict[str, Number | str] = {}
    for name, preset in presets.items():
        degrees = plan_of(preset)[0]
        values[name] = f"{degrees.weights}, {degrees.gradients}, {degrees.optimizer_states}"
    return Found(HERE, values)


def measure_weights(quick: bool) -> Found:
    values: dict[str, Number | str] = {}
    for name, scheme in SCHEMES.items():
        memory = plan_of(**scheme)[1].memory
        values[name] = (memory.weights + memory.secondary) / 1e9
    return Found(HERE, values)


def measure_gradients(quick: bool) -> Found:
    schemes = {"ZeRO-3": "zero3", "ZeRO++": "zero++", "ours": "three-level"}
    return Found(HERE, {name: plan_of(preset)[1].memory.gradients / 1e9
                        for name, preset in schemes.items()})  # fmt: skip


def measure_gathers(quick: bool) -> Found:
    values: dict[str, Number | str] = {}
    for name, scheme in SCHEMES.items():
        costs = plan_of(**scheme)[1]
        values |= {f"{name}, {phase}": volume(costs, phase) for phase in ("forward", "backward")}
    return Found(HERE, values)


def measure_scatters(quick: bool) -> Found:
    """Formulas of volumes, and how much faster an encoded reduce-scatter is over a slow link."""
    schemes = {"ZeRO-3": "zero3", "ZeRO++": "zero++", "ours": "three-level"}
    values: dict[str, Number | str] = {
        name: volume(plan_of(preset)[1], "gradients") for name, preset in schemes.items()
    }
    size = (8 if quick else 64) << 20
    options = [*measure.sweep(size, size, 3 if quick else 7), "-d", "bfloat16"]
    took = {wire: measure.over_link("AABB", "reduce_scatter", options, {"HETCCL_WIRE": wire})[size]
            for wire in ("", "int8", "int4")}  # fmt: skip
    values |= {f"as it is / {wire}, time": took[""] / took[wire] for wire in ("int8", "int4")}
    return Found(f"{HERE}; reduce-scatter between CPU ranks, a link of 1 Gbit/s", values)


def measure_features(quick: bool) -> Found:
    """Shows the features of presets: different degrees, groups that stay on a device, encodings."""
    presets = {"ZeRO-3": "zero3", "ZeRO++": "zero++", "MiCS": "mics", "ZeRO-topo": "three-level"}
    values: dict[str, Number | str] = {}
    for name, preset in presets.items():
        sharding, degrees = PRESETS[preset], plan_of(preset)[0]
        kept = len({degrees.weights, degrees.gradients, degrees.optimizer_states}) > 1
        words = ["hybrid"] * kept + ["pair of GCDs"] * (sharding.weights == "pair")
        words += ["quantised"] * bool(sharding.weight_wire)
        values[name] = ", ".join(words) or "none"
    return Found(HERE, values)


def measure_steps(quick: bool, layers: int) -> Found:
    """A step's speed over that of ZeRO-3, on a tree of slow links; bench/sharding.py measures."""
    measure.need_hosts()
    cases = ["zero3", "zero++", "three-level"]
    size = ["--width", "96", "--steps", "2", "--rounds", "1"] if quick else ["--width", "384"]
    links = ["--context", "16", "--rate", "200mbit", "--trunk", "50mbit", "--layers", str(layers)]
    rounds = measure.script("sharding.py", *size, *links, "--cases", *cases)
    took = {
        case: statistics.median(s for one in rounds for s in one[case]["seconds"]) for case in cases
    }
    trunk = {case: rounds[-1][case]["trunk"] for case in cases}
    return Found(
        where=f"GPT of {rounds[0]['zero3']['parameters'] / 1e6:.1f} million parameters, 8 CPU "
        "ranks: two sites (50 Mbit/s) of two hosts (200 Mbit/s) of two ranks",
        values={
            "ZeRO++ / ZeRO-3": took["zero3"] / took["zero++"],
            "three levels / ZeRO++": took["zero++"] / took["three-level"],
            "three levels / ZeRO-3": took["zero3"] / took["three-level"],
            **{f"MB between sites, {case}": sent / 1e6 for case, sent in trunk.items()},
        },
    )


def measure_losses(quick: bool, layers: int) -> Found:
    """Losses of a GPT on text, and of text that was held out; bench/sharding_losses.py trains."""
    cases = ["fsdp2", "int8 weights, int4 gradients", "zero++"]
    steps, ranks = ("40", "4") if quick else ("300", "8")
    found = measure.script(
        "sharding_losses.py", "--layers", str(layers), "--steps", steps, "--ranks", ranks,
        "--cases", *cases,
    )  # fmt: skip
    base = found["fsdp2"][-1]
    return Found(
        where=f"a GPT of {layers} layers, {ranks} CPU ranks, {steps} steps, Python's library",
        values={"held-out loss, three levels": abs(found[cases[1]][-1] / base - 1),
                "held-out loss, ZeRO++": abs(found["zero++"][-1] / base - 1)},
        series={case: dict(enumerate(losses[:-1])) for case, losses in found.items()},
        axes=("step", "loss"),
    )  # fmt: skip


FORMULA = "Nothing: a formula. bench/sharding.py counts the bytes on links (sharding)."
SPEEDS = {"ZeRO++ / ZeRO-3": 1.405, "three levels / ZeRO++": 1.707, "three levels / ZeRO-3": 2.398}
FRONTIER_LIMIT = "384 GCDs of MI250X; TFLOPS of a model that fills them"
ENTRIES = (
    Entry(
        paper="003",
        piece="table 4",
        claim="Degrees of weights, gradients and optimizer states in each scheme.",
        unit="degrees",
        paper_values={
            "ZeRO-1": f"1, 1, {ALL}",
            "ZeRO-2": f"1, {ALL}, {ALL}",
            "ZeRO-3": f"{ALL}, {ALL}, {ALL}",
            "ours": f"2, {GCDS}, {ALL}",
        },
        measured="The presets of hetccl.sharding.",
        limits=FORMULA,
        seconds=1,
        measure=measure_degrees,
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="table 5",
        claim="Memory of weights on a device: fixed, whatever the number of devices.",
        unit="bytes a parameter",
        paper_values={
            "ZeRO-3": 2 / ALL,
            "ZeRO++": 2 / ALL + 2 / GCDS,
            "ours, secondary 8": 1 + 1 / 8,
            "ours, secondary 2": 1 + 1 / 2,
        },
        measured=(
            "The planner's formulas. ZeRO++'s second partition is kept encoded here: half the "
            "paper's."
        ),
        limits=FORMULA,
        seconds=1,
        measure=measure_weights,
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="table 6",
        claim=("Memory of gradients on a device: fixed, whatever the number of devices."),
        unit="bytes a parameter",
        paper_values={"ZeRO-3": 2 / ALL, "ZeRO++": 2 / ALL, "ours": 2 / GCDS},
        measured="The planner's formulas.",
        limits=FORMULA,
        seconds=1,
        measure=measure_gradients,
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="table 7",
        claim=(
            "Gathers of weights stay in a pair of GCDs or a node, and INT8 halves their volume."
        ),
        unit="of the weights' bytes",
        paper_values={
            "ZeRO-3, forward": OUTSIDE,
            "ZeRO-3, backward": OUTSIDE,
            "ZeRO++, forward": OUTSIDE / 2,
            "ZeRO++, backward": INSIDE / 2,
            "ours, secondary 8, forward": 1 / 4,
            "ours, secondary 8, backward": INSIDE / 2,
            "ours, secondary 2, forward": 1 / 4,
            "ours, secondary 2, backward": 1 / 4,
        },
        measured="The planner's formulas.",
        limits=FORMULA,
        seconds=1,
        measure=measure_gathers,
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="table 8",
        claim=(
            "Reduce-scatters of gradients stay in a node, and INT4 leaves a quarter of their "
            "volume."
        ),
        unit="",
        paper_values={
            "ZeRO-3": OUTSIDE,
            "ZeRO++": OUTSIDE / 4,
            "ours": INSIDE / 4,
            "as it is / int8, time": 2.0,
            "as it is / int4, time": 4.0,
        },
        measured=(
            "The planner's formulas; and times of a reduce-scatter with each encoding over a "
            "slow link."
        ),
        limits="Kernels on AMD's GPUs.",
        seconds=60,
        measure=measure_scatters,
        page="quantised",
    ),
    Entry(
        paper="003",
        piece="table 10",
        claim=(
            "Of the schemes compared, ZeRO-topo alone shards by pairs of GCDs, and it quantises."
        ),
        unit="",
        paper_values={
            "ZeRO-3": "none",
            "ZeRO++": "quantised",
            "MiCS": "none",
            "ZeRO-topo": "hybrid, pair of GCDs, quantised",
        },
        measured="The features of the presets. FSDP and AMSP are no presets.",
        limits="Nothing: a table of features.",
        seconds=1,
        measure=measure_features,
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="figure 7",
        claim=(
            "GPT-NeoX 20B on 384 GCDs: ZeRO++ has 40.5 % more TFLOPS than ZeRO-3, three levels "
            "70.7 % more than ZeRO++ and 139.8 % more than ZeRO-3."
        ),
        unit="times as fast",
        paper_values=SPEEDS,
        measured=(
            "Steps of a small GPT on a tree of slow links; kernels' counters say what crosses."
        ),
        limits=f"{FRONTIER_LIMIT}.",
        seconds=300,
        measure=functools.partial(measure_steps, layers=4),
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="figure 8",
        claim="The same of GPT-NeoX 10B.",
        unit="times as fast",
        paper_values={},
        measured="As figure 7, with half the layers.",
        limits=f"{FRONTIER_LIMIT}.",
        seconds=200,
        measure=functools.partial(measure_steps, layers=2),
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="figure 9",
        claim=(
            "GPT-NeoX 10B: the losses of quantised three-level sharding are similar to "
            "ZeRO-3's, within 1 % in earlier work."
        ),
        unit="relative to FSDP2",
        paper_values={"held-out loss, three levels": 0.01},
        measured="A small GPT on real text over FSDP2, three levels and ZeRO++.",
        limits="The Pile, 14 billion tokens; models of billions of parameters.",
        seconds=120,
        measure=functools.partial(measure_losses, layers=2),
        page="sharding",
    ),
    Entry(
        paper="003",
        piece="figure 10",
        claim="The same of GPT-NeoX 20B.",
        unit="relative to FSDP2",
        paper_values={"held-out loss, three levels": 0.01},
        measured="As figure 9, with three layers.",
        limits="The Pile, 14 billion tokens; models of billions of parameters.",
        seconds=160,
        measure=functools.partial(measure_losses, layers=3),
        page="sharding",
    ),
)
