"""A small job: its samples, its model, shares for unlike ranks, and its weights in one process."""

import os
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from hetccl.balance import Profile, plan

DEVICE = os.environ.get("HETCCL_TEST_DEVICE", "cpu")  # "cuda": a GPU for each rank
GPU_CYCLES = 2e9  # of a second, about
COUNT, EVEN = 50, 48  # samples; EVEN for equal shares
PROFILES = [
    Profile(((1, seconds),), most) for seconds, most in ((1, 3), (3, None), (2, 9), (2, None))
]
UNLIKE, PAIR = (plan(PROFILES[:ranks], 20) for ranks in (4, 2))  # steps of 16, 17, 17 samples


class Sentences(Dataset):
    """Samples of unlike lengths; a target of -100 is no token. The third value is the index."""

    def __init__(self, count=COUNT):
        chance = torch.Generator().manual_seed(2)
        self.inputs = torch.randn(count, 5, 6, generator=chance, dtype=torch.float64)
        self.targets = torch.randint(0, 4, (count, 5), generator=chance)
        lengths = torch.randint(1, 6, (count, 1), generator=chance)
        self.targets[torch.arange(5) >= lengths] = -100

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index], index


def make_model():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()


class Device(nn.Module):
    """Takes so many seconds for each sample, as a slow device does."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.layer = nn.Linear(6, 4).double()

    def forward(self, x):
        if x.is_cuda:
            torch.cuda._sleep(int(self.seconds * len(x) * GPU_CYCLES))
        else:
            time.sleep(self.seconds * len(x))
        return self.layer(x)


def loss_of(model, inputs, targets):
    """The sum of the losses, on the model's device."""
    outputs = model(inputs.to(device_of(model))).flatten(0, 1)
    return cross_entropy(outputs, targets.to(outputs.device).flatten(), reduction="sum")


def device_of(model):
    return next(model.parameters()).device


def tokens_of(targets):
    return int((targets != -100).sum())


def most_norm(number):
    """The norm to clip a step's gradients to. Only step 1 is clipped: that hides a wrong scale."""
    return 0.05 if number == 1 else 1e9


def merge_steps(outcomes):
    """The samples of each step, of all ranks; a rank gives pairs of a step's number and samples."""
    steps = {}
    for taken in outcomes:
        for number, samples in taken:
            steps.setdefault(number, []).extend(samples)
    assert sorted(steps) == [*range(len(steps))]
    return [steps[number] for number in range(len(steps))]


def reference(steps, count=tokens_of, loss_scale=1.0):
    """The weights of one process that takes whole steps. `count` says what the mean is over."""
    model, data = make_model(), Sentences()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for number, samples in enumerate(steps):
        inputs, targets = data.inputs[samples], data.targets[samples]
        optimizer.zero_grad()
        (loss_scale * loss_of(model, inputs, targets) / count(targets)).backward()
        for parameter in model.parameters():
            parameter.grad /= loss_scale
        nn.utils.clip_grad_norm_(model.parameters(), most_norm(number))
        optimizer.step()
    return weights_of(model)


def check_shares_left_rank_0(first, second):
    """Shares of 12, of two ranks by step, move from rank 0 to rank 1."""
    assert first[0] == second[0] == 6
    assert all(sum(both) == 12 for both in zip(first, second, strict=True))
    assert first[-1] <= 4


def weights_of(model):
    whole = [getattr(one, "full_tensor", one.detach)() for one in model.parameters()]  # of FSDP2
    return torch.cat([one.detach().flatten() for one in whole]).tolist()


def assert_close(found, wanted, atol=1e-9):
    found, wanted = (torch.tensor(one, dtype=torch.float64) for one in (found, wanted))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=atol)


def set_environment(rank, size):
    """Sets the variables that torchrun sets for a rank. Its place is given by torch_ranks.run."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
