"""Hugging Face Accelerate over hetccl, with equal and with balanced shares."""

import itertools
from importlib.util import find_spec

import pytest
from torch_ranks import run

if not find_spec("accelerate"):
    pytest.skip("no accelerate: use tests/frameworks/run", allow_module_level=True)
import torch
import torch.distributed as dist
from sentences import (
    COUNT,
    DEVICE,
    EVEN,
    UNLIKE,
    Device,
    Sentences,
    assert_close,
    check_shares_left_rank_0,
    loss_of,
    make_model,
    merge_steps,
    most_norm,
    reference,
    set_environment,
    tokens_of,
    weights_of,
)
from torch.utils.data import DataLoader, Subset

from hetccl.balance import Loader, divide_evenly, total


def prepare(rank, size, net, *others, **options):
    """An Accelerator of these ranks, and its model, its optimizer and others."""
    from accelerate import Accelerator

    set_environment(rank, size)
    accelerator = Accelerator(cpu=DEVICE == "cpu", **options)
    assert accelerator.num_processes == size
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    model, *prepared = accelerator.prepare(net, optimizer, *others)
    assert dist.get_backend(model.process_group) == "hetccl"
    return accelerator, model, *prepared


def train_evenly(rank, size):
    """An epoch of Accelerate's own loader: two micro-batches a step, of equal size."""
    data = DataLoader(Subset(Sentences(), range(EVEN)), batch_size=2, shuffle=True)
    accelerator, model, optimizer, data = prepare(
        rank, size, make_model(), data, gradient_accumulation_steps=2
    )
    taken = []
    for at, (inputs, targets, indices) in enumerate(data):
        taken.append((at // 2, indices.tolist()))
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, inputs, targets) / len(targets))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), most_norm(at // 2))
            optimizer.step()
            optimizer.zero_grad()
    evaluation = accelerator.prepare(DataLoader(Sentences(), batch_size=4))
    seen = [accelerator.gather_for_metrics(indices).tolist() for *_, indices in evaluation]
    assert [*itertools.chain(*seen)] == [*range(COUNT)]
    return taken, weights_of(model)


def test_equal_shares_train_as_one_process_does(tmp_path):
    outcomes = run(4, train_evenly, folder=tmp_path, labels="aabb")
    steps = merge_steps(taken for taken, _ in outcomes)
    assert [len(samples) for samples in steps] == [16, 16, 16]
    assert sorted(itertools.chain(*steps)) == [*range(EVEN)]
    wanted = reference(steps, len)
    for _, weights in outcomes:
        assert_close(weights, wanted)


def train_unevenly(rank, size, folder):
    """An epoch; then again from step 1 on, where its state was saved."""
    accelerator, model, optimizer = prepare(rank, size, make_model())
    loader = Loader(Sentences(), UNLIKE, model, seed=7)
    accelerator.register_for_checkpointing(loader)

    def train():
        taken = []
        for step in loader:
            tokens = total(sum(tokens_of(targets) for _, targets, _ in step.micro_batches))
            for inputs, targets, indices in step:
                taken.append((step.number, indices.tolist()))
                accelerator.backward(step.weigh(loss_of(model, inputs, targets), tokens))
            accelerator.clip_grad_norm_(model.parameters(), most_norm(step.number))
            optimizer.step()
            optimizer.zero_grad()
            if step.number == 0:
                accelerator.save_state(folder)
        return taken, weights_of(model)

    taken, weights = train()
    accelerator.load_state(folder)
    again, same = train()
    assert again == [one for one in taken if one[0] > 0]
    assert_close(same, weights)
    return taken, weights


def test_unlike_shares_train_as_one_process_does(tmp_path):
    saved = str(tmp_path / "saved")
    outcomes = run(4, train_unevenly, saved, folder=tmp_path, labels="aabb")
    steps = merge_steps(taken for taken, _ in outcomes)
    assert sorted(itertools.chain(*steps)) == [*range(COUNT)]  # each sample once
    counts = [[len(samples) for _, samples in taken] for taken, _ in outcomes]
    assert len({len(sizes) for sizes in counts}) == 1  # micro-batches
    assert len({sum(sizes) for sizes in counts}) > 1  # samples
    wanted = reference(steps)
    for _, weights in outcomes:
        assert_close(weights, wanted)


def follow(rank, size):
    """The shares of each step, until they have left rank 0, which is slow."""
    accelerator, model, optimizer = prepare(rank, size, Device(0.005 if rank else 0.015))
    loader = Loader(Sentences(12_000), divide_evenly(size, 12), model, online=True)
    shares = []
    for step in loader:
        shares.append(step.share)
        if loader.plan.shares[0] <= 4:
            return shares
        for inputs, targets, _ in step:
            accelerator.backward(step.weigh(loss_of(model, inputs, targets)))
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError(f"rank 0 is slow, but shares are {loader.plan.shares}")


def test_shares_leave_a_slow_rank(tmp_path):
    first, second = run(2, follow, folder=tmp_path, labels="ab")
    check_shares_left_rank_0(first, second)
