"""nccl-tests' table, column for column, so that scripts which read it read this."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from hetccl.bench.measure import Report, Row, Timing
from hetccl.bench.operations import CASES
from hetccl.bench.options import Options
from hetccl.bench.regression import LEAST_SIZES
from hetccl.units import duration, ranges

_NCCL_TYPES = {
    "float16": "half", "float32": "float", "float64": "double", "float8_e4m3": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}  # fmt: skip


def _devices(topology: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each run of ranks whose devices are alike."""
    told = ((rank["rank"], f"{rank['vendor']} {rank['model']}".strip()) for rank in
            topology["ranks"])  # fmt: skip
    for device, alike in groupby(told, key=lambda one: one[1]):
        yield f"# ranks {ranges(rank for rank, _ in alike)}: {device}"


def header(options: Options, topology: dict[str, Any], labels: list[str]) -> str:
    """The lines above the table. `topology` is the communicator's."""
    clusters = f" in clusters {' '.join(labels)}" if any(labels) else ""
    place = f"{'out-of-place':>28}{'':17}{'in-place':>14}"
    names = f"{'time':>7}  {'algbw':>6}  {'busbw':>6} {'#wrong':>6}"
    units = f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6} {'':6}"
    predicted = ("", "")
    if options.predict:
        predicted = (f"  predicted  {'alone':>9}", f"  {'(us)':>9}  {'(us)':>9}")
    left = f"{'size':>12}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    left_units = f"{'(B)':>12}  {'(elements)':>12}  {'':8}  {'':6}  {'':6}"
    return "\n".join(
        (
            f"# hetccl {options.operation}: {len(topology['ranks'])} ranks{clusters}; time is the "
            "slowest rank's",
            *_devices(topology),
            f"# warmup iters: {options.warmups} iters: {options.iterations} "
            f"validation: {int(options.check)} blocking: {int(options.blocking)}",
            "#",
            f"#{'':52}{place}",
            f"#{left[1:]}  {names}  {names}{predicted[0]}",
            f"#{left_units[1:]}  {units}  {units}{predicted[1]}",
        )
    )


def _columns(timing: Timing | None) -> str:
    if timing is None:
        return f"{'N/A':>7}  {'N/A':>6}  {'N/A':>6} {'N/A':>6}"
    microseconds = timing.seconds * 1e6
    digits = 0 if microseconds >= 10000 else 1 if microseconds >= 100 else 2
    wrong = "N/A" if timing.wrong is None else timing.wrong
    return f"{microseconds:7.{digits}f}  {timing.algbw:6.2f}  {timing.busbw:6.2f} {wrong:>6}"


def line(options: Options, row: Row) -> str:
    """One row."""
    case = CASES[options.operation]
    root = options.root if case.has_root else -1
    dtype = _NCCL_TYPES.get(row.dtype, row.dtype)
    left = f"{row.size:12d}  {row.count:12d}  {dtype:>8}  {row.redop:>6}  {root:6d}"
    predicted = ""
    if row.predicted is not None and row.alone is not None:
        predicted = f"  {row.predicted * 1e6:9.1f}  {row.alone * 1e6:9.1f}"
    return f"{left}  {_columns(row.out_of_place)}  {_columns(row.in_place)}{predicted}"


def encoding(row: Row) -> str:
    """The line above the first of the rows that are encoded in a row's way."""
    return (
        f"# {row.encoding}: the calls below are encoded between clusters (docs/quantised.md), and "
        f"#wrong counts errors above {row.largest_error:.4g}"
    )


def _regression(report: Report) -> str:
    if report.fit is None:
        return f"none: it takes {LEAST_SIZES} sizes or more"
    one = report.fit
    return (
        f"latency {duration(one.seconds)}, algbw {one.bandwidth / 1e9:.4g} GB/s, R2 "
        f"{one.r_squared:.4f}, of {one.sizes} sizes out of place"
    )


def footer(report: Report) -> str:
    """The lines below the table."""
    lines = [
        f"# Out of bounds values : {report.wrong} {'FAILED' if report.wrong else 'OK'}",
        f"# Avg bus bandwidth    : {report.mean_busbw:.6g}",
    ]
    if report.options.regress:
        lines.append(f"# Regression           : {_regression(report)}")
    if report.cross_bytes:
        least = report.least_cross_bytes
        ratio = f", {report.cross_bytes / least:.3f} of the least" if least else ""
        lines.append(f"# Between clusters     : {report.cross_bytes} bytes{ratio}")
    if report.wire and not any(row.encoding for row in report.rows):
        lines.append(
            f'# Encoded              : nothing, though {report.wire}: see "What is encoded" in '
            "docs/quantised.md"
        )
    return "\n".join(lines)
