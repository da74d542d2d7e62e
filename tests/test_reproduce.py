"""Reproductions: the files of the package, verdicts, budgets, and small ones of one's own."""

import json
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from natgrad.cli.main import main
from natgrad.errors import InputError
from natgrad.reproduce import figure, files, plans, run
from natgrad.reproduce.limits import Budget
from natgrad.reproduce.table import VariantResult, comparison_with_paper, reached
from natgrad.reproduce.verdicts import Obtained, judged_claim, judged_comparison, obtained
from natgrad.sweep.plan import Candidate, SweepSection
from natgrad.sweep.pool import Pool
from natgrad.sweep.record import TrialRecord
from trainings import timeless

NAMES = list(files.known_reproductions())
OWN = """
data.name = "digits"
layers = [3]
batch_size = 100
data.train_rows = 200
samples = 2
evaluation.every = 1
evaluation.rows = 50
evaluation.test_samples = 4

[reproduce]
place = "[nrws] table 9"
about = "digits, for the tests"
epochs = 10
samples = 20

[[reproduce.claims]]
variants = ["RWS"]
value = -0.2
seconds = 3.0

[[reproduce.claims]]
variants = ["NRWS"]
value = -0.5

[[reproduce.comparisons]]
better = "NRWS"
worse = "RWS"
says = "NRWS is better than RWS"

[[sweep.variants]]
name = "RWS"
method = "rws"
learning_rate = 0.1

[[sweep.variants]]
name = "NRWS"
method = "nrws"
learning_rate = [0.1, 0.2, 0.3]
"""
FALLING = 'optimizer.schedule = "cosine"'
FAKE = """
import json, os, sys
from pathlib import Path
for line in sys.stdin:
    job = json.loads(line)
    settings, place = job["config"], Path(job["folder"])
    rate, seed = settings["optimizer"]["learning_rate"], settings["seed"]
    epochs = settings["training"]["epochs"]
    if rate == 0.2:
        print(json.dumps({"error": "it did not like it"}), flush=True)
        continue
    place.mkdir()
    (place / "config.toml").write_text(job["shorter"] or "")
    rows = [{"epoch": n, "seconds": 6 * n, "valid_ll": -rate, "test_ll": -1 / epochs + seed / 100,
             "test_ll_se": 0.01} for n in (0, epochs)]
    (place / "trace.jsonl").write_text("".join(json.dumps(row) + chr(10) for row in rows))
    said = {"test_ll": -rate, "test_ll_se": 0.01} if job["evaluate"] else None
    print(json.dumps({"error": None, "seconds": 7.0, "evaluated": said}), flush=True)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A small reproduction in an empty folder, and workers that train nothing and always fail at 0.2."""
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(OWN)

    def start(self, core):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", FAKE], **pipes, stderr=self.log, text=True)

    monkeypatch.setattr(Pool, "_start", start)
    return "own.toml"


def table(found):
    return {line["variant"]: line for line in found["lines"]}


def record(name="own"):
    lines = (Path("reproductions") / name / "trials.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_files_are_part_of_the_package():
    folder = resources.files("natgrad.reproduce") / "papers"
    assert {f"table{number}" for number in range(1, 7)} < set(NAMES)
    assert {f"{name}.toml" for name in NAMES} == {file.name for file in folder.iterdir()}
    assert NAMES.index("table2") < NAMES.index("figure6") < NAMES.index("figure11")


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_of_variants_that_there_are(name):
    found = files.read_reproduction(name)
    variants = [variant["name"] for variant in found.tree["sweep"]["variants"]]
    assert len(set(variants)) == len(variants)
    claims, compared = found.section.claims, found.section.comparisons
    said = [each for claim in claims for each in claim.variants]
    assert {*said, *(each for pair in compared for each in (pair.better, pair.worse))} <= set(variants)
    assert claims or compared or found.section.note
    assert plans.data_sets(found)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "table3" else pytest.mark.slow) for name in NAMES]
)
def test_every_setting_of_the_package_resolves(name):
    plan = plans.plan_for(files.read_reproduction(name), 3, [0, 1])
    assert {each.setting["training.epochs"] for each in plan.candidates} == {3}
    assert (plan.section.seeds, plan.section.confirm) == ((0,), (1,))
    exact = [each.setting for each in plan.candidates if each.setting.get("metric.solver") == "exact"]
    assert all(each["metric.rows"] == 0 for each in exact)


