"""docs/papers.md: every claim, the paper's value and ours, from the results of the tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from draw import has_figure
from entry import PAPERS, Entry, Number
from record import Record

HEAD = """# The papers' figures and tables

`python bench/papers/run.py --write` makes this page from `docs/papers/*.json`. Each of those files
is the result of a run, with machine, versions and load; nothing is written by hand.

    python bench/papers/run.py --list                        # entries, what they take, how long
    python bench/papers/run.py 000-figure-7 --quick          # measures one
    python bench/papers/run.py 000-figure-7 --json docs/papers --write    # and keeps it here

Every measurement is made twice. *Here* is the mean, and *noise* the largest difference of the two,
as a part of it. **machine was loaded** marks results that were measured while others worked on the
machine: their times say little. **quick** marks short runs. *Also* leads to more of our numbers,
those of machines with GPUs among them, which these entries did not measure.
"""
CANNOT = """## What the hardware here cannot show

| paper | entry | what is missing |
| --- | --- | --- |
"""


def value_text(value: Number | str) -> str:
    """Three digits."""
    return value if isinstance(value, str) else f"{value:.3g}"


def values_text(values: Mapping[str, Number | str], unit: str) -> str:
    """A cell: each label with its value."""
    if not values:
        return "no number in its text"
    parts = [f"{label}: {value_text(value)}" for label, value in values.items()]
    return "; ".join(parts) + (f" ({unit})" if unit else "")


def marks(record: Record) -> str:
    """Returns the reservations about a result: a quick run, a loaded machine."""
    words = ["**quick**"] * record.quick + ["**machine was loaded**"] * record.is_loaded
    return ", ".join(words)


def own_text(entry: Entry, record: Record | None) -> str:
    """A cell: our values, or the reason why there are none."""
    page = f"; also [{entry.page}]({entry.page}.md)" if entry.page else ""
    if record is None:
        return entry.lacking + page
    noise = max(record.noise().values(), default=0.0)
    told = [values_text(record.values(), entry.unit)]
    told += [f"noise {noise:.0%}"] if record.noise() else []
    told += [marks(record)] if marks(record) else []
    return "; ".join(told) + page


def rows(entries: list[Entry], records: Mapping[str, Record]) -> Iterator[str]:
    """The table of a paper."""
    yield "| | claim | paper | here |"
    yield "| --- | --- | --- | --- |"
    for entry in entries:
        paper = values_text(entry.paper_values, entry.unit)
        here = own_text(entry, records.get(entry.name))
        yield f"| {entry.piece} | {entry.claim} | {paper} | {here} |"


def details(entry: Entry, record: Record) -> Iterator[str]:
    """Yields the command, the machine and the figure."""
    yield f"### {entry.paper}, {entry.piece}"
    yield ""
    yield f"{entry.measured} Ran: {record.runs[0].where}."
    yield ""
    machine = record.machine
    told = ", ".join(f"{name} {value}" for name, value in record.versions.items())
    marked = (
        f" {marks(record)}: load average {record.load['average']:.1f}." if marks(record) else ""
    )
    yield (
        f"`{record.command}`, {record.date}, {record.seconds:.0f} s: {machine['processor']}; "
        f"{machine['system']}; {told}.{marked}"
    )
    yield ""
    if has_figure(entry, record):
        yield f"![Paper {entry.paper}, {entry.piece}](papers/{entry.name}.svg)"
        yield ""


def make_page(entries: Mapping[str, Entry], records: Mapping[str, Record]) -> str:
    """Returns the page's text. Raises ValueError if a result has no entry."""
    if unknown := sorted(set(records) - set(entries)):
        raise ValueError(f"{unknown[0]}: the registry has no such entry")
    lines = [HEAD]
    for paper, title in PAPERS.items():
        own = [entry for entry in entries.values() if entry.paper == paper]
        if not own:
            continue
        lines += [f"## {paper}: {title}", "", *rows(own, records), ""]
        for entry in own:
            if entry.name in records:
                lines += details(entry, records[entry.name])
    missing = [f"| {entry.paper} | {entry.piece} | {entry.limits} |" for entry in entries.values()]
    return "\n".join(lines) + "\n" + CANNOT + "\n".join(missing) + "\n"
