"""Variants of a sweep: how the best of each is chosen, confirmed by other seeds, recorded and shown."""

import json
import shutil
from pathlib import Path

import pytest

import sweeps
from natgrad.cli.main import main
from natgrad.errors import InputError
from natgrad.sweep import plan as plans
from natgrad.sweep import record as records
from natgrad.sweep import sweep
from natgrad.sweep.preview import preview
from sweeps import DATA, grid

file, fake = sweeps.file, sweeps.fake  # fixtures

BASE = 'data = "own.npy"\nmethod = "rws"\nbatch_size = 8\nepochs = 2\nlayers = [3]\n'
TWO = """
[[sweep.variants]]
name = "low"
learning_rate = [0.1, 0.2, 0.4]
[[sweep.variants]]
name = "high"
learning_rate = [0.5, 0.6]
"""


def lines(path="out/trials.jsonl"):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def rates(found, key="chosen"):
    return {line["variant"]: line["setting"]["optimizer.learning_rate"] for line in found[key]}


def test_short_names_and_variants_with_names_and_seeds_of_their_own(file):
    text = '[[sweep.variants]]\nname = "a"\nlearning_rate = [0.1, 0.2]\n'
    text += '[[sweep.variants]]\nname = "a"\nlearning_rate = 0.2\nseeds = [7, 8]\n'
    text += '[[sweep.variants]]\nmethod = "nrws"\nmetric.recognition = "wake"\ndamping = [0.1, 0.3]\n'
    plan = plans.read_plan(file(text, BASE), {})
    got = [(each.variant, each.setting["model.layers"], each.seeds) for each in plan.candidates]
    assert got == [("a", [3], (0,)), ("a", [3], (0, 7, 8)), *[("nrws, wake", [3], (0,))] * 2]


METHODS = 'method = ["rws", "nrws"]\ndamping = [0.1, 0.2]\n' + BASE.replace('method = "rws"\n', "")


def test_a_shared_setting_is_left_out_where_it_is_not_read(file):
    plan = plans.read_plan(file("", METHODS), {})
    got = [(each.setting["method"], each.setting.get("metric.damping")) for each in plan.candidates]
    assert got == [("rws", None), ("nrws", 0.1), ("nrws", 0.2)]
    assert [hasattr(plans.resolved(each.setting, 0), "metric") for each in plan.candidates] == [
        False,
        True,
        True,
    ]
    text = '[[sweep.variants]]\nmethod = "rws"\n[[sweep.variants]]\nmodel = "mlp"\nmethod = "plain"\n'
    own = "samples = 5\n" + BASE.replace('method = "rws"\n', "")
    plan = plans.read_plan(file(text, own), {})
    assert [each.setting.get("objective.samples") for each in plan.candidates] == [5, None]


def test_a_grid_over_methods_is_trained_recorded_and_shown(file, fake, capsys):
    path = file("learning_rate = [0.1, 0.3]\n[sweep]\nconfirm = [1]\n", METHODS)
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", str(path), "--workers", "1", "--out", "out"])
    assert stopped.value.code == 0
    assert "rws" in capsys.readouterr().out
    assert ["metric.damping" in line["settings"] for line in lines()] == [False] * 2 + [True] * 4 + [False]


def test_a_shared_setting_that_nothing_reads_is_refused(file):
    with pytest.raises(
        InputError, match=r"metric.damping is not a setting of the method rws of helmholtz, but of"
    ):
        plans.read_plan(file("damping = 0.1\n", BASE), {})
    with pytest.raises(InputError, match=r"unknown setting 'metric.dampin'; did you mean 'metric.damping'"):
        plans.read_plan(file("metric.dampin = 0.1\n", METHODS), {})
    with pytest.raises(InputError, match=r"unknown setting 'metrics'"):
        plans.read_plan(file("[metrics]\nrows = 3\n", METHODS), {})


def test_a_variant_s_own_setting_and_a_flag_are_refused_where_they_are_not_read(file):
    refused = r"metric.damping is not a setting of the method rws of helmholtz, but of the methods nrws"
    two = '[[sweep.variants]]\nmethod = "nrws"\n[[sweep.variants]]\nmethod = "rws"\n'
    shared = BASE.replace('method = "rws"\n', "")
    plans.read_plan(file(two, shared + "damping = 0.1\n"), {})
    with pytest.raises(InputError, match=refused):
        plans.read_plan(file(two + "damping = 0.1\n", shared), {})
    for flag in ("damping", "metric.damping"):
        with pytest.raises(InputError, match=refused):
            plans.read_plan(file(two, shared + "damping = 0.1\n"), {flag: 0.2})


