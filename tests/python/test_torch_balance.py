"""Balanced training: exact gradients, every sample once, and shares that follow the devices."""

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import threading
import time

import pytest
from patience import sample
from torch_ranks import run, vanish

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from sentences import (  # noqa: E402
    PROFILES,
    Device,
    Sentences,
    assert_close,
    loss_of,
    make_model,
    most_norm,
    reference,
    tokens_of,
    weights_of,
)
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from hetccl.balance import (  # noqa: E402
    BalanceError,
    BatchSampler,
    Loader,
    Plan,
    Profile,
    divide_evenly,
    plan,
    profile,
    total,
)
from hetccl.balance.models import add_up, alone  # noqa: E402
from hetccl.balance.stopwatch import Stopwatch  # noqa: E402
from hetccl.sharding import PRESETS, shard  # noqa: E402
from hetccl.torch_backend import seconds_waited  # noqa: E402

EXACT = [name for name, one in PRESETS.items() if not (one.weight_wire or one.gradient_wire)]


@contextlib.contextmanager
def wrapped(kind):
    """A model, what the loader is given, its optimizer, and how its gradients are clipped."""
    model = make_model()
    if kind == "ddp":
        model = DistributedDataParallel(model)
    if kind == "fsdp":
        fully_shard(model[0])
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if kind in PRESETS:
        sharded = shard(model, optimizer, kind)
        yield model, sharded, optimizer, sharded.clip_grad_norm_
        return
    yield model, model, optimizer, lambda most: nn.utils.clip_grad_norm_(model.parameters(), most)


def train(rank, size, kind, loss_scale, by_tokens):
    data = Sentences()
    made, lengths = plan(PROFILES, 20), None
    if by_tokens:
        made = plan([one.in_tokens(5) for one in PROFILES], 100)
        lengths = [tokens_of(targets) for targets in data.targets]
    taken = []
    with wrapped(kind) as (model, given, optimizer, clip):
        loader = Loader(data, made, given, seed=7, lengths=lengths)
        for step in loader:
            here = sum(tokens_of(targets) for _, targets, _ in step.micro_batches)
            count = total(here)
            optimizer.zero_grad()
            for inputs, targets, indices in step:
                taken.append((step.number, indices.tolist()))
                (loss_scale * step.weigh(loss_of(model, inputs, targets), count)).backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= loss_scale
            clip(most_norm(step.number))
            optimizer.step()
        return taken, weights_of(model)


KINDS = [
    ("ddp", 1.0, False), ("ddp", 1.0, True), ("ddp", 1024.0, False), ("fsdp", 64.0, False),
    *((one, 1.0, False) for one in EXACT),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "loss_scale", "by_tokens"), sample(KINDS, 5))
def test_unlike_shares_train_as_one_process_does(kind, loss_scale, by_tokens, tmp_path):
    outcomes = run(4, train, kind, loss_scale, by_tokens, folder=tmp_path, labels="aabb")
    steps = [
        [i for taken, _ in outcomes for at, indices in taken if at == number for i in indices]
        for number in range(1 + max(at for taken, _ in outcomes for at, _ in taken))
    ]
    assert len(steps) == 3 or by_tokens
    assert sorted(itertools.chain(*steps)) == [*range(50)]  # each sample once
    shares = [[len(i) for at, i in taken if at == 0] for taken, _ in outcomes]
    assert len({len(sizes) for sizes in shares}) == 1
    assert len({sum(sizes) for sizes in shares}) > 1
    wanted = reference(steps, loss_scale=loss_scale)
    for _, weights in outcomes:
        assert_close(weights, wanted)


def consume(rank, size, state, epochs, workers, limit):
    """The samples that this rank takes until `limit` steps, by epoch and step; and the state."""
    multiprocessing.current_process()._config["daemon"] = False  # it may have workers
    options = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    loader = Loader(Sentences(), plan(PROFILES[:size], 12, 2), seed=3, **options)
    if state:
        loader.load_state_dict(state)
    taken = []
    for epoch in epochs:
        loader.set_epoch(epoch)
        for step in loader:
            indices = [i for *_, batch in step for i in batch.tolist()]
            assert len(indices) == step.share
            taken += [((epoch, step.number), indices)]
            if len(taken) == limit:
                return taken, loader.state_dict()
    return taken, loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_goes_on_in_mid_epoch_with_other_ranks(workers, tmp_path):
    def merge(outcomes):
        merged = {}
        for taken, _ in outcomes:
            for key, indices in taken:
                merged.setdefault(key, []).extend(indices)
        return {key: sorted(indices) for key, indices in merged.items()}

    for name in "abc":
        (tmp_path / name).mkdir()
    whole = merge(run(2, consume, None, (0, 1), workers, 0, folder=tmp_path / "a"))
    assert len(whole) == 10
    for epoch in (0, 1):
        assert sorted(i for at, s in whole.items() if at[0] == epoch for i in s) == [*range(50)]
    assert whole[0, 0] != whole[1, 0]
    first = run(2, consume, None, (0, 1), workers, 3, folder=tmp_path / "b")
    state = first[0][1]
    assert state == first[1][1]
    assert (state["epoch"], state["step"]) == (0, 3)
    rest = run(3, consume, state, (0, 1), workers, 0, folder=tmp_path / "c")
    assert {**merge(first), **merge(rest)} == whole


def test_epochs_follow_each_other():
    sampler = BatchSampler(10, divide_evenly(1, 4), 0, seed=1)
    data = DataLoader(range(10), batch_sampler=sampler, collate_fn=list)
    epochs = [[*data] for _ in range(3)]
    assert all(sorted(itertools.chain(*epoch)) == [*range(10)] for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    sampler.set_epoch(1)
    assert [*data] == epochs[1]
    sampler.resume(1, 2)
    assert [*data] == epochs[1][2:]
    assert [len(batch) for batch in epochs[0]] == [3, 3, 4]
    sampler = BatchSampler(10, divide_evenly(1, 4), 0, drop_last=True, shuffle=False)
    assert [*sampler] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(BalanceError, match="3 samples give no step of 4"):
        BatchSampler(3, divide_evenly(1, 4), 0, drop_last=True)
    with pytest.raises(BalanceError, match=r"batch is 3: too small .*drop_last=True"):
        BatchSampler(3, divide_evenly(4, 4), 0)


def follow(rank, size, kind):
    """The shares of each step, until they have left rank 0, which is slow, and then rank 1."""
    device = Device(0)
    if kind == "fsdp":
        fully_shard(device.layer)
        fully_shard(device)
    model = DistributedDataParallel(device) if kind == "ddp" else device
    loader = Loader(Sentences(12_000), divide_evenly(size, 12), model, online=True)
    shares, slow = [], 0
    for step in loader:
        shares.append(step.share)
        if loader.plan.shares[slow] <= 5:
            if slow == 1:
                return shares
            slow = 1
        device.seconds = 0.01 if rank == slow else 0.005
        for inputs, targets, _ in step:
            step.weigh(loss_of(model, inputs, targets)).backward()
        device.zero_grad()
    raise AssertionError(f"rank {slow} is slow, but shares are {loader.plan.shares}")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_shares_follow_the_devices(kind, tmp_path):
    first, second = run(2, follow, kind, folder=tmp_path, labels="ab")
    assert all(sum(both) == 12 for both in zip(first, second, strict=True))
    assert first[0] == second[0] == 6
    assert min(first) <= 5
    assert second[-1] <= 5


class ExactStopwatch:
    """A fake: a pass takes a fixed time and one for each unit, and no clock is read."""

    def __init__(self, factor):
        self.factor = factor
        self.sizes = []

    def begin(self):
        pass

    def end_with(self, loss):
        pass

    def synchronize(self):
        pass

    def take(self):
        return [self.factor * (4 + size) for size in self.sizes]

    def seconds(self, passes):
        return sum(passes)


def settle(rank, size, by_tokens):
    """The plans' shares while workers draw samples ahead; rank 0 takes three times as long."""
    multiprocessing.current_process()._config["daemon"] = False  # it may have workers
    model = DistributedDataParallel(nn.Linear(6, 4).double())
    fixed = Profile(((1, 5.0), (1000, 1004.0)))
    lengths = None
    if by_tokens:
        chance = torch.Generator().manual_seed(6)
        lengths = torch.randint(1, 40, (6000,), generator=chance)
    loader = Loader(
        Sentences(6000 if by_tokens else 1500), plan([fixed] * size, 400 if by_tokens else 12, 1),
        model, online=True, lengths=lengths,
        num_workers=2, prefetch_factor=8, multiprocessing_context="fork",
    )  # fmt: skip
    loader._watch.stopwatch = ExactStopwatch(3.0 if rank == 0 else 1.0)
    shares = []
    for step in loader:
        batches = [indices.tolist() for *_, indices in step.micro_batches]
        loader._watch.stopwatch.sizes = [
            len(batch) * int(lengths[batch].max()) if by_tokens else len(batch) for batch in batches
        ]
        assert sum(map(len, batches)) == step.share
        shares.append(loader.plan.shares)
    return shares


@pytest.mark.parametrize("by_tokens", [False, True])
def test_shares_settle_at_once(by_tokens, tmp_path):
    first, second = run(2, settle, by_tokens, folder=tmp_path, labels="ab")
    assert first == second
    settled = [shares for shares, _ in itertools.groupby(first)]
    assert settled == ([(200, 200), (98, 302)] if by_tokens else [(6, 6), (1, 11)])
    assert len(first) > 100


def wait_in_a_thread(rank, size):
    """How long two threads have waited, of which one has waited for the other rank."""
    waited = []

    def meet():
        before = seconds_waited()
        if rank == 1:
            time.sleep(0.2)
        dist.all_reduce(torch.zeros(1))
        waited.append(seconds_waited() - before)

    before = seconds_waited()
    thread = threading.Thread(target=meet)
    thread.start()
    thread.join()
    return seconds_waited() - before, *waited


def test_waits_of_other_threads_do_not_count(tmp_path):
    (own, others), _ = run(2, wait_in_a_thread, folder=tmp_path)
    assert own == 0
    assert others > 0


def deterministic(rank, size):
    device = Device(0.01 if rank else 0)
    model = DistributedDataParallel(device)
    loader = Loader(Sentences(120), divide_evenly(size, 4), model, online=True)
    return {step.share for step in loader if [step.weigh(loss_of(model, *b[:2])) for b in step]}


def test_shares_stay_where_bits_must(tmp_path):
    env = {"HETCCL_DETERMINISTIC": "1"}
    assert run(2, deterministic, folder=tmp_path, env=env) == [{2}, {2}]


def measure(rank, size):
    device = Device(0.02 if rank else 0.001)
    model = DistributedDataParallel(device)
    sizes = []

    def run_pass(samples):
        sizes.append(samples)
        if rank == 1 and samples > 11:
            raise RuntimeError("CUDA error: out of memory")
        model(torch.zeros(samples, 6, dtype=torch.float64)).sum().backward()

    with pytest.warns(UserWarning, match="has run micro-batches of up to 1 samples, not of 32"):
        assert profile(model, run_pass, 32, seconds=0)[rank].most == 1
    found = profile(model, run_pass, 32, length=5, seconds=60)
    assert [(one.most, one.unit) for one in found] == [(160, "tokens"), (55, "tokens")]
    found = [one.in_samples(5) for one in found]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert dist.get_rank() == rank
    return found, max(sizes)


def test_profiles_know_speed_and_memory(tmp_path):
    (found, _), (same, largest) = run(2, measure, folder=tmp_path, labels="ab")
    assert found == same
    assert [one.most for one in found] == [32, 11]
    assert largest > 11
    for size in (4, 8):  # sleeps are never short
        assert found[0].time(size) >= 0.001 * size
        assert found[1].time(size) >= 0.02 * size
    made = plan(found, 16, 1)
    assert made.shares[0] > made.shares[1]


def disagree(rank, size, what):
    model = nn.Linear(3, 3 + (what == "model" and rank))
    if what == "shapes" and rank == 1:
        model.weight = nn.Parameter(model.weight[:, None].detach())
    if what == "bug":
        model.register_buffer("passes", torch.zeros(1))  # DDP broadcasts it before each pass
        model = DistributedDataParallel(model)

    def run_pass(samples):
        if what == "memory" and rank == 1:
            raise MemoryError
        if what == "bug" and rank == 1:
            raise KeyError("labels")
        if what == "death" and rank == 1:
            vanish()
        if what == "nothing" and rank == 1:
            return
        model(torch.zeros(samples, 3)).sum().backward()

    texts = []
    try:
        profile(model, run_pass, 4 + (what == "limit" and rank))
    except (BalanceError, dist.DistBackendError) as error:
        texts.append(str(error))
    if what == "death":
        return texts
    lengths = [4 + (what == "lengths" and rank)] * 50
    if what == "long" and rank:
        lengths[3] = 900
    if what == "deterministic" and rank:
        os.environ["HETCCL_DETERMINISTIC"] = "1"
    try:
        evenly = divide_evenly(2, 80 + (what == "model" and rank))
        Loader(
            Sentences(),
            evenly,
            DistributedDataParallel(nn.Linear(1, 1)),
            online=True,
            lengths=lengths,
        )
    except BalanceError as error:
        texts.append(str(error))
    return texts


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("model", "model: rank 1 has 2 tensors of 16 parameters (shapes "),
        ("shapes", "model: rank 1 has 2 tensors of 12 parameters (shapes "),
        ("limit", "limit: rank 1 has 5, and rank 0 4"),
        ("memory", "rank 1: BalanceError: its device (cpu) has no memory for one sample"),
        ("bug", "rank 1: KeyError: 'labels'"),
        ("nothing", "rank 1: BalanceError: run has made no gradients of the model"),
        ("deterministic", "online: rank 1 has False, and rank 0 True"),
        ("lengths", "lengths: rank 1 has "),
        (
            "long",
            "rank 1: lengths: sample 3 has 900 tokens, but a sample must have 1 to the plan's",
        ),
    ],
)
def test_ranks_that_disagree_or_fail_are_named_on_all(what, text, tmp_path):
    for texts in run(2, disagree, what, folder=tmp_path):
        assert text in texts[0]
        assert len(texts) == 1 + (what == "model")


def test_a_rank_that_dies_while_profiling_is_named(tmp_path):
    survivor, _ = run(2, disagree, "death", folder=tmp_path, lost={1})
    assert "rank 1" in survivor[0]
    assert "was lost" in survivor[0]


def count(made, unit):
    """The plan, whose profiles count this unit."""
    profiles = [dataclasses.replace(one, unit=unit) for one in made.profiles]
    return dataclasses.replace(made, profiles=tuple(profiles))


def wrong(rank, size):
    model = DistributedDataParallel(nn.Linear(6, 4).double())
    gloo = dist.new_group(backend="gloo")
    evenly = divide_evenly(2, 8)
    cases = [
        (
            lambda: Loader(Sentences(), evenly, model, group=gloo, online=True),
            "online: the group's backend is .*gloo",
        ),
        (lambda: Loader(Sentences(), evenly, batch_size=4), "batch_size is no option"),
        (lambda: Loader(Sentences(), evenly, no_option=4), "rank 0: .*no_option"),
        (lambda: Loader(Sentences(), count(evenly, "tokens")), "the plan counts tokens"),
        (
            lambda: Loader(Sentences(), count(evenly, "samples"), lengths=[1] * 50),
            "the plan counts samples",
        ),
        (lambda: Loader(Sentences(), divide_evenly(3, 9)), "the plan has 3 ranks, but the group 2"),
        (lambda: Loader(Sentences(), divide_evenly(2, 8), online=True), "give the model"),
    ]
    for make, text in cases:
        with pytest.raises(BalanceError, match=text):
            make()
    loader = Loader(Sentences(), evenly)
    step = next(iter(loader))
    with pytest.warns(UserWarning, match="has called step.weigh"):
        assert len([*step]) == 1
    with pytest.raises(BalanceError, match="step 0 has been iterated over before"):
        list(step)
    loader = Loader(Sentences(), evenly)
    state = loader.state_dict()
    for change, text in (
        ({"seed": 1}, "seed was 1"),
        ({"step": 7}, "step is 7"),
        ({"epoch": "x"}, "no state of a loader"),
    ):
        with pytest.raises(BalanceError, match=text):
            loader.load_state_dict({**state, **change})
    with pytest.raises(BalanceError, match="lacks entries"):
        loader.load_state_dict({"epoch": 1})
    assert [len([*zip(range(len(loader)), loader, strict=False)]) for _ in range(3)] == [7] * 3
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (3, 0)
    with pytest.raises(BalanceError, match="within a loop"):
        for _ in loader:
            loader.set_epoch(9)
    unlike = Plan((Profile(((1, 1.0),)), Profile(((1, 1.0 + rank),))), 8, 1, (4, 4))
    with pytest.raises(BalanceError, match="profiles: rank 1"):
        Loader(Sentences(), unlike)
    loader = Loader(Sentences(400), divide_evenly(2, 8), model, online=True)
    with pytest.raises(BalanceError, match="rank 0 has called backward"):
        for step in loader:
            for inputs, *_ in step:
                model(inputs).sum().backward()
    return True


