"""One conditional Bernoulli layer: a unit is on with probability sigmoid(W h + b).

Values are coded {-1,+1} or {0,1}; the logit's meaning and the log-probabilities are the same in
both, only the numbers fed to the next layer differ [nrws eq. 16, 21]. Everything is computed from
logits: no probability is ever clipped. Arrays are [unit, row, sample]: rows and samples as
one axis can stay split over devices by rows, so only a gradient contracts over rows.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import parts
from natgrad.tree import pytree

Initializer = Callable[..., Array]
Values = Float[Array, "unit row sample"]

_FEW = 64  # samples up to which a product with the identity costs next to nothing
_LARGE = 80.0  # exp of it is finite in single precision


class Coding(NamedTuple):
    """The two numbers that stand for off and on."""

    low: float
    high: float = 1.0

    def value(self, on: Array, dtype: jnp.dtype | type = jnp.float32) -> Array:
        """From {0,1} (or a mean in between) to this coding."""
        return self.low + (self.high - self.low) * on.astype(dtype)

    def on(self, value: Array) -> Array:
        """From this coding to {0,1}."""
        return (value - self.low) / (self.high - self.low)


SIGNED = Coding(-1.0)
BINARY = Coding(0.0)
CODINGS = {"signed": SIGNED, "binary": BINARY}


@pytree
class Layer:
    """The weights into a layer's units, one row per unit, and their biases."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]


def logits_of_means(means: np.ndarray, rows: int) -> np.ndarray:
    """The logits of independent units with these means over so many rows.

    A unit that is never (or always) on has one imagined row in which it is not, so that its logit is finite.
    """
    likely = (rows * means + 1) / (rows + 2)
    return np.asarray(np.log(likely) - np.log1p(-likely))


def logits(layer: Layer, inputs: Values) -> Values:
    """W h + b for every row."""
    return (layer.weight @ flat(inputs) + layer.bias[:, None]).reshape(-1, *inputs.shape[1:])


def gradient(inputs: Values, residuals: Values) -> Layer:
    """The loss gradient of a layer, from its inputs and the loss gradient of its logits.

    Where all samples share their inputs (`sample` axis of length one), the residuals are summed
    first: the first recognition layer sees only as many inputs as there are data rows.
    """
    if inputs.shape[2] != residuals.shape[2]:
        residuals = _exactly(residuals, jnp.ones_like(residuals[0, 0, :, None]))
    columns = flat(residuals)
    return Layer(columns @ flat(inputs).T, _exactly(columns, jnp.ones_like(columns[0])))


def log_prob(logit: Values, on: Values, *, reuse: bool = False) -> Float[Array, "row sample"]:
    """The log-probability of a layer's values: the sum over units of y a - log(1 + exp a).

    With `reuse`, from probabilities that something else needs, too; otherwise what is made is not stored.
    """
    shape = jnp.broadcast_shapes(logit.shape, on.shape)[1:]
    wide, values = flat(repeated(logit, shape[1])), flat(repeated(on, shape[1]))
    slices = _slices(len(logit))
    linear = _folded(slices, jnp.add, lambda a, y: y * a - jnp.maximum(a, 0), wide, values)
    return _difference(linear, jnp.log(_products(slices, logit, reuse)), shape, logit.shape[1:])


def log_ratio(logit: Values, other: Values, on: Values, *, reuse: bool = False) -> Float[Array, "row sample"]:
    """The log-probability of a layer's values with some logits, less that with others, in one go."""
    shape, slices = on.shape[1:], _slices(len(logit))
    wide, against, values = flat(repeated(logit, shape[1])), flat(repeated(other, shape[1])), flat(on)
    term = lambda a, b, y: y * (a - b) - jnp.maximum(a, 0) + jnp.maximum(b, 0)  # noqa: E731
    linear = _folded(slices, jnp.add, term, wide, against, values)
    above, below = _products(slices, logit, reuse), _products(slices, other, reuse)
    if logit.shape == other.shape:
        return _difference(linear, jnp.log(above / below), shape, shape)
    more = _total(jnp.log(below)).reshape(other.shape[1:])
    return _difference(linear, jnp.log(above), shape, logit.shape[1:]) + more


def _difference(
    linear: Float[Array, "side draw"],
    logs: Float[Array, "side narrow"],
    shape: tuple[int, ...],
    narrow: tuple[int, ...],
) -> Float[Array, "row sample"]:
    """The sum of what is linear less that of logarithms, which may be the same for all samples."""
    if shape == narrow:
        return _total(linear - logs).reshape(shape)
    return _total(linear).reshape(shape) - _total(logs).reshape(narrow)


