"""One end of a hand-off between emulated hosts: `main(KIND, MODE, FOLDER)` says JSON lines.

It says its metadata, waits for the file `metadata` in its folder, says "in mid-transfer", and says
how the request ended. It marks its blocks then, waits for the file `healed`, and says whether the
marks are still there.
"""

import json
import time
from pathlib import Path

import kv_processes

from hetccl.kv import Receiver, Sender

LATE = 2.0  # seconds in which what was sent before could still arrive
MARK = -77


def say(**values):
    print(json.dumps(values), flush=True)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)
    return path.read_text()


def main(kind, mode, folder):
    kind = {"Sender": Sender, "Receiver": Receiver}[kind]
    name = "p0" if kind is Sender else "d0"
    session, end, released = kv_processes.make(kind, name, "SBNHD")
    say(metadata=session.metadata())
    metadata = wait_for(Path(folder, "metadata"))
    if kind is Receiver:
        session.connect(metadata)
    while not session.peers:
        session.poll()
    kv_processes.start(session, mode)
    while not kv_processes.has_begun(session):
        session.poll()
    say(state="in mid-transfer")
    outcomes = []
    while not outcomes:
        outcomes += session.poll()
        time.sleep(0.001)
    end.write(end.elements * 0 + MARK)
    say(kind=outcomes[0].kind, cause=outcomes[0].cause, released=released, in_use=session.in_use)
    wait_for(Path(folder, "healed"))
    began = time.monotonic()
    while time.monotonic() - began < LATE:
        outcomes += session.poll()
        time.sleep(0.001)
    say(marks=bool((end.elements == MARK).all()), outcomes=len(outcomes), peers=session.peers)
