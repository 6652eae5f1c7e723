"""Wrong arguments, NaN gradients and lost ranks of three-level sharding."""

import pytest
from torch_ranks import run, vanish

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from test_torch_sharding import Network, adamw, batches, loss_of, values  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler  # noqa: E402

from hetccl.sharding import NonFiniteGradientsError, Sharding, ShardingError, shard  # noqa: E402


def refused(model, optimizer, match, **given):
    with pytest.raises(ShardingError, match=match):
        shard(model, optimizer, **given)


def wrong(rank, size):
    model = Network()
    make = adamw
    refused(model, make(model), "weights=3 does not divide gradients=4", weights=3, gradients=4)
    refused(model, make(model), "gradients=4 does not divide optimizer_states=2",
            gradients=4, optimizer_states=2)  # fmt: skip
    refused(model, make(model), "is no level", weights="node")
    refused(model, make(model), "1 or more", weights=0)
    refused(model, make(model), "has no use with weights=1", weights=1, secondary=2)
    refused(model, make(model), "preset='zero4' is none of zero1", preset="zero4")
    refused(model, make(model), "weight_wire='int7'", weight_wire="int7")
    refused(model, make(model), "gradient_wire='int9:stochastic'", gradient_wire="int9:stochastic")
    refused(model, make(model), "rounded to nearest", weight_wire="int8:stochastic")
    refused(model, torch.optim.Adafactor(model.parameters()), "needs whole matrices")
    other = Network()
    refused(model, make(other), "not the model's")
    refused(Network().to("meta"), make(other), "not the model's")
    meta = Network().to("meta")
    refused(meta, make(meta), "no memory")
    refused(model, make(model), "rank 1 shards by", weight_wire="int8" if rank == 1 else "")
    unlike = Network(33 + (rank == 1))
    refused(unlike, make(unlike), "rank 1 has another model than rank 0")
    refused(model, make(model), "is no torch.dtype", gradient_dtype="float32")
    refused(model, make(model), "'blocks' is no module", units=["blocks"])
    refused(model, make(model), "gradient_wire=True is no text", gradient_wire=True)
    for given in ({"gradient_dtype": torch.int32}, {"units": 5}, {"exact": lambda p: p.absent}):
        refused(model, make(model), "rank 1 cannot shard: .*(int32|units=5|absent)",
                **(given if rank == 1 else {}))  # fmt: skip
    two = nn.Module()
    two.a, two.b = nn.Linear(4, 4), nn.Linear(4, 4)
    two.b.weight = two.a.weight
    refused(two, make(two), "b.weight are the same parameter", units=[two.a, two.b])
    refused(model, make(model), "no forward", units=[model.blocks])
    refused(model, make(model), "in two units", units=[model.blocks[0], model.blocks[0].up])
    refused(model, make(model), "differ in units:", units=[] if rank == 1 else None)
    refused(model, make(model), "leave out the model itself", units=[model])
    refused(model, torch.optim.SGD(model.parameters(), lr=0.1 + (rank == 1)), "optimizer's options")
    kind = torch.optim.RMSprop if rank == 1 else torch.optim.AdamW
    refused(model, kind(model.parameters()), "differ in the optimizer,")
    frozen = Network()
    frozen.norm.bias.requires_grad_(rank != 1)
    refused(frozen, make(frozen), "norm.bias is .*, frozen there, and .*, trained on rank 0")
    parallel = nn.parallel.DistributedDataParallel(model)
    refused(parallel, make(model), "give the module in DistributedDataParallel")
    with pytest.raises(TypeError, match=r"optimizer is <generator .* is no torch.optim.Optimizer"):
        shard(model, model.parameters())
    double = Network().double()
    refused(double, make(double), "float64 has no encoding", preset="three-level")
    part = torch.optim.SGD([p for p in model.parameters() if p.dim() > 1], lr=0.1)
    refused(model, part, r"it lacks blocks\.0\.gain")
    optimizer = make(model)
    sharded = shard(model, optimizer, Sharding("pair", 2, "all"), gradients=4)
    assert repr(sharded).startswith("Sharded(Degrees(size=4, weights=2, gradients=4,")
    with pytest.raises(ShardingError, match="the state must be"):
        sharded.load_state_dict(model.state_dict())
    refused(model, optimizer, "fully_shard has sharded it")
    with pytest.raises(ShardingError, match="closure"):
        optimizer.step(lambda: 0.0)


