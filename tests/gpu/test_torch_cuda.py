"""The PyTorch backend on GPUs, and on GPUs and hosts together.

    python tests/gpu/test_torch_cuda.py --list     # the jobs that this machine's GPUs allow
    python tests/gpu/test_torch_cuda.py JOB...     # each within a deadline
    python tests/gpu/test_torch_cuda.py --passed FOLDER --seconds 300 JOB...
`--passed`: a job that passes leaves a file there, and is not run where it has one. `--seconds`:
starts no job later than that; the exit status is 3 where jobs are left. tools/gpu-test runs them
all. Without a GPU there is none, and that is said loudly.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import cuda_tuning
import torch
import torch.distributed as dist
from cuda_endpoints import endpoints
from cuda_exits import leave, leave_missed, leave_spinning
from cuda_load import GENERATIONS, GROUPS, HOSTILE, IN_FLIGHT, briefly_disturbed, delayed
from cuda_lost import abort, lose, lose_inside, miss
from cuda_meshes import GROUPS_OF_GROUPS, TRAINING_ON_MESHES, count_operations
from cuda_messages import messages
from cuda_pairs import (
    CONNECTING,
    NEED_NCCL,
    PAIRS,
    UNDER_SETTINGS,
    leaving_sender,
    lose_partner,
    mismatched,
)
from cuda_quantized import ENCODED
from cuda_ranks import CPU, SCALE, Rank, pool, raises, refuse_without_settings, run, total
from cuda_sharding import encoded_sharding, sharding
from cuda_training import TRAINING, TRAINING_ON_GPUS

COUNTS = (0, 1, 1000, 300_007)
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.float64)


def reductions(where: Rank) -> None:
    for dtype in TYPES:
        for count in COUNTS:
            for later in (False, True):
                tensor = where.full(where.rank + 1, count, dtype=dtype)
                work = dist.all_reduce(tensor, async_op=later)
                if later:
                    work.wait()
                assert (tensor == total(where)).all(), (dtype, count)
                for op, want in ((dist.ReduceOp.MAX, where.size), (dist.ReduceOp.MIN, 1)):
                    tensor = where.full(where.rank + 1, count, dtype=dtype)
                    dist.all_reduce(tensor, op)
                    assert (tensor == want).all(), (dtype, count, op)
                root = count % where.size
                tensor = where.full(where.rank + 1, count, dtype=dtype)
                dist.reduce(tensor, root)
                assert where.rank != root or (tensor == total(where)).all()
                out = where.full(0, count, dtype=dtype)
                parts = [where.full(r + where.rank, count, dtype=dtype) for r in range(where.size)]
                want = where.rank * where.size + total(where) - where.size
                dist.reduce_scatter(out, parts)
                assert (out == want).all(), (dtype, count)
                out.zero_()
                dist.reduce_scatter_tensor(out, torch.cat(parts))
                assert (out == want).all(), (dtype, count)
    mean = where.full(where.rank, 1001)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert (mean == (where.size - 1) / 2).all()
    scaled = where.full(where.rank, 1001)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    assert (scaled == where.size * (where.size - 1)).all()
    flags = torch.tensor([where.rank == 0, False], device=where.device)
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False]


def bitwise(where: Rank) -> None:
    """On integers, but not where NCCL joins GPUs: there it is refused on every rank."""
    gpus = [r for r in range(where.size) if where.devices[r] != "cpu"]
    joined = len({where.labels[r : r + 1] for r in gpus}) < len(gpus)
    everyone = (1 << where.size) - 1
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.int16):
        for op, want in ((dist.ReduceOp.BOR, everyone), (dist.ReduceOp.BXOR, everyone)):
            tensor = where.full(1 << where.rank, 1001, dtype=dtype)
            if joined:
                with raises(dist.DistBackendError, "cannot reduce", " by b", "HETCCL_CLUSTER"):
                    dist.all_reduce(tensor, op)
                continue
            dist.all_reduce(tensor, op)
            assert (tensor == want).all(), (dtype, op)
            tensor = where.full(everyone ^ (1 << where.rank), 1001, dtype=dtype)
            dist.reduce(tensor, 0, dist.ReduceOp.BAND)
            assert where.rank != 0 or (tensor == 0).all(), dtype
    with raises(TypeError, "bitwise"):
        dist.all_reduce(where.full(1, 10), dist.ReduceOp.BAND)


def movements(where: Rank) -> None:
    for dtype in TYPES:
        for count in COUNTS:
            root = count % where.size
            tensor = where.full(where.rank, count, dtype=dtype)
            dist.broadcast(tensor, root)
            assert (tensor == root).all()
            mine = where.full(where.rank, count, dtype=dtype)
            every = [where.full(99, count, dtype=dtype) for _ in range(where.size)]
            dist.all_gather(every, mine)
            assert all((part == r).all() for r, part in enumerate(every)), (dtype, count)
            joined = where.full(99, where.size * count, dtype=dtype)
            dist.all_gather_into_tensor(joined, mine)
            assert torch.equal(joined, torch.cat(every)), (dtype, count)
            parts = [torch.zeros_like(mine) for _ in range(where.size)]
            dist.gather(mine, parts if where.rank == root else None, dst=root)
            assert where.rank != root or all((p == r).all() for r, p in enumerate(parts))
            dist.scatter(mine, every if where.rank == root else None, src=root)
            assert (mine == where.rank).all()
            sent = [where.full(10 * where.rank + r, count, dtype=dtype) for r in range(where.size)]
            got = [torch.zeros_like(part) for part in sent]
            dist.all_to_all(got, sent)
            assert all((p == 10 * r + where.rank).all() for r, p in enumerate(got)), (dtype, count)
            row = torch.cat(sent)
            column = torch.zeros_like(row)
            dist.all_to_all_single(column, row)
            assert torch.equal(column, torch.cat(got)), (dtype, count)
    sizes = [r + 1 for r in range(where.size)]  # from each, to every rank
    given = where.full(where.rank, where.size * sizes[where.rank])
    taken = where.full(99, sum(sizes))
    dist.all_to_all_single(taken, given, sizes, [sizes[where.rank]] * where.size)
    assert taken.tolist() == [float(r) for r in range(where.size) for _ in range(sizes[r])]


def objects(where: Rank) -> None:
    """Tensors of the host, where the communicator is a GPU's."""
    gathered = [None] * where.size
    dist.all_gather_object(gathered, {"rank": where.rank, "text": "x" * 1000 * where.rank})
    assert [len(one["text"]) for one in gathered] == [1000 * r for r in range(where.size)]
    shared = [where.rank, "from"] if where.rank == 0 else [None, None]
    dist.broadcast_object_list(shared, src=0)
    assert shared == [0, "from"]
    tensor = torch.full((1000,), float(where.rank + 1))
    work = dist.all_reduce(tensor, async_op=True)
    work.get_future().wait()
    work.wait()
    assert (tensor == total(where)).all()
    dist.barrier()
    dist.barrier(async_op=True).wait()