def test_claimed_stands_beside_obtained(own):
    said = []
    found = run.reproduce_paper(own, Budget(epochs=5, seeds=3, workers=2), say=said.append)
    lines = table(found)
    assert lines["RWS"]["obtained"] == pytest.approx(-0.1)  # of the final evaluation
    assert (lines["RWS"]["claimed"], lines["RWS"]["seeds"], lines["RWS"]["epochs"]) == (-0.2, 3, 5)
    assert lines["RWS"]["verdict"] == "better, with 5 of 10 epochs"
    assert lines["RWS"]["seconds"] == 30
    assert lines["NRWS"]["setting"]["optimizer.learning_rate"] == 0.1
    assert lines["NRWS"]["seeds"] == 2  # the seed that chose does not count
    assert found["comparisons"][0]["verdict"] == "undecided, within two errors"
    assert found["warnings"] == ["At the edge of the grid: NRWS (learning_rate 0.1)."]
    assert list(found["failed"].values()) == ["it did not like it"]
    assert sum("error" in line for line in record()) == 1
    assert any("failed: it did not like it" in line for line in said)
    assert json.loads((Path("reproductions") / "own" / "table.json").read_text())["lines"] == found["lines"]
    assert found["picture"] == "reproductions/own/curves.png"


def test_curves_are_of_every_seed_and_data_set(tmp_path, monkeypatch):
    """A row of panels for each data set, a line for each seed in both panels, the claims beside them."""
    figures = []
    monkeypatch.setattr(figure, "save_figure", lambda path, drawn: figures.append(drawn))
    rows = [{"epoch": n, "seconds": 6.0 * n, "valid_ll": -2.0 / (n + 1), "test_ll": -3.0} for n in range(4)]

    def result(data, seeds):
        candidate = Candidate("", {"data.name": data}, seeds)
        trials = [{"seed": seed, "rows": rows} for seed in seeds]
        return VariantResult(candidate, trials, SweepSection(columns=["valid_ll", "test_ll"]), 1, 1, (), True)

    results = {"RWS": result("digits", (0, 1)), "NRWS": result("digits", (0,)), "WS": result("3by3", (0,))}
    figure.draw_course(tmp_path / "curves.png", results, [files.Claim(variants=("NRWS",), value=-1.5)])
    digits, seconds, other, _ = figures[0].axes
    assert [len(axes.lines) for axes in (digits, seconds, other)] == [4, 3, 1]
    assert list(digits.lines[0].get_xdata()) == [1, 2, 3]
    assert list(seconds.lines[0].get_xdata()) == [6.0, 12.0, 18.0]
    assert set(digits.lines[-1].get_ydata()) == {-1.5}
    assert [text.get_text() for text in seconds.get_legend().texts] == ["RWS", "NRWS"]


def test_a_grid_that_was_left_half_tried_says_so(own):
    run.reproduce_paper(own, Budget(epochs=5, workers=2))
    lines = [line for line in record() if line["settings"].get("optimizer.learning_rate") != 0.3]
    half = TrialRecord(SweepSection(criterion="valid_ll"), map(json.dumps, lines))
    small = files.read_reproduction(own)
    told = comparison_with_paper(small, reached(small, half))
    assert "Not all settings tried at this length: NRWS (2 of 3)." in told["warnings"]


def test_more_seeds_and_epochs_add_to_the_record(own):
    first = run.reproduce_paper(own, Budget(epochs=2))
    assert table(first)["RWS"]["seeds"] == 1
    assert table(first)["RWS"]["error"] == pytest.approx(0.01)
    done = len(record())
    again = run.reproduce_paper(own, Budget(epochs=2, seeds=2))
    assert table(again)["RWS"]["seeds"] == 2
    kept = [line for line in record()[done:] if "rows" in line]
    assert [(line["variant"], line["seed"]) for line in kept] == [("RWS", 1), ("NRWS", 1)]
    longer = run.reproduce_paper(own, Budget(epochs=4))
    assert (table(longer)["RWS"]["epochs"], table(longer)["RWS"]["seeds"]) == (4, 1)
    trained = {
        line["seed"]
        for line in record()
        if line["variant"] == "RWS" and line["settings"]["training.epochs"] == 4
    }
    assert trained == {0}
    folders = sorted(Path("reproductions/own").glob("digits-rws-*-seed0"))
    said = {folder.name: (folder / "config.toml").read_text() for folder in folders}
    assert sorted(said.values())[0] == ""
    assert Path(sorted(said.values())[1]).name in said  # the longer one was told of the shorter
    shown = table(run.reproduce_paper(own, Budget(epochs=2)))
    assert shown["RWS"]["epochs"] == 4  # the longest that there is