def test_wrong_arguments(tmp_path):
    run(4, wrong, folder=tmp_path, labels="aabb")


def not_a_number(rank, size):
    mine = batches()[:, rank * 2 : (rank + 1) * 2]
    model = Network()
    optimizer = adamw(model)
    sharded = shard(model, optimizer, "zero3", weights=2, gradients=2)
    before = values(model)
    loss = loss_of(model, mine[0])
    (loss * float("nan") if rank == 2 else loss).backward()
    with pytest.raises(NonFiniteGradientsError, match=r"gradients of blocks\.0.* and \d+ more"):
        optimizer.step()
    assert torch.equal(values(model), before)
    assert not any(optimizer.state.values())
    optimizer.zero_grad()

    hooks = []

    def spoil(module, _):
        hooks.append(module.bias.register_hook(lambda gradient: gradient * float("nan")))

    forward = model.norm.register_forward_pre_hook(spoil)  # a part that few ranks own
    loss_of(model, mine[0]).backward()
    with pytest.raises(NonFiniteGradientsError, match=r"gradients of norm\.bias have"):
        optimizer.step()
    assert torch.equal(values(model), before)
    optimizer.zero_grad()
    loss_of(model, mine[0]).backward()
    assert not torch.isfinite(sharded.clip_grad_norm_(1.0))  # and it leaves other gradients alone
    with pytest.raises(NonFiniteGradientsError, match=r"gradients of norm\.bias have"):
        optimizer.step()
    for hook in (forward, *hooks):
        hook.remove()
    optimizer.zero_grad()
    loss_of(model, mine[0]).backward()
    norm = sharded.clip_grad_norm_(1.0)
    optimizer.step()
    assert torch.isfinite(norm)
    assert not torch.equal(values(model), before)


def test_nan_gradients(tmp_path):
    run(4, not_a_number, folder=tmp_path, labels="aabb")


def scaled(rank, size):
    """With torch's scaler of sharded gradients no rank steps where one has infinities."""
    mine = batches()[:, rank * 2 : (rank + 1) * 2]
    results = []
    for scaler in (None, ShardedGradScaler(device="cpu", init_scale=1024.0)):
        model = Network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sharded = shard(model, optimizer, "zero3", weights=2, gradients=2)

        def step(factor=1.0, clip=0.1, scaler=scaler, model=model, sharded=sharded):
            loss = loss_of(model, mine[0]) * factor
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is not None:
                scaler.unscale_(sharded.optimizer)
            norm = sharded.clip_grad_norm_(clip)
            if scaler is None:
                sharded.optimizer.step()
            else:
                scaler.step(sharded.optimizer)
                scaler.update()
            sharded.optimizer.zero_grad()
            return norm

        norm = step()
        assert norm > 0.1
        before = values(model)
        results.append((norm, before))
    step(factor=float("inf") if rank == 2 else 1.0)
    assert torch.equal(values(model), before)
    assert scaler.get_scale() == 512
    step()
    assert not torch.equal(values(model), before)
    (norm, plain), (scaled_norm, scaled_values) = results
    assert abs(scaled_norm - norm) < 1e-5 * norm
    assert torch.allclose(scaled_values, plain, rtol=1e-6, atol=1e-7)


def test_loss_scaling(tmp_path):
    run(4, scaled, folder=tmp_path, labels="aabb")


def lost(rank, size):
    mine = batches()[:, rank * 2 : (rank + 1) * 2]
    model = Network()
    optimizer = adamw(model)
    sharded = shard(model, optimizer, "zero3", weights=2, gradients=2)
    loss_of(model, mine[0]).backward()
    optimizer.step()
    optimizer.zero_grad()
    before = {n: (t[1].detach().clone()) for n, t in sharded._state._owned.items()}
    with sharded.accumulate():
        loss_of(model, mine[1]).backward()
    if rank == 3:
        vanish()
    with pytest.raises(dist.DistBackendError, match=r"\brank 3 \(|rank 1 is global rank 3"):
        optimizer.step()
    for name, (_, parameter) in sharded._state._owned.items():
        assert torch.equal(parameter.detach(), before[name]), name


def test_lost_rank(tmp_path):
    run(4, lost, folder=tmp_path, labels="aabb", lost={3})
