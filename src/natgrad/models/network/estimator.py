"""Networks trained by natural gradient as scikit-learn estimators: classes or numbers from rows.

    NaturalClassifier(layers=(100,)).fit(X, y).predict(X)

Training is natgrad's own session, in a temporary folder; parameters have natgrad's names. Rows, dense or
sparse, are any numbers: by default every feature is brought to mean zero and variance one.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad import config
from natgrad.models.network import kind
from natgrad.models.network.spec import Shape
from natgrad.models.network.trained import TrainedNetwork
from natgrad.training.estimators import FLOATS, as_dense, estimator_settings, rows_as_data, trained_on


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkEstimator(BaseEstimator):
    """What classifier and regressor share.

    Attributes:
        layers: hidden sizes, from the inputs to the outputs.
        method: natural, hessian-free, krylov, tonga, units, kfac, or plain.
        epochs: passes over the rows.
        batch_size: rows in a batch; all rows, if there are fewer.
        learning_rate: the step size; None for the method's default.
        damping: that of the metric; None for the method's default, and for plain.
        scale: bring every feature to mean zero and variance one.
        settings: any other setting of natgrad by its dotted name, such as {"model.activation": "relu"}.
        random_state: decides initial weights and the order of rows.
        n_features_in_: the number of features seen in fitting.
    """

    layers: tuple[int, ...] = (100,)
    method: str = "natural"
    epochs: int = 20
    batch_size: int = 128
    learning_rate: float | None = None
    damping: float | None = None
    scale: bool = True
    settings: dict[str, Any] | None = None
    random_state: Any = None

    if TYPE_CHECKING:

        def _targets(self, y: np.ndarray) -> np.ndarray:
            """What the network learns, of targets as they are given."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train a new network on rows and their targets."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, y_numeric=self._is_numeric)
        rows, targets = as_dense(X), self._targets(y)
        self._scaler = StandardScaler().fit(rows) if self.scale else None
        found = self._config(len(rows), int(check_random_state(self.random_state).randint(2**31)))
        data = rows_as_data(self._scaled(rows), "real", found.seed, targets)
        self._parameters = trained_on(found, data, None).used
        self._settings, self._shape = found.model_dump(mode="json"), Shape.of(found, data).model_dump()
        return self

    @property
    def model_(self) -> TrainedNetwork:
        """The network, after fitting."""
        check_is_fitted(self, "_parameters")
        settings = config.validate(self._settings)
        return kind.trained(settings, Shape.model_validate(self._shape), self._parameters, {})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_parameters")

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are taken, and made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _is_numeric(self) -> bool:
        """Whether targets are numbers."""
        return isinstance(self, RegressorMixin)

    def _means(self, X: Any) -> np.ndarray:
        """The mean of the target given every row, [row, output]; a row's does not depend on its neighbors."""
        check_is_fitted(self)
        rows = as_dense(validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False))
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self._parameters)
            return replace(self.model_, parameters=wide).means(self._scaled(rows))

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        return rows if self._scaler is None else self._scaler.transform(rows)

    def _config(self, rows: int, seed: int) -> config.RunSettings:
        """natgrad's own config of this estimator's parameters."""
        layers = [self.layers] if isinstance(self.layers, int | np.integer) else list(self.layers)
        usual = {"method": self.method, "layers": layers, "evaluation.every": max(self.epochs, 1)}
        own = {
            "model": "mlp",
            "data.binarize": "real",
            "output": "linear" if self._is_numeric else "softmax",
            "learning_rate": self.learning_rate,
            "damping": self.damping,
            "seed": seed,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
        }
        return estimator_settings(rows, usual, self.settings, own)


class NaturalClassifier(ClassifierMixin, NetworkEstimator):
    """A perceptron for classes, trained by natural gradient. Its parameters are those of `NetworkEstimator`.

    Attributes:
        classes_: the classes, in the order of `predict_proba`.
        model_: after fitting, the `natgrad.models.network.trained.TrainedNetwork`.
    """

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        found = self._means(X).argmax(axis=1)
        return self.classes_[found]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class given every row, [row, class]."""
        found = self._means(X).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)  # to the last digit

    def _targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, found = np.unique(y, return_inverse=True)
        return found.astype(np.int32)


class NaturalRegressor(RegressorMixin, NetworkEstimator):
    """A perceptron for numbers, trained by natural gradient. Its parameters are those of `NetworkEstimator`.

    Attributes:
        model_: after fitting, the `natgrad.models.network.trained.TrainedNetwork`, of targets with mean zero
            and variance one.
    """

    def predict(self, X: Any) -> np.ndarray:
        """The mean of the target given every row."""
        return self._means(X)[:, 0].astype(np.float64) * self._spread + self._center

    def _targets(self, y: np.ndarray) -> np.ndarray:
        self._center, self._spread = float(y.mean()), float(y.std()) or 1.0
        return ((y - self._center) / self._spread).astype(np.float32)
