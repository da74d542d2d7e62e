"""The scikit-learn estimator of variational autoencoders: features, likelihoods, samples, mistakes."""

import pickle

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from vae_cases import log_marginal

from estimator_checks import expected_failures
from natgrad.errors import InputError
from natgrad.sklearn import VAE

SMALL = {"layers": (3,), "latent": 2, "epochs": 1, "batch_size": 8, "likelihood_samples": 20}
X = np.random.default_rng(0).integers(0, 2, (24, 5)).astype(float)
REAL = np.random.default_rng(1).normal(3, 2, (24, 5))


@pytest.fixture(scope="module", autouse=True)
def usual_promotion():
    """Adam's count is a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def machine(**changes):
    return VAE(**SMALL | {"random_state": 0} | changes)


@pytest.fixture(scope="module")
def fitted():
    return machine(epochs=3).fit(X)


@pytest.fixture(scope="module")
def gaussian():
    return machine(visible="gaussian", scale=True, learning_rate=0.02).fit(REAL)


@pytest.mark.slow
def test_features_are_the_means_of_q_and_come_back(fitted):
    features = fitted.transform(X)
    np.testing.assert_array_equal(features, fitted.model_.encode(X)[0])
    np.testing.assert_array_equal(fitted.inverse_transform(features), fitted.model_.reconstruct(X))
    assert list(fitted.get_feature_names_out()) == ["vae0", "vae1"]
    assert fitted.transform(X.astype(np.float32)).dtype == np.float32


def test_scores_are_log_likelihoods(fitted):
    """By quadrature."""
    fitted.set_params(likelihood_samples=3000)
    np.testing.assert_allclose(fitted.score_samples(X), log_marginal(fitted.model_.parameters, X), atol=0.15)
    np.testing.assert_array_equal(fitted.score_samples(0.2 + 0.6 * X), fitted.score_samples(X))
    assert fitted.score(X) == pytest.approx(fitted.score_samples(X).mean())


@pytest.mark.slow
def test_scores_of_scaled_data_are_densities_of_the_data_as_given(gaussian):
    gaussian.set_params(likelihood_samples=3000)
    scaled, scale = (REAL - REAL.mean(axis=0)) / REAL.std(axis=0), REAL.std(axis=0)
    exact = log_marginal(gaussian.model_.parameters, scaled) - np.log(scale).sum()
    away = np.abs(gaussian.score_samples(REAL) - exact)  # q of one row may be narrow
    assert np.median(away) < 0.05
    assert away.max() < 0.5


def test_a_row_has_its_own_score_and_features(fitted):
    order = np.random.default_rng(0).permutation(24)[:7]
    for ask in (fitted.score_samples, fitted.transform):
        np.testing.assert_allclose(ask(X[order]), ask(X)[order], rtol=1e-12)


def test_samples_of_binary_units_are_binary_and_repeat(fitted):
    drawn = fitted.sample(50, random_state=3)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(drawn, fitted.sample(50, random_state=3))


@pytest.mark.slow
def test_samples_are_in_the_units_of_the_data(gaussian):
    rows = gaussian.sample(2000, random_state=0)
    np.testing.assert_allclose(rows.mean(axis=0), REAL.mean(axis=0), atol=1.5)
    assert (gaussian.inverse_transform(gaussian.transform(REAL)).mean(axis=0) > 1).all()


@pytest.mark.slow
def test_a_pickled_machine_is_the_same_and_learns_further(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(again.model_.parameters))
    again.partial_fit(X)
    assert int(again._state.steps) == 4 * 3
    assert (again.transform(X) != fitted.transform(X)).any()
    again.set_params(latent=3)
    with pytest.raises(InputError, match="the model is of other sizes; call fit, or set the layers back"):
        again.partial_fit(X)


def test_parameters_become_settings():
    found = machine(method="two-step", damping=0.7, layers=np.int64(4), learning_rate=np.float64(0.3))
    chosen = found._config(seed=1, epochs=2, rows=5)
    assert (chosen.model.layers, chosen.model.latent, chosen.training.batch_size) == ((4,), 2, 5)
    assert (chosen.metric.damping, chosen.optimizer.learning_rate) == (0.7, 0.3)
    chosen = machine(visible="gaussian", settings={"model.activation": "relu"})._config(1, 1, 50)
    assert (chosen.data.binarize, chosen.model.activation, chosen.optimizer.name) == ("real", "relu", "adam")


@pytest.mark.parametrize(
    ("changes", "rows", "match"),
    [
        ({}, REAL, r"expected values in \[0, 1\], got .*; use scale=True, or put a MinMaxScaler before"),
        ({"latent": 0}, X, "model.latent: expected a number greater than 0, got 0"),
        ({"method": "twostep"}, X, "unknown method 'twostep'; did you mean 'two-step'"),
        ({"visible": "gauss"}, X, "unknown model.visible 'gauss'; did you mean 'gaussian'"),
        ({"damping": 0.1}, X, "metric.damping is not a setting of the method plain of vae"),
    ],
)
def test_mistakes_are_value_errors_of_one_sentence(changes, rows, match):
    with pytest.raises(ValueError, match=match):
        machine(**changes).fit(rows)


def test_mistakes_after_fitting(fitted):
    with pytest.raises(InputError, match="expected at least one row of 2 latent values"):
        fitted.inverse_transform(np.zeros((2, 4)))
    with pytest.raises(InputError, match="number: expected at least 1, got 0"):
        fitted.sample(0)
    with pytest.raises(InputError, match="samples: expected at least 1, got 0"):
        machine(likelihood_samples=0).fit(X).score_samples(X)


@pytest.mark.slow
def test_in_a_pipeline_with_classes():
    pipeline = make_pipeline(machine(visible="gaussian", scale=True), LogisticRegression())
    assert pipeline.fit(REAL, np.arange(24) % 2).predict(REAL).shape == (24,)


def allowed(estimator):
    """Gaussian data may have any values."""
    return {} if estimator.visible == "gaussian" else expected_failures(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [VAE(**SMALL, scale=True), VAE(**SMALL), VAE(**SMALL, visible="gaussian")],
    expected_failed_checks=allowed,
    xfail_strict=True,
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)
