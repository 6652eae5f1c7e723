"""Programs and libraries of adaptors/, built as the guide says."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ADAPTORS = ROOT / "adaptors"


def compile_to(target: Path, *arguments: str) -> Path:
    """What the compiler makes of `arguments` and hetccl's headers."""
    built = subprocess.run(
        [*arguments, f"-I{ROOT / 'include'}", "-O1", "-o", str(target)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return target
