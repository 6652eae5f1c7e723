"""Plain NCCL, NCCL with hetccl's tuner plug-in, and the best of an exhaustive search; alone, and
beside products of matrices on the same GPU. Several ranks share a GPU where there are few.

    python bench/nccl_tuner.py --plugin build/dev/compat/nccl-tuner/libnccl-tuner-hetccl.so

NCCL takes the ranks for hosts of their own (NCCL_HOSTID), and they talk by sockets. Each setting is
served by the plug-in from a file, to a communicator of its own: that is the exhaustive search. A
setting that NCCL cannot run, or that asks for more channels than there are, is one more measurement
of another setting. The best few take turns, since some of so many are fast by luck. Then NCCL's own
choices and the plug-in's with the best settings do; NCCL's own are measured twice, on a
communicator each ("again"): nothing smaller than the difference of the two is a finding. With
--online a job searches while it runs, and is compared with NCCL's choices; so is the same job
without a search. That needs the hetccl package. Less than 4 minutes without --online. Needs torch
for CUDA, and the three settings that keep NVLink's multicast off.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from gpu_contender import (
    EVERYBODY,
    NCCL_SOCKETS,
    Contender,
    ContenderError,
    job,
    print_table,
    ratio,
    refuse_without_settings,
    slowest,
    text,
)

WORKER = Path(__file__).parent / "nccl_tuner_worker.py"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SIZES = {"64K": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}
PROTOCOLS, CHANNELS = ("simple", "ll", "ll128"), (1, 2, 4, 8)
FINALISTS = 3  # of the exhaustive search, for each cell
LONGEST_US = 60_000  # of calls in a row
TIMES = (3, 100)  # of a call in a row
ROUNDS = 10
FNV_BASIS, FNV_PRIME, MASK = 14_695_981_039_346_656_037, 1_099_511_628_211, (1 << 64) - 1

Cell = tuple[str, int, bool]  # a collective, the bytes of its larger buffer, beside the load
Setting = dict[str, Any]


def place(ranks: int, nodes: int) -> tuple[str, str]:
    """Returns the key and the summary of such communicators in a tuning file:
    compat/nccl-tuner/calls.cc.
    """
    summary = f"nccl: {ranks} ranks on {nodes} nodes"
    digest = FNV_BASIS
    for byte in summary.encode():
        digest = (digest ^ byte) * FNV_PRIME & MASK
    return f"{digest:016x}", summary


def entry(collective: str, size: int, ranks: int, setting: Setting) -> dict[str, Any]:
    """Returns an entry of a tuning file. Its times are not measured."""
    block = size if collective == "all_reduce" else size // ranks
    key = {"collective": collective, "size_class": (block - 1).bit_length()}
    if collective != "all_gather":
        key["element_bytes"] = 1
    digest, summary = place(ranks, ranks)
    return {
        "key": key, "setting": {"algorithm": "vendor", **setting}, "bytes": block, "us": 1,
        "default_us": 1, "trials": 1, "place": digest, "summary": summary, "time": 1,
    }  # fmt: skip


def grid() -> list[dict[str, Setting]]:
    """Returns the steps of the exhaustive search. Each has a setting for each collective, or for
    some of them.
    """

    def setting(algorithm: str, protocol: str, channels: int) -> Setting:
        return {
            "nccl_algorithm": algorithm, "nccl_protocol": protocol, "nccl_channels": channels,
        }  # fmt: skip

    tried: list[dict[str, Setting]] = [{name: {} for name in COLLECTIVES}]
    for protocol, channels in itertools.product(PROTOCOLS, CHANNELS):
        tried.append({name: setting("ring", protocol, channels) for name in COLLECTIVES})
    for protocol, channels in itertools.product(PROTOCOLS, CHANNELS):
        tried.append({"all_reduce": setting("tree", protocol, channels)})
        if protocol == "simple":
            pat = setting("pat", protocol, channels)
            tried[-1].update({"all_gather": pat, "reduce_scatter": pat})
    return tried


# Helper threads, 4 for each connection, would outnumber the processors by far.
CALM = {"NCCL_SOCKET_NTHREADS": "0", "NCCL_NSOCKS_PERTHREAD": "1"}


class Bench:
    """A job of NCCL ranks, and its results."""

    def __init__(self, ranks: int, devices: list[str], env: dict[str, str], folder: Path) -> None:
        self.ranks, self.folder = ranks, folder
        self.cells: list[Cell] = [
            (name, size, loaded)
            for loaded, name, size in itertools.product((False, True), COLLECTIVES, SIZES.values())
        ]
        hosts = "ABCDEFGH"[:ranks]
        self.job = Contender(
            "nccl", job("nccl", devices, {**NCCL_SOCKETS, **CALM, **env}, "NCCL_HOSTID", hosts)
        )
        self.times: dict[Cell, int] = {}
        self.n_files = 0

    def start(self) -> dict[str, Any]:
        """Starts the ranks. Returns facts about the machine."""
        self.job.start(WORKER, "--bytes", str(max(SIZES.values())))
        return self.job.answers("start", 60)[0]

    def open(self, name: str, entries: list[dict[str, Any]]) -> None:
        """Opens a communicator that the plug-in serves from these entries."""
        self.n_files += 1  # the plug-in reads a file once
        file = self.folder / f"{self.n_files}.json"
        file.write_text(json.dumps({"hetccl_tuning": 1, "entries": entries}))
        self.job.ask(40, do="open", name=name, file=str(file))

    def close(self, name: str) -> None:
        """Ends the communicator."""
        self.job.ask(40, do="close", name=name)

    def measure(self, name: str, cell: Cell) -> float:
        """Returns the microseconds of a call on its slowest rank."""
        collective, size, loaded = cell

        def once(times: int) -> float:
            answers = self.job.ask(
                40, do="measure", name=name, collective=collective, size=size, times=times,
                loaded=loaded,
            )  # fmt: skip
            return float(slowest(answers)["us"])

        if cell not in self.times:
            least, most = TIMES
            self.times[cell] = int(min(max(LONGEST_US / once(least), least), most))
        return once(self.times[cell])

    def sweep(self, seconds: float) -> dict[Cell, list[Setting]]:
        """Returns each cell's settings, the fastest first. NCCL's own choice is one of them."""
        found: dict[Cell, list[tuple[float, Setting]]] = {cell: [] for cell in self.cells}
        all_settings = grid()
        deadline = time.monotonic() + seconds
        for number, settings in enumerate(all_settings):
            if number >= FINALISTS and time.monotonic() > deadline:
                print(f"the sweep ends early, after {number} of {len(all_settings)} settings")
                break
            self.open("sweep", self.entries({cell: settings.get(cell[0]) for cell in self.cells}))
            for cell in self.cells:
                if (setting := settings.get(cell[0])) is not None:
                    found[cell].append((self.measure("sweep", cell), setting))
            self.close("sweep")
        return {
            cell: [setting for _, setting in sorted(times, key=lambda one: one[0])]
            for cell, times in found.items()
        }

    def entries(self, settings: dict[Cell, Setting | None]) -> list[dict[str, Any]]:
        """Returns the entries of a tuning file, for all cells that are not left to NCCL."""
        return [
            entry(cell[0], cell[1], self.ranks, setting)
            for cell, setting in settings.items()
            if setting
        ]

    def compare(self, groups: dict[str, str], cells: list[Cell]) -> dict[str, dict[Cell, float]]:
        """Returns the medians of communicators that take turns. `groups` has the communicators'
        names, by label.
        """
        times: dict[str, dict[Cell, list[float]]] = {
            what: {cell: [] for cell in cells} for what in groups
        }
        for number in range(ROUNDS):
            turns = list(groups.items())[:: -1 if number % 2 else 1]
            for cell in cells:
                for what, name in turns:
                    times[what][cell].append(self.measure(name, cell))
        return {
            what: {cell: median(all_times) for cell, all_times in by_cell.items()}
            for what, by_cell in times.items()
        }


def words(setting: Setting) -> str:
    """Returns a setting in words, such as "ring simple 8"."""
    return " ".join(map(str, setting.values())) or "NCCL's own"


def row(cell: Cell, *numbers: str) -> tuple[str, ...]:
    """Returns a line of a table."""
    sizes = {size: name for name, size in SIZES.items()}
    return cell[0], sizes[cell[1]], "matmul" if cell[2] else "-", *numbers


def served(bench: Bench, seconds: float, json_path: Path | None = None) -> None:
    """Runs the sweep, then measures NCCL's choices beside those that the plug-in serves."""
    found = bench.sweep(seconds)
    best: dict[Cell, tuple[float, Setting]] = {}
    results: dict[str, dict[Cell, float]] = {"nccl": {}, "plug-in": {}, "again": {}}
    for loaded in (False, True):
        cells = [cell for cell in bench.cells if cell[2] == loaded]
        names = [f"final{place}" for place in range(FINALISTS)]
        for place, name in enumerate(names):
            bench.open(name, bench.entries({cell: found[cell][place] for cell in cells}))
        finals = bench.compare(dict(zip(names, names, strict=True)), cells)
        for cell in cells:
            place = min(range(FINALISTS), key=lambda one: finals[names[one]][cell])
            best[cell] = finals[names[place]][cell], found[cell][place]
        for name in names:
            bench.close(name)
        bench.open("own", [])
        bench.open("served", bench.entries({cell: best[cell][1] for cell in cells}))
        bench.open("again", [])
        groups = {"nccl": "own", "plug-in": "served", "again": "again"}
        for what, times in bench.compare(groups, cells).items():
            results[what].update(times)
        for name in groups.values():
            bench.close(name)
    head = ("collective", "bytes", "beside", "NCCL us", "again us", "plug-in us", "best us",
            "NCCL/again", "NCCL/plug-in", "best setting")  # fmt: skip
    rows = []
    for cell in bench.cells:
        own, again, ours = (results[what][cell] for what in ("nccl", "again", "plug-in"))
        numbers = (own, again, ours, best[cell][0], ratio(own, again), ratio(own, ours))
        rows.append(row(cell, *map(text, numbers), words(best[cell][1])))
    print_table(head, rows, 3)
    if json_path is not None:
        names = ("collective", "bytes", "loaded")
        document = [
            dict(zip(names, cell, strict=True)) | {what: by[cell] for what, by in results.items()}
            for cell in bench.cells
        ]
        json_path.write_text(json.dumps(document, indent=1) + "\n")


