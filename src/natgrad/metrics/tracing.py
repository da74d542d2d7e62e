"""The dense and convolutional layers of any network: nobody registers anything.

The network is traced for one row, and its program is read. An operation `dot_general` or
`conv_general_dilated`, one of whose operands is a leaf of the parameters (or a transpose, a reshape or a cast
of one), is a layer; a leaf that is then added to its output, one number for every unit, is its bias. A leaf
that is used more than once, or in any other way, belongs to no layer, and it is said why.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from natgrad.core import Model
from natgrad.layers.task import Network
from natgrad.metrics.programs import Steps, TracedLayer, run_program

_RESHAPING = ("reshape", "squeeze", "expand_dims", "copy", "convert_element_type", "broadcast_in_dim")


class TracedNetwork(NamedTuple):
    """A network's program for one row, its layers, and why the other leaves belong to none."""

    program: Any
    layers: tuple[TracedLayer, ...]
    others: dict[int, str]


def traced_network(network: Network, parameters: Model, inputs: Any) -> TracedNetwork:
    """The layers of a network; only the shapes of parameters and inputs count."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), inputs)
    program = jax.make_jaxpr(network)(parameters, one)
    return _Reading(program, len(jax.tree.leaves(parameters))).found()


class _Leaf(NamedTuple):
    """A leaf, or a view of it; `numbers` says which of its numbers is where, `steps` how it got there.

    A leaf that was copied to several places has no steps.
    """

    leaf: int
    start: tuple[int, ...]
    steps: Steps | None
    numbers: np.ndarray


class _Result:
    """The result of a layer, or a view of it: which unit is where, and what it is a view of."""

    def __init__(self, layer: int, units: np.ndarray, before: "_Result | None" = None) -> None:
        self.layer, self.units, self.before, self.uses = layer, units, before, 0

    def is_used_once(self) -> bool:
        """Whether what comes of the layer goes this way only."""
        return self.uses == 1 and (self.before is None or self.before.is_used_once())


class _Biased(NamedTuple):
    """The result of a layer after its bias, or a view of it: which number of the result is where."""

    layer: int
    numbers: np.ndarray


class _Reading:
    """One pass through a program, with leaves and results of layers in place of arrays."""

    def __init__(self, program: Any, leaves: int) -> None:
        self.program, self.number = program, leaves
        self.layers: list[TracedLayer] = []
        self.added: list[tuple[_Result, int]] = []  # to a layer's result, a leaf that may be its bias
        self.uses: dict[int, list[str]] = {leaf: [] for leaf in range(leaves)}

    def found(self) -> TracedNetwork:
        """What the program has."""
        shapes = [atom.aval.shape for atom in self.program.jaxpr.invars]
        given: list[Any] = [None] * len(shapes)
        for leaf in range(self.number):
            numbers = np.arange(math.prod(shapes[leaf])).reshape(shapes[leaf])
            given[leaf] = _Leaf(leaf, shapes[leaf], (), numbers)
        results = run_program(self.program, given, self._visit)
        for result in results:
            self._use(result, "an output")
        biases = {
            result.layer: leaf
            for result, leaf in self.added
            if result.is_used_once() and self.uses[leaf] == ["add"]
        }
        alone = [(n, layer) for n, layer in enumerate(self.layers) if len(self.uses[layer.weight]) == 1]
        last = _last(results)
        layers = tuple(layer._replace(bias=biases.get(n), last=n == last) for n, layer in alone)
        members = {leaf for layer in layers for leaf in (layer.weight, layer.bias)}
        others = {leaf: _reason(uses) for leaf, uses in self.uses.items() if leaf not in members}
        return TracedNetwork(self.program, layers, others)

    def _visit(self, equation: Any, number: int, operands: list[Any]) -> list[Any]:
        name, nothing = equation.primitive.name, [None] * len(equation.outvars)
        if name in (*_RESHAPING, "transpose") and isinstance(operands[0], _Leaf | _Result | _Biased):
            return [self._view(equation, operands[0])]
        for operand in operands:
            self._use(operand, name)
        kinds = [isinstance(operand, _Leaf) for operand in operands]
        if name == "dot_general" and sum(kinds) == 1:
            return [self._dense(equation, number, operands[kinds.index(True)], kinds.index(True))]
        if name == "conv_general_dilated" and kinds == [False, True]:
            return [self._convolution(equation, number, operands[1])]
        if name == "add" and sum(kinds) == 1:
            return [self._add(operands[kinds.index(True)], operands[kinds.index(False)])]
        return nothing

    def _use(self, operand: Any, name: str) -> None:
        if isinstance(operand, _Leaf):
            self.uses[operand.leaf].append(name)
        elif isinstance(operand, _Result):
            operand.uses += 1

    def _view(self, equation: Any, given: Any) -> Any:
        """A transpose, a reshape, a cast, or a copy of every number to several places."""
        if isinstance(given, _Biased):
            return _Biased(given.layer, _moved(equation, given.numbers))
        if isinstance(given, _Result):
            given.uses += 1
            return _Result(given.layer, _moved(equation, given.units), given)
        shape = equation.outvars[0].aval.shape
        permutation = equation.params.get("permutation", range(given.numbers.ndim))
        numbers = _moved(equation, given.numbers)
        step = (tuple(map(int, permutation)), tuple(shape))
        steps = None if given.steps is None or numbers.size > given.numbers.size else (*given.steps, step)
        return _Leaf(given.leaf, given.start, steps, numbers)

    def _dense(self, equation: Any, number: int, weight: _Leaf, side: int) -> _Result | None:
        contracted, batched = equation.params["dimension_numbers"]
        if any(map(len, batched)) or weight.steps is None:
            return None
        other = equation.invars[1 - side].aval.shape
        free = _rest(weight.numbers.ndim, contracted[side])
        outer = _rest(len(other), contracted[1 - side])
        result = equation.outvars[0].aval.shape
        units = range(len(free)) if side == 0 else range(len(outer), len(result))
        positions = _rest(len(result), units)
        return self._layer(
            weight,
            (*contracted[side], *free),
            len(contracted[side]),
            equation=number,
            operand=1 - side,
            inputs=(*outer, *contracted[1 - side]),
            outputs=(*positions, *units),
            result=result,
        )

    def _convolution(self, equation: Any, number: int, weight: _Leaf) -> _Result | None:
        chosen = equation.params
        if chosen["feature_group_count"] != 1 or chosen["batch_group_count"] != 1 or weight.steps is None:
            return None
        numbers = chosen["dimension_numbers"]
        unit, channel, *window = numbers.rhs_spec
        row, units, *spatial = numbers.out_spec
        return self._layer(
            weight,
            (channel, *window, unit),
            1 + len(window),
            equation=number,
            operand=0,
            inputs=(),
            outputs=(row, *spatial, units),
            result=equation.outvars[0].aval.shape,
            window=tuple(weight.numbers.shape[axis] for axis in window),
        )

    def _layer(self, weight: _Leaf, permutation: Any, inner: int, **about: Any) -> _Result | None:
        """Note a layer whose weight is transposed so that the first axes are its inputs."""
        sizes = [weight.numbers.shape[axis] for axis in permutation]
        shape = (math.prod(sizes[:inner]), math.prod(sizes[inner:]))
        steps = (*(weight.steps or ()), (tuple(map(int, permutation)), shape))
        outputs, result = tuple(map(int, about.pop("outputs"))), tuple(about.pop("result"))
        inputs = tuple(map(int, about.pop("inputs")))
        self.layers.append(
            TracedLayer(
                weight.leaf, None, steps, weight.start, shape, **about, inputs=inputs, outputs=outputs,
                result=result,
            )
        )  # fmt: skip
        moved = [result[axis] for axis in outputs]
        units = np.broadcast_to(np.arange(shape[1]), (math.prod(result) // shape[1], shape[1])).reshape(moved)
        return _Result(len(self.layers) - 1, units.transpose(np.argsort(outputs)))

    def _add(self, leaf: _Leaf, other: Any) -> _Biased | None:
        """A bias adds to every place of a unit the same number, and every number to one unit."""
        if not isinstance(other, _Result) or math.prod(leaf.start) != self.layers[other.layer].shape[1]:
            return None
        shape = np.broadcast_shapes(leaf.numbers.shape, other.units.shape)
        if shape != other.units.shape or (np.broadcast_to(leaf.numbers, shape) != other.units).any():
            return None
        self.added.append((other, leaf.leaf))
        numbers = np.arange(other.units.size).reshape(shape)
        return _Biased(other.layer, numbers) if other.before is None else None


def _last(results: list[Any]) -> int | None:
    """The layer whose result, with its bias, is all that a network gives, in its order."""
    if len(results) != 1 or not isinstance(results[0], _Result | _Biased):
        return None
    found = results[0]
    if isinstance(found, _Result):
        return found.layer if found.before is None else None
    numbers = found.numbers.ravel()
    return found.layer if (numbers == np.arange(numbers.size)).all() else None


def _moved(equation: Any, values: np.ndarray) -> np.ndarray:
    """An array after one of the operations that only move or copy numbers."""
    shape = equation.outvars[0].aval.shape
    if equation.primitive.name == "transpose":
        return values.transpose(equation.params["permutation"])
    if equation.primitive.name != "broadcast_in_dim":
        return values.reshape(shape)
    wide = [1] * len(shape)
    for axis, size in zip(equation.params["broadcast_dimensions"], values.shape, strict=True):
        wide[axis] = size
    return np.broadcast_to(values.reshape(wide), shape)


def _rest(number: int, axes: Any) -> tuple[int, ...]:
    return tuple(axis for axis in range(number) if axis not in axes)


def _reason(uses: list[str]) -> str:
    if not uses:
        return "it is not used"
    if len(uses) > 1:
        return f"it is used {len(uses)} times"
    return f"it is used by `{uses[0]}`"
