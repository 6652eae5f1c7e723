"""The report of a self test: the trials that ran, the machine, and the evidence that they give."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetccl.bench.operations import CASES
from hetccl.selftest import evidence, private, rdma
from hetccl.selftest.rank import Job
from hetccl.selftest.trials import Trial, trials

SCHEMA = 3
_SAME_BITS = {"all_reduce", "all_gather", "broadcast"}  # every rank receives the same


@dataclass
class Seen:
    """The notes of one rank, by layout."""

    layouts: dict[str, dict[str, Any]]
    outcomes: dict[tuple[str, int], dict[str, Any]]
    speeds: dict[tuple[str, str, int], dict[str, Any]]
    failed: str = ""
    finished: bool = False


def read_notes(path: Path) -> Seen:
    """The notes of a rank, which may end anywhere."""
    seen = Seen({}, {}, {})
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    for line in lines[:-1]:  # what follows the last newline is cut short, or empty
        note = json.loads(line)
        if "trial" in note:
            seen.outcomes[note["layout"], note["trial"]] = note
        elif "speed" in note:
            seen.speeds[note["layout"], note["speed"], note["bytes"]] = note
        elif "layout" in note:
            seen.layouts.setdefault(note["layout"], {}).update(note)
        seen.failed = note.get("failed", seen.failed)
        seen.finished = note.get("finished", seen.finished)
    return seen


def judge(trial: Trial, notes: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Returns a trial's outcome over all ranks: `ok` is true, false, or null if it did not run."""
    known = [note for note in notes if note is not None and "outcome" in note]
    for rank, note in enumerate(notes):
        if note is not None and note.get("outcome") == "wrong":
            return {"ok": False, "detail": f"rank {rank}: {note['detail']}"}
    absent = next((note for note in known if note["outcome"] == "absent"), None)
    if len(known) < len(notes):
        begun = [rank for rank, note in enumerate(notes) if note is not None]
        if begun:
            lost = [rank for rank, note in enumerate(notes) if note is None or note not in known]
            return {"ok": False, "detail": f"not finished by ranks {', '.join(map(str, lost))}"}
        return {"ok": None, "detail": evidence.NOT_RUN}
    if absent is not None:
        if any(note["outcome"] != "absent" for note in known):
            return {"ok": False, "detail": f"refused by some ranks alone: {absent['detail']}"}
        return {"ok": None, "detail": absent["detail"]}
    bits = [note["bits"] for note in known]
    if trial.collective in _SAME_BITS and len(set(bits)) > 1:
        return {"ok": False, "detail": "ranks have different bits", "bits": bits}
    encoded = {"encoding": known[0]["encoding"]} if "encoding" in known[0] else {}
    return {"ok": True, "bits": bits[0] if len(set(bits)) == 1 else "+".join(bits), **encoded}


def cases(job: Job, seen: list[Seen]) -> Iterator[dict[str, Any]]:
    """Returns all trials of all layouts with their outcomes."""
    ranks = len(job.devices)
    for layout in job.layouts:
        for number, trial in enumerate(trials(ranks, job.quick)):
            notes = [one.outcomes.get((layout, number)) for one in seen]
            yield {"layout": layout, **trial.describe(ranks), **judge(trial, notes)}


def speeds(job: Job, seen: list[Seen]) -> list[dict[str, Any]]:
    """Returns the slowest rank's time of each call; GB/s as nccl-tests' algbw and busbw."""
    found = []
    for layout, operation, size in seen[0].speeds:
        notes = [one.speeds.get((layout, operation, size), {}) for one in seen]
        times = [note["seconds"] for note in notes if "seconds" in note]
        if len(times) < len(notes):  # not on all ranks
            continue
        seconds = max(times)
        algorithm = size / seconds / 1e9
        bus = algorithm * CASES[operation].bus_factor(len(job.devices))
        found.append(
            {"layout": layout, "collective": operation, "bytes": size,
             "us": round(seconds * 1e6, 2), "algbw_gb_s": round(algorithm, 3),
             "busbw_gb_s": round(bus, 3)}
        )  # fmt: skip
    return found


