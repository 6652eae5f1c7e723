"""Paper 000, HetCCL of SNU, Moreh and Samsung: sections 5, E and F."""

from __future__ import annotations

import functools
from typing import Any

import balance
import measure
import native
from entry import Entry, Found, MissingError
from paper003 import phases_of

from hetccl.units import binary_size

CLUSTER = "V100 and W7800 nodes, and AMD GPUs at all: nobody here has them"
NCCL_NAMES = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "broadcast": "broadcast",
    "all_to_all_single": "all_to_all",
}


def measure_collectives(quick: bool, names: tuple[str, ...]) -> Found:
    """Collectives by name in hetccl bench. bench/gpu.py measures no reduce."""
    if measure.n_gpus() >= 2:
        on_gpus = {name: label for name, label in NCCL_NAMES.items() if label in names}
        return measure.over_peer("one", on_gpus, quick)
    return measure.collectives_of_limit(names, quick)


def measure_messages(quick: bool) -> Found:
    if measure.n_gpus() >= 2:
        return measure.over_peer("one", {"send_recv": "send_recv"}, quick)
    most = (8 if quick else 64) << 20
    took = measure.over_link("AB", "send_recv", measure.sweep(1 << 10, most, 5))
    largest = max(took)
    return Found(
        where="AB: a CPU rank in each cluster, an emulated link of 1 Gbit/s",
        values={"send_recv": measure.of_limit("AB", "send_recv", largest, took[largest])},
        series={"hetccl": measure.rates(took)},
    )


def train(steps: int, *cases: str) -> dict[str, Any]:
    """Jobs of bench/balance.py by case: four ranks, two of them with half the processor's time."""
    measure.need_hosts()
    return {case: balance.run(case, steps, [balance.FAST] * 2 + [balance.SLOW] * 2)
            for case in cases}  # fmt: skip


def measure_training(quick: bool) -> Found:
    steps = 10 if quick else 40
    mixed = balance.rate_of(train(steps, "profiled")["profiled"])
    fast, slow = (
        balance.rate_of(balance.run("equal", steps, [quota] * 2))
        for quota in (balance.FAST, balance.SLOW)
    )
    return Found(
        where="two clusters of two CPU ranks, whose processor time is as 2 to 1, DDP",
        values={
            "mixed / fast part alone": mixed / fast,
            "mixed / slow part alone": mixed / slow,
            "efficiency": mixed / (fast + slow),
        },
    )


def measure_balance(quick: bool) -> Found:
    if measure.n_gpus() >= 2:
        models = ["gpt-125m"] if quick else ["gpt-125m", "gpt-355m", "llama-1b", "llama-3b"]
        rows = measure.script("gpu_balance.py", "--models", *models)
        where = f"{measure.n_gpus()} GPUs in two clusters, MPS leaves the second one half of them"
        return Found(where, {row["model"]: row["equal"] / row["balanced"] for row in rows})
    steps = 10 if quick else 40
    jobs = train(steps, "equal", "profiled", "online")
    base = balance.rate_of(jobs["equal"])
    return Found(
        where="two clusters of two CPU ranks, whose processor time is as 2 to 1, DDP",
        values={
            "by a profile": balance.rate_of(jobs["profiled"]) / base,
            "online": balance.rate_of(jobs["online"]) / base,
        },
        series={
            case: dict(enumerate(1e3 * seconds for seconds in job["seconds"][1:]))
            for case, job in jobs.items()
        },
        axes=("step", "ms"),
    )


def measure_losses(quick: bool) -> Found:
    """Losses of one model over each backend, on GPUs as in the paper, else of a tiny one."""
    steps = 30 if quick else 1000
    arguments = ["--model", "llama-1b", "--wrap", "fsdp2", "--recompute", "--by", "memory"]
    where = "LLaMA 1B in bfloat16, FSDP2, GPUs of two clusters"
    if measure.n_gpus() < 2:
        arguments = ["--devices", "cpu", "--model", "llama-tiny", "--wrap", "fsdp2"]
        steps, where = 30 if quick else 300, "a tiny LLaMA in bfloat16, FSDP2, two CPU ranks"
    arguments += ["--tokens", "--loss-steps", str(steps)]
    found = measure.script("gpu_training.py", *arguments)["losses"]
    largest = max(found["differences"].values())
    return Found(
        where=f"{where}, {steps} steps, text of Python's library",
        values={"largest difference of final losses": largest},
        series={role: dict(enumerate(values)) for role, values in found["losses"].items()},
        axes=("step", "loss"),
    )


