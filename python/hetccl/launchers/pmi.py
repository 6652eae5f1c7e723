"""PMI-1: lines of text over the descriptor PMI_FD, as mpiexec.hydra, srun and flux speak it.

Slurm's plugin for PMI-2 and Flux take PMI-1, too, so that one protocol serves them all. Its
messages: https://www.mcs.anl.gov/papers/P1760.pdf, and the sources of MPICH (src/pmi/src).
"""

from __future__ import annotations

import os
import re
import select
import socket
import time

from hetccl.launchers.placement import Placement, RendezvousError

_LONGEST_LINE = 4096  # four times the longest value
_LONGEST_NAME = 256


class PmiBoard:
    """A session of PMI-1. Rank 0 writes values to the launcher's store, and all ranks read them."""

    def __init__(self, placement: Placement, timeout: float) -> None:
        """Begins the session. Raises RendezvousError."""
        self._launcher = placement.launcher
        text = os.environ.get("PMI_FD", "")
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise self._failure(f"PMI_FD={text[:40]!r} is no descriptor")
        self._descriptor = int(text)
        self._identity = self._find_socket()
        if self._identity is None:  # a file of this program's, perhaps, which must stay as it is
            raise self._failure("it is closed, or no local stream socket")
        self._deadline = time.monotonic() + timeout
        answer = self._ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
        if answer.get("pmi_version") != "1":
            raise self._failure(f"it speaks PMI {answer.get('pmi_version', '?')[:20]}, not PMI 1")
        self._name = self._ask("get_my_kvsname", "my_kvsname").get("kvsname", "")
        if not re.fullmatch(rf"\S{{1,{_LONGEST_NAME}}}", self._name):
            raise self._failure("its store has no name")

    def share(self, key: str, value: str | None, timeout: float) -> str:
        """Returns rank 0's `value` on every rank; the others pass None. Waits for all ranks."""
        self._deadline = time.monotonic() + timeout
        where = f"kvsname={self._name} key={key}"
        if value is not None:
            self._ask(f"put {where} value={value}", "put_result")
        self._ask("barrier_in", "barrier_out")
        return self._ask(f"get {where}", "get_result").get("value", "")

    def close(self) -> None:
        """Ends the session; launchers then take no other from this process."""
        self._deadline = time.monotonic() + 5
        self._ask("finalize", "finalize_ack")

    def _find_socket(self) -> tuple[int, int] | None:
        """Returns the local stream socket that the descriptor refers to; None if it is none."""
        try:
            with socket.socket(fileno=os.dup(self._descriptor)) as one:
                if (one.family, one.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
                    return None
            found = os.fstat(self._descriptor)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _ask(self, command: str, answer: str) -> dict[str, str]:
        """Sends a command and returns the fields of its answer."""
        if self._find_socket() != self._identity:  # the program has closed it and reused its number
            raise self._failure("it is no longer the socket that the launcher has given")
        line = f"cmd={command}\n".encode(errors="surrogateescape")
        try:
            # Slurm reads a command by one call, and the descriptor's buffer is empty.
            written = os.write(self._descriptor, line)
            got = self._read_line(command)
        except OSError as error:
            raise self._failure(
                f"{error.strerror}; a process can use it once, and not where a program before it "
                "has done so"
            ) from None
        fields = dict(word.split("=", 1) for word in got.split() if "=" in word)
        name = command.split()[0]
        if written != len(line) or fields.get("cmd") != answer:  # which may quote a job's secret
            raise self._failure(f"it answered cmd={fields.get('cmd', '?')[:30]} to {name}")
        if fields.get("rc", "0") != "0":
            raise self._failure(f"it refused {name} with rc={fields['rc'][:20]}")
        return fields

    def _read_line(self, command: str) -> str:
        """Returns the next line, which must have arrived completely by the deadline."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        got = b""
        while not got.endswith(b"\n"):
            if not poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
                late = "not all ranks have come" if command == "barrier_in" else "it is silent"
                raise self._failure(f"{late} within the time for meeting")
            part = os.read(self._descriptor, _LONGEST_LINE)
            if not part:
                raise self._failure("the launcher has closed it")
            got += part
            if len(got) > _LONGEST_LINE:
                raise self._failure("it sent a line without an end")
        return got.decode(errors="surrogateescape")  # Flux names its store in UTF-8

    def _failure(self, what: str) -> RendezvousError:
        return RendezvousError(
            f"the ranks cannot meet by {self._launcher.name}'s PMI (PMI_FD="
            f"{os.environ.get('PMI_FD', '')[:20]}): {what}; {self._launcher.remedy}, or set "
            "MASTER_ADDR and MASTER_PORT"
        )
