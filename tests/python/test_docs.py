"""The documentation builds without a warning, is complete, and quotes what the code says."""

import functools
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from patience import HANG

from hetccl._lib import PROTOTYPES, TEXTS

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("cxxheaderparser")
ROOT = Path(__file__).parents[2]


def build(python, source, out, builder="html"):
    return subprocess.run(
        [python, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q",
         "-b", builder, "-d", out / "doctrees", source, out / "site"],
        capture_output=True, text=True, timeout=HANG, check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip


def build_site(python, out):
    done = build(python, ROOT / "docs", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.fixture(scope="module")
def site(once, forked_python):
    return once("docs", functools.partial(build_site, forked_python)) / "site"


def text_of(page):
    return unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


@pytest.mark.long
def test_every_page_is_reached(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    sources = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert sources <= pages
    index = (site / "index.html").read_text()
    for page in sources:  # those of the decisions are listed by their own index
        assert page == "index.html" or page.startswith("design/0") or f'href="{page}"' in index


@pytest.mark.long
def test_the_c_api_page_has_every_function_with_its_comment(site):
    page = (site / "c-api.html").read_text(encoding="utf-8")
    for name in (*PROTOTYPES, *TEXTS):
        assert f'id="c.{name}"' in page, name
    text = text_of(site / "c-api.html")
    assert "Makes an id. The calling process runs the rendezvous" in text
    assert "payload sent by this rank to other clusters" in text


@pytest.mark.long
def test_the_command_line_page_has_every_command(site):
    text = text_of(site / "cli.html")
    for command in ("info", "topo", "plan", "bench", "demo"):
        assert f"hetccl {command}" in text
    assert "--slice-bytes" in text


@pytest.mark.long
def test_pages_fetch_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loads = r"<(?:script|img|link|iframe|source)\b[^>]*(?:src|href)=[\"'](?:https?:)?//[^\"']*"
        assert not re.findall(loads, page.read_text(encoding="utf-8")), page


BROKEN = (
    ("concepts.md", "\n[](nowhere.md)\n", "nowhere"),
    ("concepts.md", "\n{c:func}`hetcclNoSuchFunction`\n", "hetcclNoSuchFunction"),
    ("orphan.md", "# Orphan\n", "toctree"),
)


@pytest.mark.long
def test_broken_pages_fail_the_build(forked_python, tmp_path):
    """A site of one page, with the settings and extensions of hetccl's."""
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs/extension", docs / "extension")
    shutil.copy(ROOT / "docs/conf.py", docs)
    (docs / "index.md").write_text("# Index\n\n```{toctree}\nconcepts\n```\n")
    shutil.copy(ROOT / "docs/concepts.md", docs)
    whole = docs / "concepts.md"
    whole.write_text(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", whole.read_text()))  # no other page
    done = build(forked_python, docs, tmp_path / "good", builder="dummy")
    assert done.returncode == 0, done.stderr
    for page, text, _ in BROKEN:
        with (docs / page).open("a") as file:
            file.write(text)
    done = build(forked_python, docs, tmp_path / "out", builder="dummy")
    assert done.returncode != 0
    for _, _, says in BROKEN:
        assert says in done.stderr


def test_a_public_name_without_a_comment_is_a_warning(tmp_path):
    sys.path.insert(0, str(ROOT / "docs/extension"))
    try:
        from c_header import Header
    finally:
        sys.path.pop(0)
    path = tmp_path / "some.h"
    path.write_text(
        "/** A kind of *thing*. */\n"
        "typedef enum {\n  someA = 1, /**< the first */\n  someB = 2\n} some_t;\n"
        "/** Uses some_t.\n * Twice. */\nSOME_API some_t hetcclUse(const char** names, int n);\n"
        "SOME_API void hetcclBare(void);\n"
    )
    header = Header(path)
    text = "\n".join(header.markdown())
    assert "{c:function} some_t hetcclUse(const char **names, int n)" in text
    assert "{c:enumerator} someA = 1\nthe first" in text
    assert r"A kind of \*thing\*." in text
    assert "Uses some_t. Twice." in text
    assert header.undocumented == ["hetcclBare"]


def joined_literals(path):
    """A source's text with adjacent literals joined and escapes undone."""
    text = re.sub(r'"\s*\n?\s*f?"', "", path.read_text(encoding="utf-8"))
    return text.replace('\\"', '"')


def quoted_errors():
    """Each error that the page quotes, as the fragments between its placeholders."""
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^`([^`]+)`\n: ", page, re.MULTILINE)


@pytest.mark.smoke
def test_troubleshooting_quotes_what_the_code_says():
    sources = [
        path
        for pattern in (
            "src/**/*.cc",
            "compat/**/*.cc",
            "python/**/*.cc",
            "python/**/*.py",
            "cmake/requirements.cmake",
        )
        for path in ROOT.glob(pattern)
    ]
    texts = [joined_literals(path) for path in sources if not path.name.endswith("_test.cc")]
    quoted = quoted_errors()
    assert len(quoted) > 25
    for error in quoted:
        fragments = [part.strip() for part in re.split("…", error)]
        assert any(all(part in text for part in fragments) for text in texts), error


def test_promises_of_security_name_tests_that_exist():
    page = (ROOT / "docs/security.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| (`.+) \|$", page, re.MULTILINE)
    assert len(rows) > 15
    for file, name in re.findall(r"`([^`]+)`: (.*?)(?:; (?=`)|$)", "\n".join(rows), re.MULTILINE):
        text = (ROOT / file).read_text()
        marks = (f'TEST_CASE("{name}"', f'TEST_CASE(\n    "{name}"', f"def {name}(")
        assert any(mark in text for mark in marks), f"{file} has no test {name}"


def test_the_example_without_torch_runs_as_it_stands(tmp_path):
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (example,) = (block for block in blocks if "hetccl.unique_id()" in block)
    path = tmp_path / "pair.py"
    path.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=HANG, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # lines of two processes stay whole
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "rank 0 has [2.0, 4.0, 6.0] and received 1",
        "rank 1 has [2.0, 4.0, 6.0] and received 0",
    ]


def test_pictures_are_what_hetccl_draws():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/pictures", "--check"],
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.smoke
def test_links_have_a_text():
    docs = ROOT / "docs"
    empty = {
        path.relative_to(docs).as_posix()
        for path in docs.rglob("*.md")
        if "[](" in path.read_text(encoding="utf-8")
    }
    assert not empty  # they show nothing on a forge


@pytest.mark.smoke
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_pages_outside_the_site_exist(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    for link in links:
        assert (ROOT / link).exists(), link