def measure_beside_mpis(call: str, quick: bool) -> Found:
    """Calls of two ranks of one host by hetccl's C API, beside three MPIs."""
    least, most = 8, (4 if quick else 16) << 20
    sizes = (least, 512, 8 << 10, 128 << 10, 1 << 20, most)
    rounds, batches = (1, 5) if quick else (3, native.BATCHES)
    found = native.measure_calls(call, 2, sizes, rounds, 120.0, batches)
    series = {
        name: {row["bytes"]: 1e6 * row["seconds"] for row in rows.values()}
        for name, rows in found.items()
        if not isinstance(rows, str)
    }
    ours = series["hetccl"]
    others = [by for name, by in series.items() if name != "hetccl"]
    if not others:
        raise MissingError("needs an MPI: tools/setup --mpi")
    best = {size: min(by[size] for by in others) for size in ours}
    values = {f"fastest MPI / hetccl, {binary_size(size)}": best[size] / ours[size]
              for size in (least, most)}  # fmt: skip
    where = "two CPU ranks of one host, C API, beside Intel MPI, MPICH and Open MPI"
    return Found(where, dict(values), series, ("bytes", "us"))


def measure_one_cluster(quick: bool) -> Found:
    measure.need_gpus(2)
    return measure.over_peer("one", {"all_reduce": "all_reduce"}, quick)


def measure_rdma(quick: bool) -> Found:
    measure.need_rdma()
    seconds = {}
    most = (8 if quick else 64) << 20
    for transport in ("verbs", "tcp"):
        env = {"HETCCL_TRANSPORT": transport, "HETCCL_SHM": "0"}
        options = measure.sweep(1 << 10, most, 5)
        seconds[transport] = measure.on_host(2, 2, "send_recv", options, env)
    largest = max(seconds["tcp"])
    return Found(
        where="two CPU ranks of one host, over this machine's RDMA device and over TCP",
        values={"RDMA / TCP": seconds["tcp"][largest] / seconds["verbs"][largest]},
        series={name: measure.rates(took) for name, took in seconds.items()},
    )


def measure_zero(quick: bool) -> Found:
    """The collectives of a step, from the plan that training follows."""
    values: dict[str, float | str] = {}
    for stage in (1, 2, 3):
        found = dict.fromkeys(
            phase.collective.replace("_", "-") for phase in phases_of(f"zero{stage}")
        )
        values[f"stage {stage}"] = ", ".join(sorted(found))
    return Found(where="hetccl.sharding's plan for 384 ranks", values=values)


