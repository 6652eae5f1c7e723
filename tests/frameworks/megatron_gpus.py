"""Megatron-core over hetccl on GPUs: tensor, pipeline and data parallel, beside NCCL.

    python tests/frameworks/megatron_gpus.py [LAYOUT...]

Each layout trains a small GPT for some steps over hetccl, its ranks in two clusters, and over NCCL.
Losses must be the same but for the order of sums. "unlike" has data parallel ranks of unlike
micro-batches, by hetccl.balance. Exits with the number of layouts that failed.
Needs torch, hetccl, megatron-core (PyPI; 0.16.1 was tried), and two or four GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

STEPS, SAMPLES, LENGTH, VOCABULARY = 8, 24, 64, 128
WITHIN = 1e-5  # of NCCL's loss, in float32
DEADLINE = 100  # seconds of a job
TOLD = "losses: "  # of a rank, before them
LAYOUTS = {
    2: {"tensor": (2, 1), "pipeline": (1, 2), "data": (1, 1), "unlike": (1, 1)},
    4: {
        "tensor": (4, 1), "pipeline": (1, 4), "tensor and pipeline": (2, 2),
        "tensor and data": (2, 1), "pipeline and data": (1, 2), "data": (1, 1), "unlike": (1, 1),
    },
}  # fmt: skip


def make_model(tensor: int, pipeline: int) -> Any:
    """A GPT of float32 in Megatron's own data parallel wrapper, which sums gradients by tokens."""
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel(tensor, pipeline, create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(5)
    config = TransformerConfig(
        num_layers=4, hidden_size=64, num_attention_heads=4, use_cpu_initialization=True,
        pipeline_dtype=torch.float32, tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline, hidden_dropout=0.0, attention_dropout=0.0,
        calculate_per_token_loss=True, finalize_model_grads_func=finalize_model_grads,
        gradient_accumulation_fusion=False,
    )  # fmt: skip
    torch.manual_seed(5)
    model = GPTModel(
        config, get_gpt_layer_local_spec(), VOCABULARY, LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    ).cuda()  # fmt: skip
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)


def own_micro_batches(layout: str, rank: int, ranks: int) -> Iterator[torch.Tensor]:
    """This data parallel rank's micro-batches, two a step: samples that follow a rule."""
    from hetccl.balance import BatchSampler, Profile, divide_evenly, plan

    shares = divide_evenly(ranks, SAMPLES, 2)
    if layout == "unlike":
        shares = plan([Profile(((1, 1.0 + rank),)) for rank in range(ranks)], SAMPLES, 2)
        assert len(set(shares.shares)) > 1
    sampler = BatchSampler(SAMPLES * STEPS, shares, rank, seed=3)
    for indices in sampler:
        starts = torch.tensor(indices)[:, None]
        yield (starts * 7 + 5 * torch.arange(LENGTH + 1)).cuda() % VOCABULARY


