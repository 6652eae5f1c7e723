"""Balanced training on GPUs, mixed with hosts or not."""

import time

import torch
from cuda_ranks import Rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, TensorDataset

from hetccl.balance import Loader, Profile, divide_evenly, plan, profile

LARGEST = 11  # samples that the rank's memory holds


def check_profiles(where: Rank, model: nn.Module, rows: torch.Tensor) -> None:
    def run_pass(size: int) -> None:
        if size > LARGEST:
            torch.empty(1 << 50, dtype=torch.uint8, device=where.device)  # raises
        model(rows[:size]).square().sum().backward()

    found = profile(model, run_pass, len(rows), seconds=10)
    assert [one.most for one in found] == [LARGEST] * where.size
    assert all(one.time(LARGEST) > 0 for one in found)
    assert (found[where.rank].device == "cpu") == (not where.on_gpu)
    assert sum(plan(found, len(rows)).shares) == len(rows)


def train_balanced(where: Rank, model: nn.Module, rows: torch.Tensor, batch: int) -> nn.Module:
    """A step for each `batch` of the rows, whose loss is the mean of all elements' squares."""
    wrapped = DistributedDataParallel(model.to(where.device), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    unlike = [Profile(((1, 1.0 + rank),)) for rank in range(where.size)]
    shares = plan(unlike, batch, 2)
    check_profiles(where, wrapped, rows[:32].to(where.device))
    for step in Loader(TensorDataset(rows), shares, wrapped, shuffle=False):
        for (inputs,) in step:
            squares = wrapped(inputs.to(where.device)).square()
            step.weigh(squares.sum() / squares.shape[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 24 * 2000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((33,), float(index))


def follow_devices(where: Rank) -> None:
    """Shares leave a rank that takes four times as long, and then another one that does."""
    if where.size == 1:
        return
    layer = nn.Linear(33, 7).to(where.device)
    model = DistributedDataParallel(layer)
    loader = Loader(Numbers(), divide_evenly(where.size, 24), model, online=True)
    slow, even = 0, 24 // where.size
    for step in loader:
        if loader.plan.shares[slow] < even:
            if slow:
                return
            slow = where.size - 1
        milliseconds = step.share * (4.0 if where.rank == slow else 1.0)
        for inputs in step:
            found = model(inputs.to(where.device))
            where.pass_time(milliseconds)
            if not where.on_gpu:
                time.sleep(milliseconds / 1e3)
            step.weigh(found.sum()).backward()
        layer.zero_grad()
    raise AssertionError(f"rank {slow} is slow, but shares are {loader.plan.shares}")
