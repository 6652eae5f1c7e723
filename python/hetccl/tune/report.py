"""The page of `hetccl tune --report`: it needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from hetccl import pages
from hetccl.tune import charts, findings
from hetccl.tune.findings import Finding, time_text
from hetccl.tune.landscape import Line, evidence, lines_at_best, parameters_of
from hetccl.tune.records import Point
from hetccl.tune.words import change_text, key_text, setting_text
from hetccl.units import counted


def _anchor(finding: Finding) -> str:
    parts = (finding.best.place, *map(str, finding.key.values()))
    return "-".join(part for part in parts if part)


def _valleys_text(lines: Sequence[Line]) -> str:
    """Returns the sentence on the number of valleys in a picture's lines."""
    texts = []
    for line in lines:
        name = line.points[0].setting["algorithm"]
        if len(line.points) < 3:
            texts.append(f"{name}: two points, which tell nothing of valleys")
        else:
            texts.append(f"{name}: {counted(line.valleys, 'valley')} on this line")
    return "; ".join(texts)


def _pictures(finding: Finding) -> Iterator[tuple[Markup, str]]:
    for parameter in parameters_of(finding.points):
        lines = lines_at_best(finding, parameter)
        if lines:
            yield Markup(charts.along(finding, lines)), _valleys_text(lines)


def _key(finding: Finding) -> dict[str, object]:
    """One kind of call: default against best, and its pictures."""
    best = finding.best
    failed = [point for point in finding.points if point.failed]
    facts = [
        counted(len(finding.points), "point"),
        f"default {setting_text(best.default)}",
        f"best {setting_text(best.setting)}",
    ]
    if failed:
        facts.append(f"{counted(len(failed), 'setting')} refused: {failed[0].failed}")
    return {
        "anchor": _anchor(finding), "calls": key_text(finding.key), "gain": finding.gain,
        "default": time_text(finding.default_us), "best": time_text(finding.best_us),
        "change": change_text(best.setting, best.default), "facts": "; ".join(facts),
        "pictures": list(_pictures(finding)),
    }  # fmt: skip


def _verdict(found: Sequence[Finding]) -> str:
    faster = [finding for finding in found if finding.gain > 1]
    if not faster:
        return f"{counted(len(found), 'key')}: no setting is faster than the default beyond noise."
    most = max(faster, key=lambda finding: finding.gain)
    return (
        f"{counted(len(found), 'key')}, of which {len(faster)} can be faster than by default. The "
        f"largest gain is {most.gain:.2f}x: {key_text(most.key)}."
    )


def render(points: list[Point], source: str) -> str:
    """The page."""
    found = findings.find(points)
    places = dict.fromkeys(
        f"{p.summary or 'place not known'}, {counted(p.ranks, 'rank')} on "
        f"{counted(p.hosts, 'host')}"
        for p in points
    )
    return pages.render(
        "tune", "tune/report.html", heading="What tuning found",
        subtitle=f"{counted(len(points), 'point')} of {source}; {'; '.join(places)}",
        verdict=_verdict(found), keys=[_key(one) for one in found], evidence=evidence(found),
    )  # fmt: skip
