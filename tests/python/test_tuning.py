"""Tuning in Python programs, and DistributedDataParallel with tuned steps."""

import json
from array import array

import pytest
from ranks import run_ranks

import hetccl
from hetccl import HetcclError
from hetccl._lib import Result


def tune_by_hand(comm):
    space = comm.tuning_space("all_reduce", 100_000)
    assert space["key"] == {"collective": "all_reduce", "size_class": 19, "element_bytes": 4}
    start, axes = space["subspaces"][0]["start"], space["subspaces"][0]["axes"]
    assert start["slice_bytes"] in axes["slice_bytes"]
    values = array("f", [1.0] * 100_000)
    comm.all_reduce(values)
    for slice_bytes in axes["slice_bytes"]:
        comm.set_tuning(space["key"], {**start, "slice_bytes": slice_bytes})
        comm.all_reduce(values)
    with pytest.raises(HetcclError, match='"setting" is none') as caught:
        comm.set_tuning(space["key"], {"algorithm": "guesswork"})
    assert caught.value.result is Result.INVALID_ARGUMENT
    with pytest.raises(HetcclError, match="guesswork"):
        comm.tuning_space("guesswork", 10)
    hetccl.step()
    return values[0] == 2.0 ** (1 + len(axes["slice_bytes"])), comm.tuning()


def test_settings_by_hand():
    results = run_ranks(2, tune_by_hand, ("a", "b"))
    for right, tuning in results:
        assert right
        assert tuning["mode"] == "off"
        assert tuning["summary"] == "1 host + 1 host by shm"
        assert tuning["file"].endswith("hetccl/tuning.json")


def tune_while_calling(comm):
    values = array("f", [0.0] * 50_000)
    for _ in range(100_000):
        comm.all_reduce(values)
        comm.broadcast(flag := bytearray([settled(comm)]), root=0)
        if flag[0]:
            break
    return comm.tuning()


def settled(comm):
    """Returns, on rank 0, whether the large key's search is over."""
    keys = comm.tuning().get("keys", [])
    return any(one["state"] == "settled" and one["trials"] for one in keys)


def test_tuning_online(monkeypatch, tmp_path):
    monkeypatch.setenv("HETCCL_TUNE", "online")
    monkeypatch.setenv("HETCCL_TUNE_BUDGET", "10000")
    monkeypatch.setenv("HETCCL_TUNE_FILE", str(tmp_path / "tuning.json"))
    tuning = run_ranks(2, tune_while_calling, ("a", "b"))[0]
    key = next(one for one in tuning["keys"] if one["trials"])
    assert key["state"] == "settled"
    assert key["us"] > 0
    assert len(key["tried"]) > 2
    kept = json.loads((tmp_path / "tuning.json").read_text())
    assert any(one["key"] == key["key"] for one in kept["entries"])


def train_by_steps(rank, size):
    import torch
    from torch import nn

    model = nn.parallel.DistributedDataParallel(nn.Linear(512, 512, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.ones(4, 512)).square().mean().backward()
        optimizer.step()
    return float(model.module.weight.detach().sum())


def test_ddp_by_steps(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from torch_ranks import run

    env = {
        "HETCCL_TUNE": "step",
        "HETCCL_TUNE_BUDGET": "10000",
        "HETCCL_TUNE_FILE": str(tmp_path / "tuning.json"),
    }
    results = run(2, train_by_steps, folder=tmp_path, labels="ab", env=env)
    assert results[0] == results[1]
