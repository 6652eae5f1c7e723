"""One rank of bench/balance.py's jobs: the seconds of each step, and the shares of all ranks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from quotas import limit
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from hetccl.balance import Loader, divide_evenly, plan, profile

WIDTH, TOKENS, CLASSES = 512, 256, 64


class Repeated(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A data set of `samples` samples, which repeats one batch that is in memory."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor, samples: int) -> None:
        self._inputs, self._targets, self._samples = inputs, targets, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = index % len(self._inputs)
        return self._inputs[at], self._targets[at]


def make_model() -> nn.Module:
    torch.manual_seed(1)
    middle = (nn.Linear(WIDTH, WIDTH), nn.ReLU()) * 2
    return nn.Sequential(*middle, nn.Linear(WIDTH, CLASSES))


def main() -> None:
    case, steps, batch = os.environ["CASE"], int(os.environ["STEPS"]), int(os.environ["BATCH"])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder, processors = Path(os.environ["FOLDER"]), json.loads(os.environ["PROCESSORS"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "hetccl", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch, TOKENS, WIDTH)
    targets = torch.randint(0, CLASSES, (batch, TOKENS))
    limit(rank, folder, processors)

    def run_pass(samples: int) -> None:
        loss = model(inputs[:samples]).flatten(0, 1)
        cross_entropy(loss, targets[:samples].flatten()).backward()

    data = Repeated(inputs, targets, batch * steps)
    if case == "profiled":
        shares = plan(profile(model, run_pass, batch // 2), batch)
    else:
        shares = divide_evenly(size, batch)
    loader = Loader(data, shares, model, online=case == "online")
    seconds, taken = [], []
    begin = time.perf_counter()
    for step in loader:
        for some_inputs, some_targets in step:
            found = model(some_inputs).flatten(0, 1)
            loss = cross_entropy(found, some_targets.flatten(), reduction="sum")
            step.weigh(loss / TOKENS).backward()
        optimizer.step()
        optimizer.zero_grad()
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
        taken.append(step.share)
    every = [None] * size
    dist.all_gather_object(every, taken)
    limit(rank, folder, [1] * size)
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({"seconds": seconds, "shares": [*zip(*every, strict=True)]}))


if __name__ == "__main__":
    main()
