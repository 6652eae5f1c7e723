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
SUITE, NEWER_SUITE = "forky", "experimental"
WANTED = ("libamdhip64-6", "libhiprtc6", "libhiprtc-builtins6")
HEADERS = ("libamdhip64-dev",)  # of which nothing else is wanted
NEWER_HEADERS = ("librccl-dev",)  # the other suite's is years old, or absent
NOT_TO_BE_HAD = 3
UNUSED = {"libclang-common-21-dev", "libc-gconv-modules-extra"}


def download(path: str) -> bytes:
    with urllib.request.urlopen(MIRROR + path, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def read_index(suite: str) -> dict[str, dict[str, str]]:
    packages: dict[str, dict[str, str]] = {}
    index = download(f"dists/{suite}/main/binary-amd64/Packages.xz")
    for paragraph in lzma.decompress(index).decode().split("\n\n"):
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
    """Resolves the dependencies of WANTED."""
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
    return list(found.values())


def choose() -> list[dict[str, str]]:
    """All packages to fetch. Exits where a suite has one no more."""
    packages, newer = read_index(SUITE), read_index(NEWER_SUITE)
    missing = [name for name in (*WANTED, *HEADERS) if name not in packages]
    missing += [name for name in NEWER_HEADERS if name not in newer]
    if missing:
        print(f"fetch: {MIRROR} has no {', '.join(missing)}", file=sys.stderr)
        sys.exit(NOT_TO_BE_HAD)
    headers = [packages[name] for name in HEADERS] + [newer[name] for name in NEWER_HEADERS]
    return closure(packages) + headers


def main(folder: Path) -> None:
    stamp = folder / "complete"
    if stamp.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for fields in choose():
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