def late_data(where: Rank) -> None:
    """Every stream waits for the one that it has to wait for, and the host for none."""
    size = 1_000_000
    for round in range(3):
        tensor, other = where.full(0, size), where.full(0, size)
        started = time.monotonic()
        where.pass_time(200)
        tensor.fill_(where.rank + 1)  # comes late
        work = dist.all_reduce(tensor, async_op=True)
        other.fill_(round)  # goes on meanwhile
        work.wait()
        tensor.mul_(2)
        if where.all_on_gpus and round > 0:
            assert time.monotonic() - started < 0.15, "the host has waited"
        assert (tensor == 2 * total(where)).all()
        assert (other == round).all()
        if where.on_gpu:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                where.pass_time()
                tensor.fill_(where.rank + 1)
                work = dist.all_reduce(tensor, async_op=True)
                where.pass_time()
                work.wait()
                doubled = tensor * 2
                dist.all_reduce(doubled)  # on the side stream itself
            torch.cuda.current_stream().wait_stream(side)
        else:
            tensor.fill_(where.rank + 1)
            dist.all_reduce(tensor)
            doubled = tensor * 2
            dist.all_reduce(doubled)
        assert (doubled == 2 * where.size * total(where)).all()


def lifetimes(where: Rank) -> None:
    """Memory that a collective uses is not reused before it has ended."""
    size, kept, poisons = 4_000_000, [], []
    for round in range(6):
        where.pass_time(100)
        source = where.full(where.rank + round, size)
        results = [where.full(-1, size) for _ in range(where.size)]
        work = dist.all_gather(results, source, async_op=True)
        del source
        poisons += [where.full(float("nan"), size) for _ in range(3)]
        if round % 2:
            kept.append((work, results, round))
        else:
            del results, work  # nobody waits
        poisons += [where.full(float("nan"), size) for _ in range(where.size)]
        dist.all_reduce(where.full(1, size), async_op=True)  # nor for this
        poisons.append(where.full(float("nan"), size))
    for work, results, round in kept:
        work.wait()
        for rank, result in enumerate(results):
            assert (result == rank + round).all()
    done = dist.all_reduce(where.full(1, 10), async_op=True)
    while not done.is_completed():
        time.sleep(0.001)
    assert done.is_success()
    if where.on_gpu:
        torch.cuda.synchronize()
    for number, poison in enumerate(poisons):
        assert poison.isnan().all(), f"block {number} was written by a collective that had it"


