"""State of sharded trainings: checkpoints, whole state dicts, changes from outside."""

import pytest
from torch_ranks import run

torch = pytest.importorskip("torch")
from test_torch_sharding import (  # noqa: E402
    PASSES,
    STEPS,
    Network,
    adamw,
    batches,
    loss_of,
    values,
)

from hetccl.sharding import ShardingError, shard  # noqa: E402


def trained(rank, size, w, g, o, steps, path=None, **options):
    """A model that took some of the steps, from a checkpoint if `path` is given."""
    model = Network()
    optimizer = adamw(model)
    sharded = shard(
        model, optimizer, "zero3", weights=w, gradients=g, optimizer_states=o, **options
    )
    if path is not None:
        sharded.load(path)
    train_on(rank, size, sharded, steps)
    return sharded


def train_on(rank, size, sharded, steps):
    share = 8 // size
    mine = batches()[:, rank * share : (rank + 1) * share]
    for step in steps:
        for number in range(PASSES):
            loss = loss_of(sharded.model, mine[step * PASSES + number]) / PASSES
            loss.backward()
        sharded.optimizer.step()
        sharded.optimizer.zero_grad()


def first_half(rank, size, path):
    sharded = trained(rank, size, 2, 2, 4, range(1))
    model = sharded.model
    with torch.no_grad():  # what is not trained is saved, too
        model.blocks[1].up.bias.add_(0.25)
        model.scale.mul_(1.5)
    sharded.optimizer.param_groups[1]["lr"] = 5e-3
    sharded.save(path)
    before = values(model)
    again = trained(rank, size, 1, 4, 4, range(0), path, update_wire="int8")
    assert torch.equal(values(again.model), before)
    assert again.model.scale == 1.5
    assert [group["lr"] for group in again.optimizer.param_groups] == [1e-2, 5e-3]
    rest = trained(rank, size, 2, 2, 4, range(1, STEPS), path)
    train_on(rank, size, sharded, range(1, STEPS))
    assert torch.equal(values(rest.model), values(model))
    return values(model).tolist()


def second_half(rank, size, path):
    return values(trained(rank, size, 2, 2, 2, range(1, STEPS), path).model).tolist()


def plain(rank, size, path):
    """The plain model reads the checkpoint of the sharded one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = Network()
    optimizer = adamw(model)
    weights, state = get_state_dict(model, optimizer)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(
        model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    for step in range(1, STEPS):
        for number in range(PASSES):
            (loss_of(model, batches()[step * PASSES + number]) / PASSES).backward()
        optimizer.step()
        optimizer.zero_grad()
    path = f"{path}-plain"
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=path)
    sharded = trained(rank, size, 1, 1, 1, range(0), path)
    assert torch.equal(values(sharded.model), values(model))
    return values(model).tolist()


@pytest.mark.long
def test_checkpoints(tmp_path):
    path = str(tmp_path / "checkpoint")
    for name in "abc":
        (tmp_path / name).mkdir()
    whole = run(4, first_half, path, folder=tmp_path / "a", labels="aabb")[0]
    for got in (
        run(2, second_half, path, folder=tmp_path / "b")[0],
        run(1, plain, path, folder=tmp_path / "c")[0],
    ):
        assert got == pytest.approx(whole, rel=1e-4, abs=1e-5)


def whole_states(rank, size):
    """The plain model's state dicts, whole, with numbers for the optimizer's parameters."""
    model = Network()
    optimizer = adamw(model)
    for batch in batches()[:2]:
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        model.blocks[1].up.bias.add_(0.25)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    sharded = trained(rank, size, 2, 2, 4, range(1))  # has other values
    sharded.load_state_dict(state)
    assert torch.equal(values(sharded.model), values(model))
    loss_of(model, batches()[2]).backward()
    optimizer.step()
    loss_of(sharded.model, batches()[2][2 * rank : 2 * rank + 2]).backward()
    sharded.optimizer.step()
    assert torch.allclose(values(sharded.model), values(model), rtol=1e-4, atol=1e-5)
    for wrong, match in (
        ({"norm.bias": None}, r"lacks \['norm.bias'\]"),
        ({"norm.bias": torch.ones(3)}, r"norm.bias has the shape \[33\], in the state \[3\]"),
        ({"more": torch.ones(3)}, r"it has \['more'\]"),
    ):
        changed = {**state["model"], **wrong}
        weights = {name: value for name, value in changed.items() if value is not None}
        with pytest.raises(ShardingError, match=match):
            sharded.load_state_dict({**state, "model": weights})
    groups = {**state["optimizer"], "param_groups": state["optimizer"]["param_groups"][:1]}
    with pytest.raises(ShardingError, match="1 groups of parameters, the optimizer 2"):
        sharded.load_state_dict({**state, "optimizer": groups})


def saved_meanwhile(rank, size, path):
    """torch's async_save writes the state as it was, whatever is trained meanwhile."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_saver import async_save

    group = dist.new_group()
    sharded = trained(rank, size, 2, 2, 4, range(1))
    before = values(sharded.model)
    writing = async_save(sharded.state_dict(), checkpoint_id=path, process_group=group)
    train_on(rank, size, sharded, range(1, STEPS))
    writing.result()
    again = trained(rank, size, 2, 2, 4, range(0), path)
    assert torch.equal(values(again.model), before)
    train_on(rank, size, again, range(1, STEPS))
    assert torch.equal(values(again.model), values(sharded.model))


def test_saving_in_the_background(tmp_path):
    run(4, saved_meanwhile, str(tmp_path / "checkpoint"), folder=tmp_path, labels="aabb")


def test_whole_states(tmp_path):
    run(4, whole_states, folder=tmp_path, labels="aabb")


def changes(rank, size):
    """Weights that are changed in the model are trained from there; gradients are dropped by
    either zero_grad."""
    mine = batches()[:, 2 * rank : 2 * rank + 2]
    torch.manual_seed(rank)
    model = Network()
    with torch.no_grad():
        model.norm.bias.add_(rank)  # all get rank 0's
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sharded = shard(model, optimizer, "zero3", weights=2, gradients=2, secondary=4)
    start = {n: p.full_tensor().detach().clone() for n, p in model.named_parameters()}
    assert not start["norm.bias"].any()
    other = {name: value + 0.5 for name, value in start.items()}
    with torch.no_grad():
        for _name, parameter in model.named_parameters():
            parameter.add_(0.5)
    for zero_grad in (model.zero_grad, optimizer.zero_grad):
        for passes in (None, sharded.accumulate()):
            if passes is not None:
                with passes:
                    loss_of(model, mine[0]).backward()
            else:
                loss_of(model, mine[0]).backward()
            zero_grad()
    reference = Network()
    reference.load_state_dict(other, strict=False)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    loss_of(reference, batches()[1]).backward()
    plain.step()
    loss_of(model, mine[1]).backward()
    optimizer.step()
    assert torch.allclose(values(model), values(reference), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShardingError, match="all parameters before"):
        optimizer.add_param_group({"params": []})
    bias = model.norm.bias
    model.norm.bias = torch.nn.Parameter(bias.detach().clone())
    with pytest.raises(ShardingError, match=r"norm\.bias is another parameter"):
        optimizer.step()
    model.norm.bias = bias
    model.norm.bias.requires_grad_(False)
    with pytest.raises(ShardingError, match=r"norm\.bias is frozen now"):
        optimizer.step()


def test_changes_from_outside(tmp_path):
    run(4, changes, folder=tmp_path, labels="aabb")