def test_minutes_become_epochs_and_stay_the_same(own):
    said = []
    found = run.reproduce_paper(own, Budget(minutes=0.5, workers=1), say=said.append)
    assert found["trained_epochs"] == 1
    found = run.reproduce_paper(own, Budget(minutes=2, workers=1), say=said.append)
    assert found["trained_epochs"] == 5  # a setting that fails takes none of the minutes
    assert "failed in that epoch, and not counted: settings of NRWS" in said
    shutil.rmtree("reproductions")
    Path("own.toml").write_text(OWN.replace("[0.1, 0.2, 0.3]", "[0.1, 0.3]"))
    found = run.reproduce_paper(own, Budget(minutes=2, workers=1), say=said.append)
    assert found["trained_epochs"] == 5  # three trials of 6 s an epoch: 6.7 epochs, a round number
    before = len(record())
    assert run.reproduce_paper(own, Budget(minutes=2, workers=1))["trained_epochs"] == 5
    assert len(record()) == before
    assert "5 epochs of the paper's 10: about 2 minutes" in said


def test_short_trainings_are_not_evaluated_with_many_samples(own):
    Path("own.toml").write_text(OWN.replace("epochs = 10", "epochs = 100"))
    found = run.reproduce_paper(own, Budget(epochs=5))
    assert all("evaluated" not in line for line in record())
    assert table(found)["RWS"]["obtained"] == pytest.approx(-0.2)  # the last row of the trace


def test_data_that_are_missing_are_said_first(own, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(Path.cwd()))
    monkeypatch.setenv("NATGRAD_CACHE", str(Path.cwd()))
    said = []
    Path("own.toml").write_text(OWN.replace('name = "NRWS"', 'name = "NRWS"\ndata.name = "frey-faces"'))
    found = run.reproduce_paper(own, Budget(epochs=1), say=said.append)
    assert said[0].startswith(
        "not trained are NRWS: without the data file faces/frey_faces.npz, which is not"
    )
    assert table(found)["NRWS"]["verdict"] == "not run"
    assert found["comparisons"][0]["verdict"] == "not run"
    Path("own.toml").write_text(OWN.replace('data.name = "digits"', 'data.name = "toronto-faces"'))
    with pytest.raises(InputError, match=r"expected the data file faces/TFD_48x48.mat, .* put it under that"):
        run.reproduce_paper(own, Budget(epochs=1))


def test_the_command_shows_people_and_machines_the_same(own, capsys):
    with pytest.raises(SystemExit) as code:
        main(["reproduce", own, "--epochs", "5", "--quiet"])
    assert code.value.code == 1  # a trial failed
    shown = capsys.readouterr().out
    for text in ("claimed", "obtained", "better, with 5 of 10 epochs", "At the edge", "it did not like it"):
        assert text in shown
    with pytest.raises(SystemExit):
        main(["reproduce", own, "--epochs", "5", "--quiet", "--json"])
    assert table(json.loads(capsys.readouterr().out))["RWS"]["claimed"] == -0.2


def test_a_dry_run_trains_nothing_and_estimates(own, capsys):
    with pytest.raises(SystemExit) as code:
        main(["reproduce", own, "--epochs", "5", "--seeds", "2", "--workers", "1", "--dry-run", "--json"])
    assert code.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["trials"] for line in found["trials"]] == [2, 2, 2, 2]
    assert found["trials"][0] == found["trials"][0] | {"epoch_seconds": 3.0, "measured": False}
    assert found["minutes"] is None  # nobody knows how long NRWS takes
    assert not Path("reproductions").exists()
    Path("own.toml").write_text(OWN.replace("[0.1, 0.2, 0.3]", "[0.1, 0.3]"))
    run.reproduce_paper(own, Budget(epochs=1))
    found = run.reproduction_preview(own, Budget(epochs=5, workers=1))
    assert found["minutes"] == 1.5
    assert found["trials"][0]["measured"]


