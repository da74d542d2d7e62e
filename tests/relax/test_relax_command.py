"""`natgrad relax`: one JSON line, a folder that can be continued, pictures, sentences."""

import json

import pytest

from natgrad.cli.main import main


def run(capsys, *tokens):
    with pytest.raises(SystemExit) as ended:
        main(["relax", *tokens, "--json"])
    out = capsys.readouterr().out.strip()
    assert "\n" not in out
    return ended.value.code, json.loads(out)


def test_minimize_is_resumable_and_draws_its_convergence(tmp_path, capsys):
    folder = str(tmp_path / "run")
    call = ("minimize", "sphere", "--size", "3", "--quiet", "--out", folder, "--target", "1e-9")
    code, first = run(capsys, *call, "--budget", "70")
    assert code == 0
    assert first["evaluations"] == 70
    code, second = run(capsys, *call, "--budget", "3000")
    assert second["success"]
    assert 70 < second["evaluations"] < 1000
    assert (tmp_path / "run" / "convergence.png").stat().st_size > 5000
    code, wrong = run(capsys, "minimize", "sphere", "--size", "4", "--out", folder)
    assert code == 2
    assert "has 3 variables, not 4" in wrong["error"]


@pytest.mark.slow
def test_minimize_takes_a_function_from_a_file(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def f(x):\n    return float((x[0] - 2) ** 2)\n")
    code, found = run(
        capsys, "minimize", f"{tmp_path / 'mine.py'}:f", "--size", "1", "--target", "1e-6", "--quiet"
    )
    assert code == 0
    assert abs(found["point"][0] - 2) < 1e-3
    code, found = run(capsys, "minimize", f"{tmp_path / 'mine.py'}:g", "--size", "1")
    assert (code, "has no function 'g'" in found["error"]) == (2, True)
    code, found = run(capsys, "minimize", "absent.py:f")
    assert (code, "no Python file absent.py" in found["error"]) == (2, True)


@pytest.mark.slow
def test_flow_draws(tmp_path, capsys):
    code, found = run(capsys, "flow", "--out", str(tmp_path / "square.png"))
    assert code == 0
    assert set(map(tuple, found["ends"]["natural, marginals μ"])) == {(1.0, 0.0), (0.0, 1.0)}
    assert (tmp_path / "square.png").stat().st_size > 20_000


def test_flow_refuses_what_it_cannot_draw(tmp_path, capsys):
    code, found = run(capsys, "flow", "x1 + x2 + x3", "--out", str(tmp_path / "f.png"))
    assert (code, "two binary variables" in found["error"]) == (2, True)
    code, found = run(capsys, "flow", "--out", str(tmp_path / "none" / "f.png"))
    assert (code, "is not a folder" in found["error"]) == (2, True)