ENTRIES = (
    Entry(
        paper="000",
        piece="figure 7",
        claim=(
            "All-reduce, all-gather and reduce-scatter of 1 GB are as fast as the vendor's "
            "library with GPUs of one vendor, and as the slower vendor's part with both."
        ),
        unit="of what the slower part allows",
        paper_values=dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), 1.0),
        measured=(
            "CPU ranks in two clusters: the share of what the link between them allows. On GPUs: "
            "one cluster, beside NCCL."
        ),
        limits=f"{CLUSTER}.",
        seconds=60,
        measure=functools.partial(
            measure_collectives, names=("all_reduce", "all_gather", "reduce_scatter")
        ),
        page="gpus",
    ),
    Entry(
        paper="000",
        piece="figure 8",
        claim=(
            "Messages between vendors, 1 KB to 1 GB, come near the bandwidth of the slower end."
        ),
        unit="of what the link allows",
        paper_values={"send_recv": 1.0},
        measured=(
            "Messages between CPU ranks of two clusters: the share of what their link allows."
        ),
        limits=f"{CLUSTER}; RDMA between GPUs.",
        seconds=30,
        measure=measure_messages,
        page="gpus",
    ),
    Entry(
        paper="000",
        piece="figure 9",
        claim=(
            "Training on both vendors is up to 1.48 times as fast as on NVIDIA's GPUs alone and"
            " 2.97 times as on AMD's; efficiency reaches 0.97."
        ),
        unit="times",
        paper_values={
            "mixed / fast part alone": 1.48,
            "mixed / slow part alone": 2.97,
            "efficiency": 0.97,
        },
        measured=(
            "Control groups make two CPU ranks twice as fast as two others; shares by profiles."
        ),
        limits=f"{CLUSTER}; models that fill a GPU.",
        seconds=90,
        measure=measure_training,
        page="balancing",
    ),
    Entry(
        paper="000",
        piece="figure 11",
        claim="Reduce, broadcast and all-to-all of 1 GB behave as those of figure 7.",
        unit="of what the slower part allows",
        paper_values=dict.fromkeys(("reduce", "broadcast", "all_to_all"), 1.0),
        measured="As figure 7.",
        limits=f"{CLUSTER}.",
        seconds=60,
        measure=functools.partial(measure_collectives, names=("reduce", "broadcast", "all_to_all")),
        page="gpus",
    ),
    Entry(
        paper="000",
        piece="figure 12",
        claim=(
            "After 1,000 steps of LLaMA 1B the losses of NCCL, RCCL and HetCCL differ by less "
            "than 7e-3."
        ),
        unit="relative",
        paper_values={"largest difference of final losses": 7e-3},
        measured="The same model and text over hetccl, Gloo and, on GPUs, NCCL.",
        limits=("Losses of two vendors in one job; WikiText-103, which cannot be fetched."),
        seconds=240,
        measure=measure_losses,
        page="gpus",
    ),
    Entry(
        paper="000",
        piece="figure 13",
        claim=(
            "Of messages between vendors, GPU-aware MPI has the lower latency where they are "
            "short, HetCCL the higher bandwidth where they are long."
        ),
        unit="times as fast",
        paper_values={},
        measured="Messages in memory of the host, beside three MPIs.",
        limits="An MPI that takes memory of GPUs of two vendors in one job.",
        seconds=40,
        measure=functools.partial(measure_beside_mpis, "exchange"),
    ),
    Entry(
        paper="000",
        piece="figure 14",
        claim=(
            "On 16 GPUs of two vendors HetCCL's all-reduce and all-gather are faster than GPU-"
            "aware MPI's, except for short messages."
        ),
        unit="times as fast",
        paper_values={},
        measured="All-reduce in memory of the host, beside three MPIs.",
        limits="An MPI that takes memory of GPUs of two vendors in one job; 16 GPUs.",
        seconds=60,
        measure=functools.partial(measure_beside_mpis, "all_reduce"),
    ),
    Entry(
        paper="000",
        piece="figure 15",
        claim=(
            "On one node of 8 H100 or 8 MI300X, all-reduces of 1 KB to 1 GB are as fast as the "
            "vendor's."
        ),
        unit="of NCCL's speed",
        paper_values={"all_reduce": 1.0},
        measured=("The GPUs of one machine in one cluster, through PyTorch, in turns with NCCL."),
        limits="MI300X.",
        seconds=120,
        measure=measure_one_cluster,
        gpus=2,
        page="gpus",
    ),
    Entry(
        paper="000",
        piece="figure 16",
        claim=("Messages between GPUs are faster by RDMA than through memory of the host."),
        unit="times",
        paper_values={},
        measured="Messages of CPU ranks over an RDMA device and over TCP.",
        limits="RDMA cards that read memory of GPUs; soft-RoCE is slower than TCP.",
        seconds=60,
        measure=measure_rdma,
        page="rdma",
        needs="an RDMA card",
    ),
    Entry(
        paper="000",
        piece="table 3",
        claim="ZeRO's stages use these collectives.",
        unit="",
        paper_values={
            "stage 1": "all-gather, all-reduce",
            "stage 2": "all-gather, reduce-scatter",
            "stage 3": "all-gather, reduce-scatter",
        },
        measured=(
            "The plan of hetccl.sharding's presets. Its stage 1 keeps whole gradients, and "
            "reduces and scatters them once a step: the all-reduce's first half."
        ),
        limits="Nothing: counts do not depend on hardware.",
        seconds=2,
        measure=measure_zero,
    ),
    Entry(
        paper="000",
        piece="table 4",
        claim=(
            "Shares by the measured speed of unlike GPUs train GPT 125M 1.22 times as fast as "
            "equal ones, LLaMA 3B 1.08 times; where one vendor is twice as fast, 1.5 is ideal."
        ),
        unit="times",
        paper_values={"gpt-125m": 1.22, "gpt-355m": 1.19, "llama-1b": 1.09, "llama-3b": 1.08},
        measured="As figure 9, beside equal shares; on two GPUs bench/gpu_balance.py.",
        limits=f"{CLUSTER}.",
        seconds=120,
        measure=measure_balance,
        page="gpus",
    ),
)
