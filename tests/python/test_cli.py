"""The command line: info, the paths it prints, and a C program built against the package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from patience import HANG

from hetccl._lib import PROTOTYPES, TEXTS

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(hetccl 0.1 REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE hetccl::hetccl)
"""
CONSUMER_C = """
#include <hetccl/hetccl.h>
#include <stdio.h>
int main(void) {
  int version = 0;
  if (hetcclGetVersion(&version) != hetcclSuccess || version != HETCCL_VERSION_CODE) return 1;
  hetcclUniqueId id;
  hetcclComm_t comm;
  if (hetcclGetUniqueId(&id) != hetcclSuccess) return 2;
  if (hetcclCommInitRank(&comm, 1, id, 0) != hetcclSuccess) return 3;
  float value = 2, sum = 0;
  if (hetcclAllReduce(&value, &sum, 1, hetcclFloat32, hetcclSum, comm, NULL) != hetcclSuccess)
    return 4;
  if (hetcclCommDestroy(comm) != hetcclSuccess) return 5;
  printf("%g\\n", sum);
  return 0;
}
"""


def hetccl(*arguments, env=None, status=0):
    return commands.run_to(status, *arguments, env=env)


@pytest.mark.smoke
def test_info_is_json_with_every_setting():
    document = json.loads(hetccl("info", "--json").stdout)
    text = json.dumps(document)
    assert "HETCCL_SOCKET_IFNAME" in text
    assert "host" in text
    assert "tcp" in text
    assert document["version"] == hetccl("--version").stdout.split()[1]
    assert set(document["torch_backend"]) >= {"available", "built_for", "torch"}


def test_info_for_people():
    shown = hetccl("info", env={"COLUMNS": "80"}).stdout
    assert shown.startswith(hetccl("--version").stdout)
    assert "PyTorch backend: " in shown
    assert len(shown.splitlines()) <= 40
    assert "cannot open shared object file" not in shown
    assert "HETCCL_TIMEOUT_MS" not in shown
    assert "Traceback" not in shown
    assert "HETCCL_TIMEOUT_MS=600000" in hetccl("info", "--settings").stdout


def test_info_reports_a_misspelt_setting_with_the_nearest_name():
    done = hetccl("info", env={"HETCCL_SOCKET_IFNAM": "eth0"})
    assert re.search(
        r"HETCCL_SOCKET_IFNAM\b.*HETCCL_SOCKET_IFNAME", done.stdout + done.stderr, re.S
    )


def test_a_misspelt_setting_is_reported_once_for_all_ranks():
    sizes = ("-b", "1K", "-e", "1K", "-n", "1", "--ranks", "3")
    done = hetccl("bench", *sizes, env={"HETCCL_wire": "int8", "HETCCL_TEST_GPU": "1"})
    warnings = [line for line in done.stderr.splitlines() if "no setting of hetccl" in line]
    assert warnings == [
        "hetccl [rank 0] warn: HETCCL_wire is no setting of hetccl and is ignored; did you mean "
        "HETCCL_WIRE?"
    ]


def test_info_shows_what_a_setting_was_given():
    assert "54321" in hetccl("info", env={"HETCCL_TIMEOUT_MS": "54321"}).stdout


@pytest.mark.smoke
def test_a_bad_setting_is_an_error_that_names_it():
    done = hetccl("bench", "--ranks", "1", env={"HETCCL_DEPTH": "deep"}, status=1)
    assert "HETCCL_DEPTH" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_is_a_command():
    command = [sys.executable, "-m", "hetccl", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True)
    assert done.stdout == hetccl("--version").stdout


def test_version():
    assert re.fullmatch(r"hetccl \d+\.\d+\.\d+\n", hetccl("--version").stdout)


@pytest.mark.smoke
def test_the_command_is_installed():
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "hetccl"), "--help"],  # noqa: PTH118, PTH120
        capture_output=True, text=True, timeout=HANG, check=True,
    )  # fmt: skip
    for command in ("info", "topo", "plan", "bench", "tune", "demo"):
        assert command in done.stdout


@pytest.mark.parametrize("arguments", [("bench", "-b", "1X"), ("bench", "-b", "8", "-e", "4")])
def test_bad_arguments_are_usage_errors(arguments):
    assert "Traceback" not in hetccl(*arguments, status=2).stderr


def run(*command):
    arguments = list(map(str, command))
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_c_program_finds_the_package(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE)
    (tmp_path / "main.c").write_text(CONSUMER_C)
    where = hetccl("--cmake-dir").stdout.strip()
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dhetccl_DIR={where}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build/consumer") == "2\n"


def test_the_library_exports_its_api_and_nothing_else():
    library = Path(hetccl("--cmake-dir").stdout.strip()).parents[1] / "libhetccl.so"
    listed = run("nm", "-D", "--defined-only", "--format=posix", library)
    names = {line.split()[0] for line in listed.splitlines()}
    for_nccl = {f"ncclTunerPlugin_v{version}" for version in (3, 4, 5)}
    header = Path(hetccl("--include-dir").stdout.strip()) / "hetccl/runtime.h"
    tables = set(re.findall(r"^HETCCL_API .*?(hetccl\w+)\(", header.read_text(), re.MULTILINE))
    assert names == set(PROTOTYPES) | set(TEXTS) | tables | for_nccl


def test_shells_complete_words():
    typed = {"COMP_WORDS": "hetccl ch", "COMP_CWORD": "1", "_HETCCL_COMPLETE": "complete_bash"}
    assert hetccl(env=typed).stdout.split() == ["check"]
    assert "--install-completion" in hetccl("--help").stdout
