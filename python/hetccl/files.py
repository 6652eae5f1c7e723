"""Reads and writes files in folders that other users of the machine may write to."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK_TRIES, _LOCK_PAUSE = 100, 0.01  # seconds


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
    """Reads at most `most` bytes of a regular file of this user. Raises OSError if it is none."""
    # Without O_NONBLOCK a FIFO would hold the process up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "it is no regular file", str(path))
        if found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it is a file of user {found.st_uid}, not yours", str(path))
        return file.read(most)


def update(path: Path, most: int, change: Callable[[bytes], str]) -> None:
    """Replaces a file by the result of `change` on its content, at most `most` bytes; b"" if there
    is no file.

    Safe beside other writers, the library's (update_file of src/base/file.h) among them: all hold
    `path`.lock meanwhile. Makes the folder. Raises OSError, and the errors of `change`.
    """
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o700)
    with _locked(Path(f"{path}.lock")):
        _replace(path, change(_read_regular(path, most)), 0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE)
        else:
            raise OSError(errno.EWOULDBLOCK, "another process holds it", str(path))
        yield
    finally:
        os.close(descriptor)


def _read_regular(path: Path, most: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EPERM, "it is no regular file", str(path))
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return found


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
