"""Jobs of a real Slurm, of one host that plays two nodes."""

import json
import os

import pytest
import slurm
from mpi_jobs import need

BENCH = ["-m", "hetccl", "bench", "-b", "1K", "-e", "1K", "-n", "1", "--json"]


@pytest.fixture(scope="module")
def cluster():
    need(slurm.missing(), "--slurm", here=os.geteuid() == 0)
    one = slurm.Slurm()
    yield one
    one.close()


@pytest.fixture(params=["pmi2", "pmix"])
def service(request, cluster) -> str:
    """The --mpi of srun."""
    offered = cluster.srun("--mpi=list").text.split()
    if request.param not in offered:
        pytest.skip(f"this Slurm has no --mpi={request.param}")
    return f"--mpi={request.param}"


def report_of(done):
    assert done.status == 0, done.text
    return json.loads(done.text[done.text.index("{") : done.text.rindex("}") + 1])


@pytest.mark.smoke
def test_ranks_of_two_nodes_meet(cluster, service, forked_python):
    report = report_of(cluster.srun(service, "-N", "2", "-n", "4", forked_python, *BENCH))
    assert (report["ranks"], report["wrong"]) == (4, 0)


def test_a_heterogeneous_job_is_one_communicator(cluster, service, forked_python):
    """Two environments, one for each component: `srun A : srun B`."""
    bench = [forked_python, *BENCH]
    first = ["env", "HETCCL_CLUSTER=a", "HETCCL_HOSTID=a", *bench]
    second = ["env", "HETCCL_CLUSTER=b", "HETCCL_HOSTID=b", *bench]
    done = cluster.srun(service, "-n", "2", *first, ":", service, "-n", "1", *second)
    report = report_of(done)
    assert (report["ranks"], report["clusters"], report["wrong"]) == (3, 2, 0)
