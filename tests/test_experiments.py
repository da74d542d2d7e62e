"""The experiments' files are sweeps that resolve, and their tables are what the committed records say."""

import tomllib
from pathlib import Path

import pytest
from experiments import table

from natgrad.sweep import plan as plans

ROOT = Path(__file__).parents[1] / "experiments"
FILES = [path for path in sorted(ROOT.glob("*/*.toml")) if "sweep" in tomllib.loads(path.read_text("utf-8"))]
TABLES = [path for path in FILES if path.with_suffix(".md").exists()]


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_setting_resolves(file):
    plan = plans.read_plan(file, {})
    assert all(candidate.variant for candidate in plan.candidates)


@pytest.mark.parametrize("file", TABLES, ids=name)
def test_a_table_is_what_its_record_says(file):
    assert table.page(table.results(file)) == file.with_suffix(".md").read_text("utf-8")