def _products(slices: int, logit: Values, reuse: bool) -> Float[Array, "side draw"]:
    """Products of 1 + exp(-abs a), in [1, 2], of up to fifteen units: a logarithm of each is enough."""
    if reuse:
        return 1 / _folded(slices, jnp.multiply, lambda p: jnp.maximum(p, 1 - p), probability(flat(logit)))
    return _folded(slices, jnp.multiply, lambda a: 1 + _tail(a), flat(logit))


def _slices(units: int) -> int:
    """How many equal slices make up so many units: at most fifteen.

    Slices of other lengths are not vectorized: of a prime number of units each stays alone. So does each
    where devices split the units: slices would have to be sent.
    """
    return max(count for count in range(1, 16) if units % count == 0) if parts("units") == 1 else 1


def _folded(
    slices: int,
    operation: Callable[[Array, Array], Array],
    term: Callable[..., Array],
    *arrays: Float[Array, "unit draw"],
) -> Float[Array, "side draw"]:
    """The terms of all slices of the units, combined as they are computed: no term is ever stored.

    Tracing is most of a second start, so a term is traced once for all slices.
    """
    units = arrays[0].shape[0]
    side = units // slices
    once = jax.jit(term, inline=True)
    cut = jax.lax.slice_in_dim
    terms = [once(*(cut(array, at, at + side) for array in arrays)) for at in range(0, units, side)]
    return functools.reduce(operation, terms)


def _total(terms: Float[Array, "unit draw"]) -> Float[Array, " draw"]:
    """The sum over units, as a matrix product: the compiler makes a reduction's operands one by one."""
    return _exactly(jnp.ones_like(terms[:, 0]), terms)


def _exactly(left: Array | np.ndarray, right: Array | np.ndarray) -> Array:
    """A product that only copies or sums: by default some devices round its factors, down to 8 bits."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def flat(values: Values) -> Float[Array, "unit draw"]:
    """Rows and samples as one axis: loops over two axes of which one is broadcast run much slower."""
    return values.reshape(values.shape[0], -1)


def repeated(values: Values, samples: int) -> Values:
    """The values of data rows, which all samples share, once for every sample.

    Copied by a product with ones, for the same reason as in `stored`.
    """
    _, rows, given = values.shape
    if given == samples or rows == 1:
        return values
    padded = jnp.pad(values, [(0, 0), (0, 0), (0, 1)])  # products over one number are not products
    copies = np.array([[1], [0]], values.dtype).repeat(samples, axis=1)
    return _exactly(padded, copies)


def stored(array: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
    """The same numbers, made once: the compiler does not repeat what is behind a matrix product.

    It would otherwise compute a small array again for every element that it is combined with;
    `optimization_barrier` does not stop it on a CPU.
    """
    if array.shape[-1] > _FEW:
        return array
    return _exactly(array, np.eye(array.shape[-1], dtype=array.dtype))


def probability(logit: Array) -> Array:
    """sigmoid(logit), from the same exponential as the log-probability: one is enough for both."""
    tail = _tail(logit)
    return jnp.where(logit >= 0, 1, tail) / (1 + tail)


def draw(uniform: Values, logit: Values, coding: Coding, *, reuse: bool = False) -> Values:
    """Values of a layer with the given logits, from uniform numbers in [0, 1).

    With `reuse`, from probabilities that something else needs, too. The last operation is a division of
    0 or +-x by x, which is exact, and which no compiler repeats, with all that stands before it, in every
    place where the values are used.
    """
    samples, precision = uniform.shape[2], jnp.finfo(uniform.dtype)
    chance = flat(uniform) + precision.eps / 2  # the middle of its interval: neither 0 nor 1
    if reuse:
        margin = flat(repeated(probability(logit), samples)) - chance
    else:
        odds = jnp.exp(jnp.minimum(-flat(repeated(logit, samples)), _LARGE))  # of being off
        margin = 1 - chance * (1 + odds)  # > 0 where chance < sigmoid(logit)
    x = jnp.maximum(jnp.abs(margin), precision.tiny)  # never 0
    numerator = coding.high * jnp.maximum(margin, 0) + coding.low * jnp.maximum(-margin, precision.tiny)
    return (numerator / x).reshape(uniform.shape)


def _tail(logit: Array) -> Array:
    return jnp.exp(-jnp.abs(logit))


def fresh(key: PRNGKeyArray, inputs: int, units: int, weights: Initializer, bias: float) -> Layer:
    """A layer with weights drawn by an initializer for [out, in] arrays, and a constant bias."""
    dtype = jnp.zeros(()).dtype
    return Layer(weights(key, (units, inputs), dtype), jnp.full((units,), bias, dtype))
