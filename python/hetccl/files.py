"""Files at paths that other users of the machine may know."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes `text`, in UTF-8, to `path`. Raises OSError.

    A regular file is replaced in one step, so nobody reads half of it and no link can be put in its
    place meanwhile. Links, FIFOs and devices of this user or of root are written to, as by a
    shell's ``>``; those of other users are refused.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return _replace(path, text, 0o666 & ~_umask())
    if stat.S_ISREG(found.st_mode):
        return _replace(path, text, stat.S_IMODE(found.st_mode))
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.EPERM, "it is a link or device of another user", str(path))
    # Without O_NONBLOCK a FIFO that nobody reads would hold the process up.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return None


def read_own(path: Path, most: int) -> bytes:
    """At most `most` bytes of a regular file of this user's. Raises OSError where it is none."""
    # Without O_NONBLOCK a FIFO would hold the process up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "it is no regular file", str(path))
        if found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it is a file of user {found.st_uid}, not yours", str(path))
        return file.read(most)


def _replace(path: Path, text: str, mode: int) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, mode)
        os.replace(draft, path)  # noqa: PTH105
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
