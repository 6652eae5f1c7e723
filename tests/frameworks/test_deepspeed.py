"""DeepSpeed trains over hetccl as one process does: each ZeRO stage, equal and unlike shares."""

import itertools
import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest
from patience import PROMPT
from torch_ranks import run, vanish

if not find_spec("deepspeed"):
    pytest.skip("DeepSpeed is not installed: use tests/frameworks/run", allow_module_level=True)
import torch
import torch.distributed as dist
from sentences import DEVICE, PROFILES, UNLIKE, Device, Sentences, check_shares_left_rank_0
from torch import nn
from torch.nn.functional import cross_entropy

from hetccl.balance import Loader, divide_evenly, plan

MOST_NORM = 0.42  # clips some steps alone: clipping hides a wrong scale of the gradients
SIZE = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Weights' error over their size. bfloat16 has 8 bits, float16 11: weights and gradients are rounded
# to them in each step.
BOUND = {"fp32": 1e-6, "bf16": 2**-7, "fp16": 2**-9}


class Points(Sentences):
    """Samples of one target each, in float32."""

    def __init__(self, count=50):
        chance = torch.Generator().manual_seed(2)
        self.inputs = torch.randn(count, 6, generator=chance)
        self.targets = torch.randint(0, 4, (count,), generator=chance)


def make_model():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4))


def make_optimizer(model):
    """The weights depend on the gradients' scale, as Adam's would not, and on the steps before."""
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def make_adam(model):
    """An optimizer that DeepSpeed's universal checkpoints know."""
    return torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-3)


def reference(steps, make=make_optimizer):
    """The weights of one process in float64 that takes the steps, lists of samples; and the norms
    of its gradients."""
    model, data = make_model().double(), Points()
    optimizer, norms = make(model), []
    for samples in steps:
        loss = cross_entropy(model(data.inputs[samples].double()), data.targets[samples])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)))
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()], norms


def zero_options(stage):
    """Small buckets, and parameters that stage 3 really shards, so that all is exchanged."""
    return {
        "stage": stage, "reduce_bucket_size": 40, "allgather_bucket_size": 40,
        "stage3_param_persistence_threshold": 0,
    }  # fmt: skip


def make_engine(rank, stage, precision="fp32", model=None, make=make_optimizer, zero=(), **options):
    import deepspeed

    os.environ["LOCAL_RANK"] = str(rank)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": MOST_NORM,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {**zero_options(stage), **dict(zero)},
        **options,
    }
    if precision != "fp32":
        config[precision] = {"enabled": True}
    if precision == "fp16":  # a scale that overflows at first
        config[precision] |= {"initial_scale_power": 20, "hysteresis": 1}
    model = model or make_model()
    engine, *_ = deepspeed.initialize(model=model, optimizer=make(model), config=config)
    check_backend(engine)
    return engine


def check_backend(engine):
    for group in (None, engine.data_parallel_group, engine.seq_data_parallel_group):
        assert dist.get_backend(group) == "hetccl"


def weights_of(engine):
    import deepspeed

    parameters = [*engine.module.parameters()]
    with deepspeed.zero.GatheredParameters(parameters):
        return [parameter.detach().double().tolist() for parameter in parameters]


def loss_of(engine, inputs, targets, precision):
    """The sum of the losses, on the engine's device."""
    outputs = engine(inputs.to(engine.device, SIZE[precision])).float()
    return cross_entropy(outputs, targets.to(outputs.device), reduction="sum")


def learn_as_ever(engine, precision):
    """Equal shares, with DeepSpeed's own loader and scale."""
    data = torch.utils.data.Subset(Points(), range(48))
    for number, (inputs, targets, indices) in enumerate(
        engine.deepspeed_io(data, num_local_io_workers=0)
    ):
        engine.backward(loss_of(engine, inputs, targets, precision) / len(targets))
        engine.step()
        yield number // engine.gradient_accumulation_steps(), indices.tolist()


def learn(engine, precision, loader):
    """Unlike shares; DeepSpeed counts the micro-batches."""
    for step in loader:
        for inputs, targets, indices in step:
            loss = loss_of(engine, inputs, targets, precision)
            engine.backward(step.weigh(loss), scale_wrt_gas=False)
            engine.step()
            yield step.number, indices.tolist()


def learn_unmanaged(engine, precision, loader):
    """Unlike shares; the loop says when a step ends."""
    for step in loader:
        for inputs, targets, indices in step:
            loss = loss_of(engine, inputs, targets, precision)
            engine.backward(step.weigh(loss))
            yield step.number, indices.tolist()
        engine.step()