def layouts(seen: list[Seen]) -> dict[str, Any]:
    """Clusters, links and seconds of each layout that was reached."""
    keys = ("clusters", "links", "took")
    return {
        name: {key: note.get(key) for key in keys}
        for one in seen[:1]
        for name, note in one.layouts.items()
    }


def ranks(job: Job, seen: list[Seen], endings: list[str]) -> list[dict[str, Any]]:
    """Each rank's device, and how the rank ended."""
    found = []
    for rank, (device, one) in enumerate(zip(job.devices, seen, strict=True)):
        facts: dict[str, Any] = next((note["rank"] for note in one.layouts.values()), {})
        ended = evidence.FINISHED if one.finished else one.failed or endings[rank] or "ended early"
        reached = {name: note["reached"] for name, note in one.layouts.items() if "reached" in note}
        found.append({"rank": rank, "device": device, **facts, "ended": ended,
                      "transports": reached})  # fmt: skip
    return found


def build(job: Job, folder: Path, endings: list[str], machine: dict[str, Any]) -> dict[str, Any]:
    """The report. `folder` has the ranks' notes, `endings` what is wrong with their processes."""
    seen = [read_notes(folder / f"rank-{rank}.jsonl") for rank in range(len(job.devices))]
    tried = list(cases(job, seen))
    counted = Counter({True: "passed", False: "failed", None: "absent"}[one["ok"]] for one in tried)
    finished = all(one.finished for one in seen)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        **machine,
        "quick": job.quick,
        "emulator": job.emulator,
        "ranks": ranks(job, seen, endings),
        "layouts": layouts(seen),
        "result": {
            "ok": bool(finished and counted["passed"] and not counted["failed"]),
            **{key: counted[key] for key in ("passed", "failed", "absent")},
        },
        "evidence": {},
        "speeds": speeds(job, seen),
        "cases": tried,
    }
    if job.rdma:
        notes = (note for one in seen for note in one.layouts.values())
        document["rdma"]["library"] = next((note["rdma_library"] for note in notes), "")
    document["evidence"] = evidence.of(document)
    cleaned: dict[str, Any] = private.remove_from(document)
    return cleaned


def dump(document: dict[str, Any]) -> str:
    """Returns JSON with a line for each case, so that two reports can be compared by diff."""
    parts = []
    for key, value in document.items():
        if key in ("cases", "speeds", "ranks", "libraries") and value:
            lines = ",\n".join(json.dumps(one) for one in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def show(document: dict[str, Any]) -> None:
    """Prints the summary for people."""
    for rank in document["ranks"]:
        names = (rank.get(key, "") for key in ("vendor", "model", "architecture"))
        number, device = rank["rank"], " ".join(filter(None, names)) or rank["device"]
        # The library's text begins with the rank that failed.
        ended = rank["ended"].replace(f": rank {number}: ", ": ")
        print(f"rank {number}: {device}: {ended}")
    if "rdma" in document:
        rdma.show(document)
    for speed in document["speeds"]:
        print(f"{speed['layout']:9} {speed['collective']:10} {speed['bytes']:>10} B "
              f"{speed['us']:>12.2f} us {speed['algbw_gb_s']:>9.3f} GB/s")  # fmt: skip
    for case in [one for one in document["cases"] if one["ok"] is False][:20]:
        print("FAILED:", json.dumps(case))
    reasons = Counter(one["detail"] for one in document["cases"] if one["ok"] is None)
    for reason, times in reasons.items():
        print(f"absent, {times} cases: {reason}")
    encodings = Counter(one["encoding"] for one in document["cases"] if "encoding" in one)
    for encoding, times in encodings.items():
        print(f"encoded by {encoding}, {times} cases: right within its bound (docs/quantised.md)")
    result = document["result"]
    print(f"{result['passed']} cases passed, {result['failed']} failed, {result['absent']} absent, "
          f"in {document['seconds']:.0f} s")  # fmt: skip
    print(f"evidence: {document['evidence']['text']}")
