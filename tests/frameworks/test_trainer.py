"""Hugging Face Trainer over hetccl, with equal and with balanced shares."""

import itertools
from importlib.util import find_spec

import pytest
from patience import PROMPT
from torch_ranks import run, vanish

if not find_spec("transformers"):
    pytest.skip("no transformers: use tests/frameworks/run", allow_module_level=True)
import torch
import torch.distributed as dist
from sentences import (
    COUNT,
    DEVICE,
    EVEN,
    PAIR,
    UNLIKE,
    assert_close,
    merge_steps,
    set_environment,
    weights_of,
)
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, Subset

from hetccl import balance

WORDS, LENGTH = 64, 8
TOKENS = balance.plan([one.in_tokens(LENGTH) for one in UNLIKE.profiles], UNLIKE.batch * LENGTH)


class Texts(Dataset):
    """Each begins with a word for its index. A label of -100 is no target."""

    def __init__(self):
        chance = torch.Generator().manual_seed(2)
        self.ids = torch.randint(0, WORDS, (COUNT, LENGTH), generator=chance)
        self.ids[:, 0] = torch.arange(COUNT)
        self.lengths = torch.randint(2, LENGTH + 1, (COUNT,), generator=chance)
        is_padding = torch.arange(LENGTH) >= self.lengths[:, None]
        self.labels = self.ids.masked_fill(is_padding, -100)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class Reader(nn.Module):
    """A model that returns no loss: tells a word from itself."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.out = nn.Linear(8, WORDS)

    def forward(self, input_ids):
        return {"logits": self.out(self.words(input_ids).tanh())}


def make_model(kind):
    torch.manual_seed(4)
    if kind == "reader":
        return Reader().double()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=WORDS, max_position_embeddings=LENGTH, hidden_size=16, intermediate_size=32,
        num_hidden_layers=2, num_attention_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


def sum_over_items(outputs, labels, num_items_in_batch):
    logits = outputs["logits"].flatten(0, 1)
    return cross_entropy(logits, labels.flatten(), reduction="sum") / num_items_in_batch


def make_trainer(kind, plan, taken, lose=None, **settings):
    """A trainer with the shares of `plan`, or, if None, as it comes; `taken` gets what it takes.

    The rank `lose` dies in step 1.
    """
    from transformers import Trainer, TrainingArguments

    class Balanced(Trainer):
        def get_train_dataloader(self):
            if plan is None:
                return super().get_train_dataloader()
            sampler = balance.BatchSampler(
                COUNT, plan, self.args.process_index, seed=self.args.seed,
                lengths=self.train_dataset.lengths if plan == TOKENS else None,
            )  # fmt: skip
            loader = DataLoader(
                self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator
            )
            loader.set_epoch = sampler.set_epoch
            return loader

        def training_step(self, model, inputs, num_items_in_batch=None):
            assert dist.get_backend(model.process_group) == "hetccl"
            if self.state.global_step == 1 and self.args.process_index == lose:
                vanish()
            taken.append((self.state.global_step, inputs["input_ids"][:, 0].tolist()))
            return super().training_step(model, inputs, num_items_in_batch)

    arguments = TrainingArguments(
        use_cpu=DEVICE == "cpu", seed=7, disable_tqdm=True, report_to="none", logging_steps=1,
        optim="sgd", learning_rate=0.5, lr_scheduler_type="constant", max_grad_norm=1e9,
        per_device_train_batch_size=2, gradient_accumulation_steps=plan.accumulation if plan else 2,
        **settings,
    )  # fmt: skip
    return Balanced(
        make_model(kind), arguments,
        train_dataset=Texts() if plan else Subset(Texts(), range(EVEN)),
        compute_loss_func=sum_over_items if kind == "reader" else None,
    )  # fmt: skip


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def reference(rank, size, kind, steps):
    """The weights, and the losses of all steps, of one process that takes whole steps."""
    model, data, losses = make_model(kind), Texts(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for samples in steps:
        logits, labels = model(input_ids=data.ids[samples])["logits"], data.labels[samples]
        if kind == "llama":
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights_of(model), losses


def train(rank, size, kind, plan, folder):
    set_environment(rank, size)
    taken = []
    trainer = make_trainer(
        kind, plan, taken, output_dir=folder, num_train_epochs=1, save_strategy="no"
    )
    trainer.train()
    loss = trainer.evaluate(Texts())["eval_loss"] if kind == "llama" else 0.0
    return taken, weights_of(trainer.model), losses_of(trainer), loss


KINDS = [("llama", None), ("llama", UNLIKE), ("llama", TOKENS), ("reader", UNLIKE)]


@pytest.mark.parametrize(("kind", "plan"), KINDS)
def test_ranks_train_as_one_process_does(kind, plan, tmp_path):
    outcomes = run(4, train, kind, plan, str(tmp_path), folder=tmp_path, labels="aabb")
    steps = merge_steps(taken for taken, *_ in outcomes)
    assert len(steps) == 3 or plan == TOKENS
    assert sorted(itertools.chain(*steps)) == [*range(COUNT if plan else EVEN)]
    shares = [sum(len(samples) for _, samples in taken) for taken, *_ in outcomes]
    assert (len({*shares}) > 1) == (plan is not None)
    (tmp_path / "one").mkdir()
    ((wanted, losses),) = run(1, reference, kind, steps, folder=tmp_path / "one")
    assert len({loss for *_, loss in outcomes}) == 1
    for _, weights, logged, _ in outcomes:
        assert_close(weights, wanted, atol=1e-8)  # LLaMA's norms compute in float32
        assert logged == pytest.approx(losses, rel=1e-6)


def train_and_resume(rank, size, folder):
    """Returns the samples and weights of two epochs, and of the rest of them after each
    checkpoint."""
    set_environment(rank, size)
    settings = {"output_dir": folder, "num_train_epochs": 2}
    whole = []
    trainer = make_trainer("llama", PAIR, whole, save_steps=1, **settings)
    trainer.train()
    dist.barrier()
    rests = {}
    for step, plan in (1, PAIR), (3, PAIR), (4, balance.divide_evenly(size, PAIR.batch, 2)):
        taken = []
        other = make_trainer("llama", plan, taken, save_strategy="no", **settings)
        other.train(resume_from_checkpoint=f"{folder}/checkpoint-{step}")
        rests[step] = taken, weights_of(other.model)
    return whole, weights_of(trainer.model), rests


def test_training_goes_on_in_mid_epoch_and_with_other_shares(tmp_path):
    outcomes = run(2, train_and_resume, str(tmp_path), folder=tmp_path, labels="ab")
    steps = merge_steps(whole for whole, *_ in outcomes)
    for epoch in steps[:3], steps[3:]:
        assert sorted(itertools.chain(*epoch)) == [*range(COUNT)]
    assert steps[:3] != steps[3:]
    for first in (1, 3, 4):
        rests = [rest[first] for *_, rest in outcomes]
        rest = merge_steps([(at - first, samples) for at, samples in taken] for taken, _ in rests)
        assert [sorted(samples) for samples in rest] == [sorted(one) for one in steps[first:]]
        for (_, weights), (_, wanted, _) in zip(rests, outcomes, strict=True):
            assert_close(weights, wanted)


def lose(rank, size, folder):
    set_environment(rank, size)
    trainer = make_trainer("llama", UNLIKE, [], lose=3, output_dir=folder, save_strategy="no")
    with pytest.raises(dist.DistBackendError) as caught:
        trainer.train()
    return str(caught.value)


@pytest.mark.timeout(PROMPT)
def test_a_lost_rank_is_named(tmp_path):
    *texts, _ = run(4, lose, str(tmp_path), folder=tmp_path, labels="aabb", lost={3})
    for text in texts:
        assert "rank 3" in text
        assert "was lost" in text
