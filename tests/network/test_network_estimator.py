"""Networks as scikit-learn estimators: they learn, take what scikit-learn gives, and pass its checks."""

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, make_regression
from sklearn.utils.estimator_checks import check_estimator

from natgrad.sklearn import NaturalClassifier, NaturalRegressor


@pytest.fixture(scope="module", autouse=True)
def promotion():
    """optax's schedules want JAX's own rules of promotion."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.mark.slow
def test_a_classifier_learns_words_from_sparse_rows():
    found = load_digits(n_class=3)
    X, y = found.data[::2], np.array(["zero", "one", "two"])[found.target[::2]]
    machine = NaturalClassifier(layers=(8,), epochs=5, batch_size=64, random_state=0)
    machine.fit(scipy.sparse.csr_array(X), y)
    assert machine.score(X, y) > 0.97
    assert machine.classes_.tolist() == ["one", "two", "zero"]
    chances = machine.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    again = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(again.predict_proba(scipy.sparse.csc_array(X)), chances)
    assert repr(machine.model_).startswith("TrainedNetwork with")


@pytest.mark.slow
def test_a_regressor_learns_numbers_of_any_size():
    X, y = make_regression(300, 5, random_state=0)
    machine = NaturalRegressor(layers=(16,), epochs=20, random_state=0).fit(X, 1e6 + y)
    assert machine.score(X, 1e6 + y) > 0.97


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("estimator", [NaturalClassifier(layers=(8,)), NaturalRegressor(layers=(8,))])
def test_scikit_learns_own_checks(estimator):
    check_estimator(estimator, on_skip=None)
