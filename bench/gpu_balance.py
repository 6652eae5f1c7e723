"""Training on unlike GPUs: equal shares, and shares by profiles (paper 000, table 4).

    python bench/gpu_balance.py                                   on all GPUs of this machine
    python bench/gpu_balance.py --devices cpu --models gpt-tiny --batch 8   to check this script

Two clusters; NVIDIA's Multi-Process Service (MPS) leaves the ranks of the second one a part of
their GPU's processors. Models are sharded by FSDP2, which is ZeRO's stage 3. Efficiency is as in
section 5.3: samples per second over the sum of what the clusters reach alone, each with its share.
Needs torch and the hetccl package.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpu_contender import (
    Answer,
    Contender,
    ContenderError,
    halves,
    job,
    print_table,
    refuse_without_settings,
    slowest,
    text,
)
from models import PRECISIONS, SHAPES

WORKER = Path(__file__).parent / "gpu_balance_worker.py"
PATIENCE = 150.0  # of an answer
PART = 50  # percent of a GPU's processors, of the slow cluster's ranks
BATCHES = {"gpt-125m": 96, "gpt-355m": 48, "llama-1b": 12, "llama-3b": 12}  # on two GPUs


@contextlib.contextmanager
def shared_gpus() -> Iterator[dict[str, str]]:
    """Runs MPS with a folder of its own. Yields the environment of its clients."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        control = ["nvidia-cuda-mps-control"]
        everything = {**os.environ, **env}
        try:
            subprocess.run([*control, "-d"], env=everything, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"gpu_balance.py: the Multi-Process Service does not start: {error}")
        try:
            yield env
        finally:
            subprocess.run(control, input="quit\n", text=True, env=everything, timeout=30)


class Cluster:
    """Ranks that get a given part of their GPUs, and the letters of these ranks."""

    def __init__(self, devices: list[str], env: dict[str, str]) -> None:
        self.devices, self.env = devices, env
        self.letters = halves(len(devices))

    def start(self, letters: str, options: argparse.Namespace, model: str) -> Contender:
        """Starts the job of the ranks that have one of these letters. Raises ContenderError."""
        ranks = [rank for rank, letter in enumerate(self.letters) if letter in letters]
        labels = "".join(self.letters[rank] for rank in ranks)
        made = job(
            "hetccl", [self.devices[rank] for rank in ranks], self.env, "HETCCL_CLUSTER", labels
        )
        for label, own in zip(labels, made.env, strict=True):
            own["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 if label == "A" else PART)
        contender = Contender(f"{model}, {labels}", made)
        given = ["--model", model, "--wrap", options.wrap, "--precision", options.precision]
        contender.start(WORKER, *given, "--recompute")
        contender.facts = contender.answers("start", PATIENCE)[0]
        return contender


def ask(contender: Contender, **command: object) -> Answer:
    """Returns the slowest rank's times, and the rest of the first rank's answer."""
    answers = contender.ask(PATIENCE, **command)
    most = slowest([{"seconds": answer["seconds"]} for answer in answers])
    return {**answers[0], **most}


def measure(cluster: Cluster, options: argparse.Namespace, model: str) -> Answer:
    """Measures the seconds of a model's steps, with equal and with balanced shares. Raises
    ContenderError.
    """
    batch = options.batch or BATCHES[model] * len(cluster.devices) // 2
    running: list[Contender] = []
    try:
        running.append(cluster.start("AB", options, model))
        work = functools.partial(ask, running[0], do="train", batch=batch, times=options.steps)
        profiled = ask(running[0], do="profile", limit=batch)
        equal, balanced = work(shares="equal"), work(shares="profiles")
        running[0].end()
        rate = 0.0
        for letter in "AB":
            pairs = zip(cluster.letters, balanced["shares"], strict=True)
            share = sum(one for label, one in pairs if label == letter)
            running.append(cluster.start(letter, options, model))
            alone = ask(
                running[-1], do="train", batch=share, shares="equal", times=options.steps,
                count=balanced["count"],
            )  # fmt: skip
            rate += share / alone["seconds"]
            running[-1].end()
    finally:
        for each in running:
            each.kill()
    return {
        "model": model, "batch": batch, "shares": balanced["shares"], "count": balanced["count"],
        "equal": equal["seconds"], "balanced": balanced["seconds"], "alone": rate,
        "profile": profiled["seconds"],
    }  # fmt: skip


def row(found: Answer) -> list[str]:
    """Returns a row of the table."""
    batch, equal, balanced = found["batch"], found["equal"], found["balanced"]
    shares = "/".join(map(str, found["shares"]))
    return [
        found["model"], str(batch), f"{shares} x{found['count']}", text(1e3 * equal),
        text(1e3 * balanced), text(equal / balanced), f"{batch / equal / found['alone']:.3f}",
        f"{batch / balanced / found['alone']:.3f}", text(found["profile"]),
    ]  # fmt: skip


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=[*BATCHES])
    parser.add_argument("--batch", type=int, help="samples of a step, over all ranks")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--wrap", choices=("ddp", "fsdp2"), default="fsdp2")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp16")
    parser.add_argument("--devices", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers here")
    options = parser.parse_args()
    refuse_without_settings()
    unknown = [model for model in options.models if model not in BATCHES and not options.batch]
    if unknown:
        parser.error(f"--batch is needed for {unknown[0]}")
    devices, shared = ["cpu", "cpu"], contextlib.nullcontext({})
    if options.devices == "cuda":
        import torch

        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        shared = shared_gpus()
        if len(devices) < 2:
            sys.exit("gpu_balance.py: needs two GPUs; see --devices cpu")
    found: list[Answer] = []
    failed = 0
    with shared as env:
        for model in options.models:
            try:
                found.append(measure(Cluster(devices, env), options, model))
                print(*row(found[-1]), flush=True)
            except ContenderError as error:
                failed += 1
                print(f"FAILED  {model}: {error}", flush=True)
    heads = ["model", "batch", "shares", "equal ms", "balanced ms", "faster",
             "efficiency, equal", "balanced", "profile s"]  # fmt: skip
    print_table(heads, map(row, found), 3)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