def test_a_search_over_methods_leaves_out_what_is_not_read(file, fake):
    searched = METHODS.replace("[0.1, 0.2]", "{low = 0.1, high = 0.2}")
    text = "learning_rate = {low = 0.01, high = 0.7}\n[sweep]\ntrials = 6\n"
    found = sweep(file(text, searched), workers=1, out="out")
    got = {(line["setting"]["method"], "metric.damping" in line["setting"]) for line in found["settings"]}
    assert got == {("rws", False), ("nrws", True)}
    evaluated = [line for line in lines("out/search.jsonl") if "told" in line]
    assert len(evaluated) == 6
    assert all("metric.damping" in line["told"] for line in evaluated)
    with pytest.raises(InputError, match=r"metric.damping: expected a number greater than 0, got -1"):
        plans.read_plan(file(text, searched.replace("low = 0.1", "low = -1")), {})


def test_a_record_with_settings_that_were_never_read_is_known(file):
    plan = plans.read_plan(file("", METHODS), {})
    given = {"data": "own.npy", "batch_size": 8, "epochs": 2, "layers": [3], "method": "rws"}
    line = {"settings": given | {"metric.damping": 0.1}, "seed": 0, "rows": []}
    record = records.TrialRecord(plan.section, [json.dumps(line)])
    assert [record.rows(each, 0) for each in plan.candidates] == [[], None, None]
    line["settings"] |= {"metric.momentum": 0.5}  # was read by some version, and is not known to this one
    record = records.TrialRecord(plan.section, [json.dumps(line)])
    assert [record.rows(each, 0) for each in plan.candidates] == [None, None, None]


def test_flags_come_after_variants(file):
    plan = plans.read_plan(file(TWO, BASE), {"learning_rate": 0.3, "training.epochs": 1})
    found = [plans.resolved(each.setting, 0) for each in plan.candidates]
    assert [each.optimizer.learning_rate for each in found] == [0.3, 0.3]
    assert {each.training.epochs for each in found} == {1}


def test_the_best_of_every_variant_is_confirmed_by_other_seeds(file, fake):
    path = file("[sweep]\nseeds = [0, 2]\nconfirm = [4, 6]\nobjective = 'best'\n" + TWO, BASE)
    messages = []
    found = sweep(path, workers=2, out="out", say=messages.append)
    assert rates(found) == {"low": 0.2, "high": 0.5}  # 0.4 is as far from 0.3, and comes after
    assert [(line["seeds"], line["confirmed"]) for line in found["chosen"]] == [(2, True)] * 2
    assert found["chosen"][0]["valid_ll"] == pytest.approx(-0.01 + 0.05)  # of the seeds 4 and 6
    every = {line["setting"]["optimizer.learning_rate"]: line["valid_ll"] for line in found["settings"]}
    assert every[0.2] == pytest.approx(-0.01 + 0.01)  # of the seeds 0 and 2
    assert sorted((line["variant"], line["seed"]) for line in lines() if line["seed"] > 2) == [
        *(("high", 4), ("high", 6), ("low", 4), ("low", 6))
    ]
    assert messages[-1].startswith("[14/14] ")
    table = Path("out/table.md").read_text().splitlines()
    assert table[0] == "| variant | setting | seeds | valid LL | test LL | epoch | seconds |"
    assert table[2] == "| low | learning_rate 0.2 | 2 | 0.040 ±0.014 | 0.200 ±0.000 | 1 | 1.0 |"
    assert table[5] == "At the edge of the grid: high (learning_rate 0.5)."
    assert len(table) == 7 + 3 + 1 + 5


def test_settings_are_compared_on_the_seeds_that_all_of_them_have(file, fake):
    """Seed 50 adds half a nat: a setting must not win by having it."""
    text = TWO + '[[sweep.variants]]\nname = "low"\nlearning_rate = 0.1\nseeds = [50]\n'
    assert rates(sweep(file(text, BASE), workers=1, out="out")) == {"low": 0.2, "high": 0.5}


