"""Measures the claims of the figures and tables of five papers, as far as this machine can.

    python bench/papers/run.py --list
    python bench/papers/run.py 000-figure-7 001-figure-15 --quick
    python bench/papers/run.py --write        # docs/papers.md, figures: from the tree's results

Each entry runs twice in a process of its own, within a deadline, and leaves NAME.json and NAME.svg
in --json FOLDER. An entry that takes what is not here is skipped, and says what. The exit status is
1 if an entry failed or was late.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import paper000  # noqa: E402
import paper001  # noqa: E402
import paper002  # noqa: E402
import paper003  # noqa: E402
import paper004  # noqa: E402
from entry import Entry, Found, MissingError  # noqa: E402
from mpis import run_job  # noqa: E402
from record import KEPT, ROOT, Record, busy_share, read_all, start_record  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

from hetccl.files import write_text  # noqa: E402

PAGE = KEPT.with_suffix(".md")
ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for paper in (paper000, paper001, paper002, paper003, paper004)
    for entry in paper.ENTRIES
}


class EntryError(RuntimeError):
    """An entry failed, or was late."""


def measure_in_child(entry: Entry, quick: bool, path: Path) -> None:
    """Measures twice, and writes the runs, or the reason why something is missing."""
    try:
        runs = [vars(entry.measure(quick)) for _ in range(2)]
        path.write_text(json.dumps({"runs": runs}))
    except MissingError as missing:
        path.write_text(json.dumps({"missing": str(missing)}))


def measure(entry: Entry, quick: bool) -> Record:
    """Returns a result. Raises MissingError, or EntryError with the end of the process's output."""
    record = start_record(entry, quick)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.json"
        argv = [sys.executable, sys.argv[0], "--child", str(path), entry.name, *["--quick"] * quick]
        status, said = run_job(argv, os.environ, entry.deadline)
        if status is None:
            raise EntryError(f"late: not done within {entry.deadline:.0f} s")
        if status or not path.exists():
            raise EntryError(f"exit status {status}: {said.strip()[-1500:]}")
        found = json.loads(path.read_text())
    if "missing" in found:
        raise MissingError(found["missing"])
    record.seconds = round(time.monotonic() - begun, 1)
    record.load["after"] = round(busy_share(), 3)
    record.runs = [Found(**run) for run in found["runs"]]
    try:
        return Record.from_json(record.to_json())
    except ValueError as error:  # a contender was lost in one of the runs
        raise EntryError(f"{error}: {said.strip()[-1500:]}") from None


def measure_all(chosen: Mapping[str, Entry], quick: bool, folder: Path, console: Console) -> int:
    """Measures and draws. Returns how many entries failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, entry in chosen.items():
        try:
            record = measure(entry, quick)
        except MissingError as missing:
            console.print(f"{name}: skipped: {missing}", style="yellow", markup=False)
            continue
        except EntryError as error:
            console.print(f"{name}: FAILED: {error}", style="red", markup=False)
            failed += 1
            continue
        write_text(folder / f"{name}.json", record.to_json())
        if importlib.util.find_spec("matplotlib") is not None:
            draw_figure(entry, record, folder)
        show(entry, record, console)
    return failed


def draw_figure(entry: Entry, record: Record, folder: Path) -> None:
    """Draws the figure, if the entry has one. Needs matplotlib, which measuring does not."""
    from draw import draw, has_figure

    if has_figure(entry, record):
        draw(entry, record, folder / f"{entry.name}.svg")


def show(entry: Entry, record: Record, console: Console) -> None:
    """Prints the values beside the paper's."""
    loaded = ", machine was loaded" if record.is_loaded else ""
    console.print(f"{entry.name}: {record.runs[0].where}; {record.seconds:.0f} s{loaded}",
                  markup=False)  # fmt: skip
    noise = record.noise()
    for label, value in record.values().items():
        told = value if isinstance(value, str) else f"{value:.4g} +- {noise[label]:.0%}"
        paper = entry.paper_values.get(label, "-")
        beside = paper if isinstance(paper, str) else f"{paper:.4g}"
        console.print(f"    {label}: {told}; paper {beside}", markup=False)


def write_page() -> None:
    """Writes docs/papers.md and draws the figures, both from the results of the tree."""
    from page import make_page

    records = read_all(KEPT)
    write_text(PAGE, make_page(ENTRIES, records))
    for name, record in records.items():
        draw_figure(ENTRIES[name], record, KEPT)


def show_entries(console: Console) -> None:
    """Prints the registry."""
    table = Table("entry", "s, twice", "GPUs", "result", "claim", box=None, header_style="dim")
    kept = read_all(KEPT)
    for name, entry in ENTRIES.items():
        state = kept[name].date if name in kept else entry.lacking
        table.add_row(
            name, str(2 * entry.seconds), str(entry.gpus or "-"), state, Text(entry.claim)
        )
    console.print(table)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("entries", nargs="*", metavar="ENTRY", help="all, if there is none")
    parser.add_argument("--list", action="store_true", help="show entries, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="small sizes, few steps")
    parser.add_argument("--json", type=Path, metavar="FOLDER", default=ROOT / "build/papers",
                        help="of results and figures; docs/papers keeps them")  # fmt: skip
    parser.add_argument("--write", action="store_true",
                        help="write docs/papers.md; without an ENTRY measure nothing")  # fmt: skip
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.entries:
        if name not in ENTRIES:
            parser.error(f"there is no entry {name}: see --list")
    return options


def main() -> int:
    """Returns 1 if an entry failed or was late."""
    options = arguments()
    chosen = {name: ENTRIES[name] for name in options.entries} or ENTRIES
    if options.child:
        measure_in_child(next(iter(chosen.values())), options.quick, options.child)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        show_entries(console)
        return 0
    failed = 0
    if options.entries or not options.write:
        failed = measure_all(chosen, options.quick, options.json, console)
    if options.write:
        write_page()
    return int(failed > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up
    sys.exit(main())
