"""A mixture of experts over two clusters: each rank holds one expert, and tokens go to theirs.

    torchrun --nproc-per-node 4 examples/experts.py

The router sends each rank another number of tokens in each step, so the all-to-all has blocks of
unlike lengths. One between clusters goes as few long messages, not as one for each pair of ranks.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

import hetccl

STEPS, BATCH, WIDTH = 10, 64, 32


def make_layer(experts: int) -> tuple[nn.Module, list[nn.Module]]:
    """Makes the router and all experts, the same on every rank."""
    torch.manual_seed(0)
    router = nn.Linear(WIDTH, experts)
    return router, [nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1))
                    for _ in range(experts)]  # fmt: skip


def make_batch(step: int) -> torch.Tensor:
    """Returns a step's tokens; each rank takes its part of the rows."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def exchange(x: torch.Tensor, takes: list[int], gives: list[int]) -> torch.Tensor:
    """Sends `gives[r]` rows to rank r and returns the `takes[r]` rows that came from it."""
    out = all_to_all_single_autograd(x, takes, gives, dist.group.WORLD)
    return torch.ops._c10d_functional.wait_tensor(out)


def run_experts(x: torch.Tensor, router: nn.Module, expert: nn.Module) -> torch.Tensor:
    """Returns for each token what its expert, on whichever rank, makes of it."""
    weight, choice = router(x).softmax(1).max(1)
    order = choice.argsort(stable=True)  # tokens of one expert lie together
    gives = choice.bincount(minlength=dist.get_world_size())
    takes = torch.empty_like(gives)
    dist.all_to_all_single(takes, gives)
    there = exchange(x[order], takes.tolist(), gives.tolist())
    back = exchange(expert(there), gives.tolist(), takes.tolist())
    return torch.empty_like(back).index_copy(0, order, back) * weight.unsqueeze(1)


def main() -> None:
    """Trains as one rank: its expert is its own, the router is everybody's."""
    os.environ.setdefault("HETCCL_CLUSTER", "ab"[int(os.environ["RANK"]) % 2])
    dist.init_process_group("hetccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    router, experts = make_layer(size)
    expert = experts[rank]
    optimizer = torch.optim.AdamW([*router.parameters(), *expert.parameters()], lr=3e-3)
    for step in range(STEPS):
        x = make_batch(step).chunk(size)[rank]
        loss = (run_experts(x, router, expert) - x.mean(1, keepdim=True)).square().mean() / size
        optimizer.zero_grad()
        loss.backward()  # an expert's gradient comes from the tokens of all ranks
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step}: loss {total.item():.6f}", flush=True)
    if rank == 0:
        print(f"hetccl {hetccl.__version__}: {size} experts on {size} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
