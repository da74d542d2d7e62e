"""Batches: full, a permutation per epoch, a pure function of (seed, epoch); gray values resampled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.data import batches
from natgrad.layers import generator

ROWS = 103
permutation = jax.jit(batches.permutation, static_argnums=2)


def order(seed, epoch, rows=ROWS):
    return np.asarray(permutation(generator.key(seed), epoch, rows))


@pytest.mark.parametrize("epoch", [0, 1, 2, 1000])
def test_an_epoch_is_a_permutation(epoch):
    np.testing.assert_array_equal(np.sort(order(0, epoch)), np.arange(ROWS))


def test_an_order_is_a_function_of_seed_and_epoch_alone():
    np.testing.assert_array_equal(order(3, 5), order(3, 5))
    orders = {tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_every_place_is_equally_likely_for_a_row():
    key = generator.key(1)
    many = np.asarray(jax.vmap(lambda epoch: batches.permutation(key, epoch, 8))(jnp.arange(8000)))
    counts = np.array([np.bincount(column, minlength=8) for column in many.T])
    z = (counts - 1000) / np.sqrt(8000 * (1 / 8) * (7 / 8))
    assert np.abs(z).max() < 5


@pytest.mark.parametrize("resample", [False, True])
def test_binary_rows_are_drawn_as_they_are(resample):
    values = np.random.default_rng(0).integers(0, 2, (9, 5), dtype=np.uint8)
    rows = batches.on_device(values, 1, resample)
    got = batches.take_batch(generator.key(0), rows, jnp.array([3, 0, 3]), jnp.float64)
    assert got.shape == (5, 3)
    np.testing.assert_array_equal(got.T, values[[3, 0, 3]])


def test_rows_live_on_the_device_as_bytes():
    assert batches.on_device(np.ones((3, 2), bool)).values.dtype == jnp.uint8


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_real_rows_are_drawn_as_they_are(dtype):
    values = np.random.default_rng(0).normal(0, 9, (9, 5)).astype(np.float32)
    rows = batches.on_device(values)
    assert rows.values.dtype == jnp.float32
    got = batches.take_batch(generator.key(0), rows, jnp.array([3, 0, 3]), dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.T, values[[3, 0, 3]])


@pytest.mark.parametrize("levels", [16, 255])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_resampled_means_are_the_gray_values(levels, dtype):
    values = np.array([[0, 1, levels // 3, levels // 2, levels - 1, levels]], np.uint8)
    rows = batches.on_device(values, levels, True)
    number = 40_000
    drawn = np.asarray(batches.take_batch(generator.key(7), rows, jnp.zeros(number, int), dtype), np.float64)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    mean = values[0] / levels
    error = np.sqrt(mean * (1 - mean) / number)
    np.testing.assert_array_equal(drawn.mean(axis=1)[[0, -1]], [0, 1])
    assert np.abs((drawn.mean(axis=1) - mean)[1:-1] / error[1:-1]).max() < 5


def test_resampling_is_new_with_every_key_and_independent_between_pixels():
    rows = batches.on_device(np.full((1, 2), 8, np.uint8), 16, True)
    drawn = [
        np.asarray(batches.take_batch(generator.key(seed), rows, jnp.zeros(4000, int), jnp.float64))
        for seed in (0, 1)
    ]
    signs = 2 * np.concatenate(drawn) - 1
    correlation = signs @ signs.T / np.sqrt(4000)
    assert np.abs(correlation[~np.eye(4, dtype=bool)]).max() < 5
