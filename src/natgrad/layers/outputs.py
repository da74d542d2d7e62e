"""Output distributions p(t | r): what a network's outputs r, before any activation, say about a target t.

An output distribution makes a deterministic network a probabilistic model, and thereby gives it a metric.
Its Fisher information with respect to r is small, one matrix M per row [revisiting eq. 9-11]:

    linear     t ~ N(r, beta^2)            M = beta^{-2} I     (printed as beta^2: see docs/errata.md)
    sigmoid    t ~ Bernoulli(sigmoid(r))   M = diag(y (1 - y))
    softmax    t ~ Categorical(softmax r)  M = diag(y) - y y^T
    normal     t ~ N(m, exp s), r = (m, s) M = diag(exp -s, 1/2)

Rows are the first axis of r; all other axes belong to the row. Any other distribution can be given: its
log-probability and its M (`Output`), or only the log-probability where M follows from it
(`exponential_family`, `enumerated`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.layers import targets as expected

Outputs = Float[Array, "row ..."]
_Targets = Any
Check = Callable[[jax.ShapeDtypeStruct, _Targets], None]


def unchecked(outputs: jax.ShapeDtypeStruct, targets: _Targets) -> None:
    """Every target is as good as any other."""
    del outputs, targets


class Output(NamedTuple):
    """The distribution of the targets given a network's outputs.

    Args:
        log_prob: log p(t | r), one number per row.
        fisher: M v, row by row.
        sample: targets drawn for given outputs; only Monte Carlo metrics need it.
        root: S w with S S^T = M, w shaped like r; only sample space and per-unit blocks need it.
        check: raises an InputError for targets that the output distribution cannot produce.
        curvature: the diagonal of M, where M is diagonal.
        natural: whether -d^2 log p / dr^2 is M at every target, as for natural parameters.
    """

    log_prob: Callable[[Outputs, _Targets], Float[Array, " row"]]
    fisher: Callable[[Outputs, Outputs], Outputs]
    sample: Callable[[PRNGKeyArray, Outputs], _Targets] | None = None
    root: Callable[[Outputs, Outputs], Outputs] | None = None
    check: Check = unchecked
    curvature: Callable[[Outputs], Outputs] | None = None
    natural: bool = False


def linear(beta: float = 1.0) -> Output:
    """Gaussian targets around the outputs, with standard deviation beta [revisiting eq. 9, 23]."""
    if not beta > 0:
        raise InputError(f"beta is a standard deviation and must be positive, got {beta}")

    def log_prob(r: Outputs, t: _Targets) -> Array:
        return -0.5 * per_row(((t - r) / beta) ** 2 + 2 * jnp.log(beta) + jnp.log(2 * jnp.pi))

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        return r + beta * jax.random.normal(key, r.shape, r.dtype)  # ~ N(r, beta^2)

    def curvature(r: Outputs) -> Outputs:
        return jnp.full_like(r, 1 / beta**2)

    return Output(
        log_prob,
        lambda r, v: v / beta**2,
        sample,
        lambda r, w: w / beta,
        expected.real,
        curvature,
        natural=True,
    )


def sigmoid() -> Output:
    """Independent Bernoulli targets (or means in between) [revisiting eq. 10, 25]."""

    def log_prob(r: Outputs, t: _Targets) -> Array:
        inside = (t >= 0) & (t <= 1)
        return per_row(jnp.where(inside, t * r - jax.nn.softplus(r), jnp.nan))

    def variance(r: Outputs) -> Outputs:
        return jax.nn.sigmoid(r) * jax.nn.sigmoid(-r)  # exact in both tails, unlike y (1 - y)

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        return jax.random.bernoulli(key, jax.nn.sigmoid(r)).astype(r.dtype)  # ~ Bernoulli(sigmoid(r))

    return Output(
        log_prob,
        lambda r, v: variance(r) * v,
        sample,
        lambda r, w: jnp.sqrt(variance(r)) * w,
        expected.probabilities,
        variance,
        natural=True,
    )


def softmax() -> Output:
    """One of several classes, given by its number or as a row of probabilities [revisiting eq. 11, 27]."""

    def log_prob(r: Outputs, t: _Targets) -> Array:
        logs = jax.nn.log_softmax(r)
        if jnp.issubdtype(t.dtype, jnp.integer):
            chosen = jnp.take_along_axis(logs, t[..., None], -1)[..., 0]
            return per_row(jnp.where((t >= 0) & (t < r.shape[-1]), chosen, jnp.nan))
        return per_row(t * logs)

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        return jax.random.categorical(key, r)  # ~ Categorical(softmax(r))

    def fisher(r: Outputs, v: Outputs) -> Outputs:
        y = jax.nn.softmax(r)
        return y * (v - (y * v).sum(-1, keepdims=True))

    def root(r: Outputs, w: Outputs) -> Outputs:
        y = jax.nn.softmax(r)
        half = jnp.exp(0.5 * jax.nn.log_softmax(r))
        return half * w - y * (half * w).sum(-1, keepdims=True)

    return Output(log_prob, fisher, sample, root, expected.classes, natural=True)


def normal() -> Output:
    """Gaussian targets whose means and log-variances are the two halves of every row of outputs."""

    def log_prob(r: Outputs, t: _Targets) -> Array:
        mean, log_variance = halves(r)
        squares = (t - mean) ** 2 * jnp.exp(-log_variance)
        return -0.5 * per_row(squares + log_variance + jnp.log(2 * jnp.pi))

    def root(r: Outputs, w: Outputs) -> Outputs:
        ahead, behind = halves(w)
        scale = jnp.exp(-0.5 * halves(r)[1])
        return jnp.concatenate([scale * ahead, jnp.sqrt(jnp.asarray(0.5, r.dtype)) * behind], axis=-1)

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        mean, log_variance = halves(r)
        noise = jax.random.normal(key, mean.shape, r.dtype)
        return mean + jnp.exp(0.5 * log_variance) * noise  # ~ N(m, exp s)

    def curvature(r: Outputs) -> Outputs:
        precision = jnp.exp(-halves(r)[1])
        return jnp.concatenate([precision, jnp.full_like(precision, 0.5)], axis=-1)

    return Output(log_prob, lambda r, v: curvature(r) * v, sample, root, expected.half_as_wide, curvature)


def spherical(log_variance: Float[Array, ""]) -> Output:
    """Gaussian targets around the outputs, all of one log-variance, which may be a parameter itself."""

    def log_prob(r: Outputs, t: _Targets) -> Array:
        squares = (t - r) ** 2 * jnp.exp(-log_variance)
        return -0.5 * per_row(squares + log_variance + jnp.log(2 * jnp.pi))

    def root(r: Outputs, w: Outputs) -> Outputs:
        del r
        return jnp.exp(-0.5 * log_variance) * w

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        noise = jax.random.normal(key, r.shape, r.dtype)
        return r + jnp.exp(0.5 * log_variance) * noise  # ~ N(r, exp s)

    def curvature(r: Outputs) -> Outputs:
        return jnp.broadcast_to(jnp.exp(-log_variance), r.shape)

    return Output(
        log_prob, lambda r, v: curvature(r) * v, sample, root, expected.real, curvature, natural=True
    )


def side_by_side(first: Output, second: Output, width: int) -> Output:
    """Two independent distributions: the first `width` outputs of a row are of one, the others of the other.

    Targets are pairs. Both need a root.
    """
    one, two = first.root, second.root
    if one is None or two is None:
        raise InputError("distributions side by side need a `root` each, got one without; use another")

    def apart(r: Outputs) -> tuple[Outputs, Outputs]:
        return r[:, :width], r[:, width:]

    def joined(
        left: Callable[[Outputs, Outputs], Outputs], right: Callable[[Outputs, Outputs], Outputs]
    ) -> Callable[[Outputs, Outputs], Outputs]:
        def both(r: Outputs, v: Outputs) -> Outputs:
            pairs = zip(apart(r), apart(v), strict=True)
            return jnp.concatenate([f(*pair) for f, pair in zip((left, right), pairs, strict=True)], axis=1)

        return both

    def log_prob(r: Outputs, t: _Targets) -> Array:
        left, right = apart(r)
        return first.log_prob(left, t[0]) + second.log_prob(right, t[1])

    return Output(log_prob, joined(first.fisher, second.fisher), None, joined(one, two))


def halves(outputs: Outputs) -> tuple[Outputs, Outputs]:
    """The two halves of every row: means and log-variances of a normal distribution."""
    first, second = jnp.split(outputs, 2, axis=-1)
    return first, second


def exponential_family(
    log_prob: Callable[[Outputs, _Targets], Array],
    *,
    reference: Callable[[Outputs], _Targets] = jnp.zeros_like,
    sample: Callable[[PRNGKeyArray, Outputs], _Targets] | None = None,
    check: Check = unchecked,
) -> Output:
    """An exponential family whose natural parameters are the outputs: M = -d^2 log p / dr^2, whatever t.

    `reference` makes some target for the outputs, at which the derivative is taken.

    >>> poisson = exponential_family(lambda r, t: per_row(t * r - jnp.exp(r) - jax.lax.lgamma(t + 1)))
    >>> float(poisson.fisher(jnp.log(jnp.array([[3.0]])), jnp.ones((1, 1)))[0, 0])
    3.0
    """

    def fisher(r: Outputs, v: Outputs) -> Outputs:
        slope = jax.grad(lambda at: -log_prob(at, reference(r)).sum())
        return jax.jvp(slope, (r,), (v,))[1]

    return Output(log_prob, fisher, sample, None, check)


def enumerated(
    log_prob: Callable[[Outputs, _Targets], Array], support: Array, *, check: Check = unchecked
) -> Output:
    """A few values, the first axis of `support`: M = sum_t p(t | r) s s^T, s = d log p / dr."""

    def scores(r: Outputs) -> tuple[Array, Array]:
        def one(t: Array) -> tuple[Array, Array]:
            rows = jnp.broadcast_to(t, (r.shape[0], *t.shape))
            value, pull = jax.vjp(lambda at: log_prob(at, rows), r)
            return value, pull(jnp.ones_like(value))[0]

        return jax.vmap(one)(support)

    def fisher(r: Outputs, v: Outputs) -> Outputs:
        logs, score = scores(r)
        weights = jnp.exp(logs) * jax.vmap(lambda s: per_row(s * v))(score)
        return jnp.einsum("tr,tr...->r...", weights, score)

    def sample(key: PRNGKeyArray, r: Outputs) -> _Targets:
        return support[jax.random.categorical(key, scores(r)[0].T)]  # ~ p(t | r)

    return Output(log_prob, fisher, sample, None, check)


def per_row(values: Float[Array, "row ..."]) -> Float[Array, " row"]:
    """The sum over all axes but the first."""
    return values.reshape(values.shape[0], -1).sum(axis=1)
