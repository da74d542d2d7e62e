"""The examples of the documentation run, are short, and lower the loss by a factor of three at least."""

import re
import runpy
from pathlib import Path

import jax
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FAST = ("optax_plain",)
NEEDED = {"optax_equinox": "equinox", "optax_flax": "flax", "layer_blocks": "equinox"}
GAINS = {"physics_poisson": 1e3, "physics_heat": 1e3, "physics_burgers": 30}
"""By what factor the error must fall, where it is more than three."""
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "load_without_natgrad")


@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in NAMES]
)
def test_an_example_learns(name, capsys):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    path = EXAMPLES / f"{name}.py"
    code = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    assert len(code) < (25 if name.startswith("optax") else 80)
    with jax.numpy_dtype_promotion("standard"):
        runpy.run_path(str(path))
    before, after = map(float, re.findall(r"[\d.]+", capsys.readouterr().out.splitlines()[-1]))
    assert after < before / GAINS.get(name, 3)
