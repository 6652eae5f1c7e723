"""Steps of training by default, tuned by collective, and tuned by step (HETCCL_TUNE=online, =step).

    python bench/gpu_tuning.py                              on two GPUs, a cluster each
    python bench/gpu_tuning.py --together                   in one cluster: NCCL is tuned
    python bench/gpu_tuning.py --together --by sockets      in one cluster, whose link is slow
    python bench/gpu_tuning.py --devices cpu --model gpt-tiny --tokens 256   to check this script

A GPT is trained by DDP and by FSDP2: the same model on the same data. First the first 200 steps:
what tuning with its default budget loses there. Then settings are searched, with a budget for
demonstrations, into a fresh file each. Last, new jobs that use what the files say take turns with
one that tunes nothing. All losses are compared. Fails when a process fails or hangs, or losses
differ by more than 1e-3. Needs torch and the hetccl package, nothing else.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
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
    halves,
    job,
    refuse_without_settings,
)
from gpu_tuning_report import (
    MODES,
    compare_losses,
    show_first,
    show_settings,
    show_steps,
)

WORKER = Path(__file__).parent / "gpu_tuning_worker.py"
WRAPS = ("ddp", "fsdp2")
STARTING = 90.0
PATIENCE = 60.0  # of an answer
CHUNK = 50  # steps between two looks at the search
LINKS = {"nvlink": {}, "memory": NCCL_SHARED_MEMORY, "sockets": NCCL_SOCKETS}
WARM_UPS = 3  # steps of a round that do not count
LARGEST_DIFFERENCE = 1e-3


class Trained(Contender):
    """A job, and the loss of each of its steps."""

    def begin(self, tokens: int) -> None:
        """Joins."""
        self.losses: list[float] = []
        answers = self.attempt(functools.partial(self.ask, STARTING, do="begin", tokens=tokens))
        self.facts = answers[0] if answers else {}

    def train(self, steps: int) -> list[float]:
        """Milliseconds of each of the next steps, on the slower rank; empty where it has failed."""
        work = functools.partial(self.ask_at_once, PATIENCE, do="train", times=steps)
        answers = self.attempt(work)
        if answers is None:
            return []
        by_rank = zip(*(answer["losses"] for answer in answers), strict=True)
        self.losses += [sum(losses) / len(losses) for losses in by_rank]
        slowest: list[float] = max((answer["ms"] for answer in answers), key=sum)
        return slowest

    def tuning(self) -> Answer:
        """What rank 0 knows."""
        answers = self.attempt(functools.partial(self.ask, PATIENCE, do="tuning"))
        return answers[0] if answers else {}


class Study:
    """One way to share a model among ranks."""

    def __init__(self, wrap: str, folder: Path, options: argparse.Namespace) -> None:
        self.wrap = wrap
        self.folder = folder
        self.options = options
        self.default = self.job("default", HETCCL_TUNE="off")
        self.again = self.job("default again", HETCCL_TUNE="off")
        self.first = {mode: self.tuned(mode, f"{mode}-first", "2") for mode in MODES}
        budget = str(options.budget)
        self.searching = {mode: self.tuned(mode, mode, budget) for mode in MODES}
        self.frozen = {mode: self.tuned("frozen", mode, "2") for mode in MODES}
        self.document: Answer = {"wrap": wrap, "first": {}, "searches": {}, "rounds": {}}

    def job(self, name: str, **env: str) -> Trained:
        """Ranks of two clusters, or of one."""
        devices = self.options.ranks
        label = "HETCCL_CLUSTER"
        if self.options.together:
            env |= {label: "A", **LINKS[self.options.by]}
            label = "NCCL_HOSTID" if self.options.by == "sockets" else label
        same = self.options.together and self.options.by != "sockets"
        labels = "A" * len(devices) if same else halves(len(devices))
        return Trained(self.wrap, job("hetccl", devices, env, label, labels, name))

    def tuned(self, mode: str, file: str, budget: str) -> Trained:
        """One that tunes, and keeps what it finds in a file, or has it from there."""
        path = str(self.folder / f"{self.wrap}-{file}.json")
        env = {"HETCCL_TUNE_FILE": path, "HETCCL_TUNE_BUDGET": budget}
        return self.job(f"{mode} {file}", HETCCL_TUNE=mode, **env)

    def all(self) -> list[Trained]:
        """Every job."""
        groups = (self.first, self.searching, self.frozen)
        return [self.default, self.again, *(one for group in groups for one in group.values())]

    def measure_first(self) -> None:
        """The first steps of a job that tunes with the default budget, and of two that do not."""
        for name, each in {
            "default": self.default,
            **self.first,
            "default again": self.again,
        }.items():
            each.begin(self.options.tokens)
            took = each.train(self.options.first_steps)
            self.document["first"][name] = {"ms": took, "tuning": each.tuning()}
            if each is not self.default:
                each.end()

    def search(self, mode: str) -> None:
        """Trains until all keys are settled, or long enough."""
        each = self.searching[mode]
        each.begin(self.options.tokens)
        most = dict(zip(MODES, self.options.search_seconds, strict=True))
        deadline = time.monotonic() + most[mode]
        steps, known = 0, Answer()
        while not each.failure and steps < self.options.search_steps:
            each.train(CHUNK)
            steps += CHUNK
            known = each.tuning()
            over = all(key["state"] != "searching" for key in known.get("keys", []))
            if (over and steps >= 2 * CHUNK) or time.monotonic() > deadline:
                break
        each.train(2)  # a call after the last key has settled writes the file
        each.end()
        self.document["searches"][mode] = {**known, "steps": steps}

    def measure(self) -> None:
        """Steps of each in turns."""
        jobs = {"default": self.default, **self.frozen}
        for each in self.frozen.values():
            each.begin(self.options.tokens)
        rounds: dict[str, list[list[float]]] = {name: [] for name in jobs}
        for turn in range(self.options.repeats):
            shift = turn % len(jobs)
            for name in [*[*jobs][shift:], *[*jobs][:shift]]:
                took = jobs[name].train(self.options.steps + WARM_UPS)
                if took:
                    rounds[name].append(took[WARM_UPS:])
        self.document["rounds"] = rounds
        for each in jobs.values():
            each.end()

    def losses(self) -> dict[str, list[float]]:
        """Of each job."""
        return {each.job.name: getattr(each, "losses", []) for each in self.all()}


def study(one: Study) -> list[str]:
    """All of it; what failed."""
    begun = time.monotonic()
    options = one.options
    one.measure_first()
    facts = ", ".join(f"{name} {value}" for name, value in one.default.facts.items())
    print(f"{one.wrap}, {options.model}, {options.tokens} tokens a rank and step; {facts}")
    show_first(one.document["first"])
    for mode in MODES:
        one.search(mode)
    show_settings(one.document["searches"])
    sys.stdout.flush()
    one.measure()
    show_steps(one.document["rounds"])
    one.document["losses"] = one.losses()
    difference = compare_losses(one.losses())
    print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    failed = [each.name for each in one.all() if each.failure]
    return failed + [f"{one.wrap}: losses differ"] * (difference > LARGEST_DIFFERENCE)


def run(studies: Sequence[Study], options: argparse.Namespace) -> int:
    """All of them; how much failed."""
    everybody = [each for one in studies for each in one.all()]
    failed: list[str] = []
    begun = time.monotonic()
    try:
        for one in studies:
            for each in one.all():
                each.start(WORKER, "--model", options.model, "--wrap", one.wrap)
        for each in everybody:
            each.attempt(each.answers, "start", STARTING)
        print(f"{os.cpu_count()} cores; started in {time.monotonic() - begun:.0f} s", flush=True)
        for one in studies:
            failed += study(one)
            if options.json:
                whole = [each.document for each in studies]
                options.json.write_text(json.dumps(whole) + "\n")
    finally:
        for each in everybody:
            each.kill()
    for name in failed:
        print(f"FAILED  {name}: see above")
    return len(failed)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=WRAPS)
    parser.add_argument("--together", action="store_true", help="in one cluster")
    parser.add_argument("--by", choices=LINKS, default="nvlink", help="NCCL's link in one cluster")
    parser.add_argument("--tokens", type=int, default=8192, help="of a rank in a step")
    parser.add_argument("--first-steps", type=int, default=200)
    parser.add_argument("--search-steps", type=int, default=3000, help="at most, of each search")
    parser.add_argument("--search-seconds", type=float, nargs=2, default=[60, 60],
                        help="at most: by collective, by step")  # fmt: skip
    parser.add_argument("--budget", type=int, default=1000, help="of the searches, in percent")
    parser.add_argument("--steps", type=int, default=15, help="in a round")
    parser.add_argument("--repeats", type=int, default=16, help="rounds")
    parser.add_argument("--model", choices=("gpt-355m", "gpt-125m", "gpt-tiny"), default="gpt-125m")
    parser.add_argument("--devices", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all steps here")
    return parser.parse_args()


def main() -> int:
    """The command line."""
    options = arguments()
    refuse_without_settings()
    options.ranks = ["cpu", "cpu"]
    if options.devices == "cuda":
        import torch

        count = torch.cuda.device_count()
        if count == 0:
            sys.exit("gpu_tuning.py: needs a GPU, better two; see --devices cpu")
        options.ranks = [f"cuda:{i % count}" for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        wraps = [options.only] if options.only else WRAPS
        studies = [Study(wrap, Path(folder), options) for wrap in wraps]
        return int(run(studies, options) > 0)


if __name__ == "__main__":
    sys.exit(main())