def little_memory(where: Rank) -> None:
    """The allocator must free its cached blocks and use others again, all the time."""
    longest = 6_000_000
    most = longest * (where.size + 4)  # in use at once, in elements
    if where.on_gpu:  # room for pieces, and for what a dropped work still holds
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        retries = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        room = torch.cuda.memory_reserved() + 4 * most * 4
        all_of_it = torch.cuda.get_device_properties(where.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, room / all_of_it))
    try:
        for round in range(24):
            size = longest // 2 + (round * 7919 * 64) % (longest // 2)
            where.pass_time(20)
            source = where.full(where.rank + round, size)
            results = [where.full(-1, size) for _ in range(where.size)]
            work = dist.all_gather(results, source, async_op=True)
            del source
            poison = where.full(float("nan"), size + 4096)
            if round % 2:
                work.wait()
                assert all((part == r + round).all() for r, part in enumerate(results))
            del results, work
            if where.on_gpu:  # fits into no block that is cached: each is longer
                where.full(float("nan"), most * (24 + round) // 48)
            late = [where.full(float("nan"), size) for _ in range(2)]
            tensor = where.full(1, 10)
            dist.all_reduce(tensor)  # after what was dropped
            assert (tensor == where.size).all()
            if where.on_gpu:
                torch.cuda.synchronize()
            assert all(block.isnan().all() for block in (poison, *late)), round
            del poison, late, tensor
        if where.on_gpu:
            assert torch.cuda.memory_stats()["num_alloc_retries"] > retries, "nothing was freed"
    finally:
        if where.on_gpu:
            torch.cuda.set_per_process_memory_fraction(1.0)


def futures(where: Rank) -> None:
    tensor = where.full(0, 100_000)
    where.pass_time(100)
    tensor.fill_(where.rank + 1)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    if where.all_on_gpus:
        assert future.done()
    later = future.then(lambda done: done.value()[0] * 3)
    tripled = later.then(lambda done: done.value() + 1).wait()
    assert (tripled == 3 * total(where) + 1).all()
    again = future.then(
        lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]
    )
    assert (again.wait() == total(where) * where.size).all()
    assert work.get_future_result().wait() == 0
    late = where.full(1, 10)
    where.pass_time(400)
    pending = dist.all_reduce(late, async_op=True)
    if where.on_gpu:
        with raises(dist.DistBackendError, "1 ms"):
            pending.wait(timedelta(milliseconds=1))
    pending.wait()
    assert (late == where.size).all()
    dist.barrier()


def coalescing(where: Rank) -> None:
    where.pass_time()
    ours = [where.full(where.rank + i, 3 + i) for i in range(4)]
    with dist._coalescing_manager(device=where.device, async_ops=True) as block:
        for tensor in ours:
            dist.all_reduce(tensor)
    block.wait()
    base = total(where) - where.size
    assert [t[0].item() for t in ours] == [base + i * where.size for i in range(4)]
    lists = [where.full(where.rank, n) for n in (2, 5)]
    outs = [where.full(9, where.size * n) for n in (2, 5)]
    with dist._coalescing_manager(device=where.device):
        for out, tensor in zip(outs, lists, strict=True):
            dist.all_gather_into_tensor(out, tensor)
    assert outs[1].tolist() == [float(r) for r in range(where.size) for _ in range(5)]


