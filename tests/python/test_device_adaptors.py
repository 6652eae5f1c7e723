"""Device adaptors (hetccl/adaptor.h): the worked example, through its conformance and hetccl's."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
from pathlib import Path

import commands
import faulty_selftest
import pytest
from compiled import ADAPTORS, compile_to
from patience import FACTOR, HANG

import hetccl
from hetccl.devices.adaptor import AdaptorCallError, AdaptorRuntime

LIBRARIES = ("-ldl", "-lpthread")
EXAMPLE = ADAPTORS / "threads/threads_adaptor.c"
REDUCES, HOSTS_REDUCE = ["-DTHREADS_REDUCE"], []
ENTRY = """\
__attribute__((visibility("default"))) const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  static const hetcclDeviceAdaptor device = {"""
# Faults that the conformance program must find: a line of the example, its replacement, and the
# rule.
FAULTS = {
    "copies too little": (
        "memmove(task->to, task->from, task->bytes)",
        "memmove(task->to, task->from, task->bytes - 1)",
        "copies of one stream run in order",
    ),
    "waits for equality": (
        "(int32_t)(atomic_load_explicit(task->word, memory_order_acquire) - task->value) < 0",
        "atomic_load_explicit(task->word, memory_order_acquire) != task->value",
        "goes on when the host writes its word later",
    ),
    "does not wait for words": (
        "(int32_t)(atomic_load_explicit(task->word, memory_order_acquire) - task->value) < 0",
        "0",
        "waits until its word has come up",
    ),
    "waits for no event": (
        "(int)(atomic_load(&task->event->passed) - task->value) < 0",
        "0",
        "waits for an event that is not complete",
    ),
    "calls the host at once": (
        "return enqueue(stream, (Task){.kind = kCallHost, .function = function, .to = argument});",
        "function(argument); (void)stream; return 0;",
        "calls the host when it comes there",
    ),
    "reduces the first two": (
        "s < r->n_sources",
        "s < r->n_sources && s < 2",
        "reduce gives what it should: uint32 by sum",
    ),
    "loses a NaN": (
        "sum != sum || sum > value ? sum : value; /* NaN stays NaN */",
        "sum > value ? sum : value; /*                          */",
        "reduce gives what it should: float32 by max",
    ),
    "claims types": (
        "const int is_integer = type == hetcclUint32",
        "const int is_integer = type == hetcclInt16 || type == hetcclUint32",
        "reduce gives what it should: int16 by sum",
    ),
    "rounds float64 to float32": (
        "if (reduction->type == hetcclFloat64) reduce_double(reduction);",
        "if (reduction->type == hetcclFloat64) {\n"
        "    double* result = reduction->result;\n"
        "    reduce_double(reduction);\n"
        "    for (size_t i = 0; i < reduction->count; ++i) result[i] = (float)result[i];\n"
        "  }",
        "reduce gives what it should: float64 by sum",
    ),
    "waits for what is recorded later": (
        "(int)(atomic_load(&task->event->passed) - task->value) < 0",
        "(int)(atomic_load(&task->event->passed) - atomic_load(&task->event->marked)) < 0",
        "at the time of the call, not a later one",
    ),
    "copies before it returns": (
        "return enqueue(stream, (Task){.kind = kCopy, .to = to, .from = from, .bytes = bytes});",
        "_Atomic uint32_t end = 0;\n"
        "  enqueue(stream, (Task){.kind = kCopy, .to = to, .from = from, .bytes = bytes});\n"
        "  enqueue(stream, (Task){.kind = kWriteWord, .word = &end, .value = 1});\n"
        "  while (atomic_load(&end) == 0) sched_yield();\n"
        "  return 0;",
        "enqueueing calls return at once: copy takes more than",
    ),
    "drops what a destroyed stream has": (
        "return enqueue(stream, (Task){.kind = kEnd});",
        "Stream* it = stream;\n"
        "  pthread_mutex_lock(&it->mutex);\n"
        "  it->first = NULL;\n"
        "  pthread_mutex_unlock(&it->mutex);\n"
        "  return enqueue(stream, (Task){.kind = kEnd});",
        "goes on after destroy_stream",
    ),
    "has no way back from a device": (
        "device < -1",
        "device < 0",
        "use: Invalid argument",
    ),
    "describes without an end": (
        'strcpy(description->architecture, "threads");',
        "memset(description->architecture, 'x', sizeof description->architecture);",
        "texts of a description end with a 0",
    ),
    "is always capturing": (
        ENTRY,
        "static int always(void* stream, int* capturing) {\n"
        "  return (void)stream, *capturing = 1, 0;\n"
        "}\n"
        f"{ENTRY}\n      .is_capturing = always,",
        "a stream that nobody captures",
    ),
    "lacks a call": (
        ".wait_word = wait_word,",
        ".wait_word = 0 ? wait_word : NULL,",
        "its table lacks wait_word",
    ),
    "has no words for an error": (
        "return strerror(code);\n}\n\nstatic int count(int* devices) {",
        "return (void)code, NULL;\n}\n\nstatic int count(int* devices) {\n"
        "  if (current_device == -1) return 77;",
        "count: error 77",
    ),
    "allocates nothing": (
        "return posix_memalign(memory, 256, bytes);",
        "return (void)bytes, *memory = NULL, 0;",
        "allocate_pinned gives memory, or an error",
    ),
}


def compile_adaptor(target: Path, source: Path, *options: str) -> Path:
    """A library of an adaptor's source, as the guide builds it."""
    strict = ("-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    return compile_to(target, "gcc", "-std=c11", *strict, *options, str(source), *LIBRARIES)


@pytest.fixture(scope="module")
def conformance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that tests an adaptor's device."""
    source = str(ADAPTORS / "device_conformance.cc")
    target = tmp_path_factory.mktemp("conformance") / "device_conformance"
    return compile_to(
        target, "g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", source, *LIBRARIES
    )


def conforms(
    conformance: Path, adaptor: Path, deadline: int = 60
) -> subprocess.CompletedProcess[str]:
    """Runs the conformance test of an adaptor, and returns its result."""
    return subprocess.run(
        [str(conformance), str(adaptor), str(deadline)],
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize(("options", "checked"), [(REDUCES, 20), (HOSTS_REDUCE, 0)])
def test_the_example_conforms(
    options: list[str], checked: int, conformance: Path, tmp_path: Path
) -> None:
    adaptor = compile_adaptor(tmp_path / "adaptor.so", EXAMPLE, *options)
    done = conforms(conformance, adaptor)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{checked} reductions checked") == 4  # devices


@pytest.mark.parametrize("fault", FAULTS)
def test_conformance_finds_what_is_broken(fault: str, conformance: Path, tmp_path: Path) -> None:
    good, bad, rule = FAULTS[fault]
    text = EXAMPLE.read_text()
    assert text.count(good) == 1
    source = tmp_path / "broken.c"
    source.write_text(text.replace(good, bad))
    broken = compile_adaptor(tmp_path / "broken.so", source, *REDUCES)
    done = conforms(conformance, broken, deadline=math.ceil(2 * FACTOR))
    assert done.returncode == 1
    assert rule in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("options", [REDUCES, HOSTS_REDUCE])
def test_collectives_of_an_adaptors_devices(options: list[str], tmp_path: Path) -> None:
    adaptor = compile_adaptor(tmp_path / "adaptor.so", EXAMPLE, *options)
    report = tmp_path / "report.json"
    devices = "threads:0,threads:1,host,threads:1"
    arguments = ("selftest", "--quick", "--devices", devices, "--report", report)
    env = {"HETCCL_ADAPTORS": str(adaptor)}
    known = json.loads(commands.run("info", "--json", env=env).stdout)
    prepare = functools.partial(faulty_selftest.know, known)
    done = commands.run(*arguments, env=env, prepare=prepare)
    found = json.loads(report.read_text())
    result = found["result"]
    assert result["ok"] and result["passed"] > 100, done.stdout
    # The example's own reductions are of few types: hosts reduce the others.
    assert result["absent"] == 0
    assert {one["library"] for one in found["ranks"] if one["vendor"] == "threads"} == {"none"}


def test_layouts_take_an_adaptors_devices(tmp_path: Path) -> None:
    adaptor = compile_adaptor(tmp_path / "adaptor.so", EXAMPLE)
    command = ("topo", "--layout", "A2", "--kind", "threads:any")
    for environment, status, said in [
        ({"HETCCL_ADAPTORS": str(adaptor)}, 0, "cluster 0  threads"),
        ({}, 2, "no vendor 'threads'"),
    ]:
        done = commands.run_to(status, *command, env=environment | {"COLUMNS": "300"})
        assert said in done.stdout + done.stderr


def test_a_device_that_cannot_serve_is_refused_with_the_reason(
    forked_python: str, tmp_path: Path
) -> None:
    adaptor = compile_adaptor(tmp_path / "adaptor.so", EXAMPLE)
    good, bad, _ = FAULTS["does not wait for words"]
    source = tmp_path / "hollow.c"
    source.write_text(EXAMPLE.read_text().replace(good, bad))
    hollow = compile_adaptor(tmp_path / "hollow.so", source)
    text = "import hetccl, sys\nhetccl.Communicator(hetccl.unique_id(), 0, 1, device=sys.argv[1])\n"
    for adaptors, device, reason in [
        (str(adaptor), "threads:4", "there are 0 to 3 here"),
        (str(adaptor), "no", 'there is "host"'),
        (str(hollow), "threads:0", "cannot wait for flags, and there is no compiler"),
        ("/nonexistent.so", "threads:0", "the adaptor /nonexistent.so is refused"),
    ]:
        done = subprocess.run(
            [forked_python, "-c", text, device],
            env=os.environ | {"HETCCL_ADAPTORS": adaptors},
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert reason in done.stderr, done.stderr
    assert hetccl.version()


BROKEN = """
#include <hetccl/adaptor.h>
#ifdef DEVICE
static int use(int device) { return device == 0 ? 5 : 6; }
static const char* error_text(int code) { return code == 5 ? "no \\xff device" : 0; }
static const hetcclDeviceAdaptor device = {
  .size = sizeof device, .name = "toy", .use = use, .error_text = error_text};
static const hetcclAdaptorTable table = {
  .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .device = &device};
#else
static const hetcclLibraryAdaptor library = {.size = sizeof library, .name = "toy"};
static const hetcclAdaptorTable table = {
  .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .library = &library};
#endif
const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  return abi == HETCCL_ADAPTOR_ABI ? &table : 0;
}
"""


def test_the_selftest_finds_a_device_among_files_of_its_name_and_its_errors_text(
    tmp_path: Path,
) -> None:
    source = tmp_path / "broken.c"
    source.write_text(BROKEN)
    include = f"-I{EXAMPLE.parents[2] / 'include'}"
    library = str(compile_adaptor(tmp_path / "library.so", source, include))
    device = str(compile_adaptor(tmp_path / "device.so", source, include, "-DDEVICE"))
    with pytest.raises(AdaptorCallError, match="use returned 5: no \ufffd device"):
        AdaptorRuntime([library, device], "toy", 0)
    with pytest.raises(AdaptorCallError, match=r"use returned 6$"):
        AdaptorRuntime([device, library], "toy", 1)
    with pytest.raises(AdaptorCallError, match="no adaptor has a device toy"):
        AdaptorRuntime([library], "toy", 0)
