"""Helmholtz machines as scikit-learn estimators: densities, features, samples.

    HelmholtzMachine(layers=(128,), epochs=30).fit(X).transform(X)

Rows are values in [0, 1]. Training is natgrad's own session, in a temporary folder; parameters have natgrad's
names. Features are the posterior means of the hidden units, all layers side by side, importance-sampled
with random numbers that are the same for every row: a row's features do not depend on its neighbors.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from natgrad import config
from natgrad.errors import InputError
from natgrad.layers.bernoulli import probability
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.trained import Trained
from natgrad.training.estimators import FLOATS, RowEstimator, estimator_settings


@dataclass(eq=False, repr=False, kw_only=True)
class HelmholtzMachine(RowEstimator):
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
        binarize: gray values are drawn again at every use in training ("resample"), or rounded ("round").
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
        """The log-likelihood of every row in nats, importance-sampled; gray values are rounded."""
        check_is_fitted(self)
        return self._inferred(self._rows(X).round()).log_likelihood.astype(np.float64)

    @property
    def _n_features_out(self) -> int:
        return sum(self.model_.parameters.sizes[1:])

    def _inferred(self, rows: np.ndarray) -> Any:
        return self.model_.inferred(rows, samples=self.posterior_samples, seed=self._seed)

    def _shown(self, model: Helmholtz) -> Trained:
        return Trained(model)

    def _config(self, seed: int, epochs: int, rows: int) -> config.Config:
        """natgrad's own config of this estimator's parameters."""
        layers = [self.layers] if isinstance(self.layers, int | np.integer) else list(self.layers)
        usual = {
            "method": self.method,
            "layers": layers,
            "samples": self.samples,
            "optimizer": self.optimizer,
            "data.binarize": self.binarize,
            "evaluation.every": max(epochs, 1),
            "evaluation.test_samples": self.samples,
        }
        own = {
            "learning_rate": self.learning_rate,
            "damping": self.damping,
            "seed": seed,
            "epochs": epochs,
            "batch_size": self.batch_size,
        }
        return estimator_settings(rows, usual, self.settings, own)
