"""Limits of processor time, which make equal processes unlike devices. Linux's control groups."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import Place

_PERIOD_US = 10_000
_FIRST = Path("/sys/fs/cgroup/cpu")  # version 1
_SECOND = Path("/sys/fs/cgroup")


def _set(folder: Path, processors: float) -> None:
    """Limits all processes of the group together to the time of so many processors."""
    quota = round(processors * _PERIOD_US)
    if folder.is_relative_to(_FIRST):
        (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")


def _join(folder: Path) -> None:
    """Moves this process into the group, and with it every process that it starts."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _group_of_this_process(top: Path) -> Path:
    """Returns the group of this process, to come back to; the top one if the group cannot be seen
    here.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.split(",").count("" if top == _SECOND else "cpu"):
            found = top / path.lstrip("/")
            return found if (found / "cgroup.procs").exists() else top
    return top


@contextmanager
def _groups(top: Path, count: int) -> Iterator[list[Path]]:
    """Makes groups without a limit. Raises SystemExit if this user may not."""
    root = top / f"hetccl-{os.getpid()}"
    made = []
    try:
        for folder in (root, *(root / str(index) for index in range(count))):
            folder.mkdir()
            made.append(folder)
            if folder == root and top == _SECOND:
                (root / "cgroup.subtree_control").write_text("+cpu")
        yield made[1:]
    except OSError as error:
        if len(made) > count:
            raise
        raise SystemExit(f"bench: control groups of processors need root: {error}") from None
    finally:
        for folder in reversed(made):
            folder.rmdir()


@contextmanager
def limited(place: Place, ranks: int, wanted: Path) -> Iterator[Place]:
    """Yields a place in which each rank is in a group of its own.

    A rank writes the file `wanted`: the processors of each rank, as a JSON list. Limits are set
    when the file changes. Without it there is no limit.
    """
    top = _FIRST if (_FIRST / "cpu.shares").exists() else _SECOND
    home = _group_of_this_process(top)
    with _groups(top, ranks) as groups:

        def start(host: int, argv: list[str], env: dict[str, str], out: Any) -> Any:
            _join(groups[int(env["RANK"])])
            try:
                return place.start(host, argv, env, out)
            finally:
                _join(home)

        over = threading.Event()

        def follow() -> None:
            seen = ""
            while not over.wait(0.01):
                text = wanted.read_text() if wanted.exists() else ""
                if text in ("", seen):
                    continue
                seen = text
                for folder, processors in zip(groups, json.loads(text), strict=True):
                    _set(folder, processors)

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            yield dataclasses.replace(place, start=start)
        finally:
            over.set()
            follower.join()


def limit(rank: int, folder: Path, processors: list[float]) -> None:
    """Gives each rank so much of a processor from now on, in a job whose parent's `limited` follows
    the file "processors" of `folder`. Collective."""
    import torch.distributed as dist

    dist.barrier()
    if rank == 0:
        (folder / "draft").write_text(json.dumps(processors))
        (folder / "draft").rename(folder / "processors")
    time.sleep(0.1)  # the parent looks every 10 ms
    dist.barrier()
