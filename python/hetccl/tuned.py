"""``hetccl tuned``: a plain NCCL program whose collectives are tuned while it runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

PLUGIN = Path(__file__).parent / "lib" / "libnccl-tuner-hetccl.so"


def environment() -> dict[str, str]:
    """Returns variables with which NCCL and RCCL load the plug-in, and all ranks meet at this
    process.
    """
    from hetccl import unique_id

    return {"NCCL_TUNER_PLUGIN": str(PLUGIN), "HETCCL_TUNER_ID": unique_id().hex()}


def run(command: Sequence[str]) -> int:
    """Runs a command, such as torchrun, in that environment. Returns its exit status. While it
    runs, this process coordinates the search. Raises OSError if there is no such command.
    """
    with subprocess.Popen(list(command), env={**os.environ, **environment()}) as process:
        while True:
            try:
                status = process.wait()
            except KeyboardInterrupt:  # the command has it, too
                continue
            return status if status >= 0 else 128 - status
