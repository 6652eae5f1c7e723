"""`hetccl selftest --rdma`: what it needs, what its ranks are, and what its report says. Over
soft-RoCE it runs in tests/rdma/selftest."""

import functools
import json

import commands
import faulty_selftest
import pytest
from test_selftest import known, shown

from hetccl.selftest import command, rdma

NO_RDMA = {"name": "verbs", "available": False, "reason": "this host has no RDMA device"}
PORTS = (
    "mlx5_0:1: InfiniBand, GID 0 (LID 8, the port's own), MTU 4096, 100 Gbit/s",
    "mlx5_1:1 is not used: it is not active (down, or no cable)",
)
VERBS = {"name": "verbs", "available": True, "ports": list(PORTS)}


def with_transport(row):
    """Returns what `hetccl selftest` would find if the machine had this transport."""
    return {**known(), "transports": [row]}


@pytest.fixture
def no_rdma():
    """Skips a test where this machine has RDMA: tests/rdma/selftest is for those."""
    if not rdma.why_no_rdma(known()):
        pytest.skip("this machine has RDMA")


def refused(path, **options):
    """Returns the line with which the self-test refuses to begin."""
    done = commands.run_to(1, "selftest", "--rdma", "--report", path, **options)
    assert done.stdout == ""
    assert done.stderr.startswith("hetccl selftest: there is no RDMA here: ")
    assert len(done.stderr.splitlines()) == 1
    assert not path.exists()
    return done.stderr


@pytest.mark.smoke
def test_without_rdma_one_line_says_what_is_missing(tmp_path):
    prepare = functools.partial(faulty_selftest.know, with_transport(NO_RDMA))
    assert "this host has no RDMA device" in refused(tmp_path / "report", prepare=prepare)


@pytest.mark.usefixtures("no_rdma")
@pytest.mark.parametrize("named", ["verbs", "tcp", ""])
def test_a_machine_without_rdma_is_told_so_whatever_transport_a_setting_names(tmp_path, named):
    line = refused(tmp_path / "report", env={"HETCCL_TRANSPORT": named})
    assert "RDMA" in line.partition("here: ")[2] and "HETCCL_TRANSPORT" not in line


@pytest.mark.usefixtures("no_rdma")
def test_a_rank_that_cannot_use_rdma_is_in_the_report_and_no_other_transport_helps(tmp_path):
    path = tmp_path / "report.json"
    prepare = functools.partial(faulty_selftest.know, with_transport(VERBS))
    done = commands.run_to(
        1, "selftest", "--rdma", "--quick", "--report", path, prepare=prepare
    )  # fmt: skip
    document = json.loads(path.read_text())
    assert [one["device"] for one in document["ranks"]][-2:] == ["host", "host"]
    assert "HETCCL_TRANSPORT=verbs cannot be used: " in document["ranks"][0]["ended"]
    assert not document["result"]["ok"]
    assert document["rdma"]["locked_memory_kib"]
    assert [one["hetccl"] for one in document["rdma"]["ports"] if one["port"] == "mlx5_0:1"] == [
        "InfiniBand, GID 0 (LID 8, the port's own), MTU 4096, 100 Gbit/s"
    ]
    assert "port mlx5_1:1: is not used: it is not active" in done.stdout
    assert "ulimit -l: " in done.stdout


@pytest.mark.parametrize("apart", [True, False])
def test_a_rank_with_rdma_is_a_host_of_its_own(tmp_path, apart):
    prepare = functools.partial(use_tcp, known())
    arguments = ("--devices", "host,host", *(["--rdma"] if apart else []))
    path = tmp_path / "report.json"
    commands.run_to(0, "selftest", "--quick", "--report", path, *arguments, prepare=prepare)
    document = json.loads(path.read_text())
    names = [one["transports"]["split"][0]["name"] for one in document["ranks"]]
    assert names == (["tcp", "tcp"] if apart else ["shm", "shm"])
    assert document["ranks"][0]["transports"]["split"][0]["peers"] == [1]
    assert list(document["layouts"]) == (["split"] if apart else ["found", "split"])
    assert all(one["took"] > 0 for one in document["layouts"].values())
    assert ("rdma" in document) == apart


