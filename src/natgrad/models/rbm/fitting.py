"""Training on rows in memory, dense or sparse: no folder, nothing measured, portions of bounded size.

A pass takes every row once, in an order that is a pure function of (seed, step); a last batch that is not
full begins the order again. Rows are made dense a portion at a time. Programs are kept: another call with
the same settings and shapes compiles nothing.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, PRNGKeyArray

from natgrad import tree
from natgrad.core import Pace, State
from natgrad.data import batches
from natgrad.errors import InputError
from natgrad.layers import generator
from natgrad.models.rbm import kind, methods
from natgrad.models.rbm.machine import bias_of
from natgrad.models.rbm.spec import SPEC, Shape
from natgrad.training.chunk import Totals, chunk, totals_of
from natgrad.training.compile import compiled, program_key

_PORTION = 2**22  # values of rows that are dense at a time


class HeldRows(NamedTuple):
    """What is on the device at a time: so many batches of rows so wide, binary or means to draw from."""

    batches: int
    size: int
    visible: int
    binary: bool

    def of(self, rows: Any) -> batches.StoredRows:
        """Some rows, and rows of zeros that fill it."""
        found = np.zeros((self.batches * self.size, self.visible), np.uint8 if self.binary else np.float32)
        found[: rows.shape[0]] = rows.toarray() if scipy.sparse.issparse(rows) else rows
        return batches.on_device(found, 1, not self.binary)


class Program(NamedTuple):
    """How a training begins (`initial`: key, visible biases), and what advances it by a portion."""

    initial: Callable[[PRNGKeyArray, Array], State]
    advance: Callable[[], Callable[..., tuple[State, Totals]]]  # compiled when it is first asked for
    nothing: Totals


class Fitting:
    """Steps of a config on rows: values in [0, 1], drawn at every use unless all are 0 or 1."""

    def __init__(self, settings: Any, rows: Any) -> None:
        self.settings, self.rows, size = settings, rows, settings.training.batch_size
        number, visible = rows.shape
        self.batches = -(-number // size)
        stored = rows.data if scipy.sparse.issparse(rows) else rows
        binary = bool(((stored == 0) | (stored == 1)).all())
        held = min(self.batches, max(1, _PORTION // (size * visible)))
        self.portion = HeldRows(held, size, visible, binary)
        total = self.batches * max(settings.training.epochs, 1)
        steps = total if SPEC.is_scheduled(settings) else 1
        shared = settings.model_copy(
            update={"seed": 0, "training": settings.training.model_copy(update={"epochs": 1})}
        )
        self.program = _program(shared, steps, self.portion, str(jnp.zeros(()).dtype))
        self.key_begin, self.key_steps = jax.random.split(generator.key(settings.seed))

    def begin(self, means: np.ndarray) -> State:
        """The state of a new machine; independent units of its biases have these means, by default."""
        bias = np.zeros_like(means)
        if self.settings.model.bias == "data":
            bias = bias_of(kind.units_of(self.settings), means, self.rows.shape[0])
        return self.program.initial(self.key_begin, jnp.asarray(bias, jnp.zeros(()).dtype))

    def continued(self, carried: State, means: np.ndarray) -> State:
        """A carried state; what depends on the batch's size, where that has changed, begins again."""
        fresh = jax.eval_shape(lambda: self.begin(means))
        if _shapes(carried.model) != _shapes(fresh.model):
            raise InputError(
                f"n_components: expected the {carried.model.hidden_bias.size} hidden units of the machine, "
                f"got {fresh.model.hidden_bias.size}; call fit, or set it back"
            )
        if _shapes(carried) == _shapes(fresh):
            return carried
        pairs = zip(carried, self.begin(means), strict=True)
        return State(*(old if _shapes(old) == _shapes(new) else new for old, new in pairs))

    def one_pass(self, state: State) -> tuple[State, int]:
        """The state after every row was used once, and how many steps were refused as not finite."""
        order = np.random.default_rng([self.settings.seed, int(state.steps)]).permutation(self.rows.shape[0])
        order = np.resize(order, self.batches * self.portion.size)
        together, refused = self.portion.batches * self.portion.size, 0
        advance, nothing, places = self.program.advance(), self.program.nothing, jnp.arange(together)
        for start in range(0, len(order), together):
            chosen = order[start : start + together]
            rows, number = self.portion.of(self.rows[chosen]), len(chosen) // self.portion.size
            state, totals = advance(self.key_steps, state, nothing, rows, places, 0, number)
            refused += int(totals.failed)
        return state, refused


@functools.lru_cache(maxsize=16)
def _program(settings: Any, steps: int, portion: HeldRows, precision: str) -> Program:
    """What a training depends on beside its seed and its rows, compiled."""
    del precision  # of numbers: another one is another program
    pace = Pace(steps)
    algorithm, draw = methods.algorithm(settings, None, pace), kind.coded_batches(settings)
    shape = Shape(visible=portion.visible, means=(0.5,) * portion.visible, rows=1)

    def initial(key: PRNGKeyArray, bias: Array) -> State:
        key_model, key_state = jax.random.split(key)
        model = kind.fresh(key_model, settings, shape)
        model = model.with_arrays(model.weight, model.hidden_bias, bias)
        return algorithm.init(key_state, model, jnp.zeros((portion.visible, portion.size)))

    key, rows = generator.key(0), portion.of(np.zeros((0, portion.visible)))
    state = jax.eval_shape(initial, key, jnp.zeros(portion.visible))
    places = jnp.arange(portion.batches * portion.size)
    batch = jax.eval_shape(draw, key, rows, places, 0)
    _, info = jax.eval_shape(algorithm.step, key, state, batch)
    nothing = tree.zeros(jax.eval_shape(lambda found: totals_of(algorithm, found), info))
    loop, known = chunk(algorithm, portion.size, draw), program_key(settings, 0, pace)

    @functools.cache
    def advance() -> Callable[..., tuple[State, Totals]]:
        return compiled(loop, key, state, nothing, rows, places, 0, 1, key=known)

    return Program(jax.jit(initial), advance, nothing)


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
