"""The generator's numbers look independent: between counters, between bits, between keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.layers import generator

NUMBER = 1 << 16


def bits(key, number=NUMBER):
    return np.asarray(jax.random.bits(key, (number,), jnp.uint32))


def unpacked(words):
    """The 32 bits of every word as -1 and +1, lowest first: [word, bit]; sums below 2^24 are exact."""
    bytes_ = words.astype("<u4").view(np.uint8).reshape(-1, 4)
    return 2 * np.unpackbits(bytes_, axis=1, bitorder="little").astype(np.float32) - 1


def chi_square_z(counts):
    """How far the counts of equally likely cells are from equal, as a normal deviate."""
    expected = counts.sum() / counts.size
    degrees = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees)


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["seed 0", slow("seed 1"), slow("split"), "folded"])
def words(request):
    root = generator.key(0)
    keys = {
        "seed 0": root,
        "seed 1": generator.key(1),
        "split": jax.random.split(root, 3)[2],
        "folded": jax.random.fold_in(root, 7),
    }
    return bits(keys[request.param])


def test_every_byte_is_uniform(words):
    for place in range(4):
        counts = np.bincount((words >> (8 * place)) & 255, minlength=256)
        assert abs(chi_square_z(counts)) < 5
    assert abs(chi_square_z(np.bincount(words >> 20, minlength=4096))) < 5


def test_every_bit_is_balanced(words):
    assert np.abs(unpacked(words).mean(axis=0) * np.sqrt(NUMBER)).max() < 5


def test_bits_of_a_word_are_uncorrelated(words):
    signs = unpacked(words)
    z = signs.T @ signs / np.sqrt(NUMBER)
    assert np.abs(z[~np.eye(32, dtype=bool)]).max() < 5


def test_neighboring_counters_are_uncorrelated(words):
    """Nine lags of 32 x 32 pairs of bits: 9,216 normal deviates, none beyond five."""
    signs = unpacked(words)
    for lag in (1, 2, 3, 16, 32, 256, 320, 1024, 32768):
        z = signs[lag:].T @ signs[:-lag] / np.sqrt(NUMBER - lag)
        assert np.abs(z).max() < 5, lag


def test_pairs_and_triples_are_uniform(words):
    """Serial tests: neighbors together fill the square and the cube evenly."""
    high = words >> 26
    pairs = (high[0::2] << 6) | high[1::2]
    assert abs(chi_square_z(np.bincount(pairs, minlength=4096))) < 5
    third = NUMBER // 3 * 3
    high = (words[:third] >> 28).reshape(-1, 3)
    triples = (high[:, 0] << 8) | (high[:, 1] << 4) | high[:, 2]
    assert abs(chi_square_z(np.bincount(triples, minlength=4096))) < 5


def test_numbers_of_one_key_never_repeat(words):
    """Each key permutes its counters."""
    assert np.unique(words).size == NUMBER


def families(number=48):
    root = generator.key(0)
    return {
        "seeds": [generator.key(seed) for seed in range(number)],
        "split": list(jax.random.split(root, number)),
        "folded": [jax.random.fold_in(root, step) for step in range(number)],
        "grandchildren": [
            child for step in range(number // 2) for child in jax.random.split(jax.random.fold_in(root, step))
        ],
    }


@pytest.mark.few(1)
@pytest.mark.parametrize("family", [slow("seeds"), slow("split"), "folded", "grandchildren"])
def test_keys_are_uncorrelated(family):
    number, length = 48, 1 << 12
    keys = jnp.stack(families(number)[family])
    drawn = np.asarray(jax.vmap(lambda key: jax.random.bits(key, (length,), jnp.uint32))(keys))
    for shift in (0, 1):
        rolled = np.roll(drawn, shift, axis=1)
        signs = np.stack([unpacked(row).ravel() for row in drawn])
        other = np.stack([unpacked(row).ravel() for row in rolled])
        z = signs @ other.T / np.sqrt(32 * length)
        off = z[~np.eye(number, dtype=bool)]
        assert np.abs(off).max() < 5
        assert abs((off**2).mean() - 1) < 5 * np.sqrt(2 / (off.size / 2))


def test_first_numbers_of_many_keys_are_uniform():
    """Step after step draws from folded keys: number i of each must be as good as i of one key."""
    keys = jax.vmap(lambda step: jax.random.fold_in(generator.key(3), step))(jnp.arange(1 << 16))
    first = np.asarray(jax.vmap(lambda key: jax.random.bits(key, (4,), jnp.uint32))(keys))
    for column in first.T:
        assert abs(chi_square_z(np.bincount(column >> 20, minlength=4096))) < 5
    z = unpacked(first[:, 0]).T @ unpacked(first[:, 1]) / np.sqrt(len(first))
    assert np.abs(z).max() < 5


def flips(changed, original):
    """The fraction of keys or counters for which each output bit changed."""
    return (1 - unpacked(changed) * unpacked(original)).mean(axis=0) / 2


def test_a_flipped_counter_bit_flips_half_of_the_output():
    words = bits(generator.key(5))
    index = np.arange(NUMBER)
    for bit in range(16):
        rate = flips(words[index ^ (1 << bit)], words)
        assert np.abs(rate - 0.5).max() < 0.02
        assert abs(rate.mean() - 0.5) < 0.005


@pytest.mark.parametrize("word", [0, 1])
def test_a_flipped_key_bit_flips_half_of_the_output(word):
    data = np.asarray(jax.random.key_data(generator.key(5)))
    draw = jax.jit(lambda data: generator._bits(data, 32, (1 << 14,)))
    original = np.asarray(draw(data))
    for bit in range(32):
        changed = data.copy()
        changed[word] ^= np.uint32(1 << bit)
        rate = flips(np.asarray(draw(changed)), original)
        assert np.abs(rate - 0.5).max() < 0.15
        assert abs(rate.mean() - 0.5) < 0.03


@pytest.mark.parametrize("width", [8, 16, 64])
def test_other_widths_are_threefry(width):
    dtype = jnp.dtype(f"uint{width}")
    key = generator.key(9)
    plain = jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")
    np.testing.assert_array_equal(jax.random.bits(key, (5,), dtype), jax.random.bits(plain, (5,), dtype))


def test_derived_keys_are_all_different():
    """Splits, folds, splits of folds: no two keys alike, none made of numbers that the key itself draws."""
    key = generator.key(9)
    folded = jax.vmap(lambda step: jax.random.fold_in(key, step))(jnp.arange(1 << 12))
    families = [jax.random.split(key, 1 << 12), folded, jax.vmap(jax.random.split)(folded)]
    data = np.concatenate([np.asarray(jax.random.key_data(keys)).reshape(-1, 2) for keys in families])
    words = np.concatenate([data.astype(np.uint64) @ np.array([1 << 32, 1], np.uint64), [0]])
    assert np.unique(words).size == words.size
    drawn = bits(key, 1 << 13).reshape(-1, 2)
    assert not {tuple(pair) for pair in drawn.tolist()} & {tuple(pair) for pair in data.tolist()}


def test_a_large_number_can_be_folded_in():
    data = lambda number: jax.random.key_data(jax.random.fold_in(generator.key(1), number)).tolist()  # noqa: E731
    assert len({tuple(data(number)) for number in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)}) == 5


def test_transformations_change_no_number():
    keys = jax.random.split(generator.key(2), 3)
    draw = lambda key: jax.random.uniform(key, (2, 5), jnp.float32)  # noqa: E731
    one_by_one = np.stack([np.asarray(draw(key)) for key in keys])
    np.testing.assert_array_equal(jax.jit(jax.vmap(draw))(keys), one_by_one)
    np.testing.assert_array_equal(jax.lax.scan(lambda c, key: (c, draw(key)), 0, keys)[1], one_by_one)
    np.testing.assert_array_equal(jax.random.bits(keys[0], (), jnp.uint32), bits(keys[0], 1)[0])


def test_uniform_numbers_have_their_moments():
    numbers = np.asarray(jax.random.uniform(generator.key(4), (NUMBER,), jnp.float32), np.float64)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) * np.sqrt(12 * NUMBER) < 5
    assert abs((numbers**2).mean() - 1 / 3) / np.sqrt((1 / 5 - 1 / 9) / NUMBER) < 5
