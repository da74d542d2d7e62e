"""Defaults that depend on the model, the method and the optimiser; and which settings belong to which.

Nothing here knows how anything is computed. `complete` fills in what a tree of settings leaves open;
`check` refuses, in one sentence, a setting that would be read by nobody.
"""

from collections.abc import Mapping
from typing import Any

from natgrad.errors import InputError, unknown

MACHINE = "helmholtz"
MACHINE_METHODS = ("ws", "rws", "bihm", "nws", "nrws", "dnrws", "nbihm")
NETWORK_METHODS = ("natural", "hessian-free", "krylov", "tonga", "units", "plain")

PLAIN = ("ws", "rws", "bihm")
PLAIN_RATE = 0.1
OPTIMIZER_RATES = {"momentum": 0.01, "nesterov": 0.01, "adam": 1e-3, "nadam": 1e-3, "rmsprop": 1e-3}

NETWORK = {
    "method": "natural",
    "data.binarize": "grey",
    "model.activation": "tanh",
    "metric.data": "same",
    "metric.rows": 0,
    "training.epochs": 20,
    "training.batch_size": 128,
    "evaluation.every": 1,
    "evaluation.rows": 0,
}
"""What all networks have in common: values as they are, an epoch between evaluations, all held-out rows."""

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"model.layers": [200], "model.output": "softmax"},
    "convnet": {
        "model.layers": [100],
        "model.output": "softmax",
        "model.filters": [8, 16],
        "model.filter_width": 5,
    },
    "autoencoder": {"model.layers": [200, 30], "model.output": "sigmoid"},
}

METHODS: dict[str, dict[str, Any]] = {
    "natural": {"optimizer.learning_rate": 1.0, "metric.damping": 0.1, "metric.iterations": 10},
    "hessian-free": {
        "optimizer.learning_rate": 1.0,
        "metric.damping": 1.0,
        "metric.iterations": 50,
        "metric.momentum": 0.95,
    },
    "krylov": {"optimizer.learning_rate": 1.0, "metric.iterations": 10},
    "tonga": {"optimizer.learning_rate": 0.1, "metric.damping": 0.1, "metric.iterations": 10},
    "units": {"optimizer.learning_rate": 0.1, "metric.damping": 0.1, "metric.iterations": 5},
    "plain": {"optimizer.learning_rate": 0.1},
}

OF_MACHINES = (
    *("model.coding", "model.weights", "model.bias", "model.prior_bias"),
    *(f"objective.{name}" for name in ("samples", "baseline", "wake_share", "sleep_share", "sleep_rate")),
    *("objective.sleeps", "objective.growth", "metric.generation", "metric.recognition"),
    *("metric.final_damping", "metric.refresh", "metric.average", "evaluation.test_samples"),
)
OF_NETWORKS = (
    *("model.activation", "model.output", "model.beta", "model.filters", "model.filter_width"),
    *("data.labelled", "metric.data", "metric.drawn", "metric.chunk"),
)

TRUNCATED = ("natural", "tonga")
READ_BY = {
    "metric.adaptive": TRUNCATED,
    "metric.relative": TRUNCATED,
    "metric.kl_radius": TRUNCATED,
    "metric.chunk": TRUNCATED,
    "metric.momentum": (*TRUNCATED, "hessian-free"),
    "metric.drawn": ("natural", "units"),
}
"""The methods of networks that read a setting, where not all do."""

SOLVERS = {
    "natural": ("auto", "cg", "minres", "direct", "dual"),
    "tonga": ("auto", "cg", "minres", "direct", "dual"),
    "units": ("auto", "cg", "diagonal"),
}


