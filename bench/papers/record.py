"""A result: the findings of a run of an entry, and its machine; one JSON file each."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entry import Entry, Found, Number

import hetccl
import hetccl.machine

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs/papers"  # results of the tree, and their figures
BUSY = 0.15  # of the processors: a machine on which others work so much is loaded


def busy_share(seconds: float = 1.0) -> float:
    """Returns the busy part of the time of the processors that this process may use, measured while
    this process sleeps.
    """
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}

    def read() -> tuple[int, int]:
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        each = [[int(part) for part in row[1:9]] for row in rows if row and row[0] in own]
        return sum(map(sum, each)), sum(times[3] + times[4] for times in each)

    (before, idle_before) = read()
    time.sleep(seconds)
    (after, idle_after) = read()
    return 1 - (idle_after - idle_before) / max(1, after - before)


def versions() -> dict[str, str]:
    """Returns the versions that were measured: hetccl, its commit, torch, the GPUs."""
    import torch

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()  # fmt: skip
    found = {"hetccl": ".".join(map(str, hetccl.version())), "commit": commit or "unknown",
             "torch": torch.__version__}  # fmt: skip
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["GPUs"] = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def read_found(raw: dict[str, Any]) -> Found:
    """JSON has texts where a line has numbers."""
    lines = {name: {float(x): y for x, y in line.items()} for name, line in raw["series"].items()}
    return Found(raw["where"], raw["values"], lines, (raw["axes"][0], raw["axes"][1]))


@dataclass
class Record:
    """`runs` are two runs of the same measurement: their difference is the noise. `load` has the
    load average at the start, and the busy part of the processors before and after, while the
    measurement did not run."""

    entry: str
    date: str
    quick: bool
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    load: dict[str, float]
    runs: list[Found]

    @property
    def is_loaded(self) -> bool:
        """True if others worked on the machine."""
        return max(self.load["before"], self.load["after"]) > BUSY

    @property
    def command(self) -> str:
        """Repeats it."""
        return f"python bench/papers/run.py {self.entry}{' --quick' * self.quick}"

    def pairs(self) -> dict[str, tuple[float, float]]:
        """The numbers of both runs."""
        first, second = (run.values for run in self.runs)
        return {label: (float(one), float(second[label])) for label, one in first.items()
                if not isinstance(one, str)}  # fmt: skip

    def values(self) -> dict[str, Number | str]:
        """The mean of both runs."""
        means = {label: sum(both) / 2 for label, both in self.pairs().items()}
        return {**self.runs[0].values, **means}

    def noise(self) -> dict[str, float]:
        """The difference of both runs, as a part of the mean."""
        return {label: 2 * abs(one - other) / (abs(one + other) or 1.0)
                for label, (one, other) in self.pairs().items()}  # fmt: skip

    def to_json(self) -> str:
        """A file's text."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Returns the record in a file's text. Raises ValueError if there is none."""
        raw: dict[str, Any] = json.loads(text)
        try:
            runs = [read_found(run) for run in raw.pop("runs")]
            record = cls(runs=runs, **raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no result of an entry: {error}") from None
        if len(record.runs) != 2 or record.runs[0].values.keys() != record.runs[1].values.keys():
            raise ValueError("it has not two runs with the same values")
        return record


def read_all(folder: Path) -> dict[str, Record]:
    """The results of a folder by entry. Raises ValueError, which names the file."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = Record.from_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if record.entry != path.stem:
            raise ValueError(f"{path}: it is a result of {record.entry}")
        found[record.entry] = record
    return found


def start_record(entry: Entry, quick: bool) -> Record:
    """A record without runs: time, machine and load of now."""
    load = {"average": round(os.getloadavg()[0], 2), "before": round(busy_share(), 3), "after": 0.0}
    day = time.strftime("%Y-%m-%d")
    return Record(entry.name, day, quick, 0.0, hetccl.machine.facts(), versions(), load, [])