def online(bench: Bench, seconds: float, loaded: bool) -> None:
    """Searches on the job's first communicator, which then takes turns with NCCL's choices."""
    cells = [cell for cell in bench.cells if cell[1] == SIZES["64K"] and cell[2] == loaded]
    for cell in cells if seconds else []:
        deadline = time.monotonic() + seconds
        bench.measure("world", cell)
        while time.monotonic() < deadline:
            bench.measure("world", cell)
    bench.open("own", [])
    bench.open("again", [])
    results = bench.compare({"nccl": "own", "online": "world", "again": "again"}, cells)
    rows = []
    for cell in cells:
        own, again, ours = (results[what][cell] for what in ("nccl", "again", "online"))
        numbers = (own, again, ours, ratio(own, again), ratio(own, ours))
        rows.append(row(cell, *map(text, numbers)))
    print(f"searched while it ran, {seconds:.0f} s each:" if seconds else "not searched:")
    head = ("collective", "bytes", "beside", "NCCL us", "again us", "world us", "NCCL/again",
            "NCCL/world")  # fmt: skip
    print_table(head, rows, 3)


def print_learnt(file: Path) -> None:
    """Prints the results of the searches that have ended."""
    for one in json.loads(file.read_text())["entries"] if file.exists() else []:
        setting = {name: value for name, value in one["setting"].items() if name != "algorithm"}
        print(f"  learnt: {one['key']['collective']} of {one['bytes']} bytes: {words(setting)}, "
              f"{text(one['us'])} us, {one['trials']} trials")  # fmt: skip


