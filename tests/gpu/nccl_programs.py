"""NCCL programs on GPUs, by NCCL alone and with hetccl's stand-in: values and losses compared.

    python tests/gpu/nccl_programs.py BUILD [PART...]     # train ctypes cupy jax rccl perf, or all
BUILD is tools/gpu-test's build folder. Needs HETCCL_NCCL_LIBRARY, and "rccl" the folder of
tests/amd/forward's libraries as FORWARD. Losses differ by at most 1e-3 from native NCCL's. Says
what is not installed, and so not tested. Each program has a deadline.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from cuda_ranks import refuse_without_settings

DEADLINE = 150
HERE = Path(__file__).parent
BUILD = Path(sys.argv[1]).resolve()
NATIVE = os.environ["HETCCL_NCCL_LIBRARY"]
STAND_IN = BUILD / "compat/nccl/libhetccl_nccl.so"
REPLACEMENT = BUILD / "compat/nccl/hetccl-nccl"

Settings = Mapping[str, str]

REPLACED = {
    "LD_LIBRARY_PATH": f"{REPLACEMENT}:{os.environ.get('LD_LIBRARY_PATH', '')}",
    "VLLM_NCCL_SO_PATH": f"{REPLACEMENT}/libnccl.so.2",
}
# Settings for programs that look elsewhere before LD_LIBRARY_PATH.
LOADED_FIRST = {"LD_PRELOAD": f"{REPLACEMENT}/libnccl.so.2"}
PRELOADED = {"LD_PRELOAD": f"{STAND_IN}:{NATIVE}", "HETCCL_DEBUG": "info"}
MANNERS = {
    "native": ({"LD_PRELOAD": NATIVE}, ""),
    "preloaded, one vendor": (PRELOADED, ""),
    "preloaded, two clusters": (PRELOADED, "clusters"),
}


def count_gpus() -> int:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


GPUS = count_gpus()


def environment(rank: int, size: int, settings: Settings, clusters: bool) -> dict[str, str]:
    """Environment of a rank that sees one GPU, which ranks share if there are fewer."""
    own = {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": str(rank % GPUS),
        "OMP_NUM_THREADS": "2", "NCCL_SOCKET_IFNAME": "lo", "PYTHONFAULTHANDLER": "1",
    }  # fmt: skip
    if size > GPUS:
        own["NCCL_HOSTID"] = f"rank{rank}"
    if clusters:
        own["HETCCL_CLUSTER"] = "AB"[2 * rank // size]
    return {**os.environ, **own, **settings}


def run(
    command: Sequence[str],
    size: int,
    settings: Settings,
    clusters: bool,
    of_rank: Callable[[int], Settings] = lambda _: {},
) -> list[str]:
    """Returns the ranks' output. RuntimeError if one fails or is late."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(rank) for rank in range(size)]
        ranks = []
        for rank, log in enumerate(logs):
            with log.open("w") as file:
                ranks.append(
                    subprocess.Popen(
                        command,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        env=environment(rank, size, settings, clusters) | dict(of_rank(rank)),
                    )
                )
        until = time.monotonic() + DEADLINE
        failed = ""
        for rank, process in enumerate(ranks):
            try:
                if process.wait(max(0.1, until - time.monotonic())) != 0:
                    failed += f" {rank}: {process.returncode};"
                    until = min(until, time.monotonic() + 5)
            except subprocess.TimeoutExpired:
                failed += f" {rank}: late;"
                process.kill()
        texts = [log.read_text(errors="replace") for log in logs]
    if not failed and settings.get("HETCCL_DEBUG") and not all(map(MET.search, texts)):
        failed = " hetccl was not there"  # a preload that cannot be loaded is left out
    if failed:
        for rank, text in enumerate(texts):
            print(f"-- rank {rank}:\n{text[-3000:]}", flush=True)
        raise RuntimeError(f"{command[1][:40]}:{failed}")
    return texts


MET = re.compile(r"hetccl info: rank \d+ of \d+: nccl")