def complete(tree: dict[str, Any]) -> None:
    """Fill in the defaults of the model, the method and the optimiser; an unknown method is told here."""
    if (kind := _named(tree, "model", "kind")) in MODELS:
        _fill(tree, NETWORK | MODELS[kind])
    own = NETWORK_METHODS if kind in MODELS else MACHINE_METHODS
    if str(tree.get("method", own[0])) not in (*NETWORK_METHODS, *MACHINE_METHODS):
        raise unknown("method", str(tree["method"]), own)
    if (name := _named(tree, "optimizer", "name")) in OPTIMIZER_RATES:
        _fill(tree, {"optimizer.learning_rate": OPTIMIZER_RATES[name]})
    method = str(tree.get("method"))
    if method in PLAIN:
        _fill(tree, {"optimizer.learning_rate": PLAIN_RATE})
    if kind in MODELS:
        _fill(tree, METHODS.get(method, {}))


def check(settings: Any, usual: Any) -> None:
    """Refuse settings that the model, or its method, does not have; `usual` is a config of defaults."""
    kind, method = settings.model.kind, settings.method
    network = kind != MACHINE
    own, others = (NETWORK_METHODS, OF_MACHINES) if network else (MACHINE_METHODS, OF_NETWORKS)
    if method not in own:
        raise InputError(
            f"the method {method} does not train a model of kind {kind}; its methods are {', '.join(own)}"
        )
    for name in others:
        if _get(settings, name) != _get(usual, name):
            raise InputError(f"{name} is no setting of a model of kind {kind}; leave it out")
    if network:
        _check_network(settings, usual)
        return
    for name, of_networks in (("metric.solver", ("minres",)), ("data.binarize", ("grey", "real"))):
        if (value := _get(settings, name)) in of_networks:
            raise InputError(
                f"{name} {value} is for networks; leave it out, or choose a network with --model"
            )


def _check_network(settings: Any, usual: Any) -> None:
    kind, method, metric = settings.model.kind, settings.method, settings.metric
    for name, methods in READ_BY.items():
        if method not in methods and _get(settings, name) != _get(usual, name):
            raise InputError(f"{name} is for the methods {', '.join(methods)}, got {method}; leave it out")
    if metric.solver not in SOLVERS.get(method, ("auto",)):
        raise unknown(f"solver of the method {method}", metric.solver, SOLVERS.get(method, ("auto",)))
    if kind != "convnet" and (settings.model.filters or settings.model.filter_width):
        raise InputError(f"filters belong to --model convnet, got a model of kind {kind}; leave them out")
    if method == "units" and kind == "convnet":
        raise InputError("the method units needs a perceptron, got a convnet; use --method natural")
    if kind == "autoencoder" and settings.model.output == "softmax":
        raise InputError(
            "an autoencoder's targets are its inputs, got the output softmax; use sigmoid or linear"
        )
    _check_metric_data(method, metric.data)
    _check_optimizer(method, metric, settings.optimizer)


def _check_metric_data(method: str, data: str) -> None:
    if method == "plain" and data != "same":
        raise InputError(f"the method plain has no metric, got metric data {data}; leave --metric-data out")
    if data in ("unlabeled", "both") and method not in ("natural", "units"):
        raise InputError(
            f"the metric of the method {method} needs labels, got metric data {data}; "
            "use --method natural or units"
        )


def _check_optimizer(method: str, metric: Any, optimizer: Any) -> None:
    """Methods that judge or search their own length must be the ones to take the step."""
    own = method in ("hessian-free", "krylov")
    if (own or metric.adaptive or metric.kl_radius) and optimizer.name != "sgd":
        what = f"the method {method}" if own else "a metric with adaptive damping or a KL radius"
        raise InputError(f"{what} decides its own steps, got the optimizer {optimizer.name}; use sgd")
    if method == "hessian-free" and optimizer.schedule != "constant":
        raise InputError(
            f"the method hessian-free searches its rate, got the schedule {optimizer.schedule}; use constant"
        )


def _fill(tree: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put values where the tree has none; what is no section is left for the validation to refuse."""
    for name, value in values.items():
        *sections, last = name.split(".")
        place: Any = tree
        for section in sections:
            place = place.setdefault(section, {})
        if isinstance(place, dict):
            place.setdefault(last, value)


def _named(tree: Mapping[str, Any], section: str, name: str) -> str:
    found = tree.get(section)
    return str(found.get(name)) if isinstance(found, dict) else ""


def _get(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings
