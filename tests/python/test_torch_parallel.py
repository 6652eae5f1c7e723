"""Pipelines of unlike stages on torch.distributed.pipelining: gradients are one process's."""

import dataclasses
import time

import pytest
from patience import PROMPT, milliseconds, mostly_long
from torch_ranks import run, vanish

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from hetccl.parallel import (  # noqa: E402
    ParallelError,
    Pipeline,
    Stage,
    Strategy,
    measure,
    measure_links,
    measure_reduces,
    measure_split,
    model_of,
    plan,
    read_site,
    read_topology,
)

WIDTH, WORDS, LENGTH = 12, 20, 5


class Block(nn.Module):
    """A perceptron that is added to its input, of the layer's own weights."""

    def __init__(self, number):
        super().__init__()
        torch.manual_seed(number)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH, dtype=torch.float64)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))


def embedding():
    torch.manual_seed(100)
    return nn.Embedding(WORDS, WIDTH, dtype=torch.float64)


def head():
    torch.manual_seed(101)
    return nn.Linear(WIDTH, WORDS, dtype=torch.float64)


def loss_of(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def batch_of(samples):
    torch.manual_seed(102)
    return torch.randint(WORDS, (2, samples, LENGTH))


def reference(layers, samples):
    """Loss and gradients, by name, of one process."""
    first, blocks, last = embedding(), [Block(number) for number in range(layers)], head()
    inputs, targets = batch_of(samples)
    x = first(inputs)
    for block in blocks:
        x = block(x)
    loss = loss_of(last(x), targets)
    loss.backward()
    modules = {"first": first, "last": last}
    modules |= {f"layers.{number}": block for number, block in enumerate(blocks)}
    return loss.detach(), {
        f"{prefix}.{name}": parameter.grad
        for prefix, module in modules.items()
        for name, parameter in module.named_parameters()
    }


def strategy_of(widths, layers, rows, schedule="1f1b", micro_batches=4, tensor=1):
    """Ranks in order; `rows` of a micro-batch by stage and replica; `layers` by torch's stage."""
    ends = [sum(layers[:count]) for count in range(len(layers) + 1)]
    stages, rank = [], 0
    for position, width in enumerate(widths):
        parts = range(position, len(layers), len(widths))
        ranks = tuple(range(rank, rank + width * tensor))
        rank += width * tensor
        runs = tuple((ends[part], ends[part + 1]) for part in parts)
        stages.append(Stage(ranks, runs, tuple(rows[position])))
    batch = micro_batches * sum(rows[0])
    return Strategy(sum(layers), tensor, tuple(stages), schedule, batch, micro_batches)


def share(layer, mesh):
    if isinstance(layer, Block):
        plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
        parallelize_module(layer, mesh, plan)


def whole(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def train(rank, size, cases, steps):
    """The names of this rank's parameters, by case."""
    return {name: train_one(rank, strategy, steps) for name, strategy in cases.items()}


def train_one(rank, strategy, steps):
    makers = [lambda number=number: Block(number) for number in range(strategy.layers)]
    pipeline = Pipeline(makers, strategy, loss_of, first=embedding, last=head, parallelize=share)
    want_loss, want = reference(strategy.layers, strategy.batch)
    inputs, targets = batch_of(strategy.batch)
    for step in range(1, steps + 1):  # gradients add up
        loss = pipeline.step(inputs, targets)
        assert loss == pytest.approx(want_loss.item(), rel=1e-12)
        for name, parameter in pipeline.named_parameters():
            got = whole(parameter.grad)
            torch.testing.assert_close(got, step * want[name], rtol=1e-10, atol=1e-13)
    assert set(pipeline.state_dict()) == {name for name, _ in pipeline.named_parameters()}
    return [name for name, _ in pipeline.named_parameters()]


EVEN, WIDER = [[3, 3], [2, 2, 1, 1]], [[4, 2], [3, 1, 1, 1]]
CASES = {
    "2 to 4": strategy_of([2, 4], [3, 2], EVEN),
    "uneven rows": strategy_of([2, 4], [3, 2], WIDER),
    "4 to 2": strategy_of([4, 2], [1, 4], WIDER[::-1]),
    "zero-bubble": strategy_of([2, 4], [3, 2], WIDER, "zero-bubble"),
    "interleaved": strategy_of([2, 4], [2, 1, 1, 2], EVEN, "interleaved"),
    "interleaved, wide first": strategy_of([4, 2], [1, 2, 1, 1], WIDER[::-1], "interleaved", 6),
    "data alone": strategy_of([6], [3], [[2, 2, 1, 1, 1, 1]]),
    "three stages": strategy_of([1, 3, 2], [1, 2, 1], [[6], [1, 3, 2], [3, 3]]),
    "zero-bubble, three": strategy_of([1, 3, 2], [1, 2, 1], [[6], [1, 3, 2], [3, 3]],
                                      "zero-bubble", 6),
    "tensor": strategy_of([1, 2], [2, 2], [[4], [3, 1]], tensor=2),
}  # fmt: skip


def clusters_of(strategy):
    """A letter for each rank: neighbouring stages are in unlike clusters."""
    letters = {rank: "ab"[position % 2] for position, stage in enumerate(strategy.stages)
               for rank in stage.ranks}  # fmt: skip
    return "".join(letters[rank] for rank in range(strategy.size))


@pytest.mark.parametrize(
    "labels", mostly_long(sorted({clusters_of(one) for one in CASES.values()}), 1)
)
def test_gradients_are_those_of_one_process(labels, tmp_path):
    cases = {name: one for name, one in CASES.items() if clusters_of(one) == labels}
    names = run(len(labels), train, cases, 2, folder=tmp_path, labels=labels)
    for case, strategy in cases.items():
        everything = set().union(*(one[case] for one in names))
        assert len(everything) == 1 + 2 + 4 * strategy.layers


def refuse(rank, size, cases):
    for arguments, told in cases:
        strategy, layers, options = arguments(rank)
        with pytest.raises(ParallelError, match=told):
            pipeline = Pipeline(layers, strategy, loss_of, first=embedding, last=head, **options)
            pipeline.step(*batch_of(strategy.batch))


class Pair(nn.Module):
    """A layer that hands on what no stage can take."""

    def forward(self, x):
        return x, x


class Mixing(nn.Module):
    """A layer that mixes samples and positions."""

    def forward(self, x):
        return x.flatten(0, 1)


TWO = strategy_of([1, 1], [2, 2], [[4], [4]])
TIED = Block(0)


def makers(count=4):
    return [lambda number=number: Block(number) for number in range(count)]


def other_strategy(rank):
    schedule = "1f1b" if rank else "zero-bubble"
    return dataclasses.replace(TWO, schedule=schedule), makers(), {}


def too_few_layers(rank):
    return TWO, makers(4 - rank), {}


def tied_layers(rank):
    return TWO, [TIED, Block(1), Block(2), TIED], {}


def shared_layers(rank):
    return strategy_of([1], [4], [[4]], tensor=2), makers(), {}


def pairs(rank):
    return TWO, [*makers(1), Pair, *makers(2)], {}


def mixed(rank):
    return TWO, [*makers(1), Mixing, *makers(2)], {}


def larger(rank):
    return strategy_of([1, 2], [2, 2], [[4], [2, 2]]), makers(), {}


REFUSED = [
    (other_strategy, "strategy: rank 1 has"),
    (too_few_layers, "rank 1: the strategy is for 4 layers, and the model has 3"),
    (
        tied_layers,
        "layer 3 of stage 1 shares a parameter with stage 0: the model cannot",
    ),
    (shared_layers, "shares layers among 2 ranks: give parallelize="),
    (pairs, "layers 0 to 1 return a tuple: the model cannot be cut there"),
    (mixed, "layers 0 to 1 return a tensor of shape .5, 12. for one sample"),
    (larger, "the strategy is for 3 ranks, and the job has 2"),
]


def test_what_cannot_be_built(tmp_path):
    run(2, refuse, REFUSED, folder=tmp_path)


def step_with_another_batch(rank, size):
    pipeline = Pipeline(makers(), strategy_of([1], [4], [[4]]), loss_of, first=embedding, last=head)
    with pytest.raises(ParallelError, match="inputs has 15 samples, but the strategy has batches"):
        pipeline.step(*batch_of(15))


def test_another_batch(tmp_path):
    run(1, step_with_another_batch, folder=tmp_path)


class Vanishing(nn.Module):
    """Dies in the middle of a step: in the third micro-batch's forward pass."""

    def __init__(self):
        super().__init__()
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        if self.training and self.passes > 3:
            vanish()
        return x


def lose(rank, size, strategy, victim):
    layers = makers(strategy.layers)
    last = strategy.stages[strategy.position_of(victim)].layers[-1][1] - 1
    if rank == victim:
        layers[last] = lambda: nn.Sequential(Vanishing(), Block(last))
    pipeline = Pipeline(layers, strategy, loss_of, first=embedding, last=head)
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=rf"\brank {victim}\b"):
        pipeline.step(*batch_of(strategy.batch))
    assert time.monotonic() - start < PROMPT


@pytest.mark.parametrize(
    "schedule, victim", mostly_long([("1f1b", 3), ("1f1b", 0), ("zero-bubble", 4)], 1)
)
def test_a_rank_that_is_lost_in_the_middle_of_a_step(schedule, victim, tmp_path):
    strategy = strategy_of([2, 3], [2, 2], [[3, 3], [2, 2, 2]], schedule)
    env = {"HETCCL_LIVENESS_MS": milliseconds(3000)}
    run(5, lose, strategy, victim, folder=tmp_path, labels="aabbb", lost={victim}, env=env)


def measured(rank, size):
    layer = Block(0)
    profiles = measure(layer, torch.randn(1, LENGTH, WIDTH, dtype=torch.float64), 2)
    split = measure_split(layer, torch.randn(1, LENGTH, WIDTH, dtype=torch.float64), 2)
    assert all(parameter.grad is None for parameter in layer.parameters())
    rates = measure_links(1 << 16)
    reduces = measure_reduces(1 << 16)
    assert [size for size, _ in reduces] == [1 << 12, 1 << 16]
    site = read_site(read_topology(), bandwidths=rates, profiles=profiles, times=reduces)
    assert site.times == tuple(reduces)
    shape = {"layers": 4, "hidden": WIDTH, "heads": 1, "vocabulary": WORDS, "sequence": LENGTH}
    given = {**shape, "layer_flops": 1e6, "type_bytes": 8, "split_backward": split}
    made = plan(model_of(given), site, 12)
    return profiles, rates, made.best.strategy


def test_from_measurements_to_a_plan(tmp_path):
    """Ranks of two hosts, one of which has two clusters, measure themselves and make one plan."""
    found = run(4, measured, folder=tmp_path, hosts="aaab", labels="xxyy")
    assert all(one == found[0] for one in found)
    profiles, rates, strategy = found[0]
    assert [[size for size, _ in one.seconds] for one in profiles] == [[1, 2]] * 4
    assert set(rates) == {"host", "between", "cluster", "all"} and min(rates.values()) > 1e4
    assert strategy.size == 4 and strategy.layers == 4


def align(rank, size):
    strategy = strategy_of([1, 2], [1, 1], [[2], [1, 1]])
    layers = [lambda: Block(1000 + rank)] * 2  # each rank makes other weights
    pipeline = Pipeline(layers, strategy, loss_of, first=embedding, last=head)
    of_stage = Block(1000 + min(rank, 1)).state_dict()
    number = min(rank, 1)
    found = {name: value for name, value in pipeline.state_dict().items() if "layers" in name}
    assert len(found) == len(of_stage) == 4
    for name, value in of_stage.items():
        assert torch.equal(found[f"layers.{number}.{name}"], value)


def test_replicas_start_alike(tmp_path):
    run(3, align, folder=tmp_path)
