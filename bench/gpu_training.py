"""The models of paper 000, trained by DDP or FSDP2 on GPUs of two clusters.

    python bench/gpu_training.py                                 on all GPUs of this machine
    python bench/gpu_training.py --model llama-1b --wrap fsdp2 --recompute --by memory --tokens
    python bench/gpu_training.py --devices cpu --model gpt-tiny  ranks of the host: to check this

hetccl, NCCL and Gloo train the same model on the same text, deterministically; they take turns at
some steps each. With `--roles hetccl online step` hetccl that searches settings by call and by step
(HETCCL_TUNE) takes turns, too, after `--search-steps` steps. Shown are a step's time, with DDP
beside the least that hetccl's own measured rate of all-reduce allows, and the losses. `--tokens`
without a number measures losses alone. Fails when
a process fails or hangs, when a loss of the first 200 steps differs by more than 1e-3 of it, or the
mean of the last ones by 7e-3 (paper 000, appendix E.2), not when hetccl is slow. Needs torch and
the hetccl package; `--draw` needs matplotlib.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_contender import (
    NCCL_SHARED_MEMORY,
    NCCL_SOCKETS,
    Answer,
    Contender,
    Job,
    halves,
    job,
    print_table,
    ratio,
    refuse_without_settings,
    slowest,
    text,
)
from models import PRECISIONS, SHAPES

ROLES = ("hetccl", "nccl", "gloo")
TUNED = ("online", "step")
CHUNK = 50  # steps of a search that are timed at once
WORKER = Path(__file__).parent / "gpu_training_worker.py"
STARTING = 120.0
PATIENCE = 90.0  # of an answer
LARGEST_DIFFERENCE = 7e-3  # of the mean losses of
LAST = 20  # steps
STEP_DIFFERENCE = 1e-3  # of a step's loss in the
FIRST = 200  # steps
SHOWN = 10  # losses are printed


def contenders_of(
    devices: Sequence[str], options: argparse.Namespace, folder: Path
) -> list[Contender]:
    """Returns the contenders, with half of the devices in each cluster or all in one. Searches keep
    files in `folder`.
    """
    labels, by_tcp = halves(len(devices)), options.by == "tcp"
    link = NCCL_SOCKETS if by_tcp else NCCL_SHARED_MEMORY
    apart = ("NCCL_HOSTID", labels) if by_tcp else ("", "")

    def ours(name: str, **env: str) -> Job:
        if options.together:
            return job("hetccl", devices, {"HETCCL_CLUSTER": "A", **link, **env}, *apart, name)
        env |= {"HETCCL_SHM": "0"} if by_tcp else {}
        return job("hetccl", devices, env, "HETCCL_CLUSTER", labels, name)

    jobs = {
        "hetccl": ours("hetccl"),
        "nccl": job("nccl", devices, link, *apart),
        "gloo": job("gloo", devices),
    }
    for mode in TUNED:
        file = str(folder / f"{mode}.json")
        jobs[mode] = ours(mode, HETCCL_TUNE=mode, HETCCL_TUNE_BUDGET="1000", HETCCL_TUNE_FILE=file)
    if "cpu" in devices:
        del jobs["nccl"]
    return [Contender("training", jobs[role]) for role in options.roles if role in jobs]


def search(contenders: Sequence[Contender], tokens: int, options: argparse.Namespace) -> Answer:
    """Returns the seconds of a step in each chunk of a search, by contender that tunes."""
    found: Answer = {}
    for each in contenders:
        if each.job.name not in TUNED:
            continue
        work = functools.partial(worst, each, "steps", tokens=tokens, times=CHUNK)
        chunks = [each.attempt(work) for _ in range(max(1, options.search_steps // CHUNK))]
        found[each.job.name] = [chunk["seconds"] for chunk in chunks if chunk is not None]
    return found


def worst(contender: Contender, do: str, **arguments: object) -> Answer:
    """Returns the slowest rank's seconds."""
    return slowest(contender.ask_at_once(PATIENCE, do=do, **arguments))


def measure(contenders: Sequence[Contender], tokens: int, options: argparse.Namespace) -> Answer:
    """Measures the seconds of a step by contender, in turns, and those of the step's parts."""
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
    if options.wrap == "fsdp2":
        return {"tokens": tokens, "rounds": rounds, "parts": None, "rate": None}
    parts = first.attempt(lambda: worst(first, "parts", tokens=tokens, times=options.steps))
    rate = first.attempt(lambda: worst(first, "rate"))
    return {"tokens": tokens, "rounds": rounds, "parts": parts, "rate": rate}


def row(measured: Answer, roles: Sequence[str], gradient_bytes: float) -> list[str]:
    """Returns a table's row: milliseconds of a step, the peers' time over hetccl's, and hetccl's
    time over the least possible.
    """
    rounds = measured["rounds"]
    steps = [statistics.median(rounds[role]) if rounds.get(role) else None for role in roles]
    cells = [str(measured["tokens"]), *(text(s and 1e3 * s) for s in steps)]
    cells += [text(ratio(theirs, steps[0])) for theirs in steps[1:]]
    parts, rate = measured["parts"], measured["rate"]
    if parts is None or rate is None:
        return [*cells, "-", "-", "-"]
    sent = gradient_bytes * rate["seconds"]
    least = max(parts["computed"] + parts["update"], parts["forward"] + parts["update"] + sent)
    return [*cells, text(1e3 * parts["computed"]), text(1e3 * sent), text(ratio(steps[0], least))]


