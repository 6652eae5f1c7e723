"""docs/vendors.md: made from the evidence, which names what exists and claims no more."""

import json
import shutil
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def vendors():
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # none beside commands
    loader = SourceFileLoader("vendors", str(ROOT / "tools/vendors"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.fixture
def tree(tmp_path, vendors):
    """A copy of what the evidence speaks of."""
    rows = vendors.read_rows(ROOT)
    files = {row["test"] for row in rows} | {row["shown_by"] for row in rows}
    for name in files | {"Makefile", "README.md", "CHANGELOG.md"}:
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir(exist_ok=True)
    for path in [*ROOT.glob("docs/*.md"), ROOT / "docs/evidence.json"]:
        shutil.copy(path, tmp_path / "docs" / path.name)
    return tmp_path


def change(tree, vendors, place, **fields):
    """Returns the errors if the row of a (vendor, part) has these fields; None: without that
    field."""
    rows = vendors.read_rows(tree)
    row = next(one for one in rows if (one["vendor"], one["part"]) == place)
    row.update(fields)
    for key in [key for key, value in row.items() if value is None]:
        del row[key]
    (tree / "docs/evidence.json").write_text(json.dumps(rows))
    return list(vendors.offences(tree))


def test_the_page_and_its_evidence_are_right(vendors):
    assert list(vendors.offences(ROOT)) == []


def test_a_copy_is_right_and_a_page_that_is_old_is_not(vendors, tree):
    assert list(vendors.offences(tree)) == []
    with (tree / "docs/vendors.md").open("a") as file:
        file.write("More.\n")
    assert "run tools/vendors --write" in "".join(vendors.offences(tree))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"level": 6}, "level 6, and no other, names a report"),
        ({"report": "docs/gpus.md"}, "level 6, and no other, names a report"),
        ({"level": 6, "report": "docs/nothing.md"}, "the report docs/nothing.md does not exist"),
        ({"level": 6, "report": "docs/gpus.md#nowhere"}, "has no heading #nowhere"),
        ({"level": 7}, "level 7 does not exist"),
        ({"test": "tests/amd/no_test.cc"}, "has no test case"),
        ({"case": "it trains a model"}, "has no test case 'it trains a model'"),
        ({"shown_by": "make magic"}, "make magic is neither"),
        ({"shown_by": "tests/amd/walk"}, "tests/amd/walk is neither"),
        ({"date": "yesterday"}, "is no date"),
        ({"versions": None}, "lacks versions"),
        ({"part": "soul"}, "no such vendor or part"),
    ],
)
def test_evidence_that_cannot_be_looked_up_is_refused(vendors, tree, fields, says):
    found = change(tree, vendors, ("hip", "device"), **fields)
    assert any(says in one for one in found), found


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, ""),
        ({"levels": {"hip": {"ccl": 4}}}, "shows level 4"),
        ({"emulator": "librocjitsu"}, "ran under an emulator, librocjitsu"),
        ({"forwarded": True}, "forwarded to another vendor's GPU"),
        ({"adaptors": {"threads": ["device"]}}, "is of an adaptor, threads"),
        ({"emulator": None}, "an old self test's"),
    ],
)
def test_a_report_of_a_selftest_must_show_the_level(vendors, tree, facts, says):
    shown = {"levels": {"hip": {"ccl": 6}}, "emulator": "", "forwarded": False, "adaptors": {}}
    shown = {key: value for key, value in {**shown, **facts}.items() if value is not None}
    (tree / "docs/report.json").write_text(json.dumps({"evidence": shown}))
    found = change(tree, vendors, ("hip", "ccl"), level=6, report="docs/report.json")
    mine = [one for one in found if "report.json" in one]
    assert len(mine) == bool(says)
    assert says in "".join(mine)


def test_a_report_tells_of_the_rows_day(vendors, tree):
    found = change(tree, vendors, ("cuda", "ccl"), date="2026-11-22", report="docs/gpus.md#amd")
    assert "cuda ccl: docs/gpus.md#amd tells nothing of 2026-11-22" in found
    text = "# A\n## B c\none\n### D\ntwo\n## E\nthree\n"
    assert vendors.section(text, "b-c") == "## B c\none\n### D\ntwo\n"
    assert vendors.section(text, "nowhere") is None


@pytest.mark.parametrize(
    ("sentence", "fine"),
    [
        ("hetccl runs on AMD's GPUs.", False),
        ("Tested on AMD\nMI300X.", False),
        ("It works with the GPUs of AMD.", False),
        ("Nothing has run on a GPU of AMD's yet.", True),
        ("It has never been tested on AMD GPUs.", True),
        ("Measured on AMD EPYC.", True),
        ("It has been tested on MI300X.", False),
        ("AMD GPUs are supported.", False),
        ("It runs on NVIDIA and AMD GPUs.", False),
        ("It has run on gfx942.", False),
        ("Training on MI300X and H100 works.", False),
        ("It was validated on AMD hardware, not elsewhere.", False),
        ("No code is needed: hetccl runs on AMD GPUs.", False),
        ("hetccl supports ROCm 6.", False),
        ("The kernels ran on AMD's emulator.", True),
        ("HIP's calls, forwarded, have been tested on gfx942.", True),
        ("`tests/amd/run` needs AMD's headers, `tests/cudart/run` CUDA's.", True),
    ],
)
def test_no_page_claims_what_only_amds_hardware_shows(vendors, tree, sentence, fine):
    with (tree / "docs/concepts.md").open("a") as file:
        file.write(f"\n{sentence}\n")
    assert (list(vendors.offences(tree)) == []) == fine


def test_the_table_shows_the_best_evidence(vendors):
    rows = vendors.read_rows(ROOT)
    for vendor in vendors.VENDORS:
        for part in vendors.PARTS:
            mine = [r["level"] for r in rows if (r["vendor"], r["part"]) == (vendor, part)]
            assert vendors.best(rows, vendor, part)["level"] == max(mine)
    assert vendors.best([], "hip", "ccl") is None
    assert "| AMD GPUs (`hip`) | none | none | none | none |" in vendors.page([])
