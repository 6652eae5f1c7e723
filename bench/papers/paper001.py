"""Paper 001, HetCCL of PKU and BAAI: sections 3 and 6, appendix B."""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from typing import Any

import measure
from entry import Entry, Found
from paper000 import NCCL_NAMES

VENDORS = "A800 and three other vendors' servers: nobody here has them"
DRIVE = measure.BENCH.parent / "examples/serving/drive.py"
# 40 % of an A800's FLOP/s. The other vendors' follow from the paper: what layers it gives them in
# table 8, what they reach beside NVIDIA's in figure 17.
FAST, VENDOR_1, VENDOR_3 = 125, 24, 119


def measure_copies(quick: bool) -> Found:
    """Seconds of copies out of a GPU and into one, beside two copies inside it."""
    measure.need_gpus(1)
    import torch

    size = (256 if quick else 2048) << 20
    source, target = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=True)

    def took(*pairs: tuple[torch.Tensor, torch.Tensor]) -> float:
        seconds = []
        for _ in range(6):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for to, of in pairs:
                to.copy_(of, non_blocking=True)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        return sorted(seconds[1:])[2]

    through = took((pinned, source), (target, pinned))
    inside = took((target, source), (source, target))
    return Found(
        f"{torch.cuda.get_device_name()}, {size >> 20} MiB, pinned memory of the host",
        {"through the host / inside the GPU": through / inside},
    )


def measure_wrapper(quick: bool) -> Found:
    measure.need_gpus(2)
    names = {
        "send_recv": "send_recv",
        "all_gather_into_tensor": "all_gather",
        "all_reduce": "all_reduce",
    }
    return measure.over_peer("one", names, quick)


def measure_messages(quick: bool) -> Found:
    sizes = ("64K", "1M", "4M", "16M") if quick else ("4K", "64K", "1M", "4M", "16M", "64M")
    found = measure.measure_beside_library("tcp", sizes, quick)
    series = {name: by["send_recv"] for name, by in found.items() if "send_recv" in by}
    fits = {name: measure.regress(took) for name, took in series.items()}
    latency, rate, fit = fits["hetccl"]
    values: dict[str, float | str] = {
        "hetccl, latency, ms": 1e3 * latency,
        "hetccl, GB/s": rate / 1e9,
        "hetccl, R^2": fit,
    }
    for name in ("nccl", "gloo"):
        if name in fits:
            values |= {
                f"{name}, latency, ms": 1e3 * fits[name][0],
                f"bandwidth / {name}": rate / fits[name][1],
            }
    where = "two ranks of the host, TCP over loopback" if measure.n_gpus() < 2 else \
        f"{measure.n_gpus()} GPUs in two clusters, TCP over loopback"  # fmt: skip
    return Found(where, values, {name: measure.rates(took) for name, took in series.items()})


def measure_heterogeneous(quick: bool, name: str) -> Found:
    """hetccl and Gloo through torch between two clusters; bench/run.py measures."""
    if measure.n_gpus() >= 2:
        return measure.over_peer("tcp", {name: "Gloo / hetccl"}, quick, "gloo")
    measure.need_hosts()
    sizes = ["--bytes", str((8 if quick else 64) << 20), "--repeats", "3" if quick else "7"]
    runs = measure.script("run.py", "--scene", "AABB", *sizes, "--small-repeats", "20")[0]["runs"]
    ours, gloo = (runs[one][0]["large"][name] for one in ("hetccl", "gloo"))
    share = measure.of_limit("AABB", NCCL_NAMES[name], ours["bytes"], ours["seconds"])
    return Found(
        where="AABB: CPU ranks, two clusters, an emulated link of 1 Gbit/s, through PyTorch",
        values={
            "of what the link allows": share,
            "Gloo / hetccl": gloo["seconds"] / ours["seconds"],
        },
    )  # fmt: skip


