"""What these networks are made of: two more output distributions, and transposed filters."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vae_cases import hermite

from natgrad import InputError
from natgrad.layers import generator
from natgrad.layers.outputs import enumerated, linear, normal, side_by_side, sigmoid, spherical
from natgrad.layers.transposed import fresh_transposed, transposed


def test_the_normal_distributions_fisher_is_the_mean_of_its_scores():
    """By quadrature; root and diagonal say the same, and so does one variance for all."""
    r, v = jnp.asarray([[0.3, -1.0, 0.5, -0.7]]), jnp.asarray([[1.0, -2.0, 0.5, 3.0]])
    grid, weights = hermite(2, 12)
    targets = r[:, :2] + jnp.exp(0.5 * r[:, 2:]) * jnp.asarray(grid)
    score = jax.vmap(jax.grad(lambda at, t: normal().log_prob(at, t[None])[0]), (None, 0))
    scores = np.asarray(jax.jit(score)(r, targets))[:, 0]
    matrix = (scores.T * weights) @ scores
    found = normal()
    np.testing.assert_allclose(found.fisher(r, v)[0], matrix @ v[0], atol=1e-10)
    np.testing.assert_allclose(found.root(r, found.root(r, v))[0], matrix @ v[0], atol=1e-10)
    np.testing.assert_allclose(found.curvature(r)[0], np.diag(matrix), atol=1e-10)
    density = np.exp(-0.5 * (grid**2).sum(axis=1)) / (2 * np.pi) / np.exp(0.5 * float(r[0, 2:].sum()))
    np.testing.assert_allclose(
        jnp.exp(normal().log_prob(jnp.tile(r, (144, 1)), targets)), density, rtol=1e-10
    )


def test_one_variance_for_all_is_the_linear_output_of_that_deviation():
    r, t = jnp.asarray([[0.3, -1.0]]), jnp.asarray([[1.0, 0.5]])
    one, other = spherical(jnp.asarray(2 * np.log(0.7))), linear(0.7)
    np.testing.assert_allclose(one.log_prob(r, t), other.log_prob(r, t), rtol=1e-12)
    for name in ("fisher", "root"):
        np.testing.assert_allclose(getattr(one, name)(r, t), getattr(other, name)(r, t), rtol=1e-12)
    np.testing.assert_allclose(one.curvature(r), other.curvature(r), rtol=1e-12)
    keys = generator.key(0)
    np.testing.assert_allclose(one.sample(keys, r), other.sample(keys, r), rtol=1e-12)


@pytest.mark.slow
def test_distributions_side_by_side():
    r, v = jnp.asarray([[0.3, -1.0, 0.5]]), jnp.asarray([[1.0, -2.0, 0.5]])
    both = side_by_side(normal(), sigmoid(), 2)
    expected = jnp.concatenate([normal().fisher(r[:, :2], v[:, :2]), sigmoid().fisher(r[:, 2:], v[:, 2:])], 1)
    np.testing.assert_allclose(both.fisher(r, v), expected)
    np.testing.assert_allclose(both.root(r, both.root(r, v)), expected, rtol=1e-12)
    pair = (jnp.asarray([[0.1]]), jnp.asarray([[1.0]]))
    total = normal().log_prob(r[:, :2], pair[0]) + sigmoid().log_prob(r[:, 2:], pair[1])
    np.testing.assert_allclose(both.log_prob(r, pair), total)
    with pytest.raises(InputError, match="side by side need a `root` each"):
        side_by_side(normal(), enumerated(lambda r, t: r[:, 0], jnp.zeros((1, 1))), 2)


def test_targets_of_a_normal_output_are_half_as_wide():
    outputs = jax.ShapeDtypeStruct((2, 4), jnp.float64)
    normal().check(outputs, np.zeros((2, 2)))
    with pytest.raises(InputError, match="half as wide as its outputs of shape"):
        normal().check(outputs, np.zeros((2, 4)))
    with pytest.raises(InputError, match="the normal output expects finite targets"):
        normal().check(outputs, np.full((2, 2), np.nan))


def test_every_pixel_is_spread_over_a_square_two_pixels_apart():
    """One bank of 3 x 3 filters from images of 3 x 2 to those of 8 x 6, by loops."""
    made = fresh_transposed(generator.key(0), (2,), (2,), (8, 6), width=3)
    bias = jax.random.normal(generator.key(1), (1, 8, 6))
    made = dataclasses.replace(made, filters=(dataclasses.replace(made.filters[0], bias=bias),))
    inputs = np.array([[0.3, -1.0]])
    (layer,) = made.layers
    pixels = np.tanh(inputs @ np.asarray(layer.weight).T + np.asarray(layer.bias)).reshape(2, 3, 2)
    kernel, expected = np.asarray(made.filters[0].kernel), np.array(bias)
    for channel, row, column in itertools.product(range(2), range(3), range(2)):
        for y, x in itertools.product(range(8), range(6)):
            down, across = 2 * row + 2 - y, 2 * column + 2 - x  # five pixels are around an image, two before
            if 0 <= down < 3 and 0 <= across < 3:
                expected[0, y, x] += kernel[0, channel, down, across] * pixels[channel, row, column]
    found = jax.jit(transposed())(made, jnp.asarray(inputs))
    np.testing.assert_allclose(found, expected.reshape(1, -1), atol=1e-12)


@pytest.mark.parametrize("image", [(13, 10), (28, 20)])
@pytest.mark.few(1)
def test_pictures_have_the_sides_of_the_data(image):
    made = fresh_transposed(generator.key(0), (2, 5), (3, 4), image, width=3 if image[0] < 20 else 5)
    shape = jax.eval_shape(transposed(), made, jnp.zeros((7, 2))).shape
    assert shape == (7, image[0] * image[1])
    assert made.filters[0].bias.shape == (1, *image)
