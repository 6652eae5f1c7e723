"""The benchmark's values are exact in every type, and a wrong element is counted."""

import pytest

from hetccl._elements import pack
from hetccl._lib import DataType, RedOp
from hetccl.bench.pattern import PERIOD, Pattern, wrong_elements

LARGEST = {
    "int8": 127, "uint8": 255, "int16": 2**15 - 1, "uint16": 2**16 - 1, "bfloat16": 256,
    "float16": 2048, "float8_e4m3": 16, "float8_e5m2": 8,
}  # fmt: skip


@pytest.mark.parametrize("dtype", DataType)
@pytest.mark.parametrize("op", RedOp.__members__)
def test_values_fit_and_every_partial_sum_is_exact(dtype, op):
    for ranks in (1, 2, 3, 4, 7, 8, 100, 300):
        pattern = Pattern(dtype, op, ranks)
        for position in range(PERIOD):
            check_values(pattern, dtype, op, ranks, position)


def check_values(pattern, dtype, op, ranks, position):
    values = [pattern.value(rank, position) for rank in range(ranks)]
    assert min(values) >= 0
    if op == "prod":
        assert sum(value != 1 for value in values) <= 2
        assert set(values) <= {1, 2}
    else:
        assert sum(values) <= LARGEST.get(dtype.name, 1 << 24)
    if op == "avg" and "float" in dtype.name:
        assert sum(values) % ranks == 0 or sorted(values)[-2:] == [0, 1]
    reduced = {"sum": sum, "max": max, "min": min}.get(op)
    if reduced:
        assert pattern.reduced(position) == reduced(values)


def test_ranks_differ_and_positions_differ():
    pattern = Pattern(DataType.float32, "sum", 4)
    assert pattern.sent(0, PERIOD) != pattern.sent(1, PERIOD)
    assert pattern.result(0, PERIOD) != pattern.result(16, PERIOD)


def test_results_continue_where_the_block_begins():
    pattern = Pattern(DataType.int32, "sum", 3)
    whole = pattern.result(0, 200)
    assert pattern.result(70, 130) == whole[70 * 4 :]


def test_wrong_elements_are_counted():
    good = pack(range(10), DataType.float32)
    bad = bytearray(good)
    assert wrong_elements(bad, good, 4) == 0
    bad[4] ^= 1
    bad[39] ^= 1
    assert wrong_elements(bad, good, 4) == 2
