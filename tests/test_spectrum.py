"""The Fisher to look at: all blocks are there, the prior's too, with the eigenvalues they have."""

import jax
import numpy as np
import pytest

import cases
from natgrad.errors import InputError
from natgrad.evaluate import spectra as shared
from natgrad.metrics.blocks import UnitBlocks
from natgrad.models.helmholtz import spectrum


@pytest.fixture(scope="module")
def model():
    return cases.machine((4, 3, 2))


@pytest.fixture(scope="module")
def stacks(model):
    return spectrum.dream_fisher(jax.random.key(0), model, 40)


def test_every_parameter_is_in_one_block(model, stacks):
    """Units times block size, layer by layer, are the weights and biases, and the prior."""
    numbers = {name: [len(b.curvature) * b.size for b in stack] for name, stack in stacks.items()}
    assert numbers == {"generation": [4 * 4, 3 * 3], "prior": [2], "recognition": [3 * 5, 2 * 4]}
    assert sum(map(sum, numbers.values())) == sum(leaf.size for leaf in jax.tree.leaves(model))


def test_blocks_of_the_prior_are_its_variances(model, stacks):
    p = 1 / (1 + np.exp(-np.asarray(model.prior)))
    np.testing.assert_allclose(stacks["prior"][0].dense(), (p * (1 - p))[:, None, None], rtol=1e-12)
    np.testing.assert_allclose(shared.spectra(stacks["prior"])[0], (p * (1 - p))[:, None], rtol=1e-12)


def test_spectra_are_the_eigenvalues_of_the_blocks(stacks):
    for blocks, values in zip(stacks["generation"], shared.spectra(stacks["generation"]), strict=True):
        for block, found in zip(np.asarray(blocks.dense()), values, strict=True):
            np.testing.assert_allclose(found, np.linalg.eigvalsh(block)[::-1], atol=1e-12)


def test_the_table_has_the_prior_as_the_top_layer(model, stacks):
    values = {name: shared.spectra(stack) for name, stack in stacks.items()}
    rows = shared.table(spectrum.PICTURED, stacks, values, damping=0.1, count=1000)
    assert [(row["network"], row["layer"], row["units"], row["block"]) for row in rows] == [
        ("generation", 0, 4, 4),
        ("generation", 1, 3, 3),
        ("prior", 2, 2, 1),
        ("recognition", 0, 3, 5),
        ("recognition", 1, 2, 4),
    ]
    p = 1 / (1 + np.exp(-np.asarray(model.prior)))
    assert rows[2]["largest"] == pytest.approx((p * (1 - p)).max())
    assert rows[2]["condition"] == 1.0
    assert max(value for name, value in rows[2].items() if name.endswith("_mb")) < 0.001
    assert rows[0]["dual_mb"] > 1


def test_the_picture_shows_the_prior(stacks, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(shared, "save_figure", lambda path, figure: shown.append(figure))
    values = {name: shared.spectra(s) for name, s in stacks.items()}
    shared.picture(tmp_path / "a.png", spectrum.PICTURED, stacks, values)
    structure, recognition, curves, _ = shown[0].axes
    assert [text.get_text() for text in structure.texts] == ["layer 0", "layer 1", "prior"]
    assert [text.get_text() for text in recognition.texts] == ["layer 0", "layer 1"]
    assert len(structure.images) == 4 + 3 + 2
    np.testing.assert_allclose(structure.images[-1].get_array(), stacks["prior"][0].dense()[1])
    assert [line.get_label() for line in curves.lines] == ["layer 0", "layer 1", "prior, unit by unit"]
    drawn = curves.lines[-1].get_ydata()
    np.testing.assert_allclose(drawn, np.sort(np.asarray(stacks["prior"][0].curvature)[:, 0])[::-1])


def test_unwritable_pictures_are_said(stacks, tmp_path):
    values = {name: shared.spectra(stack) for name, stack in stacks.items()}
    shared.picture(tmp_path / "a.png", spectrum.PICTURED, stacks, values)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(InputError, match=r"cannot write the picture .*none/a.png: .*; give a file"):
        shared.picture(tmp_path / "none" / "a.png", spectrum.PICTURED, stacks, values)


def test_units_without_inputs_have_a_bias():
    curvature = np.array([[0.1, 0.2], [0.3, 0.1]])
    blocks = UnitBlocks(jax.numpy.zeros((0, 2)), jax.numpy.asarray(curvature))
    assert blocks.size == 1
    np.testing.assert_allclose(blocks.dense(), curvature.sum(axis=1)[:, None, None])
    np.testing.assert_allclose(blocks.trace(), curvature.sum(axis=1))
    np.testing.assert_allclose(blocks.diagonal().bias, curvature.sum(axis=1))
