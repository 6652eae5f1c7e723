"""The command line on GPUs: bench, tune, topo, check, selftest and info, each a job of two devices.

    python tests/gpu/cuda_tools.py [--devices cuda:0,cuda:1] [--mps] [PART...]
Parts: info bench large mixed launched topo tune check arrays selftest; all of them without a name.
Needs the hetccl package, typer, rich and jinja2, and "arrays" torch. --mps also slows the second
GPU, by a server of MPS that this script starts and ends, which `hetccl check` must name. With
devices of an adaptor (HETCCL_ADAPTORS) the script itself can be tried where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEADLINE = 200  # seconds of a command
CALLS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all",
         "gather", "scatter", "send_recv")  # fmt: skip
PLACES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
ARRAYS = """
import sys, torch, hetccl
from hetccl.rendezvous import exchange
from pathlib import Path
rank, device = int(sys.argv[1]), sys.argv[2]
torch.cuda.set_device(device)
meeting = exchange(rank, Path(sys.argv[3]), 60)
with hetccl.Communicator(meeting.uid, rank, 2, device=device) as comm:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        mine = torch.full((1001,), rank + 1, dtype=dtype, device=device)
        torch.cuda.synchronize()
        comm.all_reduce(mine)
        torch.cuda.synchronize()
        assert (mine == 3).all(), (dtype, mine)
print("arrays of", device, "are right")
"""
options = argparse.Namespace()


def hetccl(*arguments: str, status: tuple[int, ...] = (0,)) -> str:
    """Returns what `hetccl ARGUMENTS` prints; it must end with one of these statuses."""
    command = [sys.executable, "-m", "hetccl", *arguments]
    print("$ hetccl", *arguments, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode in status, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def both(command: Callable[[int], list[str]], environments: list[Mapping[str, str]]) -> list[str]:
    """Returns what the two ranks of a launcher print."""
    ranks = [
        subprocess.Popen(
            command(rank), stdout=subprocess.PIPE, text=True,
            env={**os.environ, **dict(zip(PLACES, (str(rank), "2", str(rank)), strict=True)),
                 **environments[rank]},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        return [rank.communicate(timeout=DEADLINE)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def part_info(_: Path) -> None:
    """At most 40 lines, with the GPUs."""
    shown = hetccl("info")
    print(shown)
    assert len(shown.splitlines()) <= 40
    assert options.devices.split(",")[0] in shown


def part_bench(_: Path) -> None:
    """Every call, all sizes, with its line."""
    sizes = ("-b", "8", "-e", "64M", "-f", "8", "-n", "5", "--regress")
    for call in CALLS:
        shown = hetccl("bench", call, "--devices", options.devices, *sizes)
        print("\n".join(line for line in shown.splitlines() if line.startswith("# ")))
        assert "# Out of bounds values : 0 OK" in shown


def part_large(_: Path) -> None:
    """Up to 1 GB."""
    shown = hetccl("bench", "--devices", options.devices, "-b", "8", "-e", "1G", "-f", "2", "-n",
                   "10", "--regress")  # fmt: skip
    print(shown)
    assert "# Out of bounds values : 0 OK" in shown


def part_mixed(_: Path) -> None:
    """A GPU and the host: two clusters."""
    first = options.devices.split(",")[0]
    shown = hetccl("bench", "--devices", f"{first},cpu", "-b", "1K", "-e", "16M", "-f", "16",
                   "--predict", "-n", "5")  # fmt: skip
    print(shown)
    assert "# Out of bounds values : 0 OK" in shown


def part_launched(folder: Path) -> None:
    """Each task of a launcher takes the device of its local rank."""
    call = ["-m", "hetccl", "bench", "-b", "1M", "-e", "1M", "--rendezvous", str(folder / "id")]
    shown = both(lambda _: [sys.executable, *call, "--devices", options.launched], [{}, {}])
    print(shown[0])
    assert "# Out of bounds values : 0 OK" in shown[0]
    assert f"# ranks 0-1: {options.devices.partition(':')[0]} " in shown[0]


def part_topo(folder: Path) -> None:
    """Writes what plan and shard read."""
    path = str(folder / "topology.json")
    print(hetccl("topo", "--devices", options.devices, "--save", path))
    print(hetccl("shard", "1B", "--topology", path))
    hetccl("plan", "allreduce", "--topology", path)


def part_tune(folder: Path) -> None:
    """Settings of two clusters of a GPU each."""
    print(hetccl("tune", "--devices", options.devices, "--layout", "AB", "--collective",
                 "all_reduce", "--sizes", "64K,4M", "--points", "3", "--budget-seconds", "20",
                 "--no-save", "-o", str(folder / "tune.jsonl")))  # fmt: skip


def part_check(folder: Path) -> None:
    """Nothing is wrong with two GPUs of one kind."""
    page = str(folder / "check.html")
    print(hetccl("check", "--devices", options.devices, "--report", page, status=(0, 3)))
    document = json.loads(hetccl("check", "--devices", options.devices, "--json", status=(0, 3)))
    assert not [one for one in document["findings"] if one["severity"] == "error"], document
    print("speeds", [result["speed"] for result in document["results"]])
    print("links", [result["links"] for result in document["results"]])


def part_arrays(folder: Path) -> None:
    """PyTorch's tensors by DLPack."""
    devices = options.devices.split(",")
    shown = both(lambda rank: [sys.executable, "-c", ARRAYS, str(rank), devices[rank],
                               str(folder / "id")], [{}, {}])  # fmt: skip
    print(*shown)
    assert all("are right" in one for one in shown)


def part_selftest(_: Path) -> None:
    """A few cases on both devices and the host."""
    print(hetccl("selftest", "--quick", "--devices", f"{options.devices},host")[-600:])


@contextmanager
def mps(folder: Path) -> Iterator[dict[str, str]]:
    """The settings of a server of MPS of our own."""
    settings = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
                "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}  # fmt: skip
    environment = {**os.environ, **settings}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=60)
    try:
        yield settings
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=environment,
                       check=False, timeout=60)  # fmt: skip


def slow_gpu(folder: Path) -> None:
    """A GPU of which a tenth is left is named."""
    with mps(folder) as settings:
        slow = {**settings, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}
        call = ["-m", "hetccl", "check", "--json", "--rendezvous", str(folder / "id")]
        shown = both(lambda _: [sys.executable, *call], [settings, slow])
    document = json.loads(shown[0])
    print([result["speed"] for result in document["results"]])
    texts = [one["text"] for one in document["findings"]]
    print(texts)
    assert any(re.match(r"rank 1 on .*of the speed of ranks like it", text) for text in texts)


PARTS = {name[5:]: part for name, part in list(globals().items()) if name.startswith("part_")}


def main() -> int:
    """Runs the parts; 1 where one has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="cuda:0,cuda:1")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    parser.parse_args(namespace=options)
    options.launched = "auto" if options.devices.startswith("cuda") else options.devices
    parts = {name: PARTS[name] for name in options.parts or PARTS}
    if options.mps:
        parts["slow GPU"] = slow_gpu
    failed = []
    for name, part in parts.items():
        print(f"== {name}: {part.__doc__}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                part(Path(folder))
            except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as error:
                print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
                failed.append(name)
    print(f"cuda_tools: {'failed: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
