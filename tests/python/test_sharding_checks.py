"""Arguments that shard() refuses before it changes anything, and its default units. No ranks."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from hetccl.sharding import ShardingError  # noqa: E402
from hetccl.sharding.checks import (  # noqa: E402
    check_gradient_dtype,
    check_modules,
    find_units,
    warn_of_optimizer,
)


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        (torch.tensor(1.0), r"odd has no dimension to split; give it the shape \[1\]"),
        (torch.ones(4, 6).t(), "odd is not contiguous; .* parameter.data.contiguous()"),
        (
            torch.ones(5, 3, 2, 2).to(memory_format=torch.channels_last),
            "odd is not contiguous",
        ),
        (torch.ones(0, 4), "odd has no elements, .* freeze it"),
    ],
)
def test_parameters_that_fsdp_refuses_later(parameter, says):
    model = nn.Linear(4, 4)
    model.odd = nn.Parameter(parameter)
    with pytest.raises(ShardingError, match=says):
        check_modules(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_frozen_parameters_may_be_empty():
    model = nn.Linear(4, 4)
    model.odd = nn.Parameter(torch.ones(0, 4), requires_grad=False)
    check_modules(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("dtype", "wire", "says"),
    [
        (torch.int32, "", "gradient_dtype=torch.int32: gradients are torch.float32"),
        (torch.bool, "", "gradient_dtype=torch.bool"),
        (torch.complex64, "", "gradient_dtype=torch.complex64"),
        (torch.float64, "int8", "float64 has no encoding, so gradient_wire='int8'"),
    ],
)
def test_types_of_gradients(dtype, wire, says):
    with pytest.raises(ShardingError, match=says):
        check_gradient_dtype(dtype, wire)
    check_gradient_dtype(torch.float64, "")
    check_gradient_dtype(torch.bfloat16, "int4")


class Holder(nn.Module):
    """Groups two layers that its owner calls one by one: it has no forward."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)


def model_of(**lists):
    model = nn.Module()
    for name, modules in lists.items():
        setattr(model, name, nn.ModuleList(modules))
    return model


def test_a_module_that_is_listed_several_times_is_one_unit():
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model = model_of(layers=[layer, other, layer], again=[layer])
    assert find_units(model, None) == [layer, other, model]


def test_lists_of_lists_are_split_into_modules_with_a_forward():
    holder, inner = Holder(), nn.Sequential(nn.ModuleDict({"a": nn.Linear(2, 2)}))
    named = nn.ModuleDict({"a": nn.Linear(2, 2)})
    model = model_of(stages=[nn.ModuleList([inner]), holder, named, nn.ModuleList()])
    assert find_units(model, None) == [inner, holder.first, holder.second, named["a"], model]


def test_given_units_must_be_modules_with_a_forward():
    model = model_of(stages=[Holder()])
    for units, says in ((5, "units=5 is no list"), ([model.stages[0]], "Holder has no forward")):
        with pytest.raises(ShardingError, match=says):
            find_units(model, units)


def test_optimizers_that_are_not_torchs_are_warned_of(recwarn):
    class Own(torch.optim.Optimizer):
        pass

    class OwnAdam(torch.optim.Adam):
        pass

    parameters = list(nn.Linear(4, 4).parameters())
    for known in (torch.optim.SGD, OwnAdam):
        warn_of_optimizer(known(parameters, lr=0.1))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="Own is none of torch's optimizers"):
        warn_of_optimizer(Own(parameters, {}))
