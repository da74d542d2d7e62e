"""What of a network is a layer and what is not, in words."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from natgrad.core import Model
from natgrad.metrics.tracing import TracedNetwork, traced_network


def layer_report(network: Callable[[Model, Any], Array], parameters: Model, inputs: Any) -> list[str]:
    """What is a layer of a network, and which leaves are not, in a line for each."""
    found = traced_network(network, parameters, inputs)
    paths, lines = _paths(parameters), []
    for layer in found.layers:
        kind = "dense" if layer.window is None else "convolution"
        leaves = [paths[leaf] for leaf in (layer.weight, layer.bias) if leaf is not None]
        lines.append(f"{' and '.join(leaves)}: {kind}, {layer.side} x {layer.shape[1]}")
    return lines + other_lines(found, parameters)


def other_lines(found: TracedNetwork, parameters: Model) -> list[str]:
    """The leaves that are not, and why."""
    paths = _paths(parameters)
    return [f"{paths[leaf]}: diagonal, since {why}" for leaf, why in found.others.items()]


def _paths(parameters: Model) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(parameters)[0]]
