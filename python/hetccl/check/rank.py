"""One rank of a check, start to end."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetccl._lib import HetcclError
from hetccl.check import facts, graph, panel, reach, schedule
from hetccl.check.panel import Follow, Lead, Panel
from hetccl.check.trials import Trials
from hetccl.communicator import Communicator
from hetccl.devices.choice import library_paths
from hetccl.devices.errors import DeviceError
from hetccl.devices.memory import memory_of
from hetccl.machine import addresses
from hetccl.rendezvous import MOST_NOTE, Meeting, exchange
from hetccl.units import counted

_ANSWER = 60.0  # seconds for a rank to say what it knows already
_HEAR = 300.0  # seconds for rank 0 to go on: it waits for all the others meanwhile
_INIT, _CALL = 30.0, 60.0  # seconds for the communicator to be made, and for a call
_REPEATS = 2  # of links that seem slow
_ROUND = 10.0  # seconds that a round may take
Document = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Options and facts of a check that every rank knows."""

    rendezvous: Path | None = None
    wait: float = 30.0  # seconds for the ranks to come
    every_pair: bool = False  # of ranks, however many there are
    found: Mapping[str, Any] = field(default_factory=dict)  # what `hetccl info` finds here
    say: Callable[[str], None] = lambda _: None  # what rank 0 is at, for people


def _write_note(listener: Any, addresses: Sequence[str]) -> bytes:
    """Returns the place where rank 0 listens, in as few bytes as a launcher's store still takes."""
    text = str(listener.getsockname()[1])
    for address in addresses:
        if len(text) + 1 + len(address) <= MOST_NOTE:
            text += f",{address}"
    return text.encode()


def _read_note(note: bytes) -> list[tuple[str, int]]:
    port, *addresses = note.decode("ascii", "replace").split(",")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise panel.PanelError("rank 0 has shared no port: do all ranks run `hetccl check`?")
    return [(address, int(port)) for address in addresses]


def join(job: Job, rank: int, size: int) -> tuple[Panel, Meeting]:
    """The panel of the ranks that come. Raises RendezvousError and PanelError."""
    if rank != 0:
        meeting = exchange(rank, job.rendezvous, job.wait, note=lambda: b"")
        key = panel.key_of(meeting.uid)
        return Follow(_read_note(meeting.note), key, rank, job.wait), meeting
    ports = facts.port_range()
    listener = panel.listen(range(ports[0], ports[1] + 1) if ports else ())
    note = _write_note(listener, addresses(job.found))
    meeting = exchange(rank, job.rendezvous, job.wait, note=lambda: note)
    lead = Lead(listener, panel.key_of(meeting.uid), size)
    lead.wait(job.wait)
    return lead, meeting


def _group(told: Sequence[Mapping[str, Any] | None]) -> list[list[int]]:
    """The ranks of each host, hosts in the order of their first rank."""
    hosts: dict[str, list[int]] = {}
    for rank, one in enumerate(told):
        if one is not None:
            hosts.setdefault(one["host"], []).append(rank)
    return list(hosts.values())


