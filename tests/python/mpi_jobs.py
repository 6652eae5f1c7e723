"""Jobs of real MPIs, whose ranks preload libhetccl_mpi.so: for the tests of MPI programs.

Without an MPI the tests that need it are skipped, except in CI, where `tools/setup --mpi` has
installed them.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compiled import ROOT, compile_to
from patience import HANG, selected

from hetccl import mpi

PROGRAMS = ROOT / "tests/mpi"
sys.path.insert(0, str(ROOT / "bench"))
from mpis import MPIS, PREFIXES, Mpi  # noqa: E402

MPI4PY = PREFIXES / "mpi4py"

DEBIAN_KEEPS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "HYDRA_LAUNCHER": "fork",
}
BY_HETCCL = {"any": {"algorithm=device": {}}}
BY_MPI = {"any": {"algorithm=mpi": {}}}
BY_LEADERS = {"any": {"composition=alpha": {}}}
IN_PARTS = {"any": {"algorithm=device": {"streams=3": {}, "communicators=2": {}}}}


# More ranks than cores wait for each other: MPICH would poll for as long as the kernel lets it.
YIELDING = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}


def need(reason: str | None, option: str = "--mpi", here: bool = True) -> None:
    """Skips a test, loudly, where something is missing; in CI that is a failure, unless `here` says
    that it cannot be had on this machine.
    """
    if reason is None:
        return
    told = f"{reason}: tools/setup {option} installs it"
    if os.environ.get("CI") and here:
        pytest.fail(told)
    pytest.skip(told)


@dataclass(frozen=True)
class Ran:
    """A job that has ended."""

    status: int
    text: str

    def rows(self) -> dict[str, set[str]]:
        """Returns who served each collective, by the summary."""
        served: dict[str, set[str]] = {}
        for name, by in re.findall(r"^([a-z_]+) +(hetccl|MPI) +[0-9.]+ ", self.text, re.MULTILINE):
            served.setdefault(name, set()).add(by)
        return served


def run(
    command: list[str], env: dict[str, str], timeout: float = HANG, inherit: bool = True
) -> Ran:
    """Runs a job to its end; one that does not end is killed, launcher and ranks.

    `env` comes on top of this process's environment, or with `inherit` False in its place.
    """
    with subprocess.Popen(
        command, env={**os.environ, **env} if inherit else env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True, stdin=subprocess.DEVNULL,
    ) as job:  # fmt: skip
        try:
            text, _ = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGTERM)
            text, _ = job.communicate(timeout=HANG)
            pytest.fail(f"the job hangs: {' '.join(command)}\n{text[-3000:]}")
    return Ran(job.returncode, text)


def launch(
    which: Mpi, ranks: int, program: list[str], rules: Path | None = None, preload: bool = True,
    flags: tuple[str, ...] = (), **settings: str,
) -> Ran:  # fmt: skip
    """Runs a program under an MPI. The launcher itself is not given the library."""
    values = {"HETCCL_MPI_SUMMARY": "1", **settings}
    if preload:
        values["LD_PRELOAD"] = str(mpi.LIBRARY)
    if rules:
        values["HETCCL_MPI_FILE"] = str(rules)
    given = [part for name, value in values.items()
             for part in (["-x", f"{name}={value}"] if which.name == "Open MPI"
                          else ["-genv", name, value])]  # fmt: skip
    argv = which.argv(ranks, [*flags, *given, *program])
    crowded = YIELDING if ranks > (os.cpu_count() or 1) else {}
    return run(argv, {**crowded, **which.env(ranks)})


def _id(which: Mpi) -> str:
    return which.name.replace(" ", "-")


@pytest.fixture(params=MPIS, ids=_id)
def each(request) -> Mpi:
    need(request.param.missing())
    return request.param


def with_each(name: str, values: Sequence[Any], kept: str) -> pytest.MarkDecorator:
    """Runs a test for every MPI and every one of `values` at full scale, else for `kept` alone.

    `kept` has a word for each case, as "Open1": the beginning of the MPI's name, then the value's
    index. The test takes `each` and `name`.
    """
    words = kept.split()
    every = [(mpi, place) for mpi in MPIS for place in range(len(values))]
    cases = selected(
        every,
        len(words),
        lambda case: any(case[0].name.startswith(w[:-1]) and w[-1] == str(case[1]) for w in words),
    )
    return pytest.mark.parametrize(
        ("each", name),
        [pytest.param(mpi, values[place], id=f"{_id(mpi)}-{place}") for mpi, place in cases],
        indirect=["each"],
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Builds a program of tests/mpi for an MPI, once."""
    folder = tmp_path_factory.mktemp("mpi")

    def build(which: Mpi, name: str) -> list[str]:
        program = folder / f"{name}-{which.package}"
        if not program.exists():
            source = str(PROGRAMS / f"{name}.c")
            compile_to(
                program, "gcc", "-rdynamic", "-fexceptions", source, *which.compiling(), "-ldl",
                "-pthread",
            )  # fmt: skip
        return [str(program)]

    return build


@pytest.fixture
def rules(tmp_path):
    """Writes a file of rules."""

    def write(tree) -> Path:
        path = tmp_path / "rules.json"
        path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
        return path

    return write
