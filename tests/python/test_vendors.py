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
    """What is wrong once the row of a (vendor, part) has these fields; None: not that field."""
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


@pytest.mark.parametrize(("level", "fine"), [(6, True), (4, False)])
def test_a_report_of_a_selftest_must_show_the_level(vendors, tree, level, fine):
    shown = {"levels": {"hip": {"device": 6, "ccl": level}}}
    (tree / "docs/report.json").write_text(json.dumps({"evidence": shown}))
    found = change(tree, vendors, ("hip", "ccl"), level=6, report="docs/report.json")
    assert any("shows level 4" in one for one in found) != fine


@pytest.mark.parametrize(
    ("sentence", "fine"),
    [
        ("hetccl runs on AMD's GPUs.", False),
        ("Tested on AMD\nMI300X.", False),
        ("It works with the GPUs of AMD.", False),
        ("Nothing has run on a GPU of AMD's yet.", True),
        ("It has never been tested on AMD GPUs.", True),
        ("Measured on AMD EPYC.", True),
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
