"""Every combination of what a method can be made of trains, or is refused in one sentence.

Every pair of values of two settings resolves or is refused. A few whole settings that contain every pair that
resolves are traced, which finds what does not fit together; every solver of a method takes steps.
"""

import functools

import jax
import numpy as np
import pytest

import natgrad
from hostile.attempts import sentence
from hostile.covering import completed, pairs_in, pairs_of
from natgrad import config
from natgrad.config.names import all_settings, choices, fields_of
from natgrad.data import load_settings
from natgrad.training.checks import check_training
from natgrad.training.session import Session

SECTIONS = ("metric", "objective", "optimizer", "model", "steps", "whitening")
APART = ("model.kind", "model.weights", "optimizer.schedule")  # say nothing of how things fit together
TINY = {"epochs": 1, "batch_size": 8, "evaluation.rows": 8, "evaluation.every": 2}
SIZES = {
    "helmholtz": {"layers": (3, 2)},
    "mlp": {"layers": (3,)},
    "convnet": {"layers": (3,), "filters": (2,), "model.filter_width": 2},
    "autoencoder": {"layers": (3,)},
    "rbm": {"hidden": 3},
    "vae": {"layers": (3,), "latent": 2, "samples": 2},
}
FITTING = {  # what a value asks of the data
    ("model.visible", "gaussian"): {"data.binarize": "real"},
    ("metric.data", "unlabeled"): {"labeled": 24},
    ("metric.data", "both"): {"labeled": 24},
}
TARGETS = {
    "sigmoid": "shares",
    "linear": "shares",
}  # what a network with such an output learns, if not classes


@pytest.fixture(autouse=True)
def usual_promotion():
    """As users train: optax adds whole numbers to others."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Sixty binary images of 4 x 4 pixels with classes, and with targets in [0, 1]."""
    place, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    images = rng.integers(0, 2, (60, 4, 4)).astype(np.uint8)
    np.savez(place / "classes.npz", train=images, train_labels=rng.integers(0, 3, 60))
    np.savez(place / "shares.npz", train=images, train_labels=rng.random(60))
    return place


def chosen(reader):
    """The settings of a method that have a list of values, each with the values."""
    fields = fields_of(dict(all_settings())[reader]).items()
    fields = {name: field.annotation for name, field in fields if name.split(".")[0] in SECTIONS}
    found = {name: [False, True] if kind is bool else choices(kind) for name, kind in fields.items()}
    return {name: values for name, values in found.items() if len(values) > 1 and name not in APART}


def settings_of(reader, place, combination):
    """Whole settings that have these values, with data that they fit."""
    kind, method = reader
    data = place / f"{TARGETS.get(combination.get('model.output'), 'classes')}.npz"
    fitting = [FITTING.get(item, {}) for item in combination.items()]
    found = {"model": kind, "method": method, "data": str(data)} | TINY | SIZES[kind] | combination
    return functools.reduce(dict.__or__, fitting, found)


def checked(settings):
    """A config and its data, where they fit together; nothing is traced."""
    resolved = config.resolve(settings)
    found = load_settings(resolved.data)
    check_training(resolved, found)
    return resolved, found


READERS = sorted(
    (reader for reader, _ in all_settings()), key=lambda reader: len(list(pairs_of(chosen(reader))))
)
every_method = pytest.mark.parametrize("reader", READERS, ids="-".join)


@pytest.mark.few(1)
@pytest.mark.timeout(600)
@every_method
def test_pairs_of_choices(reader, tiny, tried):
    """Both resolve or are refused; what resolves is traced, in one combination at least."""
    given, whole = chosen(reader), functools.partial(settings_of, reader, tiny)
    pairs, fits = list(pairs_of(given)), lambda found: sentence(lambda: checked(whole(found))) is None
    resolving = [
        pair for pair in pairs if sentence(lambda pair=pair: config.resolve(whole(dict(pair)))) is None
    ]
    left = {pair for pair in resolving if fits(dict(pair))}
    assert len(left) == len(resolving) > len(pairs) / 2  # these data refuse nothing
    tried("pairs of settings", len(pairs))
    for pair in resolving:
        if pair in left:
            left -= pairs_in(traced(whole, completed(pair, given, left, fits), pair))
            tried("combinations traced")


def traced(whole, combination, pair):
    """A combination that was traced: the pair alone, where the whole combination is refused."""
    refused = sentence(lambda: Session(*checked(whole(combination))))
    found = combination if refused is None else dict(pair)
    Session(*checked(whole(found)))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@every_method
def test_every_solver_takes_steps(reader, tiny, tmp_path, tried):
    answers = {}
    for solver in chosen(reader).get("metric.solver", [None]):
        settings = settings_of(reader, tiny, {"metric.solver": solver} if solver else {})
        settings["out"] = tmp_path / str(solver)
        answers[solver] = sentence(lambda settings=settings: natgrad.train(**settings))
        tried("trainings")
    assert set(answers.values()) == {None}
