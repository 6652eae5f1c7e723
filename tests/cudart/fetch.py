"""Fetches CUDA's runtime of several versions from PyPI, uninstalled: python fetch.py FOLDER.

Each version's folder then has an include and a lib. Exits with 3 where they cannot be had.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

# The oldest that has every entry's symbol, the first and the last of 12, and two of 13.
WHEELS = (
    "nvidia-cuda-runtime-cu11==11.8.89",
    "nvidia-cuda-runtime-cu12==12.0.107",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-runtime==13.5.37",
)
NOT_TO_BE_HAD = 3


def unpack(wheel: Path, folder: Path) -> None:
    """Headers into include, the library into lib, wherever this version's wheel has them."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            parts = PurePosixPath(name).parts
            kind = next((part for part in parts if part in ("include", "lib")), None)
            if kind is None or name.endswith((".a", "/", ".py")):
                continue
            path = folder.joinpath(*parts[parts.index(kind) :])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))


def fetch(wheel: str, folder: Path) -> None:
    stamp = folder / "complete"
    if stamp.exists():
        return
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", downloads, wheel]
        if subprocess.run(command, check=False, timeout=300).returncode != 0:
            print(f"fetch: PyPI does not give {wheel}", file=sys.stderr)
            sys.exit(NOT_TO_BE_HAD)
        for path in Path(downloads).iterdir():
            unpack(path, folder)
    stamp.touch()
    print(f"fetch: {wheel}", flush=True)


if __name__ == "__main__":
    for one in WHEELS:
        fetch(one, Path(sys.argv[1]) / one.partition("==")[2])
