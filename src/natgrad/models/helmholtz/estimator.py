"""Helmholtz machines as scikit-learn estimators: densities, features, samples.

    HelmholtzMachine(layers=(128,), epochs=30).fit(X).transform(X)

Rows are values in [0, 1]. Training is natgrad's own session, in a temporary folder; parameters have natgrad's
names. Features are the posterior means of the hidden units, all layers side by side, importance-sampled
with random numbers that are the same for every row: a row's features do not depend on its neighbors.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad import config
from natgrad.core import State
from natgrad.data.coding import GREY, to_bytes
from natgrad.data.dataset import Dataset, assemble
from natgrad.data.splits import Parts
from natgrad.errors import InputError
from natgrad.layers.bernoulli import probability
from natgrad.models.helmholtz.trained import Trained
from natgrad.training.session import Session

_WATCHED = 16  # training rows on which a session evaluates: always as many, so that one compilation serves

FLOATS = (np.float64, np.float32)


@dataclass(eq=False, repr=False, kw_only=True)
class HelmholtzMachine(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """A Helmholtz machine that is fitted to rows in [0, 1].

    Attributes:
        method: ws, rws, bihm, or natural: nws, nrws, dnrws, nbihm.
        layers: hidden sizes, from the data upward.
        epochs: passes over the rows in `fit`; `partial_fit` makes one.
        samples: samples per row in training, S.
        batch_size: rows in a batch; all rows, if there are fewer.
        learning_rate: the step size; None for the method's default.
        damping: the natural methods' damping; None for the method's default, and for methods without one.
        optimizer: what is done with the direction: sgd, momentum, nesterov, adam, nadam, rmsprop.
        binarize: grey values are drawn again at every use in training ("resample"), or rounded ("round").
        posterior_samples: samples of the hidden units in `transform` and `score_samples`.
        scale: bring every feature to [0, 1] by its range in `fit`, clipping what lies beyond it later;
            otherwise values outside [0, 1] are an error.
        settings: any other setting of natgrad by its dotted name, such as {"optimizer.schedule": "cosine"}.
        random_state: decides initial weights, the order of rows and every sample.
        model_: after fitting, the `natgrad.models.helmholtz.trained.Trained` model.
        n_features_in_: the number of features seen in fitting.

    Example:
        pipeline = make_pipeline(HelmholtzMachine(layers=(128,)), LogisticRegression())
    """

    method: str = "nrws"
    layers: tuple[int, ...] = (200, 100, 10)
    epochs: int = 100
    samples: int = 10
    batch_size: int = 32
    learning_rate: float | None = None
    damping: float | None = None
    optimizer: str = "sgd"
    binarize: str = "resample"
    posterior_samples: int = 100
    scale: bool = False
    settings: dict[str, Any] | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> "HelmholtzMachine":
        """Train a new model on rows."""
        del y
        rows = self._begin(X)
        self._go(rows, self.epochs, None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "HelmholtzMachine":
        """Train the model further, or begin one: one pass over these rows."""
        del y
        if not hasattr(self, "model_"):
            rows = self._begin(X)
            self._go(rows, 1, None)
        else:
            self._go(self._rows(X), 1, self._state)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The posterior means of all hidden units, [row, unit], the lowest layer first."""
        check_is_fitted(self)
        rows = self._rows(X)
        return np.concatenate(self._inferred(rows).hidden, axis=1).astype(rows.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Means of the visible units given features: generation from the lowest layer's means."""
        check_is_fitted(self)
        X = check_array(X, dtype=FLOATS)
        if X.shape[1] != self._n_features_out:
            raise InputError(
                f"X has {X.shape[1]} features, but {self._n_features_out} hidden units are expected"
            )
        model = self.model_.parameters
        layer, width = model.generation[0], model.generation[0].weight.shape[1]
        means = probability(model.coding.value(X[:, :width], X.dtype) @ layer.weight.T + layer.bias)
        return self._unscaled(np.asarray(means, X.dtype))

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-likelihood of every row in nats, importance-sampled; grey values are rounded."""
        check_is_fitted(self)
        return self._inferred(self._rows(X).round()).log_likelihood.astype(np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of rows in nats."""
        del y
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Rows drawn from the model, [n_samples, feature]."""
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(2**31))
        return self._unscaled(self.model_.sample(n_samples, seed=seed).astype(np.float64))

    @property
    def _n_features_out(self) -> int:
        return sum(self.model_.parameters.sizes[1:])

    def __sklearn_tags__(self) -> Any:
        """Both precisions are kept by `transform`."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _begin(self, X: Any) -> np.ndarray:
        """Forget everything, and take over what the rows and the parameters say."""
        X = validate_data(self, X, dtype=FLOATS)
        self._scaler = MinMaxScaler(clip=True).fit(X) if self.scale else None
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        self._calls = 0
        return self._unit(X)

    def _rows(self, X: Any) -> np.ndarray:
        return self._unit(validate_data(self, X, dtype=FLOATS, reset=False))

    def _unit(self, X: np.ndarray) -> np.ndarray:
        """Rows in [0, 1], scaled if that is asked for."""
        if self._scaler is not None:
            return self._scaler.transform(X)
        if X.min() < 0 or X.max() > 1:
            raise InputError(
                f"expected values in [0, 1], got {X.min():.6g} to {X.max():.6g}; "
                "use scale=True, or put a MinMaxScaler before the machine"
            )
        return X

    def _unscaled(self, rows: np.ndarray) -> np.ndarray:
        return rows if self._scaler is None else self._scaler.inverse_transform(rows)

    def _inferred(self, rows: np.ndarray) -> Any:
        return self.model_.inferred(rows, samples=self.posterior_samples, seed=self._seed)

    def _go(self, rows: np.ndarray, epochs: int, carried: State | None) -> None:
        """Train on rows, from the carried state or from a new one."""
        seed = int(np.random.SeedSequence([self._seed, self._calls]).generate_state(1)[0])
        settings = self._config(seed, epochs, len(rows))
        session = Session.begin(settings, _dataset(rows, settings, seed))
        if carried is not None:
            session.state = _continued(carried, session.state)
        with TemporaryDirectory() as place:
            session.go(Path(place), None)
        self._state = jax.tree.map(np.asarray, session.state)
        self.model_ = Trained(jax.tree.map(np.asarray, session.state.used))
        self._calls += 1

    def _config(self, seed: int, epochs: int, rows: int) -> config.Config:
        """natgrad's own config of this estimator's parameters."""
        layers = [self.layers] if isinstance(self.layers, int | np.integer) else list(self.layers)
        named = {
            "method": self.method,
            "layers": layers,
            "samples": self.samples,
            "optimizer": self.optimizer,
            "data.binarize": self.binarize,
            "evaluation.every": max(epochs, 1),
            "evaluation.test_samples": self.samples,
        } | (self.settings or {})
        optional = {"learning_rate": self.learning_rate, "damping": self.damping}
        named |= {name: value for name, value in optional.items() if value is not None}
        own = {"seed": seed, "epochs": epochs, "batch_size": self.batch_size}
        found = config.resolve({name: _plain(value) for name, value in (named | own).items()})
        size = min(found.training.batch_size, rows)
        return found.model_copy(update={"training": found.training.model_copy(update={"batch_size": size})})


def _dataset(rows: np.ndarray, settings: config.Config, seed: int) -> Dataset:
    """Rows in [0, 1] as a session takes them: bytes, {0,1} or 256 levels. A few are evaluated on as well."""
    binary = bool(((rows == 0) | (rows == 1)).all())
    coded = rows.astype(np.uint8) if binary else to_bytes(rows)
    watched = coded[np.random.default_rng(seed).integers(len(coded), size=_WATCHED)]
    parts = Parts({"train": coded, "valid": watched, "test": watched}, None, {"kind": "none"})
    levels = 1 if binary else GREY
    return assemble(
        "X", parts, levels=levels, binarize=settings.data.binarize, image_shape=None, distribution=None
    )


def _continued(carried: State, fresh: State) -> State:
    """The carried state; what depends on the batch's size, where that has changed, begins again."""
    if _shapes(carried.model) != _shapes(fresh.model):
        raise InputError("layers: the model is of other sizes; call fit, or set the layers back")
    pairs = zip(carried, fresh, strict=True)
    return State(*(old if _shapes(old) == _shapes(new) else new for old, new in pairs))


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _plain(value: Any) -> Any:
    """A number of NumPy, as a grid may give it, as one of Python."""
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value
