"""Streams that are closed, full or broken, folders that are gone, bad environments: a sentence or silence."""

import os
import subprocess
import sys

import pytest

START = f"{sys.executable} -c 'from natgrad.cli.main import main; main()'"
CASES = {
    "closed": ("data list --json >&-", 0, ""),
    "full": ("data list --json >/dev/full", 2, "natgrad: cannot write the output: No space left on device"),
    "broken": ("data list --json | true; exit ${PIPESTATUS[0]}", 141, ""),
    "no stderr": ("data list --nonsense 2>&-", 2, ""),
    "gone": ("data list", 2, "natgrad: the working directory no longer exists"),
    "narrow": ("train --help >/dev/null", 0, ""),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(3)
def test_streams(name, tmp_path, tried):
    arguments, code, sentence = CASES[name]
    place = tmp_path / "place"
    place.mkdir()
    before = f"rmdir {place}; " if name == "gone" else ""
    environment = os.environ | ({"COLUMNS": "1"} if name == "narrow" else {})
    done = subprocess.run(
        ["bash", "-c", f"{before}{START} {arguments}"],
        capture_output=True,
        text=True,
        cwd=place,
        env=environment,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == bool(sentence)
    tried("streams")


ENVIRONMENTS = {
    "JAX_PLATFORMS=nonsense": "Unable to initialize backend 'nonsense'",
    "JAX_DISABLE_JIT=1": "Disable jit is not supported",
    "JAX_ENABLE_X64=maybe": "invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'; unset it",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("given", ENVIRONMENTS)
@pytest.mark.few(1)
def test_an_environment_that_jax_does_not_take_is_one_sentence(given, tmp_path, tried):
    done = subprocess.run(
        ["bash", "-c", f"{given} {START} train --layers 2 --epochs 1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"natgrad: {ENVIRONMENTS[given]}")
    tried("environments")
