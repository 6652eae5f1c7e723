"""A GPT of 350 million parameters, trained by DDP on GPUs of two clusters over TCP.

    python bench/gpu_training.py                            on all GPUs of this machine
    python bench/gpu_training.py --devices cpu --model tiny ranks of the host: to check this script

hetccl, NCCL and Gloo train the same model on the same data, deterministically; they take turns at
some steps each. Shown are a step's time, beside the least that hetccl's own measured rate of
all-reduce allows, and the losses of hetccl and NCCL. Fails when a process fails or hangs, or losses
differ by more than 1e-3, not when hetccl is slow. Needs torch and the hetccl package, nothing else.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_contender import (
    NCCL_SOCKETS,
    Answer,
    Contender,
    halves,
    job,
    print_table,
    ratio,
    refuse_without_settings,
    slowest,
    text,
)

WORKER = Path(__file__).parent / "gpu_training_worker.py"
STARTING = 60.0
PATIENCE = 90.0  # of an answer
LOSS_TOKENS = 2048
LARGEST_DIFFERENCE = 1e-3
SHOWN = 40  # losses between those that are printed


def contenders_of(devices: Sequence[str]) -> list[Contender]:
    """Half of the devices in each cluster."""
    labels = halves(len(devices))
    jobs = [job("hetccl", devices, {"HETCCL_SHM": "0"}, "HETCCL_CLUSTER", labels)]
    if "cpu" not in devices and len(set(devices)) == len(devices):
        jobs.append(job("nccl", devices, NCCL_SOCKETS, "NCCL_HOSTID", labels))
    jobs.append(job("gloo", devices))
    return [Contender("training", each) for each in jobs]


def worst(contender: Contender, do: str, **arguments: object) -> Answer:
    """The slowest rank's seconds."""
    return slowest(contender.ask_at_once(PATIENCE, do=do, **arguments))


def measure(contenders: Sequence[Contender], tokens: int, options: argparse.Namespace) -> Answer:
    """Seconds of a step, of each in turns, and of its parts."""
    rounds: dict[str, list[float]] = {each.job.name: [] for each in contenders}
    for turn in range(options.repeats):
        shift = turn % len(contenders)
        for each in [*contenders[shift:], *contenders[:shift]]:
            times = 2 if each.job.role == "gloo" else options.steps
            work = functools.partial(worst, each, "steps", tokens=tokens, times=times)
            got = each.attempt(work)
            if got is not None:
                rounds[each.job.name].append(got["seconds"])
    first = contenders[0]
    parts = first.attempt(lambda: worst(first, "parts", tokens=tokens, times=options.steps))
    rate = first.attempt(lambda: worst(first, "rate"))
    return {"tokens": tokens, "rounds": rounds, "parts": parts, "rate": rate}


def row(measured: Answer, roles: Sequence[str], gradient_bytes: float) -> list[str]:
    """Milliseconds of a step; the peers' over hetccl's; hetccl's over the least possible."""
    rounds = measured["rounds"]
    steps = [statistics.median(rounds[role]) if rounds[role] else None for role in roles]
    cells = [str(measured["tokens"]), *(text(s and 1e3 * s) for s in steps)]
    cells += [text(ratio(theirs, steps[0])) for theirs in steps[1:]]
    parts, rate = measured["parts"], measured["rate"]
    if parts is None or rate is None:
        return [*cells, "-", "-", "-"]
    sent = gradient_bytes * rate["seconds"]
    least = max(parts["computed"] + parts["update"], parts["forward"] + parts["update"] + sent)
    return [*cells, text(1e3 * parts["computed"]), text(1e3 * sent), text(ratio(steps[0], least))]


def compare_losses(contenders: Sequence[Contender], options: argparse.Namespace) -> Answer:
    """Losses of hetccl and of its first peer, and their largest relative difference."""
    found: Answer = {}
    for each in contenders[:2]:
        patience = PATIENCE + options.loss_steps
        ask = functools.partial(each.ask, patience, do="losses", tokens=LOSS_TOKENS)
        got = each.attempt(functools.partial(ask, times=options.loss_steps))
        if got is not None:
            found[each.job.name] = got[0]["losses"]
    if len(found) == 2:
        ours, theirs = found.values()
        pairs = zip(ours, theirs, strict=True)
        found["difference"] = max(abs(a - b) / abs(b) for a, b in pairs)
    return found


def show_losses(found: Answer) -> None:
    """A line for each backend."""
    for role, losses in found.items():
        if role != "difference":
            picked = [*losses[::SHOWN], losses[-1]]
            print(f"loss, {role}: {' '.join(f'{loss:.4f}' for loss in picked)}")
    if "difference" in found:
        print(f"largest relative difference of a step's losses: {found['difference']:.2g}")


def run(contenders: Sequence[Contender], options: argparse.Namespace) -> int:
    """Measures and shows everything; how much failed."""
    begun = time.monotonic()
    document: Answer = {"steps": []}
    try:
        for each in contenders:
            each.start(WORKER, "--model", options.model)
        for each in contenders:
            answers = each.attempt(each.answers, "start", STARTING)
            each.facts = answers[0] if answers else {}
        facts = max((each.facts for each in contenders), key=len)
        print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
        gradient_bytes = 4 * facts.get("parameters", 0)
        for tokens in options.tokens:
            alive = [each for each in contenders if not each.failure]
            if alive and alive[0] is contenders[0]:
                document["steps"].append(measure(alive, tokens, options))
        roles = [each.job.name for each in contenders]
        heads = ["tokens", *(f"{role} ms" for role in roles), *(f"/{role}" for role in roles[1:])]
        heads += ["compute ms", "gradients ms", "of least"]
        print_table(heads, (row(each, roles, gradient_bytes) for each in document["steps"]), 0)
        document["losses"] = compare_losses(contenders, options)
        show_losses(document["losses"])
        for each in contenders:
            each.end()
    finally:
        for each in contenders:
            each.kill()
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{os.cpu_count()} cores; medians of {options.repeats} rounds of the slowest rank; "
          f"{time.monotonic() - begun:.0f} s in all")  # fmt: skip
    failed = [each.name for each in contenders if each.failure]
    if document["losses"].get("difference", 0) > LARGEST_DIFFERENCE:
        failed.append("losses differ")
    for name in failed:
        print(f"FAILED  {name}: see above")
    return len(failed)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768],
                        help="of a rank in a step")  # fmt: skip
    parser.add_argument("--steps", type=int, default=5, help="in a round; Gloo does 2")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--loss-steps", type=int, default=200)
    parser.add_argument("--model", choices=("350M", "tiny"), default="350M")
    parser.add_argument("--devices", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all rounds here")
    options = parser.parse_args()
    refuse_without_settings()
    devices = ["cpu", "cpu"]
    if options.devices == "cuda":
        import torch

        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if len(devices) < 2:
            sys.exit("gpu_training.py: needs two GPUs; see --devices cpu")
    return int(run(contenders_of(devices), options) > 0)


if __name__ == "__main__":
    sys.exit(main())
