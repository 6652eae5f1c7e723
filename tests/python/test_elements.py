"""Numbers as elements: the small floats that struct does not know."""

import math
import struct
import sys

import pytest

from hetccl._elements import pack, unpack
from hetccl._lib import DataType


def codes(dtype, *values):
    return list(pack(values, dtype))


def test_bfloat16_is_the_upper_half_of_float32():
    assert pack([1, 256], DataType.bfloat16) == struct.pack("=HH", 0x3F80, 0x4380)
    assert pack([-1.5], DataType.bfloat16) == struct.pack("=H", 0xBFC0)
    assert pack([1 + 2**-8], DataType.bfloat16) == struct.pack("=H", 0x3F80)  # a tie, to even


def test_fp8():
    assert codes(DataType.float8_e4m3, 0, 1, -1, 448, 2**-9) == [0, 0x38, 0xB8, 0x7E, 1]
    assert codes(DataType.float8_e5m2, 0, 1, -1, 57344, 2**-16) == [0, 0x3C, 0xBC, 0x7B, 1]
    assert codes(DataType.float8_e4m3, 1.0625, 1.1875, 2**-10, 3 * 2**-10) == [0x38, 0x3A, 0, 2]


def test_every_fp8_number_has_its_code():
    torch = pytest.importorskip("torch")
    for dtype, kind in (
        (DataType.float8_e4m3, torch.float8_e4m3fn),
        (DataType.float8_e5m2, torch.float8_e5m2),
    ):
        every = torch.arange(256, dtype=torch.int32).to(torch.uint8)
        values = every.view(kind).float()
        finite = values.isfinite()
        assert codes(dtype, *values[finite].tolist()) == every[finite].tolist()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DataType.float8_e4m3, 500),
        (DataType.float8_e5m2, 1e6),
        (DataType.bfloat16, 1e39),
        (DataType.float8_e4m3, float("nan")),
        (DataType.float32, 1e39),
    ],
)
def test_what_does_not_fit_is_refused(dtype, value):
    with pytest.raises(OverflowError):
        pack([value], dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in DataType if dtype.bytes <= 2])
def test_every_code_of_a_number_unpacks_to_it(dtype):
    every = range(1 << (8 * dtype.bytes))
    finite = [(code, x) for code, x in zip(every, unpack(every, dtype), strict=True)
              if math.isfinite(x)]  # fmt: skip
    assert len(finite) >= len(every) * 0.9
    packed = pack([value for _, value in finite], dtype)
    assert packed == b"".join(code.to_bytes(dtype.bytes, sys.byteorder) for code, _ in finite)


def test_infinities_and_nan():
    assert unpack([0x7F, 0xFF], DataType.float8_e4m3) == pytest.approx([math.nan] * 2, nan_ok=True)
    assert unpack([0x7C, 0xFC], DataType.float8_e5m2) == [math.inf, -math.inf]
    assert math.isnan(unpack([0x7D], DataType.float8_e5m2)[0])
    assert unpack([0x7F80], DataType.bfloat16) == [math.inf]
    assert unpack([0x40490FDB], DataType.float32) == [pytest.approx(math.pi)]
