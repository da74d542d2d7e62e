"""Benchmarks without their data: one sentence, not a traceback."""

import os
import subprocess
import sys

import pytest

ON_DATA = ["quality", "step", "accuracy", "boltzmann", "evaluation", "vae"]


@pytest.mark.few(1)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ON_DATA)
def test_data_that_are_not_there_are_one_sentence(name, tmp_path, tried):
    environment = {key: value for key, value in os.environ.items() if key != "NATGRAD_DATA"}
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "NATGRAD_DATA (which is unset)" in done.stderr
    tried("commands without data")