def train(rank, size, stage, manner, precision):
    """The samples that this rank takes, by step; the weights, and the last step's norm."""
    made = UNLIKE
    loader = Loader(Points(), made, seed=7)
    if manner == "as ever":
        options = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
    elif manner == "unmanaged":
        options = {"managed_gradient_accumulation": False}
    else:
        options = {"gradient_accumulation_steps": made.accumulation}
    engine = make_engine(rank, stage, precision, **options)
    if manner == "as ever":
        taken = [*learn_as_ever(engine, precision)]
    elif manner == "unmanaged":
        taken = [*learn_unmanaged(engine, precision, loader)]
    else:
        taken = [*learn(engine, precision, loader)]
    norm = engine.get_global_grad_norm()  # of stage 0 there is none
    return taken, weights_of(engine), None if norm is None else float(norm)


def merge(outcomes):
    """The samples of each step, over all ranks and micro-batches."""
    steps = {}
    for taken, *_ in outcomes:
        for number, indices in taken:
            steps.setdefault(number, []).extend(indices)
    return [steps[number] for number in sorted(steps)]


def check_weights(outcomes, steps, precision, make=make_optimizer):
    wanted, norms = reference(steps, make)
    assert min(norms) < MOST_NORM < max(norms)
    size = torch.cat([want.flatten() for want in wanted]).norm()
    for _, weights, *_ in outcomes:
        errors = [
            (torch.tensor(one, dtype=torch.float64) - want).flatten()
            for one, want in zip(weights, wanted, strict=True)
        ]
        assert torch.cat(errors).norm() <= BOUND[precision] * size
    return norms


CASES = [
    *itertools.product((0, 1, 2, 3), ("as ever", "managed", "unmanaged"), ("fp32",)),
    *itertools.product((0, 1, 2, 3), ("managed",), ("bf16",)),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "manner", "precision"), CASES)
def test_a_stage_trains_as_one_process_does(stage, manner, precision, tmp_path):
    outcomes = run(4, train, stage, manner, precision, folder=tmp_path, labels="aabb")
    steps = merge(outcomes)
    assert sorted(itertools.chain(*steps)) == [*range(48 if manner == "as ever" else 50)]
    first = [[len(i) for number, i in taken if number == 0] for taken, *_ in outcomes]
    assert len(steps) == 3
    assert {len(sizes) for sizes in first} == {2 if manner == "as ever" else 3}
    assert len({sum(sizes) for sizes in first}) > 1 or manner == "as ever"
    norms = check_weights(outcomes, steps, precision)
    for *_, norm in outcomes:
        assert norm is None or norm == pytest.approx(norms[-1], rel=4 * BOUND[precision])


OPTIONS = {
    "overlap": (2, {"overlap_comm": True}),
    "round robin": (2, {"round_robin_gradients": True, "contiguous_gradients": False}),
    "all-reduce": (3, {"reduce_scatter": False}),
    "second partition": (3, {"zero_hpz_partition_size": 2}),  # of ZeRO++
    "sharded when made": (3, {}),
}


def train_with_options(rank, size, stage, zero):
    import deepspeed

    made = UNLIKE
    model = None
    if stage == 3 and not zero:
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero_options(3)}
        os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = make_model()
        with deepspeed.zero.GatheredParameters([*model.parameters()], modifier_rank=0):
            model.load_state_dict(make_model().state_dict())  # a GPU has other random numbers
    count = {"gradient_accumulation_steps": made.accumulation}
    engine = make_engine(rank, stage, model=model, zero=zero, **count)
    return [*learn(engine, "fp32", Loader(Points(), made, seed=7))], weights_of(engine)


@pytest.mark.parametrize(("stage", "zero"), OPTIONS.values(), ids=OPTIONS)
def test_options_train_as_one_process_does(stage, zero, tmp_path):
    outcomes = run(4, train_with_options, stage, zero, folder=tmp_path, labels="aabb")
    check_weights(outcomes, merge(outcomes), "fp32")


def train_scaled(rank, size):
    """Returns the result of `train`, with only the samples of steps that DeepSpeed has not skipped
    because the loss scale made gradients overflow; and the number of skipped steps."""
    from deepspeed.accelerator import get_accelerator

    if not get_accelerator().is_fp16_supported():
        return None
    made = UNLIKE
    loader = Loader(Points(), made, seed=7)
    engine = make_engine(rank, 1, "fp16", gradient_accumulation_steps=made.accumulation)
    kept = []
    for epoch in range(4):
        taken = []
        for number, indices in learn(engine, "fp16", loader):
            taken.append((epoch * len(loader) + number, indices))
            if len(taken) == made.accumulation:
                kept += taken if engine.was_step_applied() else []
                taken = []
    return kept, weights_of(engine), engine.skipped_steps


