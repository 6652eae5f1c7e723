"""One process of bench/gpu_training.py: a rank that trains a GPT or a LLaMA by DDP or FSDP2.

Its role is a backend of torch.distributed, as in gpu_worker.py. Parameters and gradients are
float32, computation is bfloat16 or float16, as which FSDP2 gathers parameters. What it computes is
deterministic, so that backends can be compared by the loss. Needs torch and hetccl.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from gpu_worker import Answer, arguments, join_group, serve, wait_until
from models import PRECISIONS, SHAPES, Model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from hetccl.demo import data

BUCKET_MB = 25
RATE = 3e-4  # of learning
RATE_BYTES = 256 << 20
RATE_TIMES = 5
WARM_UPS = 2


WARM_STEPS = 30  # of losses, until the full rate of learning


class Training:
    """One rank. Sizes are in tokens of one rank and step."""

    def __init__(self, options: argparse.Namespace) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic
        self.device = join_group(options)
        self.on_gpu = self.device.type == "cuda"
        self.rank = dist.get_rank()
        self.shape = SHAPES[options.model]
        self.wrap, self.recompute = options.wrap, options.recompute
        self.type = PRECISIONS[options.precision]
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        self.bytes = data.text()
        self.renew()

    def renew(self) -> None:
        """Makes the model again, with its first weights."""
        torch.manual_seed(1)
        with self.device:
            network = Model(self.shape, recompute=self.recompute)
        self.model = self.sharded(network) if self.wrap == "fsdp2" else self.replicated(network)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=RATE, fused=True if self.on_gpu else None
        )
        scales = self.type == torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scales)

    def replicated(self, network: Model) -> nn.Module:
        """Wraps the model in DDP."""
        bound = [self.device] if self.on_gpu else None
        return DistributedDataParallel(
            network, device_ids=bound, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True
        )

    def sharded(self, network: Model) -> nn.Module:
        """Shards the model by FSDP2, block by block."""
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=self.type, reduce_dtype=torch.float32)
        for part in [*network.blocks, network]:
            fully_shard(part, mesh=mesh, mp_policy=policy)
        return network

    def ready(self) -> Answer:
        """Returns facts, which the parent prints."""
        facts: Answer = {"torch": torch.__version__}
        if self.on_gpu:
            facts["device"] = torch.cuda.get_device_name(self.device)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return {**facts, "parameters": sum(each.numel() for each in self.model.parameters())}

    def synchronize(self) -> None:
        """Waits for the GPU. On the host, calls have waited already."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def read(self, step: int, tokens: int) -> Tensor:
        """Returns this rank's text of a step: bytes of Python's standard library, as tokens."""
        rows = max(1, tokens // self.shape.context)
        length = min(tokens, self.shape.context)
        first, last = data.batch(self.bytes, step, rows * dist.get_world_size(), length)
        mine = slice(self.rank * rows, (self.rank + 1) * rows)
        return torch.cat([first[mine], last[mine, -1:]], 1).to(self.device)

    def forward(self, text: Tensor) -> Tensor:
        """Returns the mean loss of a token, computed in the chosen type."""
        with torch.autocast(self.device.type, dtype=self.type):
            loss: Tensor = self.model(text)
        return loss / text[:, 1:].numel()

    def step(self, text: Tensor) -> Tensor:
        """Makes a step of training. Returns its loss."""
        loss = self.forward(text)
        self.backward(loss)
        self.update()
        return loss.detach()

    def backward(self, loss: Tensor) -> None:
        """Runs the backward pass; in float16, of a scaled loss."""
        self.scaler.scale(loss).backward()

    def update(self) -> None:
        """Makes the optimiser's update."""
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad()

    def timed(self, times: int, at: float, work: Callable[[], object]) -> float:
        """Returns the seconds of one of `times` calls of `work`."""
        self.synchronize()
        wait_until(at)
        start = time.perf_counter()
        for _ in range(times):
            work()
        self.synchronize()
        return (time.perf_counter() - start) / times

    def steps(self, tokens: int, times: int, at: float) -> Answer:
        """Returns the seconds of a training step."""
        text = self.read(0, tokens)
        for _ in range(WARM_UPS):
            self.step(text)
        return self.rested({"seconds": self.timed(times, at, lambda: self.step(text))})

    def parts(self, tokens: int, times: int, at: float) -> Answer:
        """Returns the seconds of a forward pass, of a forward and a backward pass without
        communication, and of an update.
        """
        text = self.read(0, tokens)
        self.step(text)

        def both() -> None:
            assert isinstance(self.model, DistributedDataParallel)
            with self.model.no_sync():
                self.backward(self.forward(text))

        with torch.no_grad():
            forward = self.timed(times, at, lambda: self.forward(text))
        computed = self.timed(times, at, both)
        return self.rested(
            {"forward": forward, "computed": computed, "update": self.timed(1, at, self.update)}
        )

    def rate(self, at: float) -> Answer:
        """Returns the seconds that an all-reduce takes for a byte."""
        data = torch.zeros(RATE_BYTES // 4, device=self.device)
        dist.all_reduce(data)
        seconds = self.timed(RATE_TIMES, at, lambda: dist.all_reduce(data))
        return self.rested({"seconds": seconds / RATE_BYTES})

    def losses(self, tokens: int, times: int) -> Answer:
        """Returns the mean loss of all ranks in each step, from the first step on."""
        self.renew()
        found = torch.zeros(times, device=self.device)
        for number in range(times):
            for group in self.optimiser.param_groups:
                group["lr"] = RATE * min(1.0, (number + 1) / WARM_STEPS)
            found[number] = self.step(self.read(number, tokens))
        dist.all_reduce(found)
        return self.rested({"losses": (found / dist.get_world_size()).tolist()})

    def rested(self, answer: Answer) -> Answer:
        """Frees the memory for the contenders whose turn is next. Returns `answer`."""
        self.synchronize()
        if self.on_gpu:
            torch.cuda.empty_cache()
        return answer

    def end(self) -> Answer:
        """Leaves the process group."""
        dist.destroy_process_group()
        return {}


def training_arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = arguments()
    parser.add_argument("--model", choices=SHAPES, default="gpt-355m")
    parser.add_argument("--wrap", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--recompute", action="store_true", help="activations, by blocks")
    return parser


def main() -> int:
    """Serves as one backend."""
    parser = training_arguments()
    return serve(Training, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
