"""MPI programs with memory of AMD's GPUs, over a fake of HIP's runtime: no GPU is needed.

The host cannot touch the fake's device memory, so code that takes it for host memory crashes. Each
GPU is a cluster of its own, because there is no RCCL.
"""

import json
import sys

import fake_hip
import mpi_jobs
import pytest
from mpi_jobs import BY_HETCCL, BY_MPI, IN_PARTS, MPIS, launch, need, with_each
from patience import sample

built, each, rules = mpi_jobs.built, mpi_jobs.each, mpi_jobs.rules

COUNTS = sample(("1", "1000", "30000", "300000"), 2, seed=3)


@pytest.fixture(scope="session")
def hip(tmp_path_factory) -> dict[str, str]:
    """Builds the fake, once: the settings with which ranks use it."""
    return fake_hip.build(tmp_path_factory.mktemp("hip"))


KINDS = [(2, "r"), (2, "n"), (2, "rh"), (2, "rnh+"), (4, "rhhr"), (4, "r")]


@pytest.mark.long
@with_each("ranks", KINDS, "Intel1 MPICH2 Open0 Open3 Open4")
def test_memory_of_hips_devices(each, built, rules, hip, ranks):
    size, kinds = ranks
    program = [*built(each, "device"), kinds, *COUNTS]
    done = launch(each, size, program, rules(BY_HETCCL), **hip, EXPECT_DEVICE_MEMORY="1")
    assert done.status == 0, done.text
    assert f"ok {kinds} " in done.text
    assert "hetccl" in done.rows()["alltoall"]


@pytest.mark.long
@with_each("tree", [BY_MPI, IN_PARTS], "MPICH0 Open0 Open1")
def test_memory_of_hips_devices_by_other_algorithms(each, built, rules, hip, tree):
    """An MPI that does not take the memory gets copies."""
    done = launch(each, 2, [*built(each, "device"), "rh+", *COUNTS], rules(tree), **hip)
    assert done.status == 0, done.text
    assert ("hetccl" in done.rows()["allreduce"]) == (tree is IN_PARTS)


def test_the_answer_whether_device_memory_is_taken_is_the_mpis_without_hetccl(each, built, hip):
    settings = {**hip, "EXPECT_DEVICE_MEMORY": "1", "HETCCL_MPI": "0"}
    done = launch(each, 2, [*built(each, "device"), "r", "1"], **settings)
    assert done.status != 0
    assert "MPIX_Query_rocm_support: element 0 is 0 and not 1" in done.text


def test_rules_are_measured_for_hips_devices(hip, tmp_path):
    which = next(one for one in MPIS if one.name == "Open MPI")
    need(which.missing())
    path = tmp_path / "tuned.json"
    libraries = f"{which.prefix / 'lib'}:{hip['LD_LIBRARY_PATH']}"
    done = launch(
        which, 2,
        [sys.executable, "-m", "hetccl", "tune", "--mpi", str(path), "--collective", "allreduce",
         "--sizes", "1K,256K", "--budget-seconds", "0.4", "--gpu"],
        preload=False, **{**hip, "LD_LIBRARY_PATH": libraries}, COLUMNS="200",
    )  # fmt: skip
    assert done.status == 0, done.text
    device = json.loads(path.read_text())["comm_size=node_comm_size"]["buffer=device"]
    assert "collective=allreduce" in device
