"""The page of `hetccl tune --report`: it needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from string import Template

from hetccl.tune import charts, findings
from hetccl.tune.findings import Finding, time_text
from hetccl.tune.landscape import Line, evidence, lines_at_best, parameters_of
from hetccl.tune.records import Point
from hetccl.tune.words import change_text, key_text, setting_text
from hetccl.units import counted


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _comparison(finding: Finding) -> str:
    """Default against best, as a row of the first table."""
    best = finding.best
    return _row(
        (
            f'<a href="#{_anchor(finding)}">{escape(key_text(finding.key))}</a>',
            time_text(finding.default_us), time_text(finding.best_us), f"{finding.gain:.2f}x",
            charts.bar(finding), escape(change_text(best.setting, best.default)),
        )
    )  # fmt: skip


def _anchor(finding: Finding) -> str:
    parts = (finding.best.place, *map(str, finding.key.values()))
    return escape("-".join(part for part in parts if part), quote=True)


def _valleys_text(lines: Sequence[Line]) -> str:
    """How many valleys the lines of a picture have."""
    texts = []
    for line in lines:
        name = line.points[0].setting["algorithm"]
        if len(line.points) < 3:
            texts.append(f"{name}: two points, which tell nothing of valleys")
        else:
            texts.append(f"{name}: {counted(line.valleys, 'valley')} on this line")
    return "; ".join(texts)


def _pictures(finding: Finding) -> Iterator[str]:
    for parameter in parameters_of(finding.points):
        lines = lines_at_best(finding, parameter)
        if lines:
            yield (
                f"<figure>{charts.along(finding, lines)}"
                f"<figcaption>{escape(_valleys_text(lines))}</figcaption></figure>"
            )


def _section(finding: Finding) -> str:
    failed = [point for point in finding.points if point.failed]
    facts = [
        counted(len(finding.points), "point"),
        f"default {setting_text(finding.best.default)}",
        f"best {setting_text(finding.best.setting)}",
    ]
    if failed:
        facts.append(f"{counted(len(failed), 'setting')} refused: {failed[0].failed}")
    pictures = (
        "\n".join(_pictures(finding)) or "<p class=muted>One setting: there is no choice.</p>"
    )
    return (
        f'<section id="{_anchor(finding)}"><h2>{escape(key_text(finding.key))}</h2>'
        f"<p class=muted>{escape('; '.join(facts))}</p>"
        f"<div class=charts>{pictures}</div></section>"
    )


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
    """The page. Everything that is not ours is escaped."""
    found = findings.find(points)
    places = dict.fromkeys(
        f"{p.summary or 'place not known'}, {counted(p.ranks, 'rank')} on "
        f"{counted(p.hosts, 'host')}"
        for p in points
    )
    proofs = (
        _row((escape(one.parameter), str(one.single), str(one.several), escape(one.text)))
        for one in evidence(found)
    )
    template = Template(
        resources.files("hetccl.tune").joinpath("report.html").read_text(encoding="utf-8")
    )
    return template.substitute(
        subtitle=escape(f"{counted(len(points), 'point')} of {source}; {'; '.join(places)}"),
        verdict=escape(_verdict(found)),
        comparison="\n".join(map(_comparison, found)),
        evidence="\n".join(proofs),
        sections="\n".join(map(_section, found)),
        footer=escape(f"Written by hetccl tune on {time.strftime('%Y-%m-%d at %H:%M')}."),
    )
