"""Every combination of what a method can be made of trains, or is refused in one sentence.

Pairs of choices are traced, which finds what does not fit together; every solver of a method takes steps.
"""

import itertools

import numpy as np
import pytest

import natgrad
from hostile.attempts import sentence
from natgrad import config
from natgrad.config.names import all_settings, choices, fields_of
from natgrad.training.resume import dataset
from natgrad.training.session import Session

SECTIONS = ("metric", "objective", "optimizer", "model", "steps", "whitening")
APART = ("model.kind", "model.weights", "optimizer.schedule")  # say nothing of how things fit together
TINY = {"epochs": 1, "batch_size": 8, "evaluation.rows": 8}
SIZES = {"helmholtz": {"layers": (3, 2)}, "rbm": {"hidden": 3}, "vae": {"layers": (3,), "latent": 2}}
READERS = [reader for reader, _ in all_settings()]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Sixty binary images of 4 x 4 pixels with labels."""
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 2, (60, 4, 4)).astype(np.uint8)
    np.savez(path, train=images, train_labels=rng.integers(0, 3, 60))
    return str(path)


def chosen(reader):
    """The settings of a method that have a list of values, each with the values."""
    fields = fields_of(dict(all_settings())[reader]).items()
    found = {name: choices(field.annotation) for name, field in fields if name.split(".")[0] in SECTIONS}
    found |= {
        name: [False, True]
        for name, field in fields
        if field.annotation is bool and name.split(".")[0] in SECTIONS
    }
    return {name: values for name, values in found.items() if len(values) > 1 and name not in APART}


def settings_of(reader, data):
    kind, method = reader
    return {"model": kind, "method": method, "data": data} | TINY | SIZES.get(kind, {})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reader", READERS, ids="-".join)
def test_pairs_of_choices(reader, tiny, tried):
    """Both resolve or are refused; what resolves can be traced, or is refused by what the data are."""
    given, answers = chosen(reader), []
    for (one, first), (other, second) in itertools.combinations(given.items(), 2):
        for pair in itertools.product(first, second):
            settings = settings_of(reader, tiny) | dict(zip((one, other), pair, strict=True))
            answers.append(sentence(lambda settings=settings: traced(settings)))
            tried("pairs of choices")
    assert None in answers or not answers  # not everything is refused


def traced(settings):
    resolved = config.resolve(settings)
    return Session(resolved, dataset(resolved))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reader", READERS, ids="-".join)
def test_every_solver_takes_steps(reader, tiny, tmp_path, tried):
    answers = []
    for number, solver in enumerate(chosen(reader).get("metric.solver", [None])):
        settings = settings_of(reader, tiny) | ({"metric.solver": solver} if solver else {})
        settings["out"] = tmp_path / str(number)
        answers.append(sentence(lambda settings=settings: natgrad.train(**settings)))
        tried("trainings")
    assert None in answers