def test_without_confirmation_the_table_says_so(file, fake):
    path = file("[sweep]\nseeds = [0]\n" + TWO, BASE)
    sweep(path, workers=1, out="out")
    path.write_text(path.read_text().replace("seeds = [0]", "confirm = [1]"))
    found = sweep(path, out="out", compare_only=True)
    assert found["warnings"][1] == "Not confirmed, the figures are of the seeds that chose: low; high."
    assert len(lines()) == 5


def test_the_edge_of_a_grid_is_told(file, fake):
    assert sweep(grid(file, [0.1, 0.3, 0.6]), out="a")["warnings"] == []
    assert sweep(grid(file, [0.3]), out="b")["warnings"] == []
    found = sweep(grid(file, [0.4, 0.5]), out="c")
    assert found["warnings"] == ["At the edge of the grid: the best setting (learning_rate 0.4)."]
    assert Path("c/table.md").read_text().endswith("\n" + found["warnings"][0] + "\n")


def test_a_best_setting_whose_rate_was_cut_is_told(file, fake):
    found = sweep(grid(file, [0.1, 0.35, 0.6]), out="out")
    assert found["warnings"] == [
        "Diverged, and continued with a smaller rate: the best setting (1 of 1 seeds)."
    ]


def test_seeded_settings_take_the_seed(file, fake):
    path = file("[sweep]\nseeds = [3, 4]\nseeded = ['data.split_seed']\n", BASE)
    asked = preview(path, {})["trials"]
    assert [trial["config"]["data"]["split_seed"] for trial in asked] == [3, 4]
    sweep(path, workers=1, out="out")
    assert [line["seeded"] for line in lines()] == [["data.split_seed"]] * 2
    path.write_text(path.read_text().replace("seeded = ['data.split_seed']", ""))
    assert preview(path, {}, out="out")["recorded"] == 0  # other trials than those


def test_a_record_is_all_that_is_needed(file, fake):
    path = file("[sweep]\nconfirm = [1]\n" + TWO, BASE)
    first = sweep(path, workers=1, out="out", record="kept/r.jsonl")
    assert not Path("out/trials.jsonl").exists()
    assert set(lines("kept/r.jsonl")[0]) == {"variant", "settings", "seed", "rows", "wall_seconds"}
    shutil.rmtree("out")
    Path("own.npy").unlink()  # not even the data
    messages = []
    again = sweep(path, out="out", record="kept/r.jsonl", say=messages.append)
    assert again == first
    assert all("was finished" in line for line in messages)
    assert len(messages) == len(lines("kept/r.jsonl")) == 7


def test_a_record_by_short_names_is_known_whatever_its_variant_is_called(file):
    plan = plans.read_plan(file(TWO, BASE), {})
    old = {"data": "own.npy", "method": "rws", "batch_size": 8.0, "epochs": 2, "layers": [3]}
    line = {"variant": "before", "settings": old | {"learning_rate": 0.2}, "seed": 0, "rows": []}
    record = records.TrialRecord(plan.section, [json.dumps(line), "3", '{"trial": "x", "error": null}', "{"])
    assert [record.rows(each, 0) for each in plan.candidates] == [None, [], None, None, None]


def test_a_failed_trial_leaves_its_error(file, fake):
    found = sweep(grid(file, [0.8, 0.1]), workers=1, out="out")
    assert [line.get("error") for line in lines()] == ["it did not like it", None]
    assert "rows" not in lines()[0]
    again = sweep(grid(file, [0.8, 0.1]), out="out", compare_only=True)
    assert again["failed"] == found["failed"]
    assert len(lines()) == 2


def test_a_variant_that_failed_is_not_passed_over(file, fake):
    path = file(TWO.replace("[0.5, 0.6]", "[0.8, 0.9]"), BASE)
    found = sweep(path, workers=1, out="out")
    assert rates(found) == {"low": 0.2}
    assert found["warnings"] == ["Without a result: high."]
    assert len(found["failed"]) == 2


def test_a_setting_of_two_variants_is_trained_once(file, fake):
    text = '[[sweep.variants]]\nname = "a"\n[[sweep.variants]]\nname = "b"\nlearning_rate = [0.3, 0.1]\n'
    found = sweep(file(text, BASE + "learning_rate = 0.3\n"), workers=2, out="out")
    assert rates(found) == {"a": 0.3, "b": 0.3}
    assert len(lines()) == 2
    assert found["failed"] == {}