def perf() -> None:
    """A program in nccl-tests' manner: values, and what the stand-in costs."""
    size = max(2, GPUS)
    with tempfile.TemporaryDirectory() as folder:
        program = str(BUILD / "tests/nccl/nccl_perf")

        def once(collective: str, number: int, settings: Settings, clusters: bool, *options: str):
            path = f"{folder}/{number}"
            command = [program, path, "-c", collective, *options]
            text = run(command, size, settings, clusters)[0]
            Path(path).unlink()
            return text

        large = ("-b", "64K", "-e", "256M", "-f", "64", "-n", "50", "-w", "10")
        for collective in ("all_reduce", "all_gather", "sendrecv", "alltoall"):
            for name, (settings, clusters) in MANNERS.items():
                text = once(collective, 0, settings, bool(clusters), *large)
                print(f"   {collective}, {name}")
                print("\n".join("   " + line for line in text.splitlines() if "float" in line))
        small = ("-b", "4K", "-e", "4K", "-n", "500", "-w", "100")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in MANNERS}
        for _ in range(5):
            for name, (settings, clusters) in MANNERS.items():
                text = once("all_reduce", 1, settings, bool(clusters), *small)
                init = re.findall(r"id and init ([0-9.]+) ms", text)
                call = re.findall(r"until a call returns: ([0-9.]+) us", text)
                found[name].append((float(init[0]), float(call[0])))
        for name, rows in found.items():
            inits, calls = zip(*rows, strict=True)
            print(
                f"   {name}: init {statistics.median(inits):.1f} ms ({min(inits):.1f} to "
                f"{max(inits):.1f}); a call of 4 KiB returns after {statistics.median(calls):.2f} "
                f"us ({min(calls):.2f} to {max(calls):.2f})"
            )


def train() -> None:
    """Losses, in every manner alike."""
    scenes = ["ddp", "fsdp2", "mesh", "pipeline"]
    libraries = {"lightning": ("lightning", "pytorch_lightning"), "accelerate": ("accelerate",)}
    for scene, names in libraries.items():
        if any(find_spec(name) for name in names):
            scenes.append(scene)
        else:
            print(f"   NOT TESTED: {scene} is not installed")
    losses: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (settings, clusters)) in enumerate(MANNERS.items()):
            print(f"   {name}", flush=True)
            for place, scene in enumerate(scenes):
                path = f"{folder}/{number}-{scene}"
                port = {"MASTER_PORT": str(23000 + 100 * number + place)}
                command = [sys.executable, str(HERE / "nccl_train.py"), path, scene]
                try:
                    text = run(command, 4, settings | port, bool(clusters))[0]
                except RuntimeError as error:
                    print(f"   {scene}: {error}")
                    continue
                print("\n".join(re.findall("^   .*", text, re.MULTILINE)), flush=True)
                losses.setdefault(name, {}).update(json.loads(Path(path).read_text()))
    compare(losses, scenes)


def compare(losses: Mapping[str, Mapping[str, Sequence[float]]], scenes: Sequence[str]) -> None:
    failed = []
    if "ddp" not in losses.get("native", {}):
        raise RuntimeError("native DDP has no losses to compare with")
    for name in MANNERS:
        for scene in scenes:
            if scene not in losses.get(name, {}):
                print(f"   {scene}, {name}: none")
                failed.append(scene)
                continue
            pairs = zip(losses[name][scene], losses["native"]["ddp"], strict=True)
            most = max(abs(ours - natives) for ours, natives in pairs)
            print(f"   {scene}, {name}: losses within {most:.1e} of native DDP's")
            if most > 1e-3:
                failed.append(scene)
    if failed:
        raise RuntimeError(f"losses: {', '.join(failed)}")


CUPY = """
import os
import cupy
from cupyx.distributed import init_process_group
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
group = init_process_group(size, rank, backend="nccl", host="127.0.0.1", port=24100)
data, sums = cupy.arange(1000, dtype="f") + rank, cupy.zeros(1000, dtype="f")
group.all_reduce(data, sums)
assert (sums == size * cupy.arange(1000) + size * (size - 1) / 2).all()
every = cupy.zeros((size, 1000), dtype="f")
group.all_gather(data, every, 1000)
assert all((every[r] == cupy.arange(1000) + r).all() for r in range(size))
group.stop()
"""

JAX = """
import os
import jax
import numpy
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize("127.0.0.1:24200", num_processes=size, process_id=rank)
mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("ranks",))
P = jax.sharding.PartitionSpec
split = jax.sharding.NamedSharding(mesh, P("ranks"))
mine = jax.device_put(numpy.full((1, 1000), rank + 1.0, "f"), jax.local_devices()[0])
every = jax.make_array_from_single_device_arrays((size, 1000), split, [mine])
whole = jax.sharding.NamedSharding(mesh, P())
for _ in range(3):
    summed = jax.jit(lambda x: x.sum(0), out_shardings=whole)(every)
    assert (numpy.asarray(summed) == size * (size + 1) / 2).all()
    shown = jax.jit(lambda x: 2 * x, out_shardings=whole)(every)
    assert (numpy.asarray(shown)[:, 0] == 2 * numpy.arange(1, size + 1)).all()
"""