def groups(where: Rank) -> None:
    """Groups of some ranks, each with a communicator of its own, whose first call is any."""
    everybody = list(range(where.size))
    for first, ranks in (
        ("barrier", everybody),
        ("object", sorted({0, where.size - 1})),
        ("tensor", [0]),
    ):
        group = dist.new_group(ranks)
        if where.rank not in ranks:
            continue
        if first == "barrier":
            dist.barrier(group)
        if first == "object":
            dist.all_gather_object([None] * len(ranks), 1, group=group)
        tensor = where.full(1, 100)
        dist.all_reduce(tensor, group=group)
        assert (tensor == len(ranks)).all()
        dist.destroy_process_group(group)


def devices(where: Rank) -> None:
    """A tensor elsewhere is an error that names both places, and harms nothing."""
    dist.barrier()
    dist.all_reduce(where.full(1, 4))
    if not where.on_gpu:
        with raises(ValueError, "cuda:0", "cpu", "device_id"):
            dist.all_reduce(torch.ones(4, device="cuda:0"))
    elif torch.cuda.device_count() > 1:
        other = f"cuda:{(where.device.index + 1) % torch.cuda.device_count()}"
        with raises(ValueError, other, f"with {where.device}"):
            dist.all_reduce(torch.ones(4, device=other))
    backend = dist.group.WORLD._get_backend(where.device)
    assert backend is dist.group.WORLD._get_backend(CPU)
    assert count_operations(backend) > 0
    dist.barrier()


def graph_all_to_all(where: Rank) -> None:
    out, every = where.full(0, where.size), where.full(where.rank, where.size)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_to_all_single(out, every)
    for value in (0, 10):
        every.fill_(where.rank + value)
        graph.replay()
        assert out.tolist() == [rank + value for rank in range(where.size)]