def test_the_list_has_every_reproduction(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--list", "--json"])
    lines = json.loads(capsys.readouterr().out)["reproductions"]
    assert [line["name"] for line in lines] == NAMES
    assert lines[0]["data"] == ["binarized-mnist"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "unknown reproduction 'tabel1'; did you mean 'table1'"),
        (["table1", "--minutes", "3", "--epochs", "2"], "expected --minutes or --epochs, got both; give one"),
        (["table1", "--seeds", "0"], "seeds: expected at least 1, got 0"),
        (["table1", "--minutes", "-1"], "minutes: expected more than 0, got -1"),
        ([], "expected the name of a reproduction, got none; natgrad reproduce --list shows them"),
        (["none.toml"], "cannot read the config file none.toml: No such file"),
        (["plain.toml"], r"plain: expected a section \[reproduce\] with what the paper claims, got none"),
        (["wrong.toml"], "wrong: reproduce.about: field required"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plain.toml").write_text('method = "rws"\n')
    Path("wrong.toml").write_text('[reproduce]\nplace = "here"\nepochs = 3\n')
    with pytest.raises(SystemExit) as code:
        main(["reproduce", *arguments])
    assert code.value.code == 2
    assert re.search(message, capsys.readouterr().err)


LL = {"column": "test_ll", "epochs": 10}


@pytest.mark.parametrize(
    ("claimed", "value", "verdict"),
    [
        (-85.0, -84.7, "agrees"),
        (-85.0, -85.3, "agrees"),
        (-85.0, -84.5, "better"),
        (-85.0, -85.5, "worse"),
        (None, -85.5, "no number claimed"),
        (-85.0, None, "not obtained"),
    ],
)
def test_the_rule_is_two_errors(claimed, value, verdict):
    assert judged_claim(claimed, found=Obtained(value, 0.2, 1, 10, 5.0), **LL) == verdict


def test_short_trainings_and_seconds_have_verdicts_of_their_own():
    assert judged_claim(-85.0, found=Obtained(-90.0, 0.2, 1, 4, 5.0), **LL) == "worse, with 4 of 10 epochs"
    assert judged_claim(3.0, "epoch_seconds", Obtained(9.0, 0.0, 1, 10, 5.0), 10) == "other computers"
    assert judged_claim(0.5, "kl", Obtained(0.1, 0.01, 1, 10, 5.0), 10) == "better"  # less is better
    better, worse = Obtained(-84.0, 0.1, 1, 10, 5.0), Obtained(-85.0, 0.1, 1, 10, 5.0)
    assert judged_comparison(better, worse, "test_ll") == "holds"
    assert judged_comparison(worse, better, "test_ll") == "does not hold"
    alone = Obtained(0.1, 0.0, 1, 4, 5.0)
    assert judged_claim(0.5, "kl", alone, 10) == "one seed, no error known, with 4 of 10 epochs"
    assert judged_comparison(alone, alone._replace(value=0.2), "kl") == "one seed, no error known"


def test_the_error_is_of_rows_and_seeds():
    """Standard errors over rows, and of the mean over seeds, added in squares."""
    ends = [
        {"epoch": 4, "seconds": 2.0, "valid_ll": -1.0, "test_ll": value, "test_ll_se": 0.3}
        for value in (-1.0, -2.0)
    ]
    section = SweepSection(criterion="valid_ll", columns=("valid_ll", "test_ll"))
    found = obtained([{"rows": [end]} for end in ends], section, "test_ll", "test_ll_se")
    assert (found.value, found.seeds, found.epochs) == (-1.5, 2, 4)
    assert found.error == pytest.approx((0.3**2 + 0.5 / 2) ** 0.5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_longer_reproduction_continues_and_has_the_bits_of_one_that_never_stopped(tmp_path, monkeypatch):
    """On digits, with real trainings and evaluations: a constant rate continues, a schedule starts again."""
    monkeypatch.chdir(tmp_path)
    text = OWN.replace('"nrws"\nlearning_rate = [0.1, 0.2, 0.3]', '"rws"\nlearning_rate = 0.2\n' + FALLING)
    Path("own.toml").write_text(text)
    short = run.reproduce_paper("own.toml", Budget(epochs=1, workers=1))
    assert {line["verdict"] for line in short["lines"]} == {"worse, with 1 of 10 epochs"}
    assert all(line["evaluated"]["samples"] == 20 for line in record())
    run.reproduce_paper("own.toml", Budget(epochs=3, workers=1))
    whole = Path("reproductions/whole")
    run.reproduce_paper("own.toml", Budget(epochs=3, workers=1), out=whole)
    continued, alone = record()[2:], record("whole")
    assert [line["settings"]["training.epochs"] for line in continued] == [3, 3]
    for one, two in zip(continued, alone, strict=True):
        assert one["settings"] == two["settings"]
        assert timeless(one["rows"]) == timeless(two["rows"])
        assert one["evaluated"] == two["evaluated"]
    logs = (Path("reproductions/own") / "workers.log").read_text(), (whole / "workers.log").read_text()
    assert "Traceback" not in "".join(logs)