CTYPES = """
import os, torch
import torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
import ctypes
nccl = ctypes.CDLL(os.environ["VLLM_NCCL_SO_PATH"])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
dist.init_process_group("gloo")
torch.cuda.set_device(0)
uid = Id()
if rank == 0:
    assert nccl.ncclGetUniqueId(ctypes.byref(uid)) == 0
given = [bytes(uid)]
dist.broadcast_object_list(given, src=0)
ctypes.memmove(ctypes.byref(uid), given[0], 128)
comm = ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
assert nccl.ncclCommInitRank(ctypes.byref(comm), size, uid, rank) == 0
data = torch.full((1000,), rank + 1.0, device="cuda")
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                               ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
stream = torch.cuda.current_stream().cuda_stream
address = data.data_ptr()
assert nccl.ncclAllReduce(address, address, 1000, 7, 0, comm, stream) == 0
assert (data == size * (size + 1) / 2).all()
nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]
assert nccl.ncclCommDestroy(comm) == 0
"""

WHICH = """
import sys
sys.path.insert(0, "{package}")
from hetccl import nccl
print("NCCL:", nccl.loaded_by("self").describe())
"""


def run_program(package: str, program: str, put_in_place: Settings) -> None:
    """In one cluster and in two: each calls hetccl's library, and checks its values."""
    if not find_spec(package):
        print(f"   NOT TESTED: {package} is not installed")
        return
    settings = {**put_in_place, "MASTER_PORT": "24000", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    which = WHICH.format(package=HERE.parent.parent / "python")
    for clusters in (False, True):
        texts = run([sys.executable, "-c", program + which], GPUS, settings, clusters)
        used = re.findall(r"^NCCL: (.*)$", texts[0], re.MULTILINE)[0]
        print(f"   {'two clusters' if clusters else 'one vendor'}: values right; {used}")
        if not used.startswith("hetccl"):
            raise RuntimeError(f"{package} has not used hetccl's library")


def rccl() -> None:
    """Two ranks of CUDA and two of HIP, which load the stand-in under RCCL's name."""
    forward = os.environ.get("FORWARD")
    if not forward:
        print("   NOT TESTED: FORWARD names no folder of tests/amd/forward")
        return
    nvrtc = os.environ["HETCCL_NVRTC_LIBRARY"]
    folders = (forward, str(Path(nvrtc).parent), str(Path(NATIVE).parent))
    hip = {
        "NCCL_PERF_RUNTIME": "hip",
        "LD_PRELOAD": f"{REPLACEMENT}/librccl.so.1",
        "LD_LIBRARY_PATH": ":".join(folders),
        "FORWARD_NVRTC": nvrtc,
        "FORWARD_NCCL": NATIVE,
        "HETCCL_HIP_LIBRARY": f"{forward}/libamdhip64.so.6",
        "HETCCL_HIPRTC_LIBRARY": f"{forward}/libhiprtc.so.6",
        "HETCCL_RCCL_LIBRARY": f"{forward}/librccl.so.1",
        "HETCCL_NCCL_LIBRARY": "none",
    }
    cuda = {"NCCL_PERF_RUNTIME": "cuda", "HETCCL_RCCL_LIBRARY": "none", **PRELOADED}
    program = str(BUILD / "tests/nccl/nccl_perf")
    with tempfile.TemporaryDirectory() as folder:
        for number, collective in enumerate(COLLECTIVES):
            command = [program, f"{folder}/{number}", "-c", collective, *SIZES]
            text = run(command, 4, {}, False, lambda rank: cuda if rank < 2 else hip)[0]
            print("\n".join("   " + line for line in text.splitlines()))


COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "sendrecv",
               "alltoall")  # fmt: skip
SIZES = ("-b", "8", "-e", "8M", "-f", "1K", "-n", "5", "-w", "2")
PARTS: dict[str, Callable[[], None]] = {
    "train": train,
    "ctypes": lambda: run_program("torch", CTYPES, REPLACED),
    "cupy": lambda: run_program("cupy", CUPY, PRELOADED),
    "jax": lambda: run_program("jax", JAX, LOADED_FIRST),
    "rccl": rccl,
    "perf": perf,
}


def main() -> None:
    refuse_without_settings()
    failed = []
    for name in sys.argv[2:] or PARTS:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            PARTS[name]()
        except RuntimeError as error:
            failed.append(name)
            print(f"   FAILED: {error}", flush=True)
        print(f"   {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        sys.exit(f"nccl_programs: FAILED: {', '.join(failed)}")


if __name__ == "__main__":
    main()