class Check:
    """The steps, which every rank takes in the same order."""

    def __init__(self, job: Job, rank: int, size: int, device: str) -> None:
        self._job, self._rank, self._size, self._device = job, rank, size, device
        self.document: Document = {"ranks": [], "hosts": [], "closed": [],
                                   "refused": {}, "topology": None, "results": [],
                                   "stopped": "", "every_pair": False}  # fmt: skip

    def run(self, ours: Panel, meeting: Meeting) -> None:
        """Fills the document on rank 0. Raises PanelError on a rank that loses rank 0."""
        self._panel = ours
        hosts = self._gather_facts()
        go = self._try_ports(hosts)
        if go:
            self._say("a communicator of all ranks")
            self._communicate(meeting.uid, hosts)
        self.document["lost"] = {str(rank): why for rank, why in ours.lost.items()}
        if isinstance(ours, Lead):
            self.document["clocks"] = {str(rank): both for rank, both in ours.clocks.items()}

    def _say(self, text: str) -> None:
        if self._rank == 0:
            self._job.say(text)

    def _gather_facts(self) -> list[list[int]]:
        told = self._panel.collect(facts.gather(self._job.found, self._device), _ANSWER)
        self.document["ranks"] = told
        hosts = self._panel.share({"hosts": _group(told)}, _HEAR)["hosts"]
        self.document["hosts"] = hosts
        came = self._size - len(self._panel.lost)
        self._say(f"{came} of {self._size} ranks on {counted(len(hosts), 'host')} have come")
        return list(hosts)

    def _try_ports(self, hosts: list[list[int]]) -> bool:
        """Whether hosts reach each other, and nothing else stands in a communicator's way."""
        own = next(n for n, ranks in enumerate(hosts) if self._rank in ranks)
        leads = self._rank == hosts[own][0]
        failed: list[dict[str, Any]] = []
        with reach.listening(facts.port_range(), len(hosts[own]) if leads else 0) as ports:
            told = self._panel.collect({"ports": ports} if leads else None, _ANSWER)
            found = [self._listener(told, ranks[0]) for ranks in hosts] if told else None
            listeners = self._panel.share(found, _HEAR)
            if leads and len(hosts) > 1:
                failed = reach.dial(own, listeners)
            self._say("the ports of all hosts")
            every = self._panel.collect(failed, 2 * _ANSWER)
            self.document["closed"] = [one for listed in every for one in listed or ()]
            # They listen until all have dialled.
            stopped = self._panel.share(self._why_not(), _HEAR)
        self.document["stopped"] = stopped
        return not stopped

    def _listener(self, told: Sequence[Any], rank: int) -> dict[str, Any]:
        mine, known = told[rank] or {}, self.document["ranks"][rank]
        return {"addresses": known["addresses"], "ports": mine.get("ports", [])}

    def _why_not(self) -> str:
        """On rank 0, returns why there can be no communicator; "" if no reason is known."""
        if self._panel.lost:
            return "ranks are missing"
        if len({one["version"] for one in self.document["ranks"] if one}) > 1:
            return "versions of hetccl differ"
        return "ports are closed" if self.document["closed"] else ""

    def _communicate(self, uid: bytes, hosts: list[list[int]]) -> None:
        comm, why = None, ""
        try:
            comm = Communicator(uid, self._rank, self._size, device=self._device,
                                timeout=_CALL, init_timeout=_INIT)  # fmt: skip
        except HetcclError as error:
            why = str(error)
        try:
            refused = self._panel.collect(why, _INIT + _ANSWER)
            fails = self._panel.share(self._note_refusals(refused), _HEAR)
            if comm is not None and fails:
                comm.abort()
            elif comm is not None:
                self._measure(comm, hosts)
        except BaseException:
            if comm is not None:
                comm.abort()
            raise

    def _note_refusals(self, refused: Sequence[str | None]) -> bool:
        """On rank 0, returns whether some rank has no communicator."""
        texts = {str(rank): text for rank, text in enumerate(refused) if text}
        self.document["refused"] = texts
        return bool(texts or self._panel.lost)

    def _measure(self, comm: Communicator, hosts: list[list[int]]) -> None:
        every_pair = self._job.every_pair or self._size <= schedule.EVERY_PAIR
        self.document["every_pair"] = every_pair
        self.document["topology"] = comm.topology()
        rounds = list(schedule.rounds(hosts, every_pair))
        wait = _ANSWER + _ROUND * len(rounds)
        paths = library_paths(self._job.found)
        trials = Trials(comm, lambda: memory_of(self._device, paths), self._say)
        _attempt(comm, trials, lambda: trials.run(rounds))
        for turn in range(1 + _REPEATS):
            self.document["results"] = self._panel.collect(trials.result, wait)
            mine = self._suspects() if turn < _REPEATS else []
            pairs = self._panel.share(mine, wait + _HEAR)
            if not pairs:
                break
            _attempt(comm, trials, functools.partial(trials.repeat, pairs))
        with contextlib.suppress(HetcclError):  # all that it did is noted
            comm.destroy()

    def _suspects(self) -> list[schedule.Pair]:
        """Returns, on rank 0, the pairs to measure again, because the cause of a slow measurement
        may have passed.
        """
        results = self.document["results"]
        if self._rank != 0 or any(one is None or "failed" in one for one in results):
            return []
        return graph.suspects(self.document)


def _attempt(comm: Communicator, trials: Trials, work: Callable[[], None]) -> None:
    """Runs `work`. Notes a failure and aborts the communicator, by which the other ranks hear of
    it; all then take the same next steps.
    """
    try:
        work()
    except (HetcclError, DeviceError, OSError, ValueError) as error:
        trials.result["failed"] = {"at": trials.at, "text": str(error)}
        comm.abort()


def run(job: Job, rank: int, size: int, device: str) -> Document | None:
    """The document on rank 0, None on the others. Raises RendezvousError and PanelError."""
    ours, meeting = join(job, rank, size)
    check = Check(job, rank, size, device)
    try:
        if rank == 0 and job.rendezvous:  # all have come, or will not: nobody will read it again
            job.rendezvous.unlink(missing_ok=True)
        check.run(ours, meeting)
    finally:
        ours.close()
    return check.document if rank == 0 else None


def complain(rank: int, error: object) -> int:
    """Prints why this rank cannot take part. Returns its process's exit status."""
    print(f"hetccl check: rank {rank}: {error}", file=sys.stderr, flush=True)
    return 1
