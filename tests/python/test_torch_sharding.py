"""Three-level sharding computes what one process computes."""

import functools
from collections import Counter

import pytest
from patience import WHOLE, mostly_long, share
from torch_ranks import run

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402

from hetccl.sharding import Sharding, gradients, groups, weights  # noqa: E402
from hetccl.sharding.builder import shard  # noqa: E402
from hetccl.sharding.costs import Training, find_memory, find_phases  # noqa: E402
from hetccl.sharding.groups import read_tree  # noqa: E402
from hetccl.sharding.reach import Reaches  # noqa: E402
from hetccl.sharding.wires import wire_bytes  # noqa: E402

STEPS, PASSES = 3 if WHOLE else 2, 2


class Block(nn.Module):
    """FSDP2 lays out the children's parameters before its own."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width + 1)
        self.down = nn.Linear(2 * width + 1, width)

    def forward(self, x):
        return x + self.gain * self.down(torch.relu(self.up(self.norm(x))))


class Network(nn.Module):
    """Odd sizes, tied and frozen weights."""

    def __init__(self, width=33):
        torch.manual_seed(1)
        super().__init__()
        self.embed = nn.Embedding(29, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 29, bias=False)
        self.head.weight = self.embed.weight
        self.blocks[1].up.bias.requires_grad_(False)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.scale * self.head(self.norm(x))


def adamw(model):
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-2)


OPTIMIZERS = {
    "AdamW": adamw,
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=1e-2),
    "Rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=1e-3),
}


def batches(dtype=torch.long):
    g = torch.Generator().manual_seed(3)
    return torch.randint(0, 29, (STEPS * PASSES, 8, 5), generator=g)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, 29).float(), tokens[:, 1:].reshape(-1))


def train(model, optimizer, inputs, sharded=None, clip=None):
    for step in range(STEPS):
        for number in range(PASSES):
            loss = loss_of(model, inputs[step * PASSES + number]) / PASSES
            if sharded is not None and number < PASSES - 1:
                with sharded.accumulate():
                    loss.backward()
                assert sharded.memory()["gradients"] > 0
                assert not any(p.grad is not None for p in parameters_of(optimizer))
            else:
                loss.backward()
        if clip:
            if sharded is None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            else:
                sharded.clip_grad_norm_(clip)
        optimizer.step()
        optimizer.zero_grad()
    return values(model)


def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def values(model):
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().float().flatten() for p in whole])


DEGREES = {
    4: [(2, 2, 4), (1, 1, 1), (1, 1, 4), (1, 4, 4), (4, 4, 4), (1, 2, 4), (2, 4, 4), (2, 2, 2),
        (1, 2, 2), (1, 1, 2)],
    8: [(2, 4, 8), (1, 2, 4)],
}  # fmt: skip


def exact(rank, size, index):
    mine = batches()[:, rank * (8 // size) : (rank + 1) * (8 // size)]
    others = [(name, DEGREES[size][0]) for name in OPTIMIZERS if name != "AdamW"]
    cases = [*(("AdamW", degrees) for degrees in DEGREES[size]), *others]
    for name, (w, g, o) in share(cases, index, 2):
        want, moved = trained_alone(name)
        model = Network()
        optimizer = OPTIMIZERS[name](model)
        sharded = shard(model, optimizer, "zero3", weights=w, gradients=g, optimizer_states=o)
        got = train(model, optimizer, mine, sharded, clip=0.5)
        error = ((got - want).norm() / moved).item()
        assert error < 1e-4, f"{name} {w, g, o}: {error}"


@functools.cache
def trained_alone(name):
    """The values of one process that trains with all batches, and how far they have moved."""
    model = Network()
    start = values(model)
    want = train(model, OPTIMIZERS[name](model), batches(), clip=0.5)
    return want, (want - start).norm()


LAYOUTS = [(4, "aabb"), (4, "abab"), (8, "aaaabbbb")]  # each runs half of the cases


@pytest.mark.parametrize(("size", "labels"), mostly_long(LAYOUTS, 1))
def test_degrees(size, labels, tmp_path):
    run(size, exact, LAYOUTS.index((size, labels)), folder=tmp_path, labels=labels)


def uneven(rank, size):
    """Clusters of 2 and 4 ranks make groups of 2. Nothing is encoded that nobody asked for."""
    model = Network()
    want = train(model, adamw(model), batches()[:, :size], clip=0.5)
    moved = (want - values(Network())).norm()
    for given in ({}, {"weights": 1, "gradients": 1}, {"optimizer_states": "cluster"}):
        model = Network()
        if rank > 0:  # all ranks get rank 0's weights and buffers
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.zero_()
        optimizer = adamw(model)
        degrees = {"gradients": "cluster", **given}
        sharded = shard(model, optimizer, **degrees)
        assert sharded.degrees.gradients == given.get("gradients", 2)
        got = train(model, optimizer, batches()[:, rank : rank + 1], sharded, clip=0.5)
        assert ((got - want).norm() / moved).item() < 1e-4, given


@pytest.mark.parametrize("labels", mostly_long(["aabbbb", "babbab"], 1))
def test_uneven_clusters(labels, tmp_path):
    run(6, uneven, folder=tmp_path, labels=labels)


def options(rank, size):
    """Features that users combine with sharding compute the same."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
    )
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mine = batches()[:, rank * (8 // size) : (rank + 1) * (8 // size)]
    make = OPTIMIZERS["SGD"]
    model = Network()
    start = values(model)
    want = train(model, make(model), batches())
    moved = (want - start).norm()

    def recompute(model):
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))

    def compiled(model):
        model.blocks[1].compile(backend="aot_eager")  # one of its parameters is frozen

    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    cases = [
        (recompute, 1e-4, {}),
        (compiled, 1e-4, {}),
        (lambda m: None, 1e-4, {"secondary": 2, "weights": 4, "gradients": 4}),
        (lambda m: None, 1e-4, {"secondary": 4}),
        (lambda m: None, 1e-4, {"units": []}),
        (lambda m: None, 5e-2, {"mp_policy": bf16}),
        (lambda m: m.bfloat16(), 5e-2, {"gradient_dtype": torch.float32}),
        (lambda m: m.half(), 5e-2, {}),
    ]
    for prepare, tolerance, given in cases:
        model = Network()
        prepare(model)
        optimizer = make(model)
        degrees = {"weights": 2, "gradients": 2, "optimizer_states": 4, **given}
        sharded = shard(model, optimizer, "zero3", **degrees)
        got = train(model, optimizer, mine, sharded)
        error = ((got - want).norm() / moved).item()
        assert error < tolerance, f"{given}: {error}"
        assert (sharded.memory()["secondary"] > 0) == ("secondary" in given), given


