"""The examples of the documentation run, are short, and lower the loss by a factor of three at least."""

import re
import runpy
from pathlib import Path

import jax
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
@pytest.mark.parametrize(
    "name", ["plain", *(pytest.param(each, marks=pytest.mark.slow) for each in ("equinox", "flax"))]
)
def test_an_example_learns(name, capsys):
    if name != "plain":
        pytest.importorskip(name)
    path = EXAMPLES / f"optax_{name}.py"
    code = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    assert len(code) < 25
    with jax.numpy_dtype_promotion("standard"):
        runpy.run_path(str(path))
    before, after = map(float, re.findall(r"[\d.]+", capsys.readouterr().out))
    assert after < before / 3
