"""Tiny machines of every kind, and slow and obvious sums over all their states, in NumPy."""

import itertools

import jax.numpy as jnp
import numpy as np

from natgrad.layers.bernoulli import BINARY, SIGNED, Layer
from natgrad.models.rbm.machine import Boltzmann
from natgrad.models.rbm.units import BernoulliUnits, GaussianUnits

CODINGS = {"binary": BINARY, "signed": SIGNED}


def made(coding="binary", sizes=(4, 3), seed=0, scale=0.7, gaussian=False):
    """A machine with weights and biases that matter."""
    visible, hidden = sizes
    rng, units = np.random.default_rng(seed), BernoulliUnits(CODINGS[coding])
    draw = lambda *shape: jnp.asarray(rng.normal(scale=scale, size=shape))  # noqa: E731
    layer, below = Layer(draw(hidden, visible), draw(hidden)), draw(visible)
    return Boltzmann(layer, below, GaussianUnits() if gaussian else units, units)


def all_states(units, coding):
    """Every state, [unit, state]."""
    low = CODINGS[coding].low
    return np.array(list(itertools.product((low, 1.0), repeat=units))).T


class Enumerated:
    """Every pair of states of a Bernoulli machine, its probability and its statistics, one loop each."""

    def __init__(self, model, coding):
        w, a, b = (np.asarray(x) for x in (model.weight, model.visible_bias, model.hidden_bias))
        below, above = all_states(len(a), coding).T, all_states(len(b), coding).T
        self.pairs = [(v, h) for v in below for h in above]
        energies = np.array([a @ v + b @ h + h @ w @ v for v, h in self.pairs])
        self.log_z = np.logaddexp.reduce(energies)
        self.p = np.exp(energies - self.log_z)
        self.v, self.h = (np.array([pair[i] for pair in self.pairs]).T for i in (0, 1))
        self.below = below

    def features(self, offsets=None):
        """(vec(h v^T), h, v) of every pair, in the order of the machine's leaves, [statistic, pair]."""
        below, above = (0, 0) if offsets is None else (np.asarray(x)[:, None] for x in offsets)
        v, h = self.v - below, self.h - above
        outer = (h[:, None] * v[None]).reshape(-1, v.shape[1])
        return np.concatenate([outer, h, v])

    def mean(self):
        return self.features() @ self.p

    def fisher(self, offsets=None):
        t = self.features(offsets)
        return (t * self.p) @ t.T - np.outer(t @ self.p, t @ self.p)

    def log_visible(self):
        """log p(v) of every visible state, in the order of `below`."""
        return np.log(self.p.reshape(len(self.below), -1).sum(axis=1))

    def marginal_fisher(self):
        t, p = self.features(), self.p
        shape = (len(t), len(self.below), -1)
        weights = p.reshape(shape[1:])
        visible = weights.sum(axis=1)
        given = (t.reshape(shape) * weights).sum(axis=2) / visible
        return (given * visible) @ given.T - np.outer(given @ visible, given @ visible)
