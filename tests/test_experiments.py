"""The experiments' files are sweeps that resolve, and their tables are what the committed records say."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import attack, autoencoder, convnet, race
from experiments import judge as importance
from experiments import table
from experiments.least_squares_units import run as units_of_parameters
from experiments.nrws_choices import published
from experiments.rbm_mnist import judge
from experiments.rbm_seed import classes, course, figure2

from cases import machine
from natgrad.models.helmholtz.phases import reweighted
from natgrad.sweep import plan as plans

ROOT = Path(__file__).parents[1] / "experiments"
FILES = [path for path in sorted(ROOT.glob("*/*.toml")) if "sweep" in tomllib.loads(path.read_text("utf-8"))]
SCRIPTS = sorted(ROOT.glob("*/*.py"))
TABLES = [path for path in FILES if path.with_suffix(".md").exists()]


def name(path):
    return path.relative_to(ROOT).as_posix()


SETTINGS = [pytest.param(path, marks=pytest.mark.slow) if path in TABLES else path for path in FILES]


@pytest.mark.parametrize("file", SETTINGS, ids=name)
def test_every_setting_resolves(file):
    """Those of a file with a table are resolved by the test of its table as well."""
    plan = plans.read_plan(file, {})
    assert all(candidate.variant for candidate in plan.candidates)


@pytest.mark.parametrize("file", TABLES, ids=name)
def test_a_table_is_what_its_record_says(file):
    assert table.page(table.results(file)) == file.with_suffix(".md").read_text("utf-8")


def test_a_table_of_a_record_without_some_trials_is_that_of_the_others(tmp_path):
    race = ROOT / "rbm_mnist/race.toml"
    *kept, left_out = race.with_suffix(".jsonl").read_text("utf-8").splitlines()
    (tmp_path / "race.toml").write_text(race.read_text("utf-8"))
    (tmp_path / "race.jsonl").write_text("\n".join(kept))
    found, whole = table.best(table.results(tmp_path / "race.toml")), table.best(table.results(race))
    variant = json.loads(left_out)["variant"]
    assert len(found[variant]) == len(whole[variant]) - 1
    assert any(" | 2 | " in row for row in table.rows(table.results(tmp_path / "race.toml")))


@pytest.mark.parametrize("file", sorted((ROOT / "rbm_mnist").glob("judged_*.md")), ids=name)
def test_a_table_of_judged_states_is_what_its_record_says(file):
    """Every line of it is of a trial that the sweep's own record has."""
    sweep = file.stem.removeprefix("judged_")
    known = table.results(file.with_name(f"{sweep}.toml")).record.known.values()
    assert {judge.identity(line) for line in judge.judged(sweep)} <= {judge.identity(line) for line in known}
    assert judge.page(sweep) == file.read_text("utf-8")


BY_IMPORTANCE = sorted(file for place in ("vae", "nrws_long") for file in (ROOT / place).glob("judged_*.md"))


@pytest.mark.parametrize("file", BY_IMPORTANCE, ids=name)
def test_a_table_of_likelihoods_by_importance_is_what_its_record_says(file):
    sweep = file.with_name(f"{file.stem.removeprefix('judged_')}.toml")
    assert importance.page(sweep) == file.read_text("utf-8")


def test_bounds_are_passed_where_they_are_first_exceeded_with_the_same_seed():
    def trial(variant, seed, *bounds):
        rows = [{"cpu_seconds": 10.0 * turn, "valid_elbo": bound} for turn, bound in enumerate(bounds)]
        return {"variant": variant, "seed": seed, "rows": rows}

    slow, fast = trial("slow", 1, -9, -8, -7, -6, -6.5), trial("fast", 1, -9, -6, -5)
    found = importance.passed([slow, fast, trial("other", 2, -1)], "valid_elbo")
    assert found == [["1", "slow", "30", "fast", "20", "0.67"]]
    one = {"variant": "fast", "cpu_seconds": 1, "valid_elbo": -2}
    judged = [one | {"samples": number, "test_ll": ll} for number, ll in ((5, -1.0), (5, -3.0), (9, -0.5))]
    assert importance.means(judged, "valid_elbo") == [
        ["fast", "5", "2", "1", "-2.00", "-2.00 (sd 1.41)"],
        ["fast", "9", "1", "1", "-2.00", "-0.50"],
    ]


@pytest.mark.parametrize("file", ["config", "mini"])
def test_the_pages_of_small_boltzmann_machines_follow_from_their_records(file):
    path = ROOT / "rbm_seed" / f"{file}.toml"
    own = lambda ending: path.with_name(f"{file}_{ending}.md").read_text("utf-8")  # noqa: E731
    assert course.page(path) == own("course")
    assert classes.page(classes.read(classes.lines_of(path))) == own("classes")


def test_the_grid_of_the_practical_penalty_follows_from_its_records():
    assert figure2.page(figure2.trials()) == figure2.GRID.read_text("utf-8")


def test_the_page_on_units_of_parameters_follows_from_its_record():
    assert units_of_parameters.page() == units_of_parameters.PAGE.read_text("utf-8")


@pytest.mark.parametrize("file", SCRIPTS, ids=name)
def test_every_script_imports(file):
    importlib.import_module(".".join(("experiments", *file.relative_to(ROOT).with_suffix("").parts)))