def measure_clusters(quick: bool) -> Found:
    """The same ranks as two clusters, and as one that the vendor's library joins."""
    names = {"all_gather": "all_gather_into_tensor", "all_reduce": "all_reduce"}
    if measure.n_gpus() >= 4:
        found = measure.over_peer("shm", {name: label for label, name in names.items()}, quick)
        return Found(
            "four GPUs, 2 + 2, beside NCCL in one group without peer-to-peer",
            found.values,
            found.series,
        )
    options = measure.sweep(64 << 10, (4 if quick else 16) << 20, 10)
    values, series = {}, {}
    for name in names:
        took = measure.alternate(3, {
            f"{name}, 2 + 2": functools.partial(measure.on_host, 4, 2, name, options),
            f"{name}, one of 4": functools.partial(measure.on_host, 4, 1, name, options),
        })  # fmt: skip
        two, one = took.values()
        values[name] = one[max(one)] / two[max(two)]
        series |= {label: measure.rates(each) for label, each in took.items()}
    return Found("four CPU ranks of one host, as two clusters and as one", values, series)


def measure_rails(quick: bool) -> Found:
    size, calls = (16 << 20, 3) if quick else (64 << 20, 5)
    series: dict[str, dict[float, float]] = {}
    for name in ("all_gather", "all_reduce"):
        took = {n: measure.over_rails(["200mbit"] * n, name, measure.sweep(size, size, calls))[size]
                for n in (1, 2, 4)}  # fmt: skip
        series[name] = {n: took[1] / took[n] for n in took}
    values = {
        f"{name}, {n} cards": times
        for name, by in series.items()
        for n, times in by.items()
        if n > 1
    }
    return Found("two emulated hosts of a CPU rank, each card 200 Mbit/s", values, series,
                 ("cards of a host", "times as fast"))  # fmt: skip


def measure_training(quick: bool) -> Found:
    """Seconds of a training step over Gloo and hetccl, by DDP."""
    model = (
        ["--model", "gpt-355m"]
        if measure.n_gpus() >= 2
        else ["--model", "gpt-tiny", "--devices", "cpu"]
    )
    tokens, repeats = ("8192", "32768"), "3" if quick else "7"
    if measure.n_gpus() < 2:
        tokens = ("256", "1024")
    found = measure.script(
        "gpu_training.py", *model, "--tokens", *tokens, "--repeats", repeats, "--loss-steps", "3",
        "--by", "tcp",
    )["steps"]  # fmt: skip
    middle: dict[str, dict[float, float]] = {}
    for step in found:
        for role, rounds in step["rounds"].items():
            middle.setdefault(role, {})[step["tokens"]] = 1e3 * statistics.median(rounds)
    values = {
        f"Gloo / hetccl, {n} tokens": middle["gloo"][n] / middle["hetccl"][n]
        for n in middle["gloo"]
    }
    where = f"{model[1]}, DDP, {max(2, measure.n_gpus())} ranks in two clusters, TCP over loopback"
    return Found(where, values, middle, ("tokens of a rank", "ms a step"))


def plan_parallel(*arguments: str) -> list[dict[str, Any]]:
    """Strategies of `hetccl parallel` that fit the memory, the fastest first."""
    common = ["--memory", "80G", "--recompute", "--json"]
    rows = json.loads(measure.hetccl("parallel", *arguments, *common))["rows"]
    fitting = [row for row in rows if row["fits"]]
    if not fitting:
        raise RuntimeError(f"hetccl parallel {' '.join(arguments)}: no strategy fits")
    return sorted(fitting, key=lambda row: float(row["seconds"]))


def site(fast: int, other: int, speed: int, nics: int, nic: str) -> list[str]:
    """Options: so many servers of 8 A800 and of vendor 1 (16 a server) or 3 (8)."""
    size = 16 if speed == VENDOR_1 else 8
    letters = [f"A{8 * fast}"] * (fast > 0) + [f"B{size * other}"] * (other > 0)
    options = ["--layout", "".join(letters), "--hosts", str(max(fast, other))]
    speeds = [FAST] * (fast > 0) + [speed] * (other > 0)
    for number, (letter, rate) in enumerate(zip("AB" if fast else "B", speeds, strict=False)):
        kind = "cuda:A800" if letter == "A" else "hip:MI250X"
        options += ["--kind", f"{letter}={kind}", "--speed", f"{number}={rate}T"]
    return [*options, "--nics", str(nics), "--nic", nic]


