"""What commands say: what matters, on lines of a terminal's width, and once."""

import logging
import re
import shutil
import sys
from types import SimpleNamespace

import pytest
from rich.text import Text

import natgrad
from natgrad.cli import runs, streams, tables
from natgrad.cli.main import main
from natgrad.cli.progress import ProgressBar
from trainings import SETTINGS

ROWS = ["epochs", "valid LL", "test LL", "seconds", "more"]


@pytest.fixture(scope="module")
def run(place, data):
    return natgrad.train(data=data, out=place / "said", **SETTINGS).folder


@pytest.fixture
def said(capsys, caplog):
    """The exit code of a command, what it says, and what it complains of."""

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        printed = capsys.readouterr()
        complaints = "".join(record.getMessage() for record in caplog.records)
        return ended.value.code, printed.out, printed.err + complaints

    return call


def test_a_training_ends_with_five_rows_and_a_finished_one_says_so(run, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    code, out, _ = said("train", run / "config.toml", "--out", "again")
    title, *rows = out.splitlines()
    assert (code, title) == (0, "trained again")
    assert [re.split(" {2,}", row)[0] for row in rows] == ROWS
    assert rows[0].split(maxsplit=1)[1].startswith("5, the best is ")
    code, out, err = said("resume", "again")
    assert (code, out) == (0, "")
    assert "is finished after 5 epochs: nothing to do" in err
    code, out, _ = said("resume", "again", "--epochs", "6", "--quiet")
    assert (code, out) == (0, "")
    code, out, _ = said("resume", "again", "--epochs", "7", "--verbose")
    assert {"best_epoch", "gradient_norm", "valid_loss"} <= {row.split()[0] for row in out.splitlines()[1:]}


def test_a_command_names_its_run_once_and_leaves_the_trainings_picture(run, said):
    before = (run / "samples.png").read_bytes()
    code, out, _ = said("sample", run, "--number", "4")
    assert (code, out.splitlines()[0]) == (0, str(run))
    assert "run" not in [line.split()[0] for line in out.splitlines()[1:]]
    assert (run / "drawn.png").exists()
    assert (run / "samples.png").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "digits"), "digits is not a config file; write natgrad train --data digits"),
        (("train", "mine.npy"), "mine.npy is not a config file; write natgrad train --data mine.npy"),
        (("train", "rbm"), "rbm is not a config file; write natgrad train --model rbm"),
        (
            ("resume", "r", "--learning-rate", "1"),
            "got --learning-rate; leave it out. Try `natgrad resume --help`.",
        ),
        (("evaluate", "r", "--odd", "1"), "r is not a run folder"),
        (("rn",), "Try `natgrad --help`."),
    ],
)
def test_mistakes_say_what_to_write(words, sentence, said):
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert sentence in err


def test_help_shows_defaults(said):
    _, out, _ = said("train", "--model", "rbm", "--method", "natural", "--help")
    text = " ".join(line.strip("│ ") for line in out.splitlines())
    assert re.search(r"--batch-size .*?\[default: 100\]", text)
    assert re.search(r"--learning-rate .*?\[default: 0\.02\]", text)


def test_tables_fit_a_terminal_and_no_head_is_cut(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    records = [
        {"network": "generation", "layer": layer} | {f"a_long_figure_{n}": 1.5 for n in range(8)}
        for layer in (0, 1)
    ]
    tables.print_rows(records)
    lines = [Text.from_ansi(line).plain for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if line.startswith("network")]
    assert all(head.split()[:2] == ["network", "layer"] for head in heads)  # which tell rows apart
    assert [name for head in heads for name in head.split()[2:]] == list(records[0])[2:]


def usual_settings():
    """What a bar reads of the settings."""
    return SimpleNamespace(training=SimpleNamespace(epochs=3), model=SimpleNamespace(kind="helmholtz"))


def test_a_finished_run_shows_no_bar(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    copy = shutil.copytree(run, tmp_path / "copy")
    for words, shown in ((("--epochs", "6"), True), ((), False)):
        with pytest.raises(SystemExit):
            main(["resume", str(copy), *words])
        assert ("eta" in Text.from_ansi(capsys.readouterr().err).plain) == shown


def test_what_is_refused_shows_no_bar(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", "--batch-size", "100000"])
    said = Text.from_ansi(capsys.readouterr().err).plain
    assert said.splitlines()[-1].startswith("natgrad: the batch size 100000 is larger")
    with ProgressBar(usual_settings()) as bar:
        pass
    assert not bar.bar.tasks[0].visible


def test_the_bar_ends_with_the_last_figure():
    bar = ProgressBar(usual_settings())
    bar.evaluated({"epoch": 0, "seconds": 0.0, "valid_ll": -47.0})
    assert bar.bar.tasks[0].description == "compiling"
    bar.advanced(30, 30, 24.0)
    bar.evaluated({"epoch": 3, "seconds": 0.2, "valid_ll": -20.5})
    assert bar.bar.tasks[0].description == "epoch 3/3  loss 24.000  valid LL -20.500"


def test_errors_and_warnings_break_between_words_on_a_terminal_only(monkeypatch, capsys):
    sentence = (
        "interrupted and saved at step 440 of 200000; continue with `natgrad resume runs/digits-nrws-1`"
    )
    record = logging.LogRecord("natgrad", logging.WARNING, "", 0, sentence, (), None)
    monkeypatch.setenv("COLUMNS", "50")
    streams.fold_warnings()
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        streams.complain(sentence, to_json=False)
        for said in (capsys.readouterr().err.rstrip("\n"), logging.lastResort.format(record)):
            assert said.replace("\n", " ").removeprefix("natgrad: ") == sentence
            assert (max(map(len, said.splitlines())) <= 50) == terminal
            assert "`natgrad resume runs/digits-nrws-1`" in said


def test_names_of_runs_are_whole_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    for length, heads in ((12, 1), (21, 1), (30, 2)):
        line = dict.fromkeys(("epochs_wanted", "best_epoch", "seconds", "headline"))
        line |= {
            "name": "r" * length,
            "kind": "helmholtz",
            "method": "nrws",
            "epochs": 100,
            "state": "finished",
        }
        line |= {"valid": "valid_ll", "valid_title": "valid LL", "valid_value": -17.5}
        line |= {"headline": "test_ll", "headline_title": "test LL", "headline_value": -17.5}
        runs._table([line | {"epochs_wanted": 100, "best_epoch": 100, "seconds": 100.0}])
        lines = [Text.from_ansi(line).plain for line in capsys.readouterr().out.splitlines()]
        assert max(map(len, lines)) <= 80
        assert sum("r" * length in line for line in lines) == heads
        assert sum(line.startswith("run ") for line in lines) == heads


def test_lists_can_be_copied(capsys):
    tables.record_printer("found")({"point": [1 / 3, 2.0, -1e-9], "size": 3})
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("point"))
    assert eval(line.split(maxsplit=1)[1]) == pytest.approx([1 / 3, 2.0, -1e-9], rel=1e-9)