@pytest.mark.parametrize("file", ["config", "mnist"])
def test_the_published_estimator_has_its_own_record_and_table(file):
    found = published.results(file)
    assert all(found.record.rows(each, seed) for each in found.candidates for seed in each.seeds)
    assert table.page(found) == published.record_of(file).with_suffix(".md").read_text("utf-8")


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", [None, 5])
def test_the_published_estimator_weighs_dreams_by_other_samples(limit):
    """Row by row: sum over the first rows of w_r p (1 - p) u u^T / n, with the weight of all rows."""
    model, key = machine((3, 2, 2)), jax.random.key(0)
    batch = model.coding.value(jnp.asarray([[0, 1], [1, 1], [0, 0]]), jnp.float64)
    drawn = jax.jit(reweighted(4).estimate)(key, (), model, batch)[0].samples
    metric = published.generation_as_published(limit)
    measure = jax.jit(lambda drawn: metric.measure(key, metric.init(key, model, drawn), model, drawn)[0])
    found = measure(drawn)
    weights = np.ravel(drawn.weights) / 8
    kept = weights[:limit] * weights.sum() / weights[:limit].sum()
    states = [np.asarray(values).reshape(len(values), -1) for values in drawn.dreams.values]
    for number, (layer, below) in enumerate(zip(model.generation, found.blocks["generation"], strict=True)):
        dense = jax.jit(lambda blocks: blocks.dense())(below)
        expected = np.zeros(dense.shape)
        for row, weight in enumerate(kept):
            inputs = np.append(states[number + 1][:, row], 1.0)
            chance = 1 / (1 + np.exp(-np.column_stack([layer.weight, layer.bias]) @ inputs))
            expected += (weight * chance * (1 - chance))[:, None, None] * np.outer(inputs, inputs)
        np.testing.assert_allclose(dense, expected, rtol=1e-12)
    top = 1 / (1 + np.exp(-np.asarray(model.prior)))
    np.testing.assert_allclose(found.blocks["prior"], top * (1 - top) / 4, rtol=1e-12)


@pytest.mark.parametrize("found", [autoencoder.RACE, convnet.RACE], ids=lambda found: found.name)
def test_the_page_on_networks_has_the_figures_of_its_records(found):
    assert race.measured(found) in (ROOT.parent / "docs" / "networks.md").read_text("utf-8")


def test_a_race_tells_when_an_optimizer_was_where_adam_ended():
    def trial(seed, *losses):
        curve = [{"seconds": 5.0 * (turn + 1), "train": loss} for turn, loss in enumerate(losses)]
        return {"seed": seed, "cpu_seconds": 20, "curve": curve}

    adam = [trial(1, 4, 3, 2, 1), trial(2, 4, 3, 2, 2)]
    assert race._level([trial(1, 2, 1, 1, 1), trial(2, 2, 2, 1, 1)], adam) == "0.38 of its seconds"
    assert race._level([trial(1, 2, 1, 1, 1), trial(2, 4, 4, 3, 3)], adam) == "never"


def test_the_page_on_reliability_has_what_was_tried_last():
    record = json.loads((ROOT.parent / "benchmarks" / "results" / "attack.json").read_text("utf-8"))
    page = (ROOT.parent / "docs" / "reliability.md").read_text("utf-8")
    assert f"\n\n{attack.table(record)}\n\n" in page
    assert sum(part["failed"] for part in record["parts"].values()) == 0


def test_the_page_on_scale_has_the_figures_of_its_record():
    page = (ROOT.parent / "docs/scale.md").read_text("utf-8")
    record = json.loads((ROOT.parent / "benchmarks/results/scale.json").read_text("utf-8"))
    assert f"took {record['ratio']:.2f} times" in page
    assert f"{record['ratio_of_the_best']:.2f} by the best rounds" in page
    assert f"a load of {record['load']:.1f}" in page
    messages = json.loads((ROOT.parent / "benchmarks/results/messages.json").read_text("utf-8"))
    apart, shared = messages["milliseconds, on a core each"], messages["milliseconds, both on two cores"]
    assert f"takes {apart['a gradient']:.0f} ms as one array" in page
    assert f"{apart['a gradient in 100 arrays']:.0f} ms in 100 arrays" in page
    assert f"(at a load of {messages['load']:.1f};" in page
    assert f"one number takes {apart['one number']:.1f} ms" in page
    assert f"256 numbers {apart['256 numbers']:.1f} ms, and {shared['256 numbers']:.1f} ms where" in page
    assert f"100 arrays then take {shared['a gradient in 100 arrays']:.0f} ms" in page


def test_the_page_on_choosing_has_figures_of_the_tables_that_it_cites():
    page = ROOT.parent / "docs" / "choosing.md"
    lines = re.findall(r"^- .*(?:\n  .*)*", page.read_text("utf-8"), re.MULTILINE)
    cited = [line for line in lines if "](" in line]
    for line in cited:
        tables = [(page.parent / place).read_text("utf-8") for place in re.findall(r"\]\(([^)]+)\)", line)]
        figures = re.findall(r"-?\d+\.\d\d(?!\d)", line)
        assert [each for each in figures if not any(each in table for table in tables)] == []
    assert len(cited) >= 10


def test_the_page_on_reliability_counts_what_the_battery_printed():
    text = (ROOT.parent / "benchmarks" / "results" / "generator_whole.txt").read_text("utf-8")
    page = (ROOT.parent / "docs" / "reliability.md").read_text("utf-8")
    whole, _, serial = text.partition("dieharder -d 102")
    for found in (whole, serial):
        counts = [found.count(word) for word in ("PASSED", "WEAK", "FAILED")]
        assert f"| {' | '.join(map(str, [sum(counts), *counts]))} |\n" in page