def measure_layers(quick: bool) -> Found:
    """The part of the layers that a plan gives the faster vendor, for both setups of table 8."""
    values: dict[str, float | str] = {}
    for setup, model, servers, stages, batch in (
        (1, "llama-3b", 1, 2, 128),
        (2, "llama-8b", 2, 4, 256),
    ):
        rows = plan_parallel(
            model, *site(servers, servers, VENDOR_1, 1, "100G"), "--batch", str(batch),
            "--tensor", "1", "--pipeline", str(stages), "--schedule", "1f1b",
        )  # fmt: skip
        strategy = rows[0]["strategy"]
        fast = range(8 * servers)
        on_fast = sum(
            end - begin for stage in strategy["stages"] if stage["ranks"][0] in fast
            for begin, end in stage["layers"]
        )  # fmt: skip
        values[f"setup {setup}"] = on_fast / strategy["layers"]
    return Found("plans of `hetccl parallel`, stages of unlike width", values)


def step_seconds(fast: int, other: int, *more: str) -> dict[str, float]:
    """Seconds of a step of Llama 8B by strategy, on servers of A800 and vendor 3."""
    rows = plan_parallel(
        "llama-8b", *site(fast, other, VENDOR_3, 8, "200G"), "--batch", "512", *more
    )
    return {row["degrees"]: row["seconds"] for row in reversed(rows)}


def measure_strategies(quick: bool) -> Found:
    """Predicts steps of the strategies of table 9, on one server of each vendor, and on two."""
    values: dict[str, float | str] = {}
    for servers, triples in ((1, ((2, 8, 1), (1, 8, 2))), (2, ((2, 16, 1), (1, 16, 2), (2, 8, 2)))):
        for tensor, data, pipeline in triples:
            given = ("--tensor", str(tensor), "--data", str(data), "--pipeline", str(pipeline))
            took = min(step_seconds(servers, servers, *given).values())
            values[f"{servers} + {servers} servers, [{tensor}, {data}, {pipeline}]"] = took
    return Found("plans of `hetccl parallel` for Llama 8B", values)


def measure_scaling(quick: bool) -> Found:
    def best(fast: int, other: int) -> float:
        return min(step_seconds(fast, other, "--schedule", "1f1b").values())

    two, mixed, four, eight = best(2, 0), best(1, 1), best(2, 2), best(4, 4)
    return Found(
        where="plans of `hetccl parallel` for Llama 8B",
        values={
            "step, 1 + 1 servers / 2 of NVIDIA's": mixed / two,
            "throughput, 2 + 2 servers / 2 of NVIDIA's": two / four,
            "throughput, 4 + 4 servers / 2 + 2": four / eight,
        },
    )


def serve(quick: bool, transports: str = "gloo,hetccl") -> dict[str, dict[str, str]]:
    """The rows of examples/serving/drive.py by transport, its tokens checked."""
    measure.need_hosts()
    load = ["--requests", "12", "--rate", "2"] if quick else ["--requests", "100", "--rate", "2"]
    workers = "prefill@cpu,decode@cpu"
    if measure.n_gpus() >= 2:
        workers, load = "prefill@cuda:0,decode@cuda:1", [*load, "--shape", "0.5B"]
    argv = [sys.executable, str(DRIVE), "--workers", workers, "--transport", transports]
    said = measure.run([*argv, "--hosts", "1gbit", "--shape", "small", *load])
    head, *rows = measure.numbers(said.splitlines())
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


SERVED = "prefill and decode in a process each, on two emulated hosts, a link of 1 Gbit/s"


def measure_latency(quick: bool) -> Found:
    rows = serve(quick)
    names = ("mean", "median", "P99")
    times = {role: [float(rows[role][f"TTFT {name} ms"]) for name in names] for role in rows}
    ratios = (gloo / ours for gloo, ours in zip(times["gloo"], times["hetccl"], strict=True))
    values = {f"TTFT {n}, Gloo / hetccl": ratio for n, ratio in zip(names, ratios, strict=True)}
    return Found(SERVED, values)