def test_wrong_use_is_named(tmp_path):
    assert all(run(2, wrong, folder=tmp_path))


def test_a_pass_without_its_end_gives_no_time():
    watch = Stopwatch(torch.device("cpu"))
    weight = torch.ones(1, requires_grad=True)
    assert watch.take() is None
    for _ in range(2):
        watch.begin()
        loss = weight * 2
        watch.end_with(loss)
        loss.backward()
    assert watch.seconds(watch.take()) > 0
    watch.begin()
    watch.begin()
    loss = weight * 2
    watch.end_with(loss)
    loss.backward()
    assert watch.take() is None


def test_a_plan_of_other_steps_keeps_its_micro_batches():
    made = plan(PROFILES, 40)
    assert isinstance(made, Plan)
    assert made.of(30).accumulation == made.accumulation


def pass_alone(rank, size):
    """The gradients of a compiled model, after passes that no other rank takes part in."""
    net = nn.Linear(1, 1, bias=False)
    model = torch.compile(DistributedDataParallel(net), backend="eager")
    inputs = torch.full((1, 1), 1.0 + rank)
    for context, passes in (alone, 1 + rank), (add_up, 1):
        with context(model):
            for _ in range(passes):
                model(inputs).backward()
    own = net.weight.grad.item()
    model(inputs).backward()
    return own, net.weight.grad.item()


def test_a_compiled_model_exchanges_no_gradients_before_the_last_micro_batch(tmp_path):
    assert run(2, pass_alone, folder=tmp_path) == [(2, 5.5), (6, 5.5)]
