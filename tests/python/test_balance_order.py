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


@pytest.mark.parametrize("seed", range(20))
def test_each_sample_is_in_one_step_that_is_full(seed):
    chance = random.Random(seed)
    count, batch = chance.randrange(1, 3000), chance.randrange(600, 9000)
    lengths = draw_lengths(seed, count, 600)
    order = Order(count, batch, seed=seed, lengths=lengths)
    epochs = [order.arrange(epoch) for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2]
    assert count < 20 or epochs[0] != epochs[1]
    for epoch in epochs[:2]:
        assert sorted(epoch.samples) == [*range(count)]
        cuts = sorted(epoch.cuts, key=lambda cut: cut.begin)
        assert [cut.begin for cut in cuts] == [0, *(cut.end for cut in cuts[:-1])]
        assert cuts[-1].end == count
        for cut in cuts:
            assert cut.samples * cut.length <= batch
            assert all(lengths[i] <= cut.length for i in epoch.samples[cut.begin : cut.end])
        shortest = [cut.samples for cut in cuts if cut.length == cuts[-1].length]
        assert max(shortest) - min(shortest) <= 1
        full = [cut for cut in cuts if cut.length != cuts[-1].length and cut.end < count]
        assert all((cut.samples + 1) * cut.length > batch for cut in full)


def test_padding_is_little():
    lengths = draw_lengths(1, 20_000, 2048)
    order = Order(20_000, 1 << 16, lengths=lengths)
    padded = sum(cut.samples * cut.length for cut in order.cuts)
    assert padded < 1.3 * sum(lengths)
    assert 20_000 * max(lengths) > 3 * sum(lengths)  # what steps of any length would compute


def test_the_rest_can_be_left_out():
    lengths = [30] * 4 + [10] * 6
    kept = Order(10, 60, lengths=lengths, shuffle=False)
    assert [(cut.samples, cut.length) for cut in kept.cuts] == [(2, 30), (2, 30), (6, 10)]
    kept = Order(9, 60, lengths=lengths[:9], shuffle=False, drop_last=True)
    assert [(cut.samples, cut.length) for cut in kept.cuts] == [(2, 30), (2, 30)]
    assert kept.arrange(0).samples[:4] == [0, 1, 2, 3]


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
        (
            [80, 80, 80],
            140,
            70,
            "a step of samples of 80 tokens: rank 0's device holds only 70 tokens",
        ),
        ([80, 80, 80], 100, None, "a step of samples of 80 tokens: batch is 1: too small"),
    ],
)
def test_lengths_that_cannot_be_shared_are_named(lengths, batch, most, text):
    with pytest.raises(BalanceError, match=text):
        BatchSampler(3, divide_evenly(2, batch, most=most), 0, lengths=lengths)