def find_plugin(given: Path | None) -> Path:
    """Returns the path of the plug-in: the named one, or that of the installed package."""
    if given is None:
        try:
            from hetccl.tuned import PLUGIN
        except ImportError:
            sys.exit("nccl_tuner.py: no hetccl package here: name the library with --plugin")
        given = PLUGIN
    if not given.is_file():
        sys.exit(f"nccl_tuner.py: there is no {given}")
    return given.resolve()


def run(options: argparse.Namespace, env: dict[str, str], what: Any, seconds: float) -> bool:
    """Runs one job. Returns whether it succeeded."""
    import torch

    count = max(torch.cuda.device_count(), 1)
    devices = [f"cuda:{rank % count}" for rank in range(options.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        file = {"HETCCL_TUNE_FILE": str(Path(folder) / "learnt.json")}
        bench = Bench(options.ranks, devices, {**env, **file}, Path(folder))
        try:
            facts = bench.start()
            print(f"{options.ranks} ranks on {min(count, options.ranks)} x {facts['device']}, "
                  f"NCCL {facts['nccl']}, torch {facts['torch']}", flush=True)  # fmt: skip
            what(bench, seconds)
        except ContenderError as error:
            bench.job.fail(str(error))
        bench.job.end()
        print_learnt(bench.folder / "learnt.json")  # written when the communicator ends
        return not bench.job.failure


def main() -> int:
    """Returns 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--plugin", type=Path, help="libnccl-tuner-hetccl.so")
    parser.add_argument("--ranks", type=int, default=4, choices=range(2, 9))
    parser.add_argument(
        "--seconds", type=float, default=100, help="of the exhaustive search; 0: none"
    )
    parser.add_argument("--online", type=float, default=0, metavar="SECONDS", help="for each cell")
    parser.add_argument("--json", type=Path, metavar="PATH", help="of the exhaustive search")
    options = parser.parse_args()
    refuse_without_settings()
    env = {"NCCL_TUNER_PLUGIN": str(find_plugin(options.plugin))}
    from_file = {**env, "HETCCL_TUNE": "frozen"}
    work = functools.partial(served, json_path=options.json)
    well = options.seconds <= 0 or run(options, from_file, work, options.seconds)
    if options.online:
        import hetccl

        os.environ["HETCCL_SOCKET_IFNAME"] = EVERYBODY["HETCCL_SOCKET_IFNAME"]  # where ranks meet
        for loaded in (False, True):
            search = functools.partial(online, loaded=loaded)
            well &= run(options, env, search, 0)
            searched = {"HETCCL_TUNER_ID": hetccl.unique_id().hex(), "HETCCL_TUNE_BUDGET": "10000"}
            well &= run(options, {**env, **searched}, search, options.online)
    return 0 if well else 1


if __name__ == "__main__":
    os.environ.pop("HETCCL_TUNER_ID", None)
    sys.exit(main())