def measure_throughput(quick: bool) -> Found:
    rows = serve(quick)
    ours, gloo = rows["hetccl"], rows["gloo"]
    columns = ("output tokens/s", "total tokens/s")
    values = {f"{name}, hetccl / Gloo": float(ours[name]) / float(gloo[name]) for name in columns}
    return Found(SERVED, dict(values))


def measure_served(quick: bool) -> Found:
    rows = serve(quick, "gloo,sockets,hetccl")
    columns = ("TTFT mean ms", "TTFT P99 ms", "TPOT ms", "total tokens/s")
    values: dict[str, float | str] = {}
    for name, row in rows.items():
        values |= {f"{name}: {column}": float(row[column]) for column in columns}
        values[f"{name}: equal tokens"] = row["equal tokens"]
    return Found(SERVED, values)


ENTRIES = (
    Entry(
        paper="001",
        piece="figure 3",
        claim=(
            "Copies through the host take 3.8 times as long as two copies inside the device, in"
            " messages of 2 GB."
        ),
        unit="times",
        paper_values={"through the host / inside the GPU": 3.8},
        measured=(
            "2 GiB out of a GPU and in again through pinned memory, beside two copies inside it."
        ),
        limits="Vendor 1's GPUs.",
        seconds=10,
        measure=measure_copies,
        gpus=1,
    ),
    Entry(
        paper="001",
        piece="figure 10",
        claim="The wrapper reaches 98 to 99 % of the vendor library's bandwidth.",
        unit="of NCCL's speed",
        paper_values=dict.fromkeys(("send_recv", "all_gather", "all_reduce"), 0.985),
        measured=("The GPUs of one machine in one cluster, through PyTorch, in turns with NCCL."),
        limits="Other vendors' libraries.",
        seconds=240,
        measure=measure_wrapper,
        gpus=2,
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 11",
        claim=(
            "Messages between vendors have over 6 times Gloo's bandwidth, and 0.10 to 0.40 ms "
            "of latency (Gloo 1.73) by regression, R^2 above 0.999."
        ),
        unit="",
        paper_values={
            "bandwidth / gloo": 6.0,
            "hetccl, latency, ms": 0.25,
            "gloo, latency, ms": 1.73,
            "hetccl, R^2": 0.999,
        },
        measured=(
            "Messages over TCP beside Gloo's: regression of time on bytes. The paper's latency "
            "here is the middle of its range."
        ),
        limits=f"{VENDORS}; RDMA of a device's memory.",
        seconds=60,
        measure=measure_messages,
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 12",
        claim=(
            "All-gathers across two vendors reach what the slower vendor reaches alone, and "
            "more than Gloo."
        ),
        unit="",
        paper_values={"of what the link allows": 1.0},
        measured="CPU ranks in two clusters beside Gloo.",
        limits=f"{VENDORS}.",
        seconds=40,
        measure=functools.partial(measure_heterogeneous, name="all_gather_into_tensor"),
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 13",
        claim="The same of all-reduces.",
        unit="",
        paper_values={"of what the link allows": 1.0},
        measured="CPU ranks in two clusters beside Gloo.",
        limits=f"{VENDORS}.",
        seconds=40,
        measure=functools.partial(measure_heterogeneous, name="all_reduce"),
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 14",
        claim=(
            "Four nodes as two clusters of two reach 97.4 % of NCCL's all-gather over all four,"
            " and 59.1 % of its all-reduce."
        ),
        unit="of one cluster's speed",
        paper_values={"all_gather": 0.974, "all_reduce": 0.591},
        measured=(
            "Four ranks of a host as two clusters and as one; four GPUs as 2 + 2 beside NCCL."
        ),
        limits="Four nodes with RDMA cards.",
        seconds=60,
        measure=measure_clusters,
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 15",
        claim=(
            "The bandwidth of collectives grows in proportion to the network cards, 1 to 8 a node."
        ),
        unit="times as fast",
        paper_values={
            f"{name}, {n} cards": float(n) for name in ("all_gather", "all_reduce") for n in (2, 4)
        },
        measured="Hosts with 1, 2 and 4 emulated cards.",
        limits="Eight cards; RDMA.",
        seconds=120,
        measure=measure_rails,
    ),
    Entry(
        paper="001",
        piece="figure 16",
        claim=("Instead of Gloo HetCCL trains Llama 3B 1.10 times as fast, Llama 8B 1.20 times."),
        unit="times as fast",
        paper_values={"Llama 3B, Gloo / hetccl": 1.0998, "Llama 8B, Gloo / hetccl": 1.2038},
        measured="A GPT by DDP over hetccl and Gloo, in turns.",
        limits=f"{VENDORS}; pipelines across vendors with unequal speed on GPUs.",
        seconds=120,
        measure=measure_training,
        page="gpus",
    ),
    Entry(
        paper="001",
        piece="figure 17",
        claim=(
            "A step on one server of each vendor takes 1.076 times as long as on two of "
            "NVIDIA's; 2 + 2 servers train 1.56 times as fast as 2, 4 + 4 servers 1.51 times as"
            " fast as 2 + 2."
        ),
        unit="times",
        paper_values={
            "step, 1 + 1 servers / 2 of NVIDIA's": 1.076,
            "throughput, 2 + 2 servers / 2 of NVIDIA's": 1.56,
            "throughput, 4 + 4 servers / 2 + 2": 1.51,
        },
        measured=(
            "Predicted by `hetccl parallel`, with vendor 3's speed from the paper (0.95 of an "
            "A800)."
        ),
        limits=f"{VENDORS}: steps are predicted, not run.",
        seconds=60,
        measure=measure_scaling,
    ),
    Entry(
        paper="001",
        piece="figure 18",
        claim=(
            "Prefill on one device and decode on another: HetCCL takes 65 % off the time to the"
            " first token that forwarding through the host has."
        ),
        unit="times",
        paper_values={"TTFT mean, Gloo / hetccl": 2.86},
        measured=(
            "examples/serving/drive.py: its own engine with random weights, hetccl beside Gloo."
        ),
        limits="Qwen2 7B's weights; vendor 3's GPUs.",
        seconds=120,
        measure=measure_latency,
        page="kv",
    ),
    Entry(
        paper="001",
        piece="figure 19",
        claim=(
            "The same setups: 19 % more output tokens per second than by forwarding through the"
            " host."
        ),
        unit="times",
        paper_values={"output tokens/s, hetccl / Gloo": 1.19},
        measured=(
            "As figure 18. Requests arrive at a fixed rate, which limits the throughput of both."
        ),
        limits="Qwen2 7B's weights; vendor 3's GPUs.",
        seconds=120,
        measure=measure_throughput,
        page="kv",
    ),
    Entry(
        paper="001",
        piece="table 8",
        claim=(
            "A pipeline over NVIDIA's and vendor 1's servers gives the faster vendor 26 of 36 "
            "layers (Llama 3B), and 21 of 32 (8B), in stages of 8 and 16 replicas."
        ),
        unit="of the layers",
        paper_values={"setup 1": 26 / 36, "setup 2": 21 / 32},
        measured=(
            "Plans of `hetccl parallel`, with vendor 1's speed from the paper's own division."
        ),
        limits=f"{VENDORS}. The plan for 8B is not run.",
        seconds=60,
        measure=measure_layers,
    ),
    Entry(
        paper="001",
        piece="table 9",
        claim=(
            "Llama 8B by [tensor, data, pipeline] = [2, 8, 1] and [1, 8, 2] on two servers, "
            "three strategies on four, within and across vendors."
        ),
        unit="s a step",
        paper_values={},
        measured="Steps that `hetccl parallel` predicts for the same strategies.",
        limits=f"{VENDORS}: steps are predicted, not run.",
        seconds=60,
        measure=measure_strategies,
    ),
    Entry(
        paper="001",
        piece="table 10",
        claim=(
            "Prefill on one GPU and decode on another, of one vendor and of two, by NCCL, "
            "through the host and by HetCCL."
        ),
        unit="ms, tokens/s and requests",
        paper_values={},
        measured="The table's columns over Gloo, plain sockets and hetccl; tokens are compared.",
        limits="Qwen2 7B's weights; vendor 3's GPUs.",
        seconds=180,
        measure=measure_served,
        page="kv",
    ),
)