@pytest.mark.long
def test_options(tmp_path):
    run(4, options, folder=tmp_path, labels="aabb")


def encoded(rank, size):
    """Encodings change little, all ranks get the same, and exact parameters are exact."""
    mine = batches()[:, rank * (8 // size) : (rank + 1) * (8 // size)]
    make = OPTIMIZERS["SGD"]
    model = Network()
    start = values(model)
    want = train(model, make(model), batches())
    moved = (want - start).norm()
    wires = {"weight_wire": "int8", "gradient_wire": "int4"}
    cases = [
        (0.1, {"weights": 2, "gradients": 2, **wires}),
        (0.1, {"weights": 1, "gradients": 2, **wires, "update_wire": "int8"}),
        (0.1, {"weights": 4, "gradients": 4, "secondary": 2, **wires}),
        (0.1, {"weights": 2, "gradients": 4, "secondary": 4, **wires}),
        (0.2, {"weights": 2, "gradients": 2, "gradient_wire": "int4:64:stochastic"}),
        (0.01, {"weights": 2, "gradients": 2, "update_wire": "int8"}),
    ]
    for tolerance, given in cases:
        model = Network()
        optimizer = make(model)
        sharded = shard(model, optimizer, "zero3", **given)
        got = train(model, optimizer, mine, sharded)
        error = ((got - want).norm() / moved).item()
        assert 1e-5 < error < tolerance, f"{given}: {error}"
        every = [torch.empty_like(got) for _ in range(size)]
        dist.all_gather(every, got)
        assert all(torch.equal(other, got) for other in every), given
        check_gather(model, given.get("weight_wire", ""), sharded)
        if "secondary" in given:
            check_secondary(model, sharded)


def check_gather(model, wire, sharded):
    """The weights of forward are those of the state dict, encoded unless they are exact, and all
    later gathers give the same."""
    whole = {n: p.full_tensor().clone() for n, p in model.blocks[0].named_parameters()}
    seen = []
    for _ in range(2):
        model.blocks[0].unshard()
        seen.append({n: p.detach().clone() for n, p in model.blocks[0].named_parameters()})
        model.blocks[0].reshard()
    assert [*seen[0]] == [*whole]
    for name, value in whole.items():
        assert torch.equal(seen[0][name], seen[1][name]), name
        is_exact = value.dim() < 2 or not wire or sharded.degrees.weights == 1
        assert torch.equal(seen[0][name], value) == is_exact, name
        assert torch.allclose(seen[0][name], value, atol=value.abs().max().item() / 250)


def check_secondary(model, sharded):
    """It is what is gathered, until the weights change."""

    def gathered():
        model.blocks[0].unshard()
        found = model.blocks[0].up.weight.detach().clone()
        model.blocks[0].reshard()
        return found

    before = gathered()
    sharded._gathers[0]._kept.zero_()
    assert not gathered().any()
    with torch.no_grad():
        model.blocks[0].norm.bias.mul_(1)
    assert torch.equal(gathered(), before)


def exact_gradients(rank, size):
    """In the first step the parameters of one dimension become what they become without encoding,
    and no others."""
    mine = batches()[:, rank * (8 // size) : (rank + 1) * (8 // size)]
    for w in (1, 2):
        made = []
        for wires in ({}, {"gradient_wire": "int4", "update_wire": "int8"}):
            model = Network()
            optimizer = OPTIMIZERS["SGD"](model)
            shard(model, optimizer, "zero3", weights=w, gradients=2, **wires)
            loss_of(model, mine[0]).backward()
            optimizer.step()
            made.append({n: p.full_tensor().detach() for n, p in model.named_parameters()})
        for name, value in made[0].items():
            if value.dim() < 2:
                assert torch.allclose(value, made[1][name], rtol=1e-6, atol=1e-7), (w, name)
            else:
                assert not torch.allclose(value, made[1][name], rtol=1e-4, atol=1e-5), (w, name)


class Branching(nn.Module):
    """A network of which a pass may leave out parts."""

    def __init__(self):
        torch.manual_seed(1)
        super().__init__()
        self.first, self.second, self.unused = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, is_short):
        x = self.first(x)
        return x if is_short else self.second(torch.relu(x))


def unlike_passes(rank, size):
    """Passes of different ranks use different parameters, and some parameters no pass uses."""
    inputs = torch.randn(size, 4, 8, generator=torch.Generator().manual_seed(3))
    want, model = Branching(), Branching()
    sum(want(inputs[other], other > 0).square().mean() / size for other in range(size)).backward()
    torch.optim.SGD(want.parameters(), lr=0.1).step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shard(model, optimizer, "zero3", weights=2, gradients=2)
    model(inputs[rank], rank > 0).square().mean().backward()
    optimizer.step()
    assert torch.allclose(values(model), values(want), rtol=1e-6, atol=1e-7)


def layers():
    """A model that needs no padding, and whose parameters are all encoded."""
    return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(2))).bfloat16()


def pass_through(model):
    model(torch.ones(2, 64, dtype=torch.bfloat16)).square().mean().backward()


def memory(rank, size):
    """It is what the planner's formulas say."""
    for sharding in (Sharding(2, 4, 4, 4, "int8", "int4"), Sharding(1, 2, 4)):
        model = layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sharded = shard(model, optimizer, sharding)
        pass_through(model)
        optimizer.step()
        optimizer.zero_grad()
        with sharded.accumulate():
            pass_through(model)
        want = find_memory(Training(2 * 64 * 64, 2, 1), sharding, sharded.degrees)
        parts = ("weights", "secondary", "gradients", "optimizer_states")
        assert sharded.memory() == {name: getattr(want, name) for name in parts}, sharding
        pass_through(model)
        assert sharded.memory()["gradients"] == want.float32_gradients, sharding


def traffic(rank, size):
    """The collectives of a step have the payloads of the planner's formulas, by number of ranks."""
    for sharding in (
        Sharding(2, 4, 4, 4, "int8", "int4"), Sharding(2, 2, 4, None, "int8", "int4"),
        Sharding(1, 2, 2, update_wire="int8"),
    ):  # fmt: skip
        model = layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sharded = shard(model, optimizer, sharding, units=list(model))
        want, found = Counter(), Counter()
        training, tree = Training(2 * 64 * 64, micro_batches=2), read_tree(torch.device("cpu"))
        for phase in find_phases(training, sharding, sharded.degrees, Reaches(tree)):
            want[phase.collective, phase.reach.ranks] += phase.calls * phase.payload
        with pytest.MonkeyPatch.context() as patches:
            record_payloads(patches, wire_bytes("gradient_wire", sharding.gradient_wire, 2), found)
            with sharded.accumulate():
                pass_through(model)
            pass_through(model)
            optimizer.step()
        assert found == want, sharding


def record_payloads(patches, element, found):
    """Adds the payload of each collective to `found`; an element of a sum has so many bytes."""

    def record(module, name, collective, payload):
        function = getattr(module, name)

        def recorded(*arguments, **options):
            group = options["group"] if "group" in options else arguments[1].process_group
            found[collective, dist.get_world_size(group)] += payload(*arguments[:2])
            return function(*arguments, **options)

        patches.setattr(module, name, recorded)

    for module in (groups, weights):
        record(module, "gather_into", "all_gather", lambda whole, _: whole.nbytes)
    for module in (gradients, weights):
        record(module, "scatter_sum", "reduce_scatter", lambda _, whole: whole.numel() * element)
    record(gradients, "average", "all_reduce", lambda part, _: part.numel() * element)


def small_cases(rank, size):
    exact_gradients(rank, size)
    memory(rank, size)
    traffic(rank, size)
    if hasattr(FSDPModule, "set_reduce_scatter_unused_params"):  # torch 2.13
        unlike_passes(rank, size)


@pytest.mark.smoke
def test_small_cases(tmp_path):
    env = {"HETCCL_WIRE_LEAST_BYTES": "0"}
    run(4, small_cases, folder=tmp_path, labels="aabb", env=env)


@pytest.mark.parametrize("labels", mostly_long(["aabb", "aaaa"], 1))
def test_encodings(labels, tmp_path):
    env = {"HETCCL_WIRE_LEAST_BYTES": "0"}
    run(4, encoded, folder=tmp_path, labels=labels, env=env)
