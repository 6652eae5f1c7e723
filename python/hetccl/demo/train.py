"""One rank of the demo. A launcher starts it; rank 0 shows the progress and has the result."""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hetccl import torch_backend
from hetccl.demo import data
from hetccl.demo.model import GPT, Shape
from hetccl.demo.progress import Progress
from hetccl.hosts import INTERFACE

SEQUENCES = 8  # a step, over all ranks: 512 tokens
GRADIENT_TOLERANCE = 1e-5
WARM_UP_STEPS = 20
EVALUATION_STEPS = range(10_000_000, 10_000_008)  # batches that training never sees


class CheckFailed(RuntimeError):  # noqa: N818
    """The run differs from the computation of one process."""


def link_bytes() -> int | None:
    """Returns the bytes that this host has sent and received over the emulated link; None on
    loopback.
    """
    counters = Path("/sys/class/net", INTERFACE, "statistics")
    try:
        return sum(int((counters / f"{way}_bytes").read_text()) for way in ("tx", "rx"))
    except FileNotFoundError:
        return None


def cross_bytes(backend: str) -> int | None:
    """Returns the payload that all ranks have sent between clusters, as hetccl counts it.
    Collective.
    """
    if backend != "hetccl":
        return None
    group: Any = dist.distributed_c10d._get_default_group()
    own: Any = torch_backend.backend_of(group)
    mine = own.stats()["cross_bytes_sent"]
    total = torch.tensor([mine], dtype=torch.int64)
    dist.all_reduce(total)
    return int(total.item())


def topology_of(backend: str) -> str | None:
    """Returns the topology that hetccl's ranks agreed on, as JSON; None for other backends."""
    if backend != "hetccl":
        return None
    group: Any = dist.distributed_c10d._get_default_group()
    own: Any = torch_backend.backend_of(group)
    graph: str = own.topology()
    return graph


def count_clusters() -> int:
    """Returns the number of clusters that hetccl has made of the ranks."""
    found = len(json.loads(topology_of("hetccl") or "{}")["clusters"])
    if found == 1:
        raise CheckFailed("all ranks are in one cluster: give some another HETCCL_CLUSTER")
    return found


def mean_over_ranks(values: list[float]) -> list[float]:
    """Returns each value's mean over all ranks. Collective."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    means: list[float] = (total / dist.get_world_size()).tolist()
    return means


def flat_gradient(model: nn.Module) -> Tensor:
    """Returns all gradients as one vector of float64."""
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def check_gradient(got: nn.Module, twin: nn.Module, tokens: Tensor, targets: Tensor) -> float:
    """Returns the relative distance of `got`'s gradients from those of `twin`, one process on all
    tokens.
    """
    twin(tokens, targets).backward()
    want = flat_gradient(twin)
    error = float((flat_gradient(got) - want).norm() / want.norm())
    if not error <= GRADIENT_TOLERANCE:
        raise CheckFailed(
            f"gradients of step 1 differ from one process's by {error:.2e} of their norm; "
            f"{GRADIENT_TOLERANCE:.0e} is allowed"
        )
    return error


def check_hashes(model: nn.Module) -> str:
    """Returns the hash of the parameters, which must be equal on all ranks. Collective."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    mine = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    odd = [rank for rank, other in enumerate(every) if not torch.equal(other, every[0])]
    if odd:
        raise CheckFailed(f"parameters on ranks {odd} differ from rank 0's after the last step")
    return digest.hexdigest()


def evaluate(model: nn.Module, text: Tensor, length: int) -> float:
    """Returns the mean loss on batches that training never sees."""
    with torch.no_grad():
        losses = [
            model(*data.batch(text, step, SEQUENCES, length)).item() for step in EVALUATION_STEPS
        ]
    return statistics.fmean(losses)


def time_every_step(ddp: Any) -> Any:
    """Returns `ddp`, whose own timers then run in every step instead of now and then."""
    ddp._set_ddp_runtime_logging_sample_rate(1)
    return ddp


def exposed_seconds(ddp: Any) -> float:
    """Returns the time of the last step in which backward only waited for communication (DDP's
    timers).
    """
    times = ddp._get_ddp_logging_data()
    waited = times.get("backward_comm_time", 0) - times.get("backward_compute_comm_overlap_time", 0)
    return float(max(0, waited)) / 1e9


