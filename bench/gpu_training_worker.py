"""One process of bench/gpu_training.py: a rank that trains a GPT by DDP or FSDP2.

Its role is a backend of torch.distributed, as in gpu_worker.py. Parameters and gradients are
float32, computation is bfloat16; FSDP2 gathers parameters as bfloat16. What it computes is
deterministic, so that backends can be compared by the loss. Needs torch and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from gpu_worker import Answer, arguments, join_group, serve, wait_until
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

BUCKET_MB = 25
RATE_BYTES = 256 << 20
RATE_TIMES = 5
WARM_UPS = 2


@dataclass(frozen=True)
class Shape:
    """Of a GPT."""

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int


SHAPES = {
    "350M": Shape(24, 1024, 16, 1024, 50304),
    "124M": Shape(12, 768, 12, 1024, 50304),
    "tiny": Shape(2, 64, 2, 64, 512),
}


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and added."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(2))
        self.mixed = nn.Linear(shape.width, 3 * shape.width)
        self.projected = nn.Linear(shape.width, shape.width)
        self.wide = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Of (batch, length, width)."""
        batch, length, width = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projected(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Gpt(nn.Module):
    """The loss of predicting each next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Of (batch, length) tokens."""
        inputs, targets = text[:, :-1], text[:, 1:]
        x = self.tokens(inputs) + self.places.weight[: inputs.shape[1]]
        x = self.norm(self.blocks(x))
        logits = F.linear(x, self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Training:
    """A rank. Sizes are in tokens of one rank and step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = join_group(options)
        self.on_gpu = self.device.type == "cuda"
        self.rank = dist.get_rank()
        self.shape = SHAPES[options.model]
        self.wrap = options.wrap
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        self.renew()

    def renew(self) -> None:
        """The model as it was at first."""
        torch.manual_seed(1)
        with self.device:
            network = Gpt(self.shape)
        self.model = self.sharded(network) if self.wrap == "fsdp2" else self.replicated(network)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=3e-4, fused=True if self.on_gpu else None
        )

    def replicated(self, network: Gpt) -> nn.Module:
        """By DDP."""
        bound = [self.device] if self.on_gpu else None
        return DistributedDataParallel(
            network, device_ids=bound, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True
        )

    def sharded(self, network: Gpt) -> nn.Module:
        """By FSDP2, block by block."""
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in [*network.blocks, network]:
            fully_shard(part, mesh=mesh, mp_policy=policy)
        return network

    def ready(self) -> Answer:
        """What the parent prints."""
        facts: Answer = {"torch": torch.__version__}
        if self.on_gpu:
            facts["device"] = torch.cuda.get_device_name(self.device)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return {**facts, "parameters": sum(each.numel() for each in self.model.parameters())}

    def synchronize(self) -> None:
        """Waits for the GPU. Without one every call has waited."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def text(self, step: int, tokens: int) -> Tensor:
        """What this rank reads in a step: a rule with noise, to be learnt."""
        generator = torch.Generator().manual_seed(1000 * step + self.rank)
        rows, length = tokens // self.shape.context, self.shape.context + 1
        start = torch.randint(97, (rows, 1), generator=generator)
        noise = torch.randint(8, (rows, length), generator=generator)
        ruled = (start * 31 + 7 * torch.arange(length)) % 97
        return (ruled + 97 * (noise == 0)).to(self.device)

    def forward(self, text: Tensor) -> Tensor:
        """The loss, computed in bfloat16."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss: Tensor = self.model(text)
        return loss

    def step(self, text: Tensor) -> Tensor:
        """One of training: its loss."""
        loss = self.forward(text)
        loss.backward()
        self.update()
        return loss.detach()

    def update(self) -> None:
        """The optimiser's."""
        self.optimiser.step()
        self.optimiser.zero_grad()

    def timed(self, times: int, at: float, work: Callable[[], object]) -> float:
        """Seconds for each of so many."""
        self.synchronize()
        wait_until(at)
        start = time.perf_counter()
        for _ in range(times):
            work()
        self.synchronize()
        return (time.perf_counter() - start) / times

    def steps(self, tokens: int, times: int, at: float) -> Answer:
        """Seconds of a training step."""
        text = self.text(0, tokens)
        for _ in range(WARM_UPS):
            self.step(text)
        return self.rested({"seconds": self.timed(times, at, lambda: self.step(text))})

    def parts(self, tokens: int, times: int, at: float) -> Answer:
        """Seconds of a forward pass, of that and the backward without communication, an update."""
        text = self.text(0, tokens)
        self.step(text)

        def both() -> None:
            assert isinstance(self.model, DistributedDataParallel)
            with self.model.no_sync():
                self.forward(text).backward()

        with torch.no_grad():
            forward = self.timed(times, at, lambda: self.forward(text))
        computed = self.timed(times, at, both)
        return self.rested(
            {"forward": forward, "computed": computed, "update": self.timed(1, at, self.update)}
        )

    def rate(self, at: float) -> Answer:
        """Seconds that an all-reduce takes for a byte."""
        data = torch.zeros(RATE_BYTES // 4, device=self.device)
        dist.all_reduce(data)
        seconds = self.timed(RATE_TIMES, at, lambda: dist.all_reduce(data))
        return self.rested({"seconds": seconds / RATE_BYTES})

    def losses(self, tokens: int, times: int) -> Answer:
        """The mean loss of all ranks in each step, from the first on."""
        self.renew()
        found = torch.stack([self.step(self.text(i, tokens)) for i in range(times)])
        dist.all_reduce(found)
        return self.rested({"losses": (found / dist.get_world_size()).tolist()})

    def rested(self, answer: Answer) -> Answer:
        """Leaves the memory to those whose turn it is next."""
        self.synchronize()
        if self.on_gpu:
            torch.cuda.empty_cache()
        return answer

    def end(self) -> Answer:
        """Leaves the process group."""
        dist.destroy_process_group()
        return {}


def training_arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = arguments()
    parser.add_argument("--model", choices=SHAPES, default="350M")
    parser.add_argument("--wrap", choices=("ddp", "fsdp2"), default="ddp")
    return parser


def main() -> int:
    """A backend."""
    parser = training_arguments()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic
    return serve(Training, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
