"""Slow and obvious: loops over every state, in NumPy float64, from the papers' definitions."""

import itertools

import numpy as np


def numpy_model(model):
    """A Helmholtz machine as plain arrays."""
    pair = lambda layer: (np.asarray(layer.weight, float), np.asarray(layer.bias, float))  # noqa: E731
    return {
        "prior": np.asarray(model.prior, float),
        "generation": [pair(layer) for layer in model.generation],
        "recognition": [pair(layer) for layer in model.recognition],
        "low": model.coding.low,
        "sizes": model.sizes,
    }


def all_states(units):
    """Every {0,1} vector of that length."""
    return [np.array(bits, float) for bits in itertools.product((0, 1), repeat=units)]


def hidden_states(m):
    """Every joint hidden state, a list of {0,1} vectors per layer."""
    return list(itertools.product(*(all_states(size) for size in m["sizes"][1:])))


def code(m, on):
    return m["low"] + (1 - m["low"]) * on


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def log_bernoulli(logit, on):
    p = sigmoid(logit)
    return float(np.sum(on * np.log(p) + (1 - on) * np.log(1 - p)))


def log_joint(m, layers):
    """log p(x, h), layers from the visible one upward, as {0,1}."""
    total = log_bernoulli(m["prior"], layers[-1])
    for (weight, bias), lower, upper in zip(m["generation"], layers[:-1], layers[1:], strict=True):
        total += log_bernoulli(weight @ code(m, upper) + bias, lower)
    return total


def log_recognition(m, layers):
    """log q(h | x)."""
    total = 0.0
    for (weight, bias), lower, upper in zip(m["recognition"], layers[:-1], layers[1:], strict=True):
        total += log_bernoulli(weight @ code(m, lower) + bias, upper)
    return total


def log_likelihood(m, x):
    """log p(x) as a sum over all hidden states."""
    return np.logaddexp.reduce([log_joint(m, [x, *h]) for h in hidden_states(m)])


def generation_score(m, layers):
    """The gradient of log p(x, h): prior, then (weight, bias) per layer."""
    prior = layers[-1] - sigmoid(m["prior"])
    parts = []
    for (weight, bias), lower, upper in zip(m["generation"], layers[:-1], layers[1:], strict=True):
        residual = lower - sigmoid(weight @ code(m, upper) + bias)
        parts.append((np.outer(residual, code(m, upper)), residual))
    return prior, parts


def recognition_score(m, layers):
    """The gradient of log q(h | x): (weight, bias) per layer."""
    parts = []
    for (weight, bias), lower, upper in zip(m["recognition"], layers[:-1], layers[1:], strict=True):
        residual = upper - sigmoid(weight @ code(m, lower) + bias)
        parts.append((np.outer(residual, code(m, lower)), residual))
    return parts


def flatten(prior, generation, recognition):
    """All parts of a gradient as one vector, in the order of the model's leaves."""
    pieces = [prior] if prior is not None else []
    for weight, bias in [*generation, *recognition]:
        pieces += [weight.ravel(), bias]
    return np.concatenate(pieces) if pieces else np.zeros(0)
