"""Programs and libraries of adaptors/ and tests/, built as the guide says.

What was compiled once is kept in build/compiled: for other tests, their processes and later runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from patience import HANG

ROOT = Path(__file__).parent.parent.parent
ADAPTORS = ROOT / "adaptors"
_KEPT = ROOT / "build/compiled"


def _digest(command: list[str]) -> str:
    """Returns a digest that differs if the command, a source or a header beside it, or one of
    hetccl's differs.
    """
    digest = hashlib.sha256()
    headers = set((ROOT / "include").rglob("*.h"))
    for argument in command:
        path = Path(argument)
        if path.is_file() and path.suffix in (".c", ".cc"):
            headers.update(path.parent.glob("*.h"))
            digest.update(path.read_bytes())
        else:
            digest.update(argument.encode())
        digest.update(b"\0")
    for path in sorted(headers):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_to(target: Path, *arguments: str) -> Path:
    """Compiles `arguments` with hetccl's headers."""
    command = [*arguments, f"-I{ROOT / 'include'}", "-O1"]
    _KEPT.mkdir(parents=True, exist_ok=True)
    kept = _KEPT / _digest(command)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            draft = kept.with_suffix(f".{os.getpid()}")
            built = subprocess.run(
                [*command, "-o", str(draft)],
                capture_output=True, text=True, timeout=HANG, check=False,
            )  # fmt: skip
            assert built.returncode == 0, built.stderr
            draft.rename(kept)
    shutil.copy(kept, target)
    return target
