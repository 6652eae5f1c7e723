"""Fetches AMD's runtime and compiler of Debian, without installing them: python fetch.py FOLDER.

Debian forky's packages are newer than what this project builds on, so they come with the loader and
the C library that they need, all unpacked below FOLDER. Exits with 3 where they cannot be had: no
network, or Debian has others by now.
"""

from __future__ import annotations

import hashlib
import lzma
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

MIRROR = "https://deb.debian.org/debian/"
INDEX = "dists/forky/main/binary-amd64/Packages.xz"
WANTED = ("libamdhip64-6", "libhiprtc6", "libhiprtc-builtins6")
HEADERS = ("libamdhip64-dev",)  # of which nothing else is wanted
NOT_TO_BE_HAD = 3
UNUSED = {"libclang-common-21-dev", "libc-gconv-modules-extra"}


def download(path: str) -> bytes:
    with urllib.request.urlopen(MIRROR + path, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def read_index() -> dict[str, dict[str, str]]:
    packages: dict[str, dict[str, str]] = {}
    for paragraph in lzma.decompress(download(INDEX)).decode().split("\n\n"):
        pairs = (line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        fields = {pair[0]: pair[1] for pair in pairs if not pair[0].startswith(" ")}
        for name in (fields.get("Package"), *names_in(fields.get("Provides", ""))):
            if name is not None:
                packages.setdefault(name, fields)
    return packages


def names_in(text: str) -> list[str]:
    """The first name of each alternative: "a (>= 1) | b, c:any" has a and c."""
    firsts = (part.split("|")[0].split() for part in text.split(","))
    return [words[0].split(":")[0] for words in firsts if words]


def closure(packages: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """What WANTED needs, and HEADERS."""
    found: dict[str, dict[str, str]] = {}
    left = [*WANTED]
    while left:
        name = left.pop()
        if name in UNUSED or name not in packages:
            continue
        fields = packages[name]
        if fields["Package"] not in found:
            found[fields["Package"]] = fields
            left += names_in(fields.get("Depends", "") + "," + fields.get("Pre-Depends", ""))
    return [*found.values(), *(packages[name] for name in HEADERS)]


def main(folder: Path) -> None:
    stamp = folder / "complete"
    if stamp.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    packages = read_index()
    missing = [name for name in (*WANTED, *HEADERS) if name not in packages]
    if missing:
        print(f"fetch: {MIRROR}{INDEX} has no {', '.join(missing)}", file=sys.stderr)
        sys.exit(NOT_TO_BE_HAD)
    for fields in closure(packages):
        content = download(fields["Filename"])
        if hashlib.sha256(content).hexdigest() != fields["SHA256"]:
            sys.exit(f"fetch: {fields['Filename']} is not what the index says")
        package = folder / "package.deb"
        package.write_bytes(content)
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        package.unlink()
        print(f"fetch: {fields['Package']} {fields['Version']}", flush=True)
    stamp.touch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except urllib.error.URLError as failure:
        print(f"fetch: {MIRROR}: {failure}", file=sys.stderr)
        sys.exit(NOT_TO_BE_HAD)
