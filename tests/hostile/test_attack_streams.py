"""Standard streams that are closed, full or broken, and folders that are gone: a sentence or silence."""

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
    "gone": ("data list", 2, "natgrad: the working directory does not exist any more"),
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
