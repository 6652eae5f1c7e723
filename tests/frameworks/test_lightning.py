"""Lightning over hetccl, with equal and with balanced shares."""

import itertools
import time
from importlib.util import find_spec

import pytest
from patience import PROMPT
from torch_ranks import run, vanish

if not find_spec("lightning"):
    pytest.skip("no lightning: use tests/frameworks/run", allow_module_level=True)
import torch
import torch.distributed as dist
from sentences import (
    COUNT,
    DEVICE,
    EVEN,
    PAIR,
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

from hetccl.balance import BatchSampler, Loader, divide_evenly, total


def make_module(manner, plan, taken):
    """A module whose step is Lightning's own ("equal", "automatic") or written out ("manual")."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_model()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

        def note(self, indices):
            assert dist.get_backend(self.trainer.strategy.model.process_group) == "hetccl"
            taken.append((self.global_step, indices.tolist()))

    class Equal(Module):
        def train_dataloader(self):
            return DataLoader(Subset(Sentences(), range(EVEN)), batch_size=2, shuffle=True)

        def training_step(self, batch, batch_index):
            inputs, targets, indices = batch
            self.note(indices)
            return loss_of(self.net, inputs, targets) / len(inputs)

        def configure_gradient_clipping(self, optimizer, **_):
            self.clip_gradients(optimizer, most_norm(self.global_step), "norm")

    class Automatic(Equal):
        def train_dataloader(self):
            self.sampler = BatchSampler(COUNT, plan, self.global_rank, seed=7)
            self.sampler.resume(*divmod(self.global_step, self.sampler.order.steps))
            return DataLoader(Sentences(), batch_sampler=self.sampler)

        def training_step(self, batch, batch_index):
            samples = self.sampler.plan_of(batch_index // plan.accumulation).batch
            scale = plan.size * plan.accumulation / samples
            return scale * len(batch[0]) * super().training_step(batch, batch_index)

    class Manual(Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def train_dataloader(self):
            return Loader(Sentences(), plan, self.trainer.strategy.model, seed=7)

        def training_step(self, step, number):
            optimizer = self.optimizers()
            tokens = total(sum(tokens_of(targets) for _, targets, _ in step.micro_batches))
            for inputs, targets, indices in step:
                self.note(indices)
                self.manual_backward(step.weigh(loss_of(self.net, inputs, targets), tokens))
            self.clip_gradients(optimizer, most_norm(self.global_step), "norm")
            optimizer.step()
            optimizer.zero_grad()

    return {"equal": Equal, "automatic": Automatic, "manual": Manual}[manner]()


def fit(module, size, path=None, **options):
    from lightning.pytorch import Trainer
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment
    from lightning.pytorch.strategies import DDPStrategy

    strategy = DDPStrategy(
        process_group_backend="hetccl", cluster_environment=TorchElasticEnvironment()
    )
    trainer = Trainer(
        accelerator=DEVICE, devices=size, strategy=strategy, logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        **{"max_epochs": 1, "enable_checkpointing": False, **options},
    )  # fmt: skip
    trainer.fit(module, ckpt_path=path)


def options_of(manner, plan):
    if manner == "equal":
        return {"accumulate_grad_batches": 2}
    if manner == "automatic":
        return {"accumulate_grad_batches": plan.accumulation, "use_distributed_sampler": False}
    return {}


def train(rank, size, manner):
    set_environment(rank, size)
    taken = []
    module = make_module(manner, UNLIKE, taken)
    fit(module, size, **options_of(manner, UNLIKE))
    return taken, weights_of(module)


@pytest.mark.parametrize("manner", ["equal", "automatic", "manual"])
def test_ranks_train_as_one_process_does(manner, tmp_path):
    outcomes = run(4, train, manner, folder=tmp_path, labels="aabb")
    steps = merge_steps(taken for taken, _ in outcomes)
    assert len(steps) == 3
    assert sorted(itertools.chain(*steps)) == [*range(EVEN if manner == "equal" else COUNT)]
    shares = [sum(len(samples) for _, samples in taken) for taken, _ in outcomes]
    assert (len({*shares}) > 1) == (manner != "equal")
    wanted = reference(steps, tokens_of if manner == "manual" else len)
    for _, weights in outcomes:
        assert_close(weights, wanted)


def train_and_resume(rank, size, manner, folder):
    """Returns the samples and weights of two epochs, and of the rest of them after two
    checkpoints."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    set_environment(rank, size)
    count = PAIR.accumulation if manner == "automatic" else 3  # Lightning's state counts batches
    saving = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    rests, whole = {}, []
    for first in None, 1, 3, 4:
        plan = divide_evenly(size, PAIR.batch, count) if first == 4 else PAIR
        taken = []
        module = make_module(manner, plan, taken)
        options = {**options_of(manner, plan), "max_epochs": 2}
        if first is None:
            fit(module, size, callbacks=[saving], **{**options, "enable_checkpointing": True})
            whole = taken, weights_of(module)
        else:
            fit(module, size, f"{folder}/step={first}.ckpt", **options)
            rests[first] = taken, weights_of(module)
    return whole, rests


@pytest.mark.parametrize("manner", ["automatic", "manual"])
def test_training_goes_on_in_mid_epoch_and_with_other_shares(manner, tmp_path):
    folder = str(tmp_path / "checkpoints")
    outcomes = run(2, train_and_resume, manner, folder, folder=tmp_path, labels="ab")
    steps = merge_steps(taken for (taken, _), _ in outcomes)
    assert len(steps) == 6
    for epoch in steps[:3], steps[3:]:
        assert sorted(itertools.chain(*epoch)) == [*range(COUNT)]
    for first in (1, 3, 4):
        rests = [rests[first] for _, rests in outcomes]
        rest = merge_steps([(at - first, samples) for at, samples in taken] for taken, _ in rests)
        assert [sorted(samples) for samples in rest] == [sorted(one) for one in steps[first:]]
        for (_, weights), ((_, wanted), _) in zip(rests, outcomes, strict=True):
            assert_close(weights, wanted)


def follow(rank, size):
    """The shares of each step, until they have left rank 0, which is slow."""
    import lightning

    class Slow(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.net = Device(0.005 if rank else 0.015)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

        def train_dataloader(self):
            evenly, model = divide_evenly(size, 12), self.trainer.strategy.model
            self.loader = Loader(Sentences(12_000), evenly, model, online=True)
            return self.loader

        def training_step(self, step, number):
            shares.append(step.share)
            for inputs, targets, _ in step:
                loss = loss_of(self.net, inputs, targets)
                self.manual_backward(step.weigh(loss))
            self.optimizers().step()
            self.optimizers().zero_grad()
            self.log("loss", loss, on_epoch=True, batch_size=step.share)
            self.trainer.should_stop = self.loader.plan.shares[0] <= 4

    set_environment(rank, size)
    shares = []
    fit(Slow(), size)
    return shares


def test_shares_leave_a_slow_rank(tmp_path):
    first, second = run(2, follow, folder=tmp_path, labels="ab")
    check_shares_left_rank_0(first, second)


def lose(rank, size, manner):
    set_environment(rank, size)
    taken = []
    module = make_module(manner, UNLIKE, taken)
    if rank == 3:
        module.on_train_batch_end = lambda *_: vanish() if module.global_step else None
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"\brank 3\b"):
        fit(module, size, **{**options_of(manner, UNLIKE), "max_epochs": 9})
    assert time.monotonic() - start < PROMPT


@pytest.mark.parametrize("manner", ["automatic", "manual"])
def test_a_lost_rank_is_named(manner, tmp_path):
    run(4, lose, manner, folder=tmp_path, labels="aabb", lost={3})