def use_tcp(found):
    """Has TCP stand in for RDMA, which this machine may lack."""
    rdma.TRANSPORT = "tcp"
    faulty_selftest.know(found)


def test_ports_are_described_by_the_kernel_and_by_hetccl(tmp_path):
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN"), ("mlx5_2", "4: ACTIVE")):
        port = tmp_path / name / "ports/1"
        port.mkdir(parents=True)
        facts = {"state": state, "rate": "100 Gb/sec (4X EDR)", "link_layer": "InfiniBand"}
        for key, value in facts.items():
            (port / key).write_text(value + "\n")
        (tmp_path / name / "fw_ver").write_text("16.35.2000\n")
    (tmp_path / "mlx5_0/device").mkdir()
    (tmp_path / "drivers/mlx5_core").mkdir(parents=True)
    (tmp_path / "mlx5_0/device/driver").symlink_to(tmp_path / "drivers/mlx5_core")
    first, second, third, *_ = rdma.find_ports({"transports": [VERBS]}, tmp_path)
    assert first == {
        "hetccl": PORTS[0].removeprefix("mlx5_0:1: "), "port": "mlx5_0:1", "driver": "mlx5_core",
        "firmware": "16.35.2000", "link_layer": "InfiniBand", "state": "4: ACTIVE",
        "rate": "100 Gb/sec (4X EDR)",
    }  # fmt: skip
    assert second["hetccl"] == "is not used: it is not active (down, or no cable)"
    assert (third["hetccl"], third["driver"]) == (
        "is not used: a setting leaves it out",
        "software",
    )


def test_a_library_is_known_by_its_version(tmp_path):
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 fe:00 12 {}\n"
    maps.write_text(line.format("/lib/libc.so.6") + line.format("/lib/libibverbs.so.1.14.44.0"))
    assert rdma.find_library(maps) == "libibverbs.so.1.14.44.0"
    assert rdma.find_library(tmp_path / "none") == ""


def test_devices_and_layouts_over_rdma():
    def chosen(gpus):
        rows = [{"available": True, "device": f"cuda:{i}"} for i in range(gpus)]
        return command.choose_devices({"devices": rows}, by_rdma=True)

    assert chosen(0) == ["host", "host"]
    assert chosen(1) == ["cuda:0", "cuda:0", "host", "host"]
    assert chosen(2) == ["cuda:0", "cuda:1", "host", "host"]
    assert set(command.choose_layouts(chosen(0), by_rdma=True)) == {"split"}
    assert set(command.choose_layouts(chosen(1), by_rdma=True)) == {"split"}
    assert set(command.choose_layouts(chosen(2), by_rdma=True)) == {"found", "split"}


@pytest.mark.parametrize(
    ("driver", "memory", "says"),
    [
        (
            "mlx5_core",
            ["device", "system"],
            "ran on this hardware; the card moved the GPU's memory",
        ),
        (
            "mlx5_core",
            ["pinned", "system"],
            "the GPU's memory went through pinned memory; memory of the host",
        ),
        ("software", ["system"], "RDMA (RoCE v2 by software): ran in software, on no card"),
        ("mlx5_core", [], "RDMA: no rank was reached by it"),
    ],
)
def test_what_a_report_shows_of_rdma(driver, memory, says):
    port = {"port": "a:1", "driver": driver, "hetccl": "RoCE v2, GID 3 (…), MTU 4096"}
    unused = {"port": "b:1", "driver": "bnxt_re", "hetccl": "is not used: it is not active"}
    ranks = [
        {"vendor": "host", "transports": {"split": [{"name": "verbs", "memory": one}]}}
        for one in memory
    ] or [{"vendor": "host", "transports": {}}]
    found = shown(ranks, {"split": [("host", [0])]}, rdma={"ports": [port, unused]})
    assert says in found["text"]
    assert found["rdma"]["hardware"] == (driver != "software")
    assert found["rdma"]["memory"] == sorted(memory)
    assert "transports" not in found["levels"].get("host", {})
