"""The ctypes binding says what include/hetccl/hetccl.h says."""

import ctypes
import re
from pathlib import Path

import pytest

from hetccl import _lib

HEADERS = [
    Path(__file__).parents[2] / "include/hetccl" / name
    for name in ("types.h", "hetccl.h", "endpoint.h")
]


@pytest.fixture(scope="module")
def header() -> str:
    return re.sub(r"/\*.*?\*/", "", "".join(one.read_text() for one in HEADERS), flags=re.DOTALL)


def declarations(header: str) -> dict[str, tuple[str, list[str]]]:
    found = re.findall(r"HETCCL_API\s+([\w\s*]+?)(hetccl\w+)\(([^)]*)\);", header)
    return {
        name: (kind.strip(), [one.strip() for one in arguments.split(",") if one.strip() != "void"])
        for kind, name, arguments in found
    }


def ctype_of(argument: str) -> object:
    """The ctypes type that this C parameter takes."""
    kind = re.sub(r"\s*\w+$", "", argument.replace("const ", "")).strip()
    pointed = {
        "int*": ctypes.c_int,
        "uint64_t*": ctypes.c_uint64,
        "hetcclUniqueId*": _lib.UniqueId,
        "hetcclConfig_t*": _lib.Config,
        "hetcclCommStats_t*": _lib.Stats,
        "hetcclPlanQuery_t*": _lib.PlanQuery,
        "hetcclCall_t*": _lib.Call,
        "hetcclWork_t*": _lib.Work,
        "hetcclComm_t*": ctypes.c_void_p,
        "hetcclEndpoint_t*": ctypes.c_void_p,
        "hetcclBlockList_t*": ctypes.c_void_p,
        "hetcclTransfer_t*": ctypes.c_void_p,
        "hetcclStream_t*": ctypes.c_void_p,
        "void**": ctypes.c_void_p,
        "hetcclSimInfo_t*": _lib.SimInfo,
        "hetcclResult_t*": ctypes.c_int,
        "hetcclRedOp_t*": ctypes.c_int,
        "char**": ctypes.c_char_p,
        "size_t*": ctypes.c_size_t,
        "double*": ctypes.c_double,
    }
    if kind == "char*":
        return ctypes.c_char_p
    if kind in pointed:
        return ctypes.POINTER(pointed[kind])
    return {
        "hetcclIdleHook_t": ctypes.c_void_p,
        "int": ctypes.c_int,
        "size_t": ctypes.c_size_t,
        "int64_t": ctypes.c_int64,
        "uint32_t": ctypes.c_uint32,
        "uint64_t": ctypes.c_uint64,
        "void*": ctypes.c_void_p,
        "hetcclComm_t": ctypes.c_void_p,
        "hetcclEndpoint_t": ctypes.c_void_p,
        "hetcclBlockList_t": ctypes.c_void_p,
        "hetcclTransfer_t": ctypes.c_void_p,
        "hetcclTransferHook_t": ctypes.c_void_p,
        "hetcclTransferOptions_t*": ctypes.c_void_p,
        "hetcclBlock_t*": ctypes.c_void_p,
        "unsigned int": ctypes.c_uint,
        "hetcclStream_t": ctypes.c_void_p,
        "hetcclUniqueId": _lib.UniqueId,
        "hetcclResult_t": ctypes.c_int,
        "hetcclDataType_t": ctypes.c_int,
        "hetcclRedOp_t": ctypes.c_int,
        "hetcclScalarResidence_t": ctypes.c_int,
    }[kind]


@pytest.mark.smoke
def test_every_function_is_bound_with_its_types(header):
    declared = declarations(header)
    assert set(declared) == set(_lib.PROTOTYPES) | set(_lib.TEXTS)
    for name, (kind, arguments) in declared.items():
        bound = (_lib.PROTOTYPES | _lib.TEXTS)[name]
        assert [ctype_of(argument) for argument in arguments] == bound, name
        assert (kind == "const char*") == (name in _lib.TEXTS), name


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("enum", "prefix", "rename"),
    [
        (_lib.Result, "hetcclResult_t", lambda n: re.sub(r"(?<!^)([A-Z])", r"_\1", n).upper()),
        (_lib.DataType, "hetcclDataType_t", lambda n: re.sub(r"(e\d)", r"_\1", n.lower())),
        (_lib.RedOp, "hetcclRedOp_t", str.lower),
        (
            _lib.Residence,
            "hetcclScalarResidence_t",
            lambda n: re.sub(r"(?<!^)([A-Z])", r"_\1", n.removeprefix("Scalar")).upper(),
        ),
    ],
)
def test_enums_equal_the_headers(header, enum, prefix, rename):
    body = re.search(rf"typedef enum \{{([^}}]*)\}} {prefix};", header)
    values = {
        rename(name): int(value) for name, value in re.findall(r"hetccl(\w+) = (\d+)", body[1])
    }
    bounds = {"numops", "maxredop"}  # no operators
    assert {name: values[name] for name in values.keys() - bounds} == {
        member.name: member.value for member in enum
    }


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        (_lib.Config, "hetcclConfig_t"),
        (_lib.Call, "hetcclCall_t"),
        (_lib.SimInfo, "hetcclSimInfo_t"),
        (_lib.Stats, "hetcclCommStats_t"),
        (_lib.PlanQuery, "hetcclPlanQuery_t"),
    ],
)
def test_structures_have_the_headers_fields(header, structure, name):
    body = re.search(rf"typedef struct \{{([^}}]*)\}} {name};", header)
    fields = re.findall(r"(\w+);", body[1])
    assert fields == [field[0] for field in structure._fields_]


def test_a_rank_without_a_color(header):
    assert f"#define HETCCL_SPLIT_NOCOLOR ({_lib.NO_COLOR})" in header
    assert f"#define HETCCL_SHRINK_DEFAULT {_lib.SHRINK_DEFAULT}\n" in header


def test_element_sizes():
    assert {kind.name: kind.bytes for kind in _lib.DataType} == {
        "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
        "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
        "float8_e4m3": 1, "float8_e5m2": 1,
    }  # fmt: skip


def test_version_is_the_packages():
    import hetccl

    assert ".".join(map(str, hetccl.version())) == hetccl.__version__


def test_a_missing_library_is_an_import_error_that_names_it(tmp_path):
    with pytest.raises(ImportError, match=r"nowhere\.so"):
        _lib.Library(tmp_path / "nowhere.so")


def test_a_failed_call_raises_with_the_librarys_text():
    comm = ctypes.c_void_p()
    with pytest.raises(_lib.HetcclError) as caught:
        _lib.library().call("hetcclCommInitRank", ctypes.byref(comm), 0, _lib.UniqueId(), 0)
    assert caught.value.result is _lib.Result.INVALID_ARGUMENT
    assert len(str(caught.value)) > 10