CLASSES = 'model = "mlp"\ndata = "digits"\n'


def test_of_an_error_less_is_better(file):
    path = file("learning_rate = [0.1, 0.2]\n[sweep]\ncriterion = 'valid_error'\n", CLASSES)
    with Path("r.jsonl").open("w") as stream:
        for rate, error in ((0.1, 0.25), (0.2, 0.125)):
            settings = {"model": "mlp", "data": "digits", "learning_rate": rate}
            row = {"epoch": 1, "seconds": 2.0, "valid_ll": -error, "valid_error": error, "test_error": 0.5}
            rows = [row, row | {"epoch": 2, "valid_error": 1 - error}]  # the best row counts, not the last
            stream.write(json.dumps({"variant": "", "settings": settings, "seed": 0, "rows": rows}) + "\n")
    found = sweep(path, out="out", record="r.jsonl", compare_only=True)
    assert rates(found) == {"": 0.2}
    assert found["objective"] == "best valid_error"
    table = Path("out/table.md").read_text().splitlines()
    assert table[0] == "| optimizer.learning_rate | seeds | valid error | test error | epoch | seconds |"
    assert table[2] == "| 0.2 | 1 | 12.50 % | 50.00 % | 1 | 2.0 |"
    path.write_text(path.read_text().replace("'valid_error'", "'valid_ll'\ncolumns = ['test_error']"))
    sweep(path, out="out", record="r.jsonl", compare_only=True)
    assert "| 0.2 | 1 | 50.00 % | 1 | 2.0 |" in Path("out/table.md").read_text()


def test_a_dry_run_shows_what_varies(file, capsys, fake):
    path = file("[sweep]\nconfirm = [5, 6]\n" + TWO, BASE)
    sweep(path, workers=1, out="out", settings={"learning_rate": 0.1})
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", str(path), "--dry-run", "--out", "out"])
    assert stopped.value.code == 0
    messages = capsys.readouterr().out.splitlines()
    assert messages[:4] == [
        "low: learning_rate 0.1, 0.2, 0.4",
        "high: learning_rate 0.5, 0.6",
        "5 trials, 1 of them recorded",
        "then the best of every variant with the seeds 5, 6",
    ]
    assert messages[4].startswith("own-rws-")
    assert messages[4].endswith("-seed0  low: learning_rate 0.1")
    with pytest.raises(SystemExit):
        main(["sweep", str(path), "--compare-only", "--out", "out"])
    assert "low" in capsys.readouterr().out


MISTAKES = [
    (
        "seeds = [0, 1]\nconfirm = [2, 1]",
        "sweep.confirm: expected seeds that have no part in the choice, got 1",
    ),
    ("seeded = ['epochs']", "sweep.seeded: training.epochs takes the seed, and has a value of its own"),
    ("seeded = ['data.splitseed']", "unknown setting 'data.splitseed'; did you mean 'data.split_seed'"),
    (
        "criterion = 'test_ll'",
        "sweep.criterion: expected what a model of kind helmholtz is measured by, got test_ll; "
        "give one of valid_ll, valid_loss",
    ),
    (
        "criterion = 'valid_error'",
        "sweep.criterion: expected what a model of kind helmholtz is measured by, got valid_error",
    ),
    ("columns = ['test_error']", "sweep.columns: expected what a model of kind helmholtz is measured by"),
    ("columns = []", "sweep.columns: expected"),
    ("variants = [{name = 3}]", "sweep.variants: expected a valid string, got 3"),
    ("variants = [{seeds = []}]", "sweep.variants: expected"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_mistakes_are_found_before_anything_runs(file, text, sentence):
    with pytest.raises(InputError) as caught:
        sweep(file(f"[sweep]\n{text}\n", BASE))
    assert str(caught.value).startswith(sentence)
    assert sorted(place.name for place in Path().iterdir()) == ["own.npy", "s.toml"]


def test_a_record_that_cannot_be_written_is_said(file):
    with pytest.raises(InputError, match=r"cannot write the sweep to own.npy/r.jsonl: .*another --record"):
        sweep(file(DATA), record="own.npy/r.jsonl")
