"""Tiny trainings: what they are told, how they are stopped, and what is compared of them."""

import json
import os
import signal

import jax
import numpy as np

import natgrad
from natgrad.records import state as states

SETTINGS = {
    "method": "rws",
    "layers": (2,),
    "epochs": 5,
    "batch_size": 8,
    "samples": 3,
    "evaluation.every": 2,
    "evaluation.test_samples": 5,
    "training.chunk_steps": 2,
    "training.save_seconds": 0,
    "seed": 5,
}


class After:
    """A watcher that does something after so many chunks."""

    def __init__(self, chunks, action):
        self.left, self.action = chunks, action

    def advanced(self, steps, total, loss):
        self.left -= 1
        if self.left == 0:
            self.action()

    def evaluated(self, row):
        pass


class Killed(BaseException):
    """What stands for a kill: nothing is saved when it comes."""


def die():
    raise Killed


def press(number=signal.SIGINT):
    return lambda: os.kill(os.getpid(), number)


def rows(run):
    return [json.loads(line) for line in (run / "trace.jsonl").read_text().splitlines()]


def timeless(found):
    """Rows of a trace, or those of a run's folder, without what depends on the clock."""
    found = found if isinstance(found, list) else rows(found)
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in found]


def arrays(run, stem=None):
    """The name and the bytes of a state, the newest unless another is named."""
    path = run / "state" / f"{stem or states.manifests(run)[0].stem}.safetensors"
    return path.name, path.read_bytes()


def parameters(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.model.parameters)]


def same(run, other):
    """The same trace, the same bits in every array of the last state, the same model."""
    assert timeless(run) == timeless(other)
    assert arrays(run) == arrays(other)
    for one, two in zip(*(parameters(natgrad.load(each)) for each in (run, other)), strict=True):
        np.testing.assert_array_equal(one, two)
