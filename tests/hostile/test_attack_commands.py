"""Hostile arguments of commands: refused before any work, in one sentence."""

from pathlib import Path

import pytest

from natgrad.cli.main import main

HUGE, LONG = "1" + "0" * 30, "a" * 5000
REFUSED = {
    "relax minimize sphere --restarts -1": "restarts: expected at least 0, got -1",
    "relax minimize sphere --target nan": "target: expected a number, got nan",
    "relax minimize sphere --size 0": "size: expected at least 1, got 0",
    f"relax minimize sphere --size {HUGE}": "expected a whole number between",
    "relax minimize sphere --size 2000000": "has at most 10000 variables, got 2000000",
    f"relax minimize sphere --seed {HUGE}": "expected a whole number between",
    "relax minimize sphere --population -3": "population: expected at least 0, got -3",
    "relax minimize BAD.py:f": "BAD.py cannot be imported (SyntaxError: '(' was never closed",
    "relax minimize sphere --out FILE/below": "is not a folder you can write to",
    f"relax minimize sphere --out {LONG}": ": File name too long; give another path",
    f"train --out {LONG}": ": File name too long; give another path",
    f"report {LONG}": ": File name too long; give another path",
    f"runs {LONG}": ": File name too long; give another path",
    "relax flow x1^999999999": "polynomials go up to degree 4",
    "relax flow x99999999999": "expected a polynomial of x1, x2",
    "relax flow 1e308x^4 --family gaussian": "coefficients go up to 1e+30",
    "relax flow x --family gaussian --out /nowhere/flow.png": "/nowhere is not a folder you can write to",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line[:40])
def test_refused_before_any_work(line, capsys, monkeypatch, tmp_path, tried):
    monkeypatch.chdir(tmp_path)
    Path("FILE").touch()
    Path("BAD.py").write_text("def f(x")
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert REFUSED[line] in err
    assert err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} == {"FILE", "BAD.py"}
    tried("arguments")