def compare_losses(contenders: Sequence[Contender], options: argparse.Namespace) -> Answer:
    """Returns each backend's losses, and the relative difference of the last from hetccl's."""
    losses: dict[str, list[float]] = {}
    for each in contenders:
        patience = PATIENCE + 3 * options.loss_steps
        ask = functools.partial(each.ask, patience, do="losses", tokens=options.loss_tokens)
        got = each.attempt(functools.partial(ask, times=options.loss_steps))
        if got is not None:
            losses[each.job.name] = got[0]["losses"]
    last = {role: statistics.mean(values[-LAST:]) for role, values in losses.items() if values}
    first = next(iter(last), "")  # hetccl, where it takes part
    differences = {role: abs(one / last[first] - 1) for role, one in last.items()}
    steps = {
        role: max(
            abs(a / b - 1)
            for a, b in itertools.islice(zip(losses[role], losses[first], strict=True), FIRST)
        )
        for role in last
    }
    return {"losses": losses, "last": last, "differences": differences, "steps": steps}


def show_losses(found: Answer) -> None:
    """Prints a line for each backend."""
    for role, losses in found["losses"].items():
        picked = losses[:: max(1, len(losses) // SHOWN)]
        print(f"loss, {role}: {' '.join(f'{loss:.4f}' for loss in picked)}")
        difference = found["differences"].get(role)
        if difference is not None:
            mean = found["last"][role]
            most = found["steps"][role]
            print(f"    mean of the last steps: {mean:.5f}, {difference:.1e} from the first one's; "
                  f"a step's differ by {most:.1e} at most")  # fmt: skip


def draw_losses(path: Path, title: str, losses: dict[str, list[float]]) -> None:
    """Draws all curves in one plot, and the differences below it."""
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(7, 5), height_ratios=(2, 1)
    )
    styles = {"hetccl": {"linewidth": 2.5, "alpha": 0.5}}
    for role, values in losses.items():
        above.plot(values, label=role, **styles.get(role, {"linewidth": 0.8}))
        if role != "hetccl" and "hetccl" in losses:
            pairs = zip(values, losses["hetccl"], strict=True)
            below.plot([theirs - ours for theirs, ours in pairs], label=role, linewidth=0.8)
    above.set(title=title, ylabel="loss")
    above.legend()
    below.set(xlabel="step", ylabel="less hetccl's")
    figure.savefig(path, dpi=120, bbox_inches="tight")


def run(contenders: Sequence[Contender], options: argparse.Namespace) -> int:
    """Measures and shows everything. Returns the number of failures."""
    begun = time.monotonic()
    document: Answer = {"steps": []}
    try:
        for each in contenders:
            each.start(WORKER, *options.given)
        for each in contenders:
            answers = each.attempt(each.answers, "start", STARTING)
            each.facts = answers[0] if answers else {}
        facts = max((each.facts for each in contenders), key=len)
        print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
        gradient_bytes = 4 * facts.get("parameters", 0)
        for tokens in options.tokens:
            alive = [each for each in contenders if not each.failure]
            if alive and alive[0] is contenders[0]:
                searched = search(alive, tokens, options)
                document["steps"].append({"search": searched, **measure(alive, tokens, options)})
        roles = [each.job.name for each in contenders]
        heads = ["tokens", *(f"{role} ms" for role in roles), *(f"/{role}" for role in roles[1:])]
        heads += ["compute ms", "gradients ms", "of least"]
        if document["steps"]:
            print_table(heads, (row(each, roles, gradient_bytes) for each in document["steps"]), 0)
        document["losses"] = compare_losses(contenders, options)
        show_losses(document["losses"])
        for each in contenders:
            each.end()
    finally:
        for each in contenders:
            each.kill()
    if options.draw:
        draw_losses(options.draw, " ".join(options.given), document["losses"]["losses"])
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{os.cpu_count()} cores; medians of {options.repeats} rounds of the slowest rank; "
          f"{time.monotonic() - begun:.0f} s in all")  # fmt: skip
    failed = [each.name for each in contenders if each.failure]
    for role, difference in document["losses"]["differences"].items():
        most = document["losses"]["steps"][role]
        if not (difference < LARGEST_DIFFERENCE and most <= STEP_DIFFERENCE):
            failed.append(f"the losses of {role} and hetccl differ")
    for name in failed:
        print(f"FAILED  {name}: see above")
    return len(failed)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, nargs="*", default=[8192, 32768],
                        help="of a rank in a step")  # fmt: skip
    parser.add_argument("--steps", type=int, default=5, help="in a round; Gloo does 2")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--loss-steps", type=int, default=200)
    parser.add_argument("--loss-tokens", type=int, default=2048)
    parser.add_argument("--model", choices=SHAPES, default="gpt-355m")
    parser.add_argument("--wrap", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--recompute", action="store_true", help="activations, by blocks")
    parser.add_argument("--by", choices=("tcp", "memory"), default="tcp", help="between clusters")
    parser.add_argument("--roles", nargs="+", choices=(*ROLES, *TUNED), default=ROLES)
    parser.add_argument("--search-steps", type=int, default=1000, help="of the tuned, before")
    parser.add_argument("--together", action="store_true", help="in one cluster: NCCL is tuned")
    parser.add_argument("--devices", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all rounds here")
    parser.add_argument("--draw", type=Path, metavar="PATH", help="draw the losses here")
    options = parser.parse_args()
    options.given = ["--model", options.model, "--wrap", options.wrap]
    options.given += ["--precision", options.precision, *["--recompute"] * options.recompute]
    refuse_without_settings()
    devices = ["cpu", "cpu"]
    if options.devices == "cuda":
        import torch

        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if len(devices) < 2:
            sys.exit("gpu_training.py: needs two GPUs; see --devices cpu")
    with tempfile.TemporaryDirectory() as folder:
        return int(run(contenders_of(devices, options, Path(folder)), options) > 0)


if __name__ == "__main__":
    sys.exit(main())
