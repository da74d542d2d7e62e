"""The bits of natgrad's generator on standard output, for any battery of statistical tests.

    python -m benchmarks.generator --keys one | dieharder -a -g 200
    python -m benchmarks.generator --keys folded --words 1000 | RNG_test stdin32

`one` is a single long stream. `folded` and `split` are short streams, of so many words each, of keys that
were made from one another as trainings make them: the place where a counter-based generator is weakest.
"""

import argparse
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.layers import generator

PORTION = 1 << 20  # words that are made at a time


def long_stream(seed: int, words: int) -> Iterator[np.ndarray]:
    """Portions of a stream, each of a key that was folded from the root: `words` is not looked at."""
    del words
    root = generator.key(seed)
    draw = jax.jit(lambda place: jax.random.bits(jax.random.fold_in(root, place), (PORTION,), jnp.uint32))
    for place in range(2**32):
        yield np.asarray(draw(jnp.uint32(place)))


def folded_streams(seed: int, words: int) -> Iterator[np.ndarray]:
    """The first words of the keys 0, 1, 2, ... folded into one."""
    root, many = generator.key(seed), max(1, PORTION // words)
    first = jax.vmap(lambda step: jax.random.bits(jax.random.fold_in(root, step), (words,), jnp.uint32))
    draw = jax.jit(lambda start: first(start + jnp.arange(many, dtype=jnp.uint32)))
    for start in range(0, 2**32 - many, many):
        yield np.asarray(draw(jnp.uint32(start)))


def split_streams(seed: int, words: int) -> Iterator[np.ndarray]:
    """The first words of keys that are split off, again and again, from the last of the keys before."""
    many = max(2, PORTION // words)

    @jax.jit
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, many)
        return keys[-1], jax.vmap(lambda own: jax.random.bits(own, (words,), jnp.uint32))(keys[:-1])

    key = generator.key(seed)
    while True:
        key, found = draw(key)
        yield np.asarray(found)


STREAMS = {"one": long_stream, "folded": folded_streams, "split": split_streams}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", choices=STREAMS, default="one")
    parser.add_argument("--words", type=int, default=1000, help="words of a short stream")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--portions", type=int, default=0, help="how many portions (0: until nobody reads)")
    chosen = parser.parse_args()
    try:
        for number, portion in enumerate(STREAMS[chosen.keys](chosen.seed, chosen.words), start=1):
            sys.stdout.buffer.write(portion.astype("<u4").tobytes())
            if number == chosen.portions:
                return
    except BrokenPipeError:
        sys.stderr.close()  # the reader has had enough


if __name__ == "__main__":
    main()
