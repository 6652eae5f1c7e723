"""Checks `hetccl selftest --rdma` and its report. Runs in tests/rdma/selftest's virtual machine."""

import json
import subprocess
import sys
import time
from pathlib import Path

REPORT = Path("/tmp/report.json")


def run(*arguments, **environment):
    """Runs the self-test, and returns its status and output."""
    command = [sys.executable, "-m", "hetccl", "selftest", "--rdma", "--quick", *arguments]
    words = [f"{name}={value}" for name, value in environment.items()]
    done = subprocess.run(
        ["env", *words, *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(done.stdout, end="", flush=True)
    return done.returncode, done.stdout


def check(document):
    """Asserts what the report of a machine with two software ports says."""
    assert document["result"]["ok"] and document["result"]["passed"] > 100, document["result"]
    facts = document["rdma"]
    assert [port["port"] for port in facts["ports"]] == ["rxe0:1", "rxe1:1"]
    for port in facts["ports"]:
        assert port["driver"] == "software" and port["link_layer"] == "Ethernet"
        assert "ACTIVE" in port["state"] and port["rate"]
        assert "(address)/24, the first of v2 and IPv4), MTU 1024" in port["hetccl"], port
    assert facts["locked_memory_kib"] == "unlimited"
    assert facts["library"].startswith("libibverbs.so.1")
    assert list(document["layouts"]) == ["split"]
    for number, rank in enumerate(document["ranks"]):
        assert rank["transports"] == {
            "split": [{"memory": "system", "name": "verbs", "peers": [1 - number], "reason": ""}]
        }
    assert "10.78" not in json.dumps(document)


def main():
    """Runs it as it is, and where the user leaves every port out."""
    begin = time.monotonic()
    status, _ = run("--report", str(REPORT))
    assert status == 0
    check(json.loads(REPORT.read_text()))
    status, text = run(HETCCL_RDMA_DEVICES="=mlx5_0")
    assert status == 1 and "admits none of this host's RDMA devices (rxe0, rxe1)" in text
    print(f"selftest --rdma: right, in {time.monotonic() - begin:.0f} s")


main()
