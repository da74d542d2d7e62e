"""Products that copy or sum are exact on every device, whatever precision products have there by default.

This machine's own products ignore the default (they are always exact), so the traced programs are read: a
product in them says at which precision it is to run.
"""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.lax import Precision

from cases import machine
from natgrad.layers import bernoulli, generator
from natgrad.models.helmholtz import machine as helmholtz

UNITS, SAMPLES, ROWS = 6, 4, 5
KEYS = jax.random.split(jax.random.key(0), 3)
NARROW = jax.random.normal(KEYS[0], (UNITS, ROWS, 1))
WIDE = jax.random.normal(KEYS[1], (UNITS, ROWS, SAMPLES))
UNIFORM = jax.random.uniform(KEYS[2], (UNITS, ROWS, SAMPLES))
ON = jnp.where(WIDE > 0, 1.0, 0.0)


def products(function, *arguments):
    """How precise each product of the traced function is, where products are coarse by default."""
    with jax.default_matmul_precision("bfloat16"):
        return list(precisions(jax.make_jaxpr(function)(*arguments).jaxpr))


def precisions(program):
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for part in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield from precisions(part.jaxpr if isinstance(part, ClosedJaxpr) else part)


EXACT = {
    "repeated": (lambda: bernoulli.repeated(NARROW, SAMPLES), 1),
    "stored": (lambda: bernoulli.stored(WIDE), 1),
    "draw": (lambda: bernoulli.draw(UNIFORM, NARROW, bernoulli.SIGNED), 1),
    "draw, reuse": (
        lambda: bernoulli.draw(UNIFORM, NARROW, bernoulli.SIGNED, reuse=True),
        1,
    ),
    "log_prob": (lambda: bernoulli.log_prob(WIDE, ON), 1),
    "log_prob of rows": (lambda: bernoulli.log_prob(NARROW, ON), 3),
    "log_ratio": (lambda: bernoulli.log_ratio(WIDE, WIDE, ON), 1),
    "log_ratio of rows": (lambda: bernoulli.log_ratio(NARROW, WIDE, ON, reuse=True), 4),
}


@pytest.mark.parametrize("name", EXACT)
def test_copies_and_sums_are_exact(name):
    function, count = EXACT[name]
    assert products(function) == [(Precision.HIGHEST, Precision.HIGHEST)] * count


def test_default_precision_is_seen_here():
    """The product of a layer's weights, which is left to the default."""
    layer = bernoulli.Layer(jnp.ones((3, UNITS)), jnp.zeros(3))
    assert products(lambda: bernoulli.logits(layer, WIDE)) == [(Precision.DEFAULT, Precision.DEFAULT)]


def test_the_sum_of_a_gradients_biases_is_exact():
    weights, biases = products(lambda: bernoulli.gradient(WIDE, WIDE))
    assert (weights[0], biases[0]) == (Precision.DEFAULT, Precision.HIGHEST)


@pytest.mark.parametrize("phase", ["wake", "dream"])
def test_only_logits_are_left_to_the_default(phase):
    model = machine((9, 4, 3))
    passes = {
        "wake": lambda: helmholtz.wake(generator.key(0), model, jnp.ones((9, ROWS)), SAMPLES),
        "dream": lambda: helmholtz.dream(generator.key(0), model, ROWS, SAMPLES),
    }
    found = [pair[0] for pair in products(passes[phase])]
    assert found.count(Precision.DEFAULT) == 4  # two layers, two networks
    assert set(found) <= {Precision.DEFAULT, Precision.HIGHEST}
    assert (Precision.HIGHEST in found) == (phase == "wake")


def test_the_default_changes_nothing_but_logits():
    def made():
        drawn = bernoulli.draw(UNIFORM, NARROW, bernoulli.SIGNED)
        return drawn, bernoulli.log_prob(NARROW, ON), bernoulli.log_ratio(NARROW, WIDE, ON)

    usual = jax.jit(made)()
    with jax.default_matmul_precision("bfloat16"):
        coarse = jax.jit(made)()
    assert all(bool((one == other).all()) for one, other in zip(usual, coarse, strict=True))
