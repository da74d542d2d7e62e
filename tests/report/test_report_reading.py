"""Runs read back: states, names, damaged folders; configs compared; the command that repeats a run."""

import fcntl
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from natgrad import config
from natgrad.cli.dotted import take_settings, values
from natgrad.cli.main import app
from natgrad.config.names import short_names
from natgrad.errors import InputError
from natgrad.records.folder import locked
from natgrad.report import differences
from natgrad.report.listing import list_runs
from natgrad.report.reading import DIVERGED, FINISHED, RUNNING, UNFINISHED, read_all, read_run


def test_a_run_is_read_with_its_last_and_best_rows(make: Any) -> None:
    record = read_run(make("run", epochs=3))
    assert (record.name, record.state, len(record.rows)) == ("run", FINISHED, 4)
    assert record.last["epoch"] == record.best["epoch"] == 3
    assert record.notes["shape"] == {"visible": 9}


def test_rows_keep_finite_numbers_only(make: Any) -> None:
    place = make("run", rows=[])
    strange = '{"epoch": 0, "a": NaN, "b": -Infinity, "c": true, "d": "<b>", "e": [1], "f": 1e999, "g": 2'
    huge = ', "h": 1' + "0" * 400 + "}\n"
    (place / "trace.jsonl").write_text(strange + huge + '{"no": 1}\n{"epoch": 1, "g": null}\n', "utf-8")
    rows = read_run(place).rows
    assert rows == [{"epoch": 0, "g": 2}, {"epoch": 1, "g": None}]


def test_states_tell_finished_unfinished_and_stopped_early(make: Any) -> None:
    assert read_run(make("whole", epochs=2)).state == FINISHED
    cut = make("cut", epochs=3)
    rows = (cut / "trace.jsonl").read_text("utf-8").splitlines(keepends=True)
    (cut / "trace.jsonl").write_text("".join(rows[:2]) + rows[2][:20], "utf-8")
    assert read_run(cut).state == UNFINISHED
    assert read_run(make("empty", rows=[])).state == UNFINISHED
    losses = [{"epoch": n, "step": n, "valid_loss": loss} for n, loss in enumerate((3.0, 2.0, 2.5, 2.6))]
    assert read_run(make("early", epochs=9, rows=losses, **{"evaluation.patience": 2})).state == FINISHED
    assert read_run(make("patient", epochs=9, rows=losses, **{"evaluation.patience": 3})).state == UNFINISHED


def test_a_run_that_was_given_up_is_diverged_until_it_goes_on(make: Any) -> None:
    place = make("run", epochs=3, rows=[{"epoch": 0, "step": 0}])
    notes = {"shape": {}, "progress": {"divergences": 5, "diverged": True}}
    (place / "state" / "0000000007.json").write_text(json.dumps({"format": 2, "notes": notes}), "utf-8")
    assert read_run(place).state == DIVERGED
    notes["progress"]["diverged"] = False
    (place / "state" / "0000000009.json").write_text(json.dumps({"format": 2, "notes": notes}), "utf-8")
    assert read_run(place).state == UNFINISHED
    whole = make("whole", epochs=1)
    shutil.copy(place / "state" / "0000000007.json", whole / "state")
    assert read_run(whole).state == FINISHED


def test_a_run_whose_lock_is_held_is_running(make: Any) -> None:
    place = make("run", epochs=1)
    with (place / "state" / "lock").open("w") as handle:
        assert read_run(place).state == FINISHED
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert locked(place)
        assert read_run(place).state == RUNNING
    assert not locked(place)


def test_runs_of_the_same_name_are_told_apart_and_read_once(make: Any) -> None:
    first, second, other = make("a/run"), make("b/run"), make("other")
    found = read_all([first, second, other, first])
    assert [record.name for record in found] == ["a/run", "b/run", "other"]


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        read_run(tmp_path)


def test_unreadable_environment_and_states_are_absent(make: Any) -> None:
    place = make("run")
    (place / "environment.json").write_text("[1, 2", "utf-8")
    (place / "state" / "0000000000.json").write_text('{"notes": 3}', "utf-8")
    record = read_run(place)
    assert (record.environment, record.notes) == ({}, {})


def test_unusual_settings_are_told_against_the_methods_own_defaults() -> None:
    plain = config.resolve({"method": "rws", "layers": (40, 10)})
    assert differences.unusual(plain) == {"model.layers": [40, 10]}
    assert differences.unusual(config.resolve({"method": "rws", "optimizer": "adam"})) == {}


