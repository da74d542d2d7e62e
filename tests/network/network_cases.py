"""Tiny networks of odd shapes, with every output, and slow oracles from explicit Jacobians."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from natgrad.core import Product
from natgrad.layers import outputs, perceptron
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.tree import pytree


def heteroscedastic():
    """Gaussian targets with a mean and a log standard deviation each: a distribution no preset knows."""

    def log_prob(r, t):
        mean, log_std = r[..., 0], r[..., 1]
        return outputs.per_row(
            -0.5 * ((t - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        )

    def fisher(r, v):
        return jnp.stack([v[..., 0] * jnp.exp(-2 * r[..., 1]), 2 * v[..., 1]], axis=-1)

    def sample(key, r):
        return r[..., 0] + jnp.exp(r[..., 1]) * jax.random.normal(key, r.shape[:-1], r.dtype)

    return outputs.Output(log_prob, fisher, sample)


def odd(parameters, x):
    """A network with a shared matrix, a scalar, a nested list and no layers anyone could recognize."""
    shared, (scale, extra), bias = parameters["shared"], parameters["deep"], parameters["bias"]
    hidden = jnp.sin(x @ shared + bias["in"]) * scale
    return (jnp.cosh(hidden @ shared.T / 3) @ extra + bias["out"] ** 2).reshape(x.shape[0], *OUT)


OUT = (3,)


def odd_parameters(seed=0, width=4):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape) * 0.6)  # noqa: E731
    return {
        "shared": draw(2, width),
        "deep": [draw(), draw(2, 3)],
        "bias": {"in": draw(width), "out": draw(3)},
    }


def inputs(rows=5, width=2, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(rows, width)))


def targets(name, rows=5, seed=2):
    rng = np.random.default_rng(seed)
    return {
        "linear": jnp.asarray(rng.normal(size=(rows, 3))),
        "sigmoid": jnp.asarray(rng.integers(0, 2, (rows, 3)), float),
        "softmax": jnp.asarray(rng.integers(0, 3, rows)),
    }[name]


OUTPUTS = {"linear": outputs.linear(0.7), "sigmoid": outputs.sigmoid(), "softmax": outputs.softmax()}


def problem(name, rows=5):
    return Task(odd, OUTPUTS[name]), odd_parameters(), Examples(inputs(rows), targets(name, rows))


def measured_on(metric, task, parameters, rows, key=None):
    """The operator of a metric at the parameters, on some rows."""
    key = jax.random.key(0) if key is None else key
    return metric(task).measure(key, (), parameters, TaskBatch(rows))[0]


def jacobian(function, parameters):
    """[output..., parameter], by reverse mode, all at once."""
    flat, unravel = ravel_pytree(parameters)
    return jax.jacrev(lambda p: function(unravel(p)))(flat)


def activation(name, r):
    return {"linear": r, "sigmoid": jax.nn.sigmoid(r), "softmax": jax.nn.softmax(r)}[name]


def printed_metric(name, task, parameters, rows, beta=0.7):
    """Equations 9 to 11 as printed, with J_y of the activations y (and beta^-2 for beta^2)."""

    def matrix(p):
        y = activation(name, task.network(p, rows.inputs))
        j = jacobian(lambda p: activation(name, task.network(p, rows.inputs)), p)
        weight = {"linear": jnp.full_like(y, beta**-2), "sigmoid": 1 / (y * (1 - y)), "softmax": 1 / y}[name]
        return jnp.einsum("ro,rop,roq->pq", weight, j, j) / len(y)

    return np.asarray(jax.jit(matrix)(parameters))


def row_gradients(task, parameters, rows):
    """The gradients of every row's log-probability, [row, parameter]."""
    values = lambda p: task.output.log_prob(task.network(p, rows.inputs), rows.targets)  # noqa: E731
    return np.asarray(jax.jit(lambda p: jacobian(values, p))(parameters))


def mlp(sizes=(3, 4, 2), seed=0):
    layers = perceptron.fresh_perceptron(jax.random.key(seed), sizes)
    return jax.tree.map(lambda leaf: leaf + 0.1, layers)


def expected_direction(name, task, parameters, rows, gradient, damping):
    """(damping I + G)^-1 g with the printed metric, by elimination."""
    flat, unravel = ravel_pytree(gradient)
    matrix = printed_metric(name, task, parameters, rows) + damping * np.eye(flat.size)
    return unravel(jnp.asarray(np.linalg.solve(matrix, np.asarray(flat))))


@pytree
class Given:
    """A matrix as an operator on vectors, with a diagonal where one is given."""

    matrix: jax.Array
    diagonal: jax.Array | None = None

    def bind(self):
        return Product(lambda v: self.matrix @ v, None if self.diagonal is None else lambda: self.diagonal)

    @property
    def like(self):
        return self.matrix[0]


@pytree
class Factored:
    """R^T R from its rows R, as an operator on vectors."""

    rows: jax.Array

    def bind(self):
        r = self.rows
        diagonal = lambda: (r * r).sum(axis=0)  # noqa: E731
        mv, push, pull = lambda v: r.T @ (r @ v), lambda v: r @ v, lambda w: r.T @ w
        return Product(mv, diagonal, push, pull, lambda: r @ r.T, len(r), rows=lambda: r)

    @property
    def like(self):
        return self.rows[0]


@partial(jax.jit, static_argnums=0)
def solved(solver, operator, gradient, damping=0.0, guess=None):
    """One solve from nothing."""
    kind = jax.tree.leaves(gradient)[0].dtype
    factor, _ = solver.prepare(operator, jnp.asarray(damping, kind), 0.0)
    return solver.solve(factor, gradient, guess)


def preconditioned(matrix, g, inverse, iterations, start=None):
    """The iterates of conjugate gradients with M^-1 = diag(inverse), by the book."""
    x = np.zeros_like(g) if start is None else start
    r = g - matrix @ x
    z = inverse * r
    p, found = z, []
    for _ in range(iterations):
        length = (r @ z) / (p @ matrix @ p)
        x, after = x + length * p, r - length * matrix @ p
        corrected = inverse * after
        p = corrected + (after @ corrected) / (r @ z) * p
        r, z = after, corrected
        found.append(x)
    return found
