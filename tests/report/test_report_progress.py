"""What a terminal shows while a model trains."""

from typing import Any

import pytest
from rich.text import Text

from natgrad.cli.progress import ProgressBar
from natgrad.config import resolve

ROW: dict[str, Any] = {"epoch": 2, "train_loss": None, "valid_loss": 3.25, "valid_ll": -3.2, "seconds": 7.0}
ROW |= {"test_ll": -3.5, "test_ll_se": 0.2}
SETTINGS = resolve({"epochs": 4})


def test_a_terminal_shows_epoch_loss_likelihood_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    clock = iter(float(second) for second in range(10_000))
    with ProgressBar(SETTINGS) as bar:
        bar.bar.get_time = lambda: next(clock)
        bar.evaluated(ROW)
        for steps in (52, 54, 56):  # a resumed run: fifty steps were done before
            bar.advanced(steps, 100, 1.5)
        task = bar.bar.tasks[0]
        assert task.description == "epoch 3/4  loss 1.500  valid LL -3.200"
        assert task.speed is not None
        assert task.speed < 2.5  # two steps in at least one second, not fifty in none
        assert task.time_remaining is not None
    shown = capsys.readouterr().err
    assert "eta" in shown
    assert "epoch    2  train loss       -  valid loss   3.250  valid LL -3.200     7.0 s" in shown
    assert max(len(Text.from_ansi(line).plain) for line in shown.splitlines()) <= 80


def test_quiet_is_silent_and_a_pipe_gets_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        with ProgressBar(SETTINGS, quiet=quiet) as bar:
            bar.advanced(1, 4, 2.0)
            bar.evaluated(ROW | {"kl": 0.5, "steps_refused": 3})
        shown = capsys.readouterr().err
        assert shown == "" if quiet else "3.250     7.0 s  3 steps refused" in shown
        assert "eta" not in shown


def test_a_line_tells_the_figures_of_any_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(resolve({"model": "mlp", "epochs": 4})) as bar:
        bar.evaluated(ROW | {"test_error": 0.035, "valid_error": 0.045})
    shown = capsys.readouterr().err
    assert "  valid error 4.50%     7.0 s" in shown
    assert "test" not in shown  # test figures come at the end
