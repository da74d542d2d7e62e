"""Copies of the model at steps 1, 2, 4, 8, ...: which, of what, and that they change nothing."""

import jax
import numpy as np
import pytest

import natgrad
from natgrad.errors import InputError
from natgrad.records.checkpoints import copied_steps, keep_copy
from trainings import SETTINGS, After, Killed, die, same

CHOSEN = SETTINGS | {"batch_size": 10, "epochs": 2, "training.chunk_steps": 3}  # four steps make an epoch


@pytest.fixture(scope="module")
def copied(place, data):
    return natgrad.train(data=data, out=place / "copied", **CHOSEN, **{"evaluation.log_checkpoints": True})


def parameters(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.model.parameters)]


def test_copies_are_the_models_of_their_steps(copied, place, data):
    """An epoch is four steps: the copy of step 4 is the model of a training of one epoch, to the bit."""
    assert copied_steps(copied.folder) == [1, 2, 4, 8]
    shorter = natgrad.train(data=data, out=place / "shorter", **CHOSEN | {"epochs": 1})
    for step, run in ((4, shorter), (8, copied)):
        for one, other in zip(
            parameters(natgrad.load(copied.folder, step=step)), parameters(run), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_keeping_copies_changes_nothing(copied, place, data, tmp_path):
    """Not even where the training was killed on the way."""
    plain = natgrad.train(data=data, out=place / "plain", **CHOSEN)
    same(copied.folder, plain.folder)
    assert copied_steps(plain.folder) == []
    options = CHOSEN | {"evaluation.log_checkpoints": True}
    with pytest.raises(Killed):
        natgrad.train(data=data, out=tmp_path / "killed", watch=After(4, die), **options)
    again = natgrad.resume(tmp_path / "killed")
    same(again.folder, copied.folder)
    for path in sorted((copied.folder / "models").iterdir()):
        assert (again.folder / "models" / path.name).read_bytes() == path.read_bytes()


def test_a_step_without_a_copy_is_said(copied, place, tmp_path):
    with pytest.raises(InputError, match="it has kept those of steps 1, 2, 4, 8; choose one of these"):
        natgrad.load(copied.folder, step=3)
    with pytest.raises(InputError, match=r"a model of step 1 in .*, it has kept none; .*log-checkpoints"):
        natgrad.load(place / "plain", step=1)


def test_a_copy_that_is_damaged_is_said(copied):
    path = copied.folder / "models/0000000002.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    try:
        with pytest.raises(InputError, match=r"0000000002\.safetensors is damaged"):
            natgrad.load(copied.folder, step=2)
    finally:
        path.write_bytes(whole)


def test_copies_are_not_written_through_a_link(copied, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="models is a link to another place"):
        keep_copy(tmp_path / "run", 4, copied.model.parameters)
    assert list((tmp_path / "elsewhere").iterdir()) == []
