"""Names and sizes that several commands take alike."""

import json

import commands
import pytest
import typer

from hetccl import _lib
from hetccl._lib import NCCL_OPS
from hetccl.arguments import TYPES, parse_call, parse_count, parse_op, parse_size, parse_type
from hetccl.bench.operations import CASES


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float32", "float32"), ("float", "float32"), ("FP32", "float32"), ("half", "float16"),
        ("bf16", "bfloat16"), ("double", "float64"), ("f8e4m3", "float8_e4m3"),
        ("float8-e5m2", "float8_e5m2"), ("uint8", "uint8"), ("int", "int32"),
    ],
)  # fmt: skip
def test_types_have_the_fields_names(given, expected):
    assert parse_type(given) == expected


def test_all_names_are_the_librarys():
    assert set(TYPES) == set(_lib.DataType.__members__)
    assert set(NCCL_OPS) < set(_lib.RedOp.__members__)
    for name in TYPES:
        assert parse_type(name) == name
    for name in CASES:
        assert parse_call(name, list(CASES)) == parse_call(name.replace("_", ""), list(CASES))
    assert parse_call("All-Reduce", list(CASES)) == "all_reduce"
    assert parse_call("bcast", list(CASES)) == "broadcast"
    assert [parse_op("mean"), parse_op("average"), parse_op("SUM")] == ["avg", "avg", "sum"]
    assert parse_op("premul-sum", ["premul_sum"]) == "premul_sum"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: parse_type("float31"), "'float31' is no type of elements: write one of int8"),
        (lambda: parse_op("premul_sum"), "is no operator: write one of sum, prod, max, min, avg"),
        (lambda: parse_call("bcast", ["reduce"]), "is no collective: write one of reduce"),
        (lambda: parse_count("64Q"), "'64Q' is no number of elements"),
        (lambda: parse_size("-1"), "'-1' is no size"),
    ],
)
def test_other_names_are_refused(call, said):
    with pytest.raises(typer.BadParameter, match=said):
        call()


def test_commands_take_them_alike(tmp_path):
    measured = commands.run_to(
        0, "bench", "allreduce", "--ranks", 2, "-d", "half", "-o", "mean", "-b", 64, "-e", 64,
        "--json",
    )  # fmt: skip
    options = json.loads(measured.stdout)["options"]
    named = options["operation"], options["dtype"], options["redop"]
    assert named == ("all_reduce", "float16", "avg")
    call = ("--layout", "A2B2", "--count", "64K", "-d", "bf16", "-o", "mean", "--json")
    planned = json.loads(commands.run_to(0, "plan", "all-reduce", *call).stdout)
    assert (planned["collective"], planned["count"]) == ("all_reduce", 65536)
    assert (planned["type"], planned["op"]) == ("bfloat16", "avg")
    for op in ("band", "premul_sum"):
        commands.run_to(0, "plan", "reduce", "--layout", "A2B2", "-d", "int32", "--op", op)
    commands.run_to(0, "plan", "barrier", "--layout", "A2B2")
    commands.run_to(
        0, "tune", "--collective", "allgather", "--sizes", "4K", "--points", 3, "-d", "float",
        "--budget-seconds", 0, "--no-save", "-o", tmp_path / "points.jsonl",
    )  # fmt: skip