def learning_rate_factor(step: int, steps: int) -> float:
    """Returns the factor of the learning rate: warm-up, then linear decay.

    At a constant rate, the last bits of sums, which backends add in different orders, grow to a
    difference of 2e-3 in the loss after 200 steps. With the decay the difference stays below 1e-6.
    """
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (1 - step / steps)


class Run:
    """A training run of one backend."""

    def __init__(self, backend: str, steps: int, clusters: int | None) -> None:
        self.backend, self.steps = backend, steps
        self.clusters = clusters or count_clusters()
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.shape = Shape()
        self.text = data.text()
        self.model = GPT(self.shape, seed=2)
        self.twin = copy.deepcopy(self.model) if self.rank == 0 else None
        self.ddp = time_every_step(DistributedDataParallel(self.model, bucket_cap_mb=2))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: learning_rate_factor(step, steps)
        )
        self.times: list[float] = []
        self.waits: list[float] = []
        self.losses: list[float] = []  # of this rank's share
        self.gradient_error = 0.0

    def least_bytes(self, steps: int) -> int:
        """The least bytes that must cross between clusters: 2(C-1)S per step (all-reduce)."""
        size = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return 2 * (self.clusters - 1) * size * steps

    def step(self, number: int) -> float:
        """Makes one step. Returns the loss of this rank's share."""
        tokens, targets = data.batch(self.text, number, SEQUENCES, self.shape.context)
        mine = slice(self.rank * SEQUENCES // self.world, (self.rank + 1) * SEQUENCES // self.world)
        start = time.perf_counter()
        loss = self.ddp(tokens[mine], targets[mine])
        loss.backward()
        if number == 0 and self.twin is not None:
            checking = time.perf_counter()
            self.gradient_error = check_gradient(self.model, self.twin, tokens, targets)
            self.twin = None
            start += time.perf_counter() - checking
        self.optimiser.step()
        self.schedule.step()
        self.optimiser.zero_grad()
        self.times.append(time.perf_counter() - start)
        self.waits.append(exposed_seconds(self.ddp))
        self.losses.append(float(loss.item()))
        return self.losses[-1]

    def train(self) -> dict[str, Any]:
        """Makes all steps, then the checks. The result is the same on all ranks, except for the
        timings.
        """
        payload_before, wire_before = cross_bytes(self.backend), link_bytes()
        with Progress(self.backend, self.steps, self.rank == 0) as progress:
            for number in range(self.steps):
                loss = self.step(number)
                wire = link_bytes()
                crossed = None if wire is None or wire_before is None else wire - wire_before
                progress.show(
                    number + 1, loss, SEQUENCES * self.shape.context / self.times[-1],
                    self.waits[-1] / self.times[-1], crossed, self.least_bytes(number + 1),
                )  # fmt: skip
        wire, payload = link_bytes(), cross_bytes(self.backend)
        seconds = statistics.median(self.times[2:] or self.times)
        return {
            "backend": self.backend,
            "clusters": self.clusters,
            "steps": self.steps,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "step_seconds": seconds,
            "step_times": self.times,
            "step_losses": mean_over_ranks(self.losses),
            "tokens_per_second": SEQUENCES * self.shape.context / seconds,
            "communication_share": sum(self.waits) / sum(self.times),
            "least_bytes": self.least_bytes(self.steps),
            "link_bytes": None if wire is None or wire_before is None else wire - wire_before,
            "payload_bytes": None
            if payload is None or payload_before is None
            else payload - payload_before,
            "gradient_error": self.gradient_error,
            "topology": topology_of(self.backend),
            "torch": torch.__version__,
            "hash": check_hashes(self.model),
            "loss": evaluate(self.model, self.text, self.shape.context),
        }


def train(backend: str, steps: int, clusters: int | None) -> dict[str, Any]:
    """Runs one rank's part of a training, on as many clusters as hetccl makes if none are given.

    If a check or a peer fails, the process ends with status 1.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch_backend.register()
    dist.init_process_group(backend, init_method="hetccl://")
    try:
        result = Run(backend, steps, clusters).train()
    except (CheckFailed, dist.DistBackendError) as error:
        print(f"rank {dist.get_rank()}, {backend}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)  # peers may be mid-collective: leave, and they are told
    dist.destroy_process_group()
    return result


def main() -> int:
    """Runs one rank of torchrun."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    result = train(options.backend, options.steps, options.clusters)
    if os.environ["RANK"] == "0":
        options.result.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
