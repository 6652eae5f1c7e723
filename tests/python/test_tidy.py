"""tools/tidy passes on this tree, and finds each kind of offence when it is sown."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import WHOLE

ROOT = Path(__file__).parents[2]


def tidy(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, root / "tools/tidy"], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_the_tree_keeps_the_house_rules():
    """`make test` and `make check` run tools/lint first; to read all of C++ again takes 10 s."""
    assert 'check "house rules" python tools/tidy\n' in (ROOT / "tools/lint").read_text()
    assert '  stage "lint" tools/lint --quick\n' in (ROOT / "tools/test").read_text()
    if WHOLE:
        status, found = tidy(ROOT)
        assert status == 0, found


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A small tree that keeps all rules."""
    root = tmp_path_factory.mktemp("tree")
    files = (
        "tools/tidy", "tools/setup", "CMakeLists.txt", "pyproject.toml",
        "python/hetccl/__init__.py", "include/hetccl/types.h",
        "src/base/config.cc", "src/base/clock.h", "docs/settings.md",
        "docs/pictures/rooms.svg",
    )  # fmt: skip
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for index in range(20):  # so that the median is that of many small files
        (root / f"src/base/small{index}.h").write_text("#pragma once\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    assert tidy(root) == (0, "")
    return root


LONG_FUNCTION = "int f(int x) {\n" + "  x = x + 1;\n" * 60 + "  return x;\n}\n"
SOWN = {
    "tests are built": ("tests/comm/a_test.cc", "int a;", "does not build it"),
    "seams are siblings": ("src/device/a.h", '#include "transport/b.h"', "may not use transport"),
    "arrows point one way": ("src/base/a.cc", '#include "net/socket.h"', "may not use net"),
    "only comm names adaptors": (
        "src/exec/a.cc",
        '#include "ccl/host/x.h"',
        "may not use ccl/host",
    ),
    "one file names adaptors": (
        "src/comm/a.cc",
        'auto* best = transport("shm");',
        'src/comm/a.cc:1: names the adaptor "shm"',
    ),
    "nobody decides by an adaptor's name": (
        "src/plan/a.cc",
        '// \n/* "tcp"\n*/ bool x = vendor == "host";',
        'src/plan/a.cc:3: names the adaptor "host"',
    ),
    "an adaptor keeps to its seam": (
        "src/device/host/a.cc",
        '#include "net/socket.h"',
        "may not use net",
    ),
    "one file compiles the JSON library": (
        "src/base/a.cc",
        "#include <nlohmann/json.hpp>",
        "use base/json.h",
    ),
    "rooms are drawn": ("src/attic/a.cc", "int x;", "no arrows"),
    "no vendor headers": ("src/ccl/nccl/a.cc", "#include <nccl.h>", "vendor header"),
    "long file": ("src/base/a.cc", "\n" * 601, "601 lines"),
    "long line": ("src/base/a.cc", "//" + "x" * 99, "101 columns"),
    "long function": ("src/base/a.cc", LONG_FUNCTION, "63 lines"),
    "long python function": (
        "python/hetccl/a.py",
        "def f():\n" + "    pass\n" * 60,
        "61 lines",
    ),
    "long function of a command": (
        "tools/a",
        "#!/usr/bin/env python3\ndef f():\n" + "    pass\n" * 60,
        "61 lines",
    ),
    "note in a script": ("tools/a", "#!/bin/sh\n# TO" + "DO: later", "note to self"),
    "goto": ("src/base/a.cc", "void f() { x: goto x; }", "goto"),
    "getenv": ("src/comm/a.cc", 'auto x = std::getenv("HOME");', "reads the environment"),
    "note to self": ("src/base/a.cc", "// TO" + "DO: later", "note to self"),
    "guard": ("src/base/a.h", "int x;", "#pragma once"),
    "vague comment": (
        "src/plan/a.h",
        "/// What x is.\nint x;",
        'a.h:2: a comment begins with "What"',
    ),
    "vague comment behind a statement": (
        "compat/mpi/a.cc",
        "struct A {\n  int x;  // first\n  int y;  // of x\n  int z;  // Of y\n};",
        'a.cc:4: a comment begins with "Of"',
    ),
    "vague comment below one behind a statement": (
        "python/csrc/a.h",
        "int x;  // first\n// Where y lies.\nint y;",
        'a.h:3: a comment begins with "Where"',
    ),
    "vague comment of C": (
        "adaptors/a/a.c",
        "int a; /* first */\n/* Whoever calls\n * it. */",
        'a.c:2: a comment begins with "Whoever"',
    ),
    "unknown setting": ("docs/a.md", "Set HETCCL_SPEED=max.", "HETCCL_SPEED"),
}


@pytest.mark.parametrize("name", SOWN)
def test_a_sown_offence_is_found(copy, name):
    path, text, message = SOWN[name]
    sown = copy / path
    sown.parent.mkdir(parents=True, exist_ok=True)
    sown.write_text(("#pragma once\n" if path.endswith(".h") and name != "guard" else "") + text)
    try:
        status, found = tidy(copy)
    finally:
        sown.unlink()
    assert status == 1
    assert message in found
    assert path in found


@pytest.mark.parametrize(
    "text",
    [
        "// goto getenv\n",
        'const char* x = "goto getenv // \\" goto";\n',
        "/* goto\n getenv */\n",
        '// "tcp", not "shm"\nJson x = {{"host", "tcp://"}, {"rank", "host", "cuda:1"}};\n',
        "int x = 1'000'000; char c = '\"'; int y = 2;\n",
    ],
)
def test_comments_and_literals_are_no_offence(copy, text):
    sown = copy / "src/base/a.cc"
    sown.write_text(text)
    try:
        assert tidy(copy) == (0, "")
    finally:
        sown.unlink()


def test_comments_may_go_on_with_any_word(copy):
    sown = copy / "src/verify/a.cc"
    sown.parent.mkdir(parents=True, exist_ok=True)
    sown.write_text(
        "// Finds the plan.\n// What follows is rare.\nint x;  // first\n        // Of all.\n"
        'const char* y = "// What";\n/* Sums.\n * Of all. */\n// Whatsoever, offers.\n'
    )
    try:
        assert tidy(copy) == (0, "")
    finally:
        sown.unlink()


def test_versions_must_agree(copy):
    page = copy / "pyproject.toml"
    text = page.read_text()
    page.write_text(text.replace('version = "0.1.0"', 'version = "0.2.0"'))
    try:
        status, found = tidy(copy)
    finally:
        page.write_text(text)
    assert status == 1
    assert "pyproject.toml: its version" in found


def test_the_picture_of_the_rooms_shows_their_arrows(copy):
    picture = copy / "docs/pictures/rooms.svg"
    text = picture.read_text()
    picture.write_text(text.replace("plan may use topology", "plan may use verify"))
    try:
        status, found = tidy(copy)
    finally:
        picture.write_text(text)
    assert status == 1
    assert "what it shows of plan is not ARROWS" in found


def test_settings_must_be_documented(copy):
    table = copy / "src/base/config.cc"
    text = table.read_text()
    table.write_text(text.replace('"HETCCL_DEPTH"', '"HETCCL_DEPTHS"'))
    try:
        status, found = tidy(copy)
    finally:
        table.write_text(text)
    assert status == 1
    assert "docs/settings.md differs" in found