def test_differing_settings_are_those_and_no_others() -> None:
    two = [differences.dotted_settings(config.resolve({"seed": seed, "method": "nws"})) for seed in (0, 1)]
    assert differences.differing(two) == ["seed"]
    assert differences.differing([{"a": None}, {}]) == ["a"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "rws", "optimizer": "adam", "layers": (5,), "seed": 7},
        {"method": "bihm", "learning_rate": 0.3, "data": "it's a $(file).npy", "image_shape": (4, 6)},
        {"model.bias": -2.5, "objective.baseline": False, "objective.growth": ((3, 20), (6, 40))},
        {"metric.final_damping": 0.01, "optimizer.schedule": "cosine", "data.binarize": "resample"},
        {"data": "-odd", "batch_size": 8, "metric.kl_radius": 1e-7},
    ],
)
def test_the_command_repeats_the_config_exactly(settings: dict[str, Any]) -> None:
    wanted = config.resolve(settings)
    words = shlex.split(differences.command(wanted))
    assert words[:2] == ["natgrad", "train"]
    texts, plain = take_settings(words[1:], short_names())
    assert plain == ["train"]
    assert config.resolve(values(texts, {})) == wanted


def test_the_command_of_a_float64_run_says_so() -> None:
    assert differences.command(config.resolve({}), x64=True) == "JAX_ENABLE_X64=1 natgrad train"


def test_the_list_is_by_data_then_best_first_and_holds_damaged_runs(make: Any, tmp_path: Path) -> None:
    def rows(*losses: float | None) -> list[dict[str, Any]]:
        """The test likelihood rises where the validation loss rises: runs are not chosen by test data."""
        found = [{"valid_loss": loss, "valid_ll": loss and -loss, "test_ll": loss} for loss in losses]
        return [{"epoch": n, "step": n, "seconds": 1.5} | row for n, row in enumerate(found)]

    make("runs/worse", rows=rows(9.0, 20.0, 9.0))
    make("runs/deep/better", rows=rows(9.0, 2.0, 10.0))
    make("runs/none", rows=rows(None))
    make("runs/first", rows=rows(99.0), data="3by3")
    make("runs/resampled", rows=rows(1.0), **{"data.binarize": "resample"})
    (make("runs/odd") / "trace.jsonl").write_text("{\n{}\n", "utf-8")
    (make("runs/broken") / "config.toml").write_text("format = ", "utf-8")
    (tmp_path / "runs" / "config.toml").write_text("", "utf-8")  # a config alone is not a run
    found = list_runs(tmp_path / "runs")
    assert [line["name"] for line in found] == [
        "first",
        "resampled",
        "deep/better",
        "worse",
        "none",
        "broken",
        "odd",
    ]
    assert [line["state"] for line in found] == ["unfinished"] * 5 + ["damaged"] * 2
    assert "not valid TOML" in found[5]["problem"]
    assert "line 1 of" in found[6]["problem"]
    assert list(found[5]) == [*found[0], "problem"]
    unsure = (
        "binarize",
        "criterion",
        "best_criterion",
        "headline_title",
        "valid_title",
        "run",
    )  # by the kind's spec
    assert {key: value for key, value in found[2].items() if key not in unsure} == {
        "name": "deep/better",
        "data": "digits",
        "method": "nrws",
        "kind": "helmholtz",
        "epochs": 2,
        "epochs_wanted": 3,
        "rows": None,
        "best_epoch": 1,
        "best_valid_loss": 2.0,
        "valid": "valid_ll",
        "valid_value": -2.0,
        "headline": "test_ll",
        "headline_value": 2.0,
        "seconds": 1.5,
        "state": "unfinished",
    }


def test_a_list_of_no_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder; give one that holds runs"):
        list_runs(tmp_path / "absent")


def test_the_command_runs_prints_a_table_or_one_json_line(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("runs/a-run-with-a-name-that-is-long-enough-to-need-the-whole-width", epochs=1)
    (make("runs/bad") / "trace.jsonl").write_text("{\n{}\n", "utf-8")
    app(["runs", str(tmp_path / "runs")])
    text = capsys.readouterr().out
    assert "a-run-with-a-name-that-is-long-enough-to-need-the-whole-width" in text
    assert "1/1" in text
    assert "bad: line 1" in text
    app(["runs", str(tmp_path / "runs"), "--json"])
    assert [line["state"] for line in json.loads(capsys.readouterr().out)["runs"]] == ["finished", "damaged"]
    (tmp_path / "none").mkdir()
    app(["runs", str(tmp_path / "none")])
    assert "no runs in" in capsys.readouterr().out


def test_a_table_has_runs_that_can_be_compared_and_no_others(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data set's own binarization is the same as the named one; other rows are others."""
    for name, settings in {
        "usual": {},
        "named": {"data.binarize": "round"},
        "drawn": {"data.binarize": "resample"},
        "some": {"data.classes": (3, 5)},
        "net": {"model": "mlp"},
    }.items():
        make(f"runs/{name}", **{"layers": (6,)} | settings)
    app(["runs", str(tmp_path / "runs")])
    tables = [table.splitlines() for table in capsys.readouterr().out.split("\n\n")]
    captions = {table[0]: sorted(line.split()[0] for line in table if "finished" in line) for table in tables}
    assert captions == {
        "digits, gray: ranked by valid error": ["net"],
        "digits, resample: ranked by valid LL": ["drawn"],
        "digits, round: ranked by valid LL": ["named", "usual"],
        "digits, round, classes (3, 5): ranked by valid LL": ["some"],
    }