def test_float16_leaves_out_the_same_steps_on_all_ranks(tmp_path):
    outcomes = run(4, train_scaled, folder=tmp_path, labels="aabb")
    if None in outcomes:
        pytest.skip("DeepSpeed trains in float16 only on processors that have AVX512-FP16")
    steps = merge(outcomes)
    assert {skipped for *_, skipped in outcomes} == {12 - len(steps)}
    assert 3 < len(steps) < 12
    check_weights(outcomes, steps, "fp16")


def forget_to_initialise(rank, size):
    """The same program without the line that makes hetccl's process group."""
    dist.destroy_process_group()
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with pytest.raises(AssertionError):
        make_engine(rank, 1)
    return dist.get_backend()


def test_without_a_process_group_of_hetccl_it_trains_over_another(tmp_path):
    other = "nccl" if DEVICE == "cuda" else "gloo"
    assert run(1, forget_to_initialise, folder=tmp_path) == [other]


def lose(rank, size, stage):
    engine = make_engine(rank, stage)
    passes = itertools.count()

    def end(*_):
        if next(passes) == 3:
            vanish()

    if rank == 1:  # in the midst of a step
        engine.module[1].register_full_backward_hook(end)
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"\brank 1\b"):
        for _ in range(100):
            engine.backward(engine(torch.ones(4, 6, device=engine.device)).sum())
            engine.step()
    assert time.monotonic() - start < PROMPT


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_lost_rank_is_named(stage, tmp_path):
    run(4, lose, stage, folder=tmp_path, labels="aabb", lost={1})


def train_on(rank, size, stage, folder, profiles, until, make=make_optimizer, universal=False):
    """Trains from the checkpoint in `folder`, if there is one, until a step, and saves there."""
    made = plan(profiles, 20)
    loader = Loader(Points(), made, seed=7)
    options = {"gradient_accumulation_steps": made.accumulation}
    if universal:
        options["checkpoint"] = {"load_universal": True}
    engine = make_engine(rank, stage, make=make, **options)
    path, state = engine.load_checkpoint(folder)
    if path:
        loader.load_state_dict(state["loader"])
    taken = []
    for number, indices in learn(engine, "fp32", itertools.islice(loader, until)):
        taken.append((number, indices))
    if until:
        engine.save_checkpoint(folder, client_state={"loader": loader.state_dict()})
    return taken, weights_of(engine)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_job_goes_on_in_mid_epoch_with_other_shares(stage, tmp_path):
    folder = str(tmp_path / "checkpoint")
    arguments = (4, train_on, stage, folder)
    first, rest = tmp_path / "first", tmp_path / "rest"
    first.mkdir()
    rest.mkdir()
    before = run(*arguments, PROFILES, 1, folder=first, labels="aabb")
    after = run(*arguments, PROFILES[::-1], None, folder=rest, labels="aabb")
    steps = merge(before + after)
    assert [*map(len, (merge(before), merge(after)))] == [1, 2]
    assert sorted(itertools.chain(*steps)) == [*range(50)]
    check_weights(after, steps, "fp32")


@pytest.mark.parametrize("stage", [1, 3])
def test_a_job_goes_on_with_fewer_ranks(stage, tmp_path):
    folder, first, rest = (tmp_path / name for name in ("checkpoint", "first", "rest"))
    first.mkdir()
    rest.mkdir()
    arguments = (train_on, stage, str(folder))
    before = run(4, *arguments, PROFILES, 1, make_adam, folder=first, labels="aabb")
    subprocess.run(
        [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state",
         "--input_folder", folder / "global_step1", "--output_folder", folder / "universal"],
        check=True,
    )  # fmt: skip
    (folder / "latest_universal").write_text("universal")
    fewer = PROFILES[1:]
    after = run(3, *arguments, fewer, None, make_adam, True, folder=rest, labels="abb")
    check_weights(after, merge(before + after), "fp32", make_adam)


def follow(rank, size, stage):
    """The shares of each step, until they have left rank 0, which is slow."""
    device = Device(0.0).float()
    engine = make_engine(rank, stage, model=device)
    loader = Loader(Points(12_000), divide_evenly(size, 12), engine, online=True)
    device.seconds = 0.01 if rank == 0 else 0.004
    shares = []
    for step in loader:
        shares.append(step.share)
        if loader.plan.shares[0] <= 4:
            return shares
        for inputs, targets, _ in step:
            loss = loss_of(engine, inputs, targets, "fp32")
            engine.backward(step.weigh(loss), scale_wrt_gas=False)
            engine.step()
    raise AssertionError(f"rank 0 is slow, but shares are {loader.plan.shares}")


@pytest.mark.parametrize("stage", [0, 1] if DEVICE == "cuda" else [0, 1, 2, 3])
def test_shares_leave_a_slow_rank(stage, tmp_path):
    first, second = run(2, follow, stage, folder=tmp_path, labels="ab")
    check_shares_left_rank_0(first, second)