def run_step(model: Any, text: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Megatron's forward step: the tokens' losses, and how they add up."""
    places = torch.arange(LENGTH, device="cuda").expand(len(text), -1)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
    losses = model(text[:, :-1], places, mask, labels=text[:, 1:])

    def add_up(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = torch.tensor(losses.numel(), dtype=torch.int, device="cuda")
        return losses.sum(), count, torch.stack([losses.sum().detach(), count.float()])

    return losses, add_up


def work(layout: str, backend: str, tensor: int, pipeline: int) -> list[float]:
    """One rank: the loss of each step, 0 where this rank has no last stage."""
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

    if backend == "hetccl":
        import hetccl  # noqa: F401
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(backend)
    model = make_model(tensor, pipeline)
    assert dist.get_backend(parallel_state.get_tensor_model_parallel_group()) == backend
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    data = own_micro_batches(
        layout, parallel_state.get_data_parallel_rank(),
        parallel_state.get_data_parallel_world_size(),
    )  # fmt: skip
    found = []
    for _ in range(STEPS):
        model.zero_grad_buffer()
        micro_batches = [next(data), next(data)]
        outputs = get_forward_backward_func()(
            forward_step_func=lambda texts, model: run_step(model, next(texts)),
            data_iterator=iter(micro_batches), model=[model], num_microbatches=2, seq_length=LENGTH,
            micro_batch_size=len(micro_batches[0]), forward_only=False,
        )  # fmt: skip
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
        optimizer.zero_grad()  # Megatron adds what it finds there to the next gradients
        sums = sum(outputs) if outputs else torch.zeros(2, device="cuda")
        dist.all_reduce(sums)
        found.append((sums[0] / sums[1]).item())
    dist.destroy_process_group()
    return found


def run(layout: str, backend: str, size: int) -> list[float]:
    """Rank 0's losses of a job. Raises RuntimeError."""
    from hetccl.hosts import free_port

    port = str(free_port())
    with contextlib.ExitStack() as stack:
        ranks, outputs = [], []
        for rank in range(size):
            env = {
                **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank),
                "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                "CUDA_DEVICE_MAX_CONNECTIONS": "1", "HETCCL_CLUSTER": "AB"[rank * 2 // size],
            }  # fmt: skip
            argv = [sys.executable, __file__, layout, "--rank-of", backend]
            out = stack.enter_context(tempfile.TemporaryFile("w+"))
            ranks.append(subprocess.Popen(argv, env=env, stdout=out, stderr=out))
            stack.callback(ranks[-1].kill)
            outputs.append(out)
        end = time.monotonic() + DEADLINE
        while not all(process.poll() == 0 for process in ranks):
            failed = [rank for rank, process in enumerate(ranks) if process.poll()]
            if failed or time.monotonic() > end:
                rank = failed[0] if failed else 0
                outputs[rank].seek(0)
                why = f"rank {rank} fails" if failed else f"not done within {DEADLINE} s; rank 0"
                raise RuntimeError(f"{why}: {outputs[rank].read()[-600:]}")
            time.sleep(0.1)
        outputs[0].seek(0)
        told = next(line for line in outputs[0] if line.startswith(TOLD))
    losses: list[float] = json.loads(told.removeprefix(TOLD))
    return losses


def compare(layout: str, size: int, equal: list[float] | None) -> list[float]:
    """Prints how hetccl's losses compare with NCCL's, and those of unlike shares with those of
    equal ones. Returns hetccl's. Raises RuntimeError where they differ."""
    ours, theirs = run(layout, "hetccl", size), run(layout, "nccl", size)
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True))
    told = f"{ours[0]:.5f} to {ours[-1]:.5f}, NCCL within {worst:.1e}"
    if layout == "unlike" and equal is not None:
        unlike = max(abs(a / b - 1) for a, b in zip(ours, equal, strict=True))
        told += f", equal shares within {unlike:.1e}"
        worst = max(worst, unlike)
    if worst >= WITHIN or ours[-1] >= ours[0]:
        raise RuntimeError(told)
    print(f"passed  {layout}: {told}", flush=True)
    return ours


def main() -> int:
    """The layouts that are asked for, all if none is; or one rank of a job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("layouts", nargs="*")
    parser.add_argument("--rank-of", choices=("hetccl", "nccl"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        (layout,), size = options.layouts, int(os.environ["WORLD_SIZE"])
        print(TOLD + json.dumps(work(layout, options.rank_of, *LAYOUTS[size][layout])))
        return 0
    size = min(4, torch.cuda.device_count() // 2 * 2)
    if size < 2:
        parser.error("this takes two GPUs")
    failed, equal = 0, None
    for layout in options.layouts or LAYOUTS[size]:
        try:
            losses = compare(layout, size, equal)
            equal = losses if layout == "data" else equal
        except RuntimeError as error:
            failed += 1
            print(f"FAILED  {layout}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