def graphs(where: Rank) -> None:
    def together(tensor: torch.Tensor, joined: torch.Tensor) -> None:
        dist.all_reduce(tensor)
        parts = [torch.empty_like(tensor) for _ in range(where.size)]
        work = dist.all_gather(parts, tensor + 0, async_op=True)  # what it reads, nobody else has
        other = torch.full_like(tensor, 99)
        assert work is not None
        work.wait()
        torch.cat(parts, out=joined)
        joined += 1 + 0 * other[0]

    tensor, joined = where.full(1, 1000), where.full(0, 1000 * where.size)
    together(tensor, joined)
    assert (joined == where.size + 1).all()
    if where.in_one_cluster:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            together(tensor, joined)
        for value in (3, 5, 7):
            tensor.fill_(value + where.rank)
            graph.replay()
            want = where.size * value + total(where) - where.size
            assert (tensor == want).all() and (joined == want + 1).all()
    elif where.on_gpu:
        with raises(RuntimeError, "outside the graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(tensor)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            with raises(RuntimeError, "outside the graph"):
                dist.all_reduce(tensor, async_op=True)
            tensor.add_(1)
    if where.in_one_cluster:
        graph_all_to_all(where)
    elif where.on_gpu:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            with raises(RuntimeError, "outside the graph"):
                dist.all_to_all_single(where.full(0, where.size), where.full(1, where.size))
            tensor.add_(1)
    tensor.fill_(1)
    dist.all_reduce(tensor)
    assert (tensor == where.size).all()


def profiled(where: Rank) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(where.full(1, 1000), async_op=True).wait()
        dist.barrier()
    names = {event.name for event in profile.events()}
    assert {"hetccl:all_reduce", "hetccl:barrier"} <= names, names


COLLECTIVES = [
    reductions,
    bitwise,
    movements,
    messages,
    objects,
    coalescing,
    *ENCODED,
    endpoints,
]
ORDER = [late_data, lifetimes, little_memory, futures, groups, devices, graphs, profiled]
DRIVER_SETTINGS = (
    "CUDA_DEVICE_MAX_CONNECTIONS=1",
    "CUDA_LAUNCH_BLOCKING=1",
    "CUDA_MODULE_LOADING=EAGER",
)


def under_settings(
    devices: list[str],
    labels: str,
    bind: bool,
    bodies: Sequence[Callable[[Rank], None]] = (*COLLECTIVES, delayed, briefly_disturbed),
) -> list[str]:
    """Collectives, at odd moments too, under each setting that changes when a launch returns."""
    failures: list[str] = []
    for setting in DRIVER_SETTINGS:
        print(f"   {setting}", flush=True)
        env = dict([setting.split("=")])
        # Other threads' launches would hold the interpreter's lock; NCCL carries no messages.
        without = (briefly_disturbed, *NEED_NCCL) if "CUDA_LAUNCH_BLOCKING" in env else ()
        chosen = [body for body in bodies if body not in without]
        failed = run(chosen, devices, labels, bind, env=env)
        failures += [f"{setting}: {failure}" for failure in failed]
    return failures


def in_flight(devices: list[str], labels: str, bind: bool) -> list[str]:
    """Many operations at once, through shared memory and over TCP."""
    found = run(IN_FLIGHT, devices, labels, bind, fresh=True)
    return found + run(IN_FLIGHT, devices, labels, bind, env={"HETCCL_SHM": "0"}, fresh=True)


def hostile(devices: list[str], labels: str, bind: bool) -> list[str]:
    return run(HOSTILE, devices, labels, bind, timeout=180 * SCALE, fresh=True)


def jobs() -> dict[str, Callable[[], list[str]]]:
    count = torch.cuda.device_count()
    made: dict[str, Callable[[], list[str]]] = {}

    def add(name: str, devices: list[str], labels: str = "", bind: bool = False) -> None:
        training = TRAINING + (TRAINING_ON_GPUS if "cpu" not in devices else [])
        lost = [len(devices) - 1]
        made[f"{name}-collectives"] = lambda: run(COLLECTIVES, devices, labels, bind)
        made[f"{name}-order"] = lambda: run(ORDER, devices, labels, bind, fresh=True)
        if name in ("two", "apart", "mixed"):
            made[f"{name}-hostile"] = lambda: hostile(devices, labels, bind)
        if name in ("two", "shared", "apart", "mixed"):
            made[f"{name}-settings"] = lambda: under_settings(devices, labels, bind)
        if name == "two":  # whoever is left is inside NCCL then
            blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
            made[f"{name}-lost-inside"] = lambda: run([lose], devices, lost=lost, env=blocking)
        if name in ("two", "shared", "apart", "mixed"):  # and what is left works again
            made[f"{name}-lost-slice"] = lambda: run([lose_inside], devices, labels, bind, lost)
        if name in ("shared", "apart"):
            made[f"{name}-groups"] = lambda: run(GROUPS, devices, labels, bind, fresh=True)
            made[f"{name}-in-flight"] = lambda: in_flight(devices, labels, bind)
        made[f"{name}-training"] = lambda: run(training, devices, labels, bind)
        made[f"{name}-sharding"] = lambda: run(
            [sharding, encoded_sharding],
            devices,
            labels,
            bind,
            env={"HETCCL_WIRE_LEAST_BYTES": "0"},
        )
        if len(devices) > 1:
            made[f"{name}-lost"] = lambda: run([lose], devices, labels, bind, lost)
            made[f"{name}-abort"] = lambda: run([abort], devices, labels, bind, fresh=True)
        if name in ("shared", "apart", "mixed"):  # they wait for a deadline
            made[f"{name}-missing"] = lambda: run([miss], devices, labels, bind, fresh=True)
        if "cpu" not in devices:
            made[f"{name}-exit"] = lambda: leave(devices, labels)
        if name in ("two", "shared", "apart"):
            made[f"{name}-exit-missed"] = lambda: leave_missed(devices, labels)
            made[f"{name}-exit-spinning"] = lambda: leave_spinning(devices, labels)

    def add_meshes(name: str, devices: list[str], labels: str = "") -> None:
        def on_mesh(bodies: list[Callable[[Rank], None]]) -> list[str]:  # NCCL is slow to connect
            return run(bodies, devices, labels, bind=True, timeout=120 * SCALE)

        made[f"{name}-meshes"] = lambda: on_mesh(GROUPS_OF_GROUPS)
        if "cpu" not in devices:
            made[f"{name}-generations"] = lambda: run(
                GENERATIONS, devices, labels, bind=True, timeout=120 * SCALE, fresh=True
            )
        if "cpu" not in devices:
            made[f"{name}-mesh-training"] = lambda: on_mesh(TRAINING_ON_MESHES)

    def add_pairs(name: str, devices: list[str], labels: str = "") -> None:
        def on_pairs(
            bodies: list[Callable[[Rank], None]], lost: tuple[int, ...] = (), fresh: bool = False
        ) -> list[str]:
            timeout = 120 * SCALE
            return run(bodies, devices, labels, bind=True, lost=lost, timeout=timeout, fresh=fresh)

        made[f"{name}-all"] = lambda: on_pairs(COLLECTIVES)
        made[f"{name}-messages"] = lambda: on_pairs(PAIRS)
        made[f"{name}-tuned"] = lambda: run(
            [cuda_tuning.search], devices, labels, True, env=cuda_tuning.environment()
        )
        if len(devices) < 3:
            made[f"{name}-settings"] = lambda: under_settings(devices, labels, True, UNDER_SETTINGS)
            made[f"{name}-connecting"] = lambda: under_settings(devices, labels, True, CONNECTING)
            made[f"{name}-leaving"] = lambda: on_pairs([leaving_sender])
        made[f"{name}-mismatched"] = lambda: on_pairs([*PAIRS[:1], mismatched], fresh=True)
        made[f"{name}-lost-partner"] = lambda: on_pairs([lose_partner], (len(devices) - 1,))

    gpus = [f"cuda:{i}" for i in range(count)]
    if count > 0:
        add("one", gpus[:1])
        add("shared", ["cuda:0", "cuda:0"], "ab", bind=True)
        add("mixed", ["cuda:0", "cpu", "cpu"])
        add_meshes("apart-on-one", ["cuda:0"] * 4, "abcd")
        add_meshes("pairs-on-one", ["cuda:0"] * 4, "aabb")
        add_pairs("pairs-on-one", ["cuda:0"] * 4, "aabb")
        add_pairs("pair-on-one", ["cuda:0"] * 2)
        add_meshes("one-cluster-on-one", ["cuda:0"] * 4)
        add_meshes("mixed-on-one", ["cuda:0", "cuda:0", "cpu", "cpu"], "abcc")
    if count > 1:
        add("two", gpus[:2])
        add("apart", gpus[:2], "ab", bind=True)
        add("mixed-two", ["cpu", "cuda:0", "cpu", "cuda:1"], bind=True)
        add_pairs("pair", gpus[:2])
    if count > 3:
        add("four", gpus[:4], bind=True)
        add_meshes("four", gpus[:4])
        add_pairs("four", gpus[:4])
        add("two-clusters", gpus[:4], "aabb")
        add("crossed", gpus[:4], "abab")
    return made


def run_jobs(names: Sequence[str], passed: Path | None, seconds: float) -> int:
    """The exit status: 1 where a job fails, 3 where some are left."""
    known, failed, left = jobs(), [], []
    begin = time.monotonic()
    for name in names or list(known):
        if passed and (passed / name).exists():
            continue
        if time.monotonic() - begin > seconds:
            left.append(name)
            continue
        started = time.monotonic()
        print(f"-- {name}", flush=True)
        failures = known[name]()
        outcome = "FAILED" if failures else "passed"
        print(*failures, f"{outcome}  {name}, {time.monotonic() - started:.1f} s", sep="\n")
        if failures:
            failed.append(name)
        elif passed:
            (passed / name).touch()
    pool.close()
    if failed:
        print("test_torch_cuda: FAILED:", *failed)
    if left:
        print("test_torch_cuda: left for the next run:", *left)
    return 1 if failed else 3 if left else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--passed", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("jobs", nargs="*")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        if os.environ.get("HETCCL_TEST_GPU") == "1":
            print("test_torch_cuda: FAILED: torch sees no GPU, and there is one", file=sys.stderr)
            return 1
        print("test_torch_cuda: SKIPPED, NO GPU HERE (as torch sees it)", file=sys.stderr)
        return 0
    if options.list:
        print(*jobs(), sep="\n")
        return 0
    refuse_without_settings()
    return run_jobs(options.jobs, options.passed, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
