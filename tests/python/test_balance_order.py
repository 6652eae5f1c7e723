"""Samples of unlike lengths: in buckets, each once an epoch, never more than a batch of tokens."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from hetccl.balance import BalanceError, BatchSampler, Profile, divide_evenly, plan  # noqa: E402
from hetccl.balance.order import Order  # noqa: E402


def draw_lengths(seed, count, longest):
    chance = random.Random(seed)
    return [max(1, int(longest * chance.random() ** 3)) for _ in range(count)]


def check_epoch(order, epoch, lengths, batch):
    """Each sample is in one step, which holds no more than a batch of tokens. Returns the steps."""
    arranged = order.arrange(epoch)
    steps = [arranged.samples(cut) for cut in arranged.cuts]
    assert sorted(itertools.chain(*steps)) == [*range(len(lengths))]
    for cut, samples in zip(arranged.cuts, steps, strict=True):
        assert len(samples) * cut.length <= batch
        assert all(lengths[sample] <= cut.length for sample in samples)
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_each_sample_is_in_one_step_that_is_full(seed):
    chance = random.Random(seed)
    count, batch = chance.randrange(1, 3000 if seed % 2 else 40), chance.randrange(600, 9000)
    lengths = draw_lengths(seed, count, 600)
    order = Order(count, batch, seed=seed, lengths=lengths)
    epochs = [check_epoch(order, epoch, lengths, batch) for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2]
    assert count < 40 or epochs[0] != epochs[1]
    cuts = order.cuts
    shortest = [cut.samples for cut in cuts if cut.length == cuts[-1].length]
    assert max(shortest) <= min(shortest) + 1 or 2 * min(shortest) + 1 >= max(shortest)
    whole = [cut for cut in cuts[:-2] if cut.length != cuts[-1].length]
    assert all((cut.samples + 1) * cut.length > batch for cut in whole)


def test_padding_is_little():
    chance = random.Random(1)
    for spread, most in ((0.5, 1.15), (0.8, 1.25), (1.0, 1.3), (1.3, 1.4)):  # of the logarithm
        lengths = [1 + int(200 * chance.lognormvariate(0, spread)) for _ in range(20_000)]
        lengths = [min(length, 32_768) for length in lengths]
        order = Order(20_000, 1 << 16, lengths=lengths)
        assert sum(cut.samples * cut.length for cut in order.cuts) < most * sum(lengths)
        assert len(order.cuts) < 1.1 * most * sum(lengths) / (1 << 16) + 16


def test_the_rest_can_be_left_out():
    lengths = [30] * 4 + [10] * 6
    kept = Order(10, 60, lengths=lengths, shuffle=False)
    assert [(cut.samples, cut.length) for cut in kept.cuts] == [(2, 30), (2, 30), (6, 10)]
    kept = Order(9, 60, lengths=lengths[:9], shuffle=False, drop_last=True)
    assert [(cut.samples, cut.length) for cut in kept.cuts] == [(2, 30), (2, 30)]
    assert kept.arrange(0).samples(kept.cuts[0]) == [0, 1]


def test_a_small_rest_is_divided_with_the_step_before():
    order = Order(66, 65_536, lengths=[1000] * 57 + [10] * 9)
    assert [(cut.samples, cut.length) for cut in order.cuts] == [(33, 1000), (33, 1000)]


def test_steps_are_no_larger_than_what_ranks_hold():
    made = plan([Profile(((512, 1.0), (32_768, 64.0)), 32_768, unit="tokens")] * 2, 65_536)
    assert made.accumulation == 1
    lengths = draw_lengths(4, 5000, 500)
    order = BatchSampler(5000, made, 0, lengths=lengths).order
    for cut in order.cuts:
        assert cut.samples <= 2 * (32_768 // cut.length)


def test_ranks_share_the_tokens_of_a_step():
    lengths = draw_lengths(2, 4000, 512)
    fast = Profile(((256, 1.0), (2048, 8.0)), 4096)
    made = plan([fast, fast.slower(3)], 6144)
    assert made.shares == (4608, 1536)
    samplers = [BatchSampler(4000, made, rank, lengths=lengths, seed=5) for rank in range(2)]
    epochs = [[*sampler] for sampler in samplers]
    taken = sorted(itertools.chain(*itertools.chain(*epochs)))
    assert taken == [*range(4000)]
    tokens = [[sum(lengths[i] for i in batch) for batch in epoch] for epoch in epochs]
    assert all(0 < one <= 4096 for one in itertools.chain(*tokens))
    assert 2.5 < sum(tokens[0]) / sum(tokens[1]) < 3.5
    samplers[0].resume(0, 7)
    assert [*samplers[0]] == epochs[0][7 * made.accumulation :]
    for step in (-1, samplers[0].order.steps):
        with pytest.raises(BalanceError, match=f"step is {step}"):
            samplers[0].resume(0, step)
    with pytest.raises(BalanceError, match="the plan counts tokens"):
        BatchSampler(4000, plan([one.in_tokens(9) for one in made.profiles], 6144), 0)


@pytest.mark.parametrize(
    ("lengths", "batch", "most", "text"),
    [
        (
            [5, 6, 700],
            600,
            None,
            "lengths: sample 2 has 700 tokens, but a sample must have 1 to the plan's batch",
        ),
        ([5, 0, 7], 600, None, "lengths: sample 1 has 0 tokens"),
        ([5, 6], 600, None, "lengths must be 3 integers, one for each sample"),
        ([5.0, 6.0, 7.0], 600, None, "lengths must be 3 integers"),
        ([5, None, 7], 600, None, "lengths must be integers"),
        (
            [80, 80, 80],
            140,
            70,
            "rank 0's device holds 70 tokens, but samples have 80",
        ),
        ([80, 80, 80], 100, None, "a step has 1 samples of 80 tokens, .* it takes a batch of 160"),
    ],
)
def test_lengths_that_cannot_be_shared_are_named(lengths, batch, most, text):
    with pytest.raises(BalanceError, match=text):
        BatchSampler(3, divide_evenly(2, batch, most=most), 0, lengths=lengths)
