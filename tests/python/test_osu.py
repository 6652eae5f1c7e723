"""bench/osu.py, with a fake launcher and fakes of OSU's programs that print its format."""

import json
import os
import subprocess
import sys

import pytest
from compiled import ROOT
from patience import HANG

# Says that it is Open MPI, and runs one rank: what follows its own options.
LAUNCHER = """#!/bin/bash
[[ $1 != --version ]] || { echo "mpirun (Open MPI) 9.9.1"; exit; }
while [[ $1 != bash ]]; do
  [[ $1 != -x ]] || export "$2"
  shift
done
exec "$@"
"""
# 10 us by hetccl's rules, 100 without; the same at each size.
PROGRAM = """#!/bin/bash
echo "# OSU MPI Allreduce Latency Test v7.4"
echo "# Size       Avg Latency(us)        Validation"
[[ ${FAULT:-} != dies ]] || { echo "an error of the fake"; exit 1; }
us=100.00 verdict=Pass
[[ -z ${HETCCL_MPI_FILE:-} ]] || us=10.00
[[ ${FAULT:-} != wrong ]] || verdict=Fail
printf '4     %s     %s\\n1048576     %s     Pass\\n' $us $verdict $us
echo "$HETCCL_HOSTID $LOCAL_RANK $* $(cat "${HETCCL_MPI_FILE:-/dev/null}")" >>"$TOLD"
"""


@pytest.fixture
def osu(tmp_path):
    """Runs it with arguments and settings: the process, its numbers, what programs were told."""
    for name, text in {"bin/mpirun": LAUNCHER, "osu/osu_allreduce": PROGRAM,
                       "osu/osu_bcast": PROGRAM}.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(*arguments, **settings):
        env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
               "TOLD": str(tmp_path / "told"), **settings}  # fmt: skip
        done = subprocess.run(
            [sys.executable, str(ROOT / "bench/osu.py"), str(tmp_path / "osu"), "--rounds", "1",
             "--json", str(tmp_path / "osu.json"), "--draw", str(tmp_path / "drawn"), *arguments],
            env=env, capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        told = tmp_path / "told"
        return done, json.loads((tmp_path / "osu.json").read_text()), (
            told.read_text() if told.exists() else ""
        )  # fmt: skip

    return run


@pytest.mark.long
def test_the_papers_figures_are_measured_and_drawn(osu, tmp_path):
    done, panels, told = osu("--memory", "rocm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(one["figure"], one["nodes"]) for one in panels] == [
        (number, nodes) for nodes in (1, 2) for number in (4, 6, 7)
    ]
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {
        f"figure{number}-allreduce.png" for number in (4, 6, 7)
    }
    # The MPI does not take such memory, so its series, too, is preloaded.
    assert list(panels[0]["us"]) == ["MPI, through the host", "hetccl"]
    assert list(panels[3]["us"]) == ["MPI, through the host", "leaders (alpha)", "hetccl"]
    assert list(panels[5]["us"]) == ["hetccl", "4 streams", "4 communicators"]
    assert "node0 0 -m 4:1048576 -c" in told
    assert "-d rocm" in told
    assert '{"algorithm=device": {"streams=4": {}, "communicators=4": {}}}' in told


@pytest.mark.long
def test_speedups_are_over_the_mpi_alone(osu):
    done, panels, _ = osu("--figure", "6", "--nodes", "1", "--collective", "allreduce", "bcast")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["collective"] for one in panels] == ["allreduce", "bcast"]
    assert panels[0]["us"]["MPI"] == {"4": 100.0, "1048576": 100.0}
    assert panels[0]["speedup"] == {"4": 10.0, "1048576": 10.0}
    assert "hybrid is faster by" in done.stdout


@pytest.mark.parametrize(
    ("fault", "why"), [("wrong", "wrong values at 4 bytes"), ("dies", "an error of the fake")]
)
def test_a_series_that_fails_is_named(osu, fault, why):
    done, panels, _ = osu("--figure", "7", "--nodes", "1", FAULT=fault)
    assert done.returncode == 1
    assert panels[0]["us"]["hetccl"] == why
    assert f"hetccl was not measured: {why}" in done.stdout
