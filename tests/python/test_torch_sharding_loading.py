"""Loading of checkpoints and states: what they lack, what does not fit, what fails midway."""

import copy
import pathlib
import pickle

import pytest
from patience import mostly_long
from torch_ranks import run

torch = pytest.importorskip("torch")
from test_torch_sharding import Network, adamw, batches, loss_of, values  # noqa: E402
from test_torch_sharding_state import train_on  # noqa: E402
from torch.distributed.checkpoint import CheckpointException, save  # noqa: E402

from hetccl.sharding import NonFiniteGradientsError, ShardingError, shard  # noqa: E402


def one_group(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def other_groups(model):
    parameters = list(model.parameters())
    return torch.optim.AdamW([{"params": parameters[:8]}, {"params": parameters[8:]}], lr=1e-2)


def fresh(make=adamw, model=Network, **options):
    network = model()
    chosen = {"weights": 2, "gradients": 2, **options}
    return shard(network, make(network), "zero3", **chosen)


def after_steps(rank, size, sharded, steps=2):
    train_on(rank, size, sharded, range(steps))
    return values(sharded.model)


class Wider(Network):
    def __init__(self):
        super().__init__()
        self.more = torch.nn.Linear(3, 3)


def momentum(model):
    optimizer = adamw(model)
    return torch.optim.SGD(
        [{"params": group["params"]} for group in optimizer.param_groups], lr=0.1, momentum=0.9
    )


def refused(rank, size, path):
    """A checkpoint that does not fit changes nothing: the training continues as if nothing was
    loaded."""
    sharded = fresh()
    train_on(rank, size, sharded, range(1))
    sharded.save(path)
    for make, model, match in (
        (one_group, Network, r"2 groups of parameters, the optimizer 1"),
        (other_groups, Network, r"a group of the state has 7 parameters, the optimizer's 8"),
        (adamw, Wider, r"it lacks \['model\.more"),
        (momentum, Network, r"it lacks \['optimizer\.state\..*momentum_buffer"),
    ):
        undisturbed = after_steps(rank, size, fresh(make, model))
        sharded = fresh(make, model)
        with pytest.raises(ShardingError, match=match):
            sharded.load(path)
        assert torch.equal(after_steps(rank, size, sharded), undisturbed)
    wider = fresh(adamw, Wider)
    wider.save(f"{path}-wider")
    with pytest.raises(ShardingError, match=r"another model: it has \['model\.more"):
        sharded = fresh()
        sharded.load(f"{path}-wider")
    with pytest.raises(ShardingError, match="cannot be read"):
        sharded.load(f"{path}-none")


def torn(rank, size, path):
    """After a load that fails midway no step is taken until another has been loaded."""
    import torch.distributed as dist

    sharded = fresh()
    train_on(rank, size, sharded, range(1))
    for folder in (path, f"{path}-cut"):
        sharded.save(folder)
    if rank == 0:
        file = max(pathlib.Path(f"{path}-cut").glob("*.distcp"))
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    dist.barrier()
    wanted = after_steps(rank, size, sharded)
    sharded = fresh()
    with pytest.raises(CheckpointException):
        sharded.load(f"{path}-cut")
    for act in (sharded.optimizer.step, lambda: sharded.save(f"{path}-again")):
        with pytest.raises(ShardingError, match="a load has ended midway"):
            act()
    with pytest.raises(ShardingError, match="cannot be read"):
        sharded.load(f"{path}-none")
    with pytest.raises(ShardingError, match="a load has ended midway"):
        sharded.optimizer.step()
    sharded.load(path)
    assert torch.equal(after_steps(rank, size, sharded), wanted)


class Attack:
    """An attacker's pickle, which calls a function when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def hostile(rank, size, path):
    """A checkpoint by a stranger runs no code on the rank that loads it."""
    import torch.distributed as dist

    sharded = fresh()
    train_on(rank, size, sharded, range(1))
    state = sharded.state_dict()
    state["optimizer"]["param_groups"][0]["lr"] = Attack(f"{path}-ran")
    save(state, checkpoint_id=f"{path}-object")
    sharded.save(path)
    metadata = pathlib.Path(path) / ".metadata"
    good = metadata.read_bytes()
    outside = pickle.loads(good)
    next(iter(outside.storage_data.values())).relative_path = "../of-others"
    for bad, match in (
        (Attack(f"{path}-ran"), r"its metadata names (_?io|builtins)\.open, which"),
        ({"a": 1}, "its metadata are none of torch"),
        (outside, "it has data outside its folder: ../of-others"),
    ):
        dist.barrier()
        if rank == 0:
            metadata.write_bytes(pickle.dumps(bad))
        dist.barrier()
        with pytest.raises(ShardingError, match=match):
            sharded.load(path)
    with pytest.raises(CheckpointException, match="Weights only load failed"):
        sharded.load(f"{path}-object")
    assert not pathlib.Path(f"{path}-ran").exists()
    dist.barrier()
    if rank == 0:
        metadata.write_bytes(good)
    dist.barrier()
    sharded.load(path)


def without_state(rank, size, path):
    """An optimizer keeps no state that the checkpoint, or the plain state, has not."""
    wanted = after_steps(rank, size, fresh())
    sharded = fresh()
    sharded.save(path)
    train_on(rank, size, sharded, range(2))
    sharded.load(path)
    assert torch.equal(after_steps(rank, size, sharded), wanted)
    plain = Network()
    sharded.load_state_dict({"model": plain.state_dict(), "optimizer": adamw(plain).state_dict()})
    assert torch.equal(after_steps(rank, size, sharded), wanted)


def whole_states(rank, size):
    """A plain state that does not fit changes nothing; NaN gradients are no obstacle."""
    plain = Network()
    optimizer = adamw(plain)
    loss_of(plain, batches()[0]).backward()
    optimizer.step()
    state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}
    wrong = copy.deepcopy(state)
    wrong["optimizer"]["state"][0]["exp_avg"] = torch.ones(3)
    undisturbed = after_steps(rank, size, fresh())
    sharded = fresh()
    with pytest.raises(ShardingError, match=r"exp_avg has the shape \[.*\], in the state \[3\]"):
        sharded.load_state_dict(wrong)
    assert torch.equal(after_steps(rank, size, sharded), undisturbed)
    with pytest.raises(ShardingError, match="rank 1: the state must be"):
        sharded.load_state_dict(state if rank != 1 else {})
    sharded.load_state_dict(state)
    wanted = after_steps(rank, size, sharded)
    (loss_of(sharded.model, batches()[0][2 * rank : 2 * rank + 2]) * torch.nan).backward()
    with pytest.raises(NonFiniteGradientsError):
        sharded.optimizer.step()
    sharded.load_state_dict(state)
    assert torch.equal(after_steps(rank, size, sharded), wanted)


def with_maxima(model):
    optimizer = adamw(model)
    for group in optimizer.param_groups:
        group["amsgrad"] = True
    return optimizer


def other_options(rank, size):
    """A plain state may have entries that this optimizer has not made: it goes on as its own."""
    plain = Network()
    optimizer = with_maxima(plain)
    loss_of(plain, batches()[0]).backward()
    optimizer.step()
    state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}
    same = fresh(with_maxima)
    same.load_state_dict(state)
    other = fresh()
    train_on(rank, size, other, range(1))
    other.load_state_dict(state)
    assert torch.equal(after_steps(rank, size, other), after_steps(rank, size, same))


def encoded(rank, size, path):
    """A training with all encodings and a secondary partition, saved, and read without them."""
    options = {"secondary": 2, "weight_wire": "int8", "gradient_wire": "int4"}
    sharded = fresh(weights=4, gradients=4, optimizer_states=4, **options)
    train_on(rank, size, sharded, range(2))
    sharded.save(path)
    before = values(sharded.model)
    wanted = after_steps(rank, size, sharded)
    again = fresh(weights=4, gradients=4, optimizer_states=4, **options)
    again.load(path)
    assert torch.equal(values(again.model), before)
    assert torch.equal(after_steps(rank, size, again), wanted)
    exact = fresh(weights=1, gradients=2)
    exact.load(path)
    assert torch.equal(values(exact.model), before)
    return before.tolist()


def evaluated(rank, size, path):
    """FSDP2 keeps weights gathered after a forward pass without a backward pass."""
    mine = batches()[:, 2 * rank : 2 * rank + 2]

    def train(sharded, evaluates):
        for batch in mine[:2]:
            loss_of(sharded.model, batch).backward()
            if evaluates:
                with torch.no_grad():
                    loss_of(sharded.model, mine[2])
            sharded.optimizer.step()
            sharded.optimizer.zero_grad()
        return values(sharded.model)

    wanted = train(fresh(), False)
    sharded = fresh()
    assert torch.equal(train(sharded, True), wanted)
    sharded.save(path)
    with torch.no_grad():
        loss_of(sharded.model, mine[2])
    sharded.load(path)
    assert torch.equal(values(sharded.model), wanted)
    loss_of(sharded.model, mine[2])  # no backward pass follows
    sharded.optimizer.step()


def failed_pass(rank, size):
    """After a pass that failed on all ranks the training goes on."""
    wanted = after_steps(rank, size, fresh())
    sharded = fresh()
    mine = batches()[:, 2 * rank : 2 * rank + 2]

    def fail(*_):
        raise KeyError("in a backward pass")

    for register in ("register_full_backward_hook", "register_forward_hook"):
        for part in (sharded.model.blocks[1], sharded.model.norm):
            hook = getattr(part, register)(fail)
            with pytest.raises(KeyError):
                loss_of(sharded.model, mine[0]).backward()
            hook.remove()
            with pytest.raises(ShardingError, match=r"has failed: call zero_grad\(\)"):
                sharded.optimizer.step()
            sharded.optimizer.zero_grad()
    assert torch.equal(after_steps(rank, size, sharded), wanted)


CASES = [refused, torn, hostile, without_state, encoded, evaluated]


@pytest.mark.parametrize("case", mostly_long(CASES, 3))
def test_loading(tmp_path, case):
    run(4, case, str(tmp_path / "checkpoint"), folder=tmp_path, labels="aabb")


@pytest.mark.parametrize("case", mostly_long([whole_states, other_options, failed_pass], 1))
def test_loading_of_states(tmp_path, case):
    run(4, case, folder=tmp_path, labels="aabb")
