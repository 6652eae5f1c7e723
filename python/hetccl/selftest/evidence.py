"""Derives from a self test's report the level of evidence for each vendor's parts, as
docs/vendors.md defines them.
"""

from __future__ import annotations

from typing import Any

from hetccl.selftest import rdma

NOT_RUN = "not run: its ranks had failed before"  # the detail of such a case
FINISHED = "finished"  # how a rank has ended that all went well with
LEAST_PASSED = 0.5  # of a part's cases: RCCL has passed when it does 63 %, NCCL 73 %
_LIBRARIES = {"host": "host", "cuda": "nccl", "hip": "rccl"}  # hetccl's own vendors'
_TRANSPORTS = {"shm", "tcp", rdma.TRANSPORT}  # hetccl's own
_HARDWARE, _EMULATED, _FORWARDED = 6, 5, 4
_WORDS = {
    _HARDWARE: "ran on this hardware",
    _EMULATED: "ran under an emulator",
    _FORWARDED: "its calls were forwarded to another vendor's GPU",
}
Document = dict[str, Any]


def _forwarded(rank: Document) -> bool:
    """Calls of AMD's runtime may be forwarded to another vendor's GPU, whose name says so."""
    return "forwarded" in (rank.get("model") or "")


def _emulator(document: Document) -> str:
    """Returns the name of the devices' emulator, as the user gave it or as ranks had loaded it."""
    seen = [document["emulator"], *(rank.get("emulator", "") for rank in document["ranks"])]
    return next(filter(None, seen), "")


def _passed_enough(document: Document, layouts: set[str]) -> bool:
    """Whether nearly all cases were absent says nothing of a part."""
    mine = [case["ok"] for case in document["cases"] if case["layout"] in layouts]
    return mine.count(True) >= LEAST_PASSED * len(mine) > 0


def _parts(document: Document, vendor: str) -> set[str]:
    """Which of a vendor's parts have run, and passed: of docs/vendors.md's columns."""
    mine = [rank for rank in document["ranks"] if rank["vendor"] == vendor]
    layouts: dict[str, set[str]] = {}
    for name, layout in document["layouts"].items():
        own = [len(one["ranks"]) for one in layout["clusters"] if one["vendor"] == vendor]
        parts = {"device"} if own else set()
        if own and all(rank.get("kernels") for rank in mine):
            parts.add("kernels")
        if max(own, default=0) > 1:
            parts.add("ccl")
        if own and len(layout["clusters"]) > 1:
            parts.add("transports")
        for part in parts:
            layouts.setdefault(part, set()).add(name)
    return {part for part, names in layouts.items() if _passed_enough(document, names)}


def _of_vendors(document: Document) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """Levels of hetccl's own vendors, and the parts of adaptors, by their names."""
    emulated = bool(_emulator(document))
    adaptors_carry = bool(set(document["transports"]) - _TRANSPORTS)
    levels: dict[str, dict[str, int]] = {}
    adaptors: dict[str, set[str]] = {}
    for vendor in dict.fromkeys(rank["vendor"] for rank in document["ranks"]):
        mine = [rank for rank in document["ranks"] if rank["vendor"] == vendor]
        parts = _parts(document, vendor)
        if "ccl" in parts:
            for library in {rank["library"] for rank in mine} - {_LIBRARIES.get(vendor), "none"}:
                adaptors.setdefault(library, set()).add("ccl")
                parts.discard("ccl")
        if vendor not in _LIBRARIES:
            adaptors.setdefault(vendor, set()).update(parts)
            continue
        # Which adaptor carried what, the report does not know; RDMA has evidence of its own.
        if adaptors_carry or "rdma" in document:
            parts.discard("transports")
        if emulated and vendor == "host":  # beside emulated devices nothing is claimed of it
            continue
        level = _EMULATED if emulated else _HARDWARE
        level = _FORWARDED if any(map(_forwarded, mine)) else level
        levels[vendor] = dict.fromkeys(sorted(parts), level)
    found = {vendor: parts for vendor, parts in levels.items() if parts}
    return found, {name: sorted(parts) for name, parts in adaptors.items()}


def _text(levels: dict[str, dict[str, int]], adaptors: dict[str, list[str]], emulator: str) -> str:
    """For people."""
    lines = [
        f"{vendor} ({', '.join(found)}): {_WORDS[min(found.values())]}"
        + (f", {emulator}" if _EMULATED in found.values() else "")
        for vendor, found in levels.items()
    ]
    lines += [
        f"{name} ({', '.join(parts) or 'too few cases passed'}): of an adaptor"
        for name, parts in adaptors.items()
    ]
    found = "; ".join(lines) or "none: too few cases passed"
    return f"{found}. Nothing is shown of what is not named here."


def _why_none(document: Document) -> str:
    """Returns why a report is no evidence; "" if it is some."""
    result = document["result"]
    reasons = []
    if result["failed"]:
        reasons.append(f"cases failed: {result['failed']}")
    not_run = sum(case.get("detail") == NOT_RUN for case in document["cases"])
    if not_run:
        reasons.append(f"cases not tried: {not_run}")
    late = [str(one["rank"]) for one in document["ranks"] if one["ended"] != FINISHED]
    if late:
        reasons.append(f"ranks that did not finish: {', '.join(late)}")
    if document["quick"]:
        reasons.append("--quick tries too few cases")
    if not reasons and not result["ok"]:
        reasons.append("no case passed")
    return "; ".join(reasons)


def of(document: Document) -> Document:
    """The evidence of a report. Every case must have been tried, none may have failed, and of a
    part's cases LEAST_PASSED must have passed. What an adaptor did counts for the adaptor alone."""
    emulator = _emulator(document)
    facts: Document = {
        "emulator": emulator,
        "forwarded": any(map(_forwarded, document["ranks"])),
    }
    if why := _why_none(document):
        return {"levels": {}, "adaptors": {}, **facts, "text": f"none: {why}"}
    levels, adaptors = _of_vendors(document)
    text = _text(levels, adaptors, emulator)
    if "rdma" in document:
        facts["rdma"] = rdma.evidence(document)
        text = f"{rdma.text_of(facts['rdma'])}. {text}"
    return {"levels": levels, "adaptors": adaptors, **facts, "text": text}
