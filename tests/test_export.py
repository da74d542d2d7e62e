"""A model as one file: read back bit for bit, read without natgrad, and refused when it is not whole."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cases
import oracles
from cases import CODINGS
from natgrad.errors import InputError
from natgrad.models.helmholtz.trained import Trained

EXAMPLE = Path(__file__).parents[1] / "examples" / "load_without_natgrad.py"
ABOUT = {"format": "natgrad-helmholtz-1", "sizes": "4,3,2", "off": "-1.0", "on": "1.0"}


@cache
def trained(coding="signed"):
    return Trained(cases.machine((4, 3, 2), CODINGS[coding], spread=0.4))


@pytest.mark.parametrize("coding", CODINGS)
def test_a_saved_model_is_the_same_model(coding, tmp_path):
    path = trained(coding).save(tmp_path / "model.safetensors")
    again = Trained.load(path).parameters
    assert again.coding == CODINGS[coding]
    for one, other in zip(jax.tree.leaves(trained(coding).parameters), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [found.name for found in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_layout_is_the_documented_one(tmp_path):
    path = trained().save(tmp_path / "model.safetensors")
    shapes = {name: array.shape for name, array in load_file(path).items()}
    assert shapes == {
        "prior": (2,),
        "generation.0.weight": (4, 3),
        "generation.0.bias": (4,),
        "generation.1.weight": (3, 2),
        "generation.1.bias": (3,),
        "recognition.0.weight": (3, 4),
        "recognition.0.bias": (3,),
        "recognition.1.weight": (2, 3),
        "recognition.1.bias": (2,),
    }
    length = int.from_bytes(path.read_bytes()[:8], "little")
    assert json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"] == ABOUT


@pytest.mark.parametrize("coding", CODINGS)
def test_the_example_samples_the_model_without_natgrad(coding, tmp_path):
    """Its pixel means are those of p(x) by enumeration, and it imports neither natgrad nor JAX."""
    path = trained(coding).save(tmp_path / "model.safetensors")
    code = f"import runpy, sys; sys.argv = ['', {str(path)!r}]; runpy.run_path({str(EXAMPLE)!r});"
    code += "assert not {'natgrad', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    samples = np.load(tmp_path / "samples.npy")
    m = oracles.numpy_model(trained(coding).parameters)
    mean = sum(np.exp(oracles.log_likelihood(m, x)) * x for x in oracles.all_states(4))
    assert np.abs((samples.mean(axis=0) - mean) / np.sqrt(mean * (1 - mean) / len(samples))).max() < 5


def test_the_example_is_ten_lines():
    body = EXAMPLE.read_text().split("import safe_open")[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10


def broken(tmp_path, about=ABOUT, **changes):
    trained().save(tmp_path / "whole.safetensors")
    arrays = load_file(tmp_path / "whole.safetensors") | changes
    save_file({name: array for name, array in arrays.items() if array is not None}, tmp_path / "m", about)
    return tmp_path / "m"


def test_files_that_are_no_model_are_said(tmp_path):
    not_whole = r"is not a whole natgrad model .*; write it again with `run.model.save`"
    with pytest.raises(InputError, match=r"cannot read .*none as safetensors"):
        Trained.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello, this is not a model")
    with pytest.raises(InputError, match=r"cannot read .*text as safetensors"):
        Trained.load(tmp_path / "text")
    with pytest.raises(InputError, match=r"expected a file of the format natgrad-helmholtz-1, .* says None"):
        Trained.load(broken(tmp_path, about=None))
    with pytest.raises(InputError, match=not_whole):
        Trained.load(broken(tmp_path, prior=None))
    with pytest.raises(InputError, match=r"prior has the shape \(3,\), not \(2,\)"):
        Trained.load(broken(tmp_path, prior=np.zeros(3)))
    with pytest.raises(InputError, match=not_whole):
        Trained.load(broken(tmp_path, about=ABOUT | {"sizes": "4,x"}))


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(InputError, match=r"cannot write the model to .*; give a file you can write to"):
        trained().save(tmp_path / "none" / "model")
    with pytest.raises(InputError, match="cannot write the model to"):
        trained().save(tmp_path)
    assert list(tmp_path.iterdir()) == []
