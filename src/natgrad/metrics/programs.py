"""A network as the program that JAX traces of it for one row: interpreted, and changed where its layers are.

    outputs[position, unit] = sum_i inputs[position, i] weight[i, unit] + bias[unit] + change[position, unit]

The derivatives at change = 0 are what the layers of a network are measured by; `metrics.tracing` finds them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Float

_INLINED = ("jit", "pjit", "closed_call", "checkpoint", "remat2")

Steps = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""What is done to an array, one after the other: transposed by a permutation, then brought to a shape."""


class TracedLayer(NamedTuple):
    """A dense or convolutional layer in a program.

    Attributes:
        weight, bias: the numbers of these leaves; None without a bias.
        steps: from the leaf of the weight to [in, unit].
        start: the shape of the leaf; shape: how many inputs and units there are.
        equation: the number of its operation in the program; operand: which of the two is not the weight.
        inputs, outputs: how that operand and the result are transposed, to [position, in] and [position,
            unit].
        result: the shape of the result.
        window: of a convolution, the sizes of its filter; None of a dense layer.
        last: whether its outputs, in their order, are those of the network.
    """

    weight: int
    bias: int | None
    steps: Steps
    start: tuple[int, ...]
    shape: tuple[int, int]
    equation: int
    operand: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    result: tuple[int, ...]
    window: tuple[int, ...] | None = None
    last: bool = False

    @property
    def side(self) -> int:
        """How many inputs there are, with that of the bias."""
        return self.shape[0] + (self.bias is not None)


def run_program(
    program: Any, arguments: Sequence[Any], visit: Callable[[Any, int, list[Any]], Sequence[Any]]
) -> list[Any]:
    """Interpret a program: `visit` takes an operation, its number and its operands, and gives its results."""
    numbers = iter(range(10**9))

    def run(jaxpr: Any, constants: Iterable[Any], given: Sequence[Any]) -> list[Any]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *given), strict=True))
        read = lambda atom: atom.val if isinstance(atom, core.Literal) else known[atom]  # noqa: E731
        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            inner = _inner(equation)
            results = visit(equation, next(numbers), operands) if inner is None else run(*inner, operands)
            known |= zip(equation.outvars, results, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    return run(program.jaxpr, program.consts, arguments)


def changed_outputs(
    program: Any, layers: Sequence[TracedLayer], arguments: Sequence[Any], changes: Sequence[Array]
) -> tuple[Float[Array, "..."], list[Float[Array, "position in"]]]:
    """The outputs with changes added to those of the layers, and what each layer saw."""
    by_number = {layer.equation: index for index, layer in enumerate(layers)}
    seen: dict[int, Array] = {}

    def visit(equation: Any, number: int, operands: list[Any]) -> Sequence[Any]:
        results = _evaluated(program, equation, operands)
        index = by_number.get(number)
        if index is None:
            return results
        seen[index] = _input_rows(layers[index], equation, operands[layers[index].operand])
        return [results[0] + changes[index].astype(results[0].dtype)]

    (outputs,) = run_program(program, arguments, visit)
    return outputs, [seen[index] for index in range(len(layers))]


def output_rows(layer: TracedLayer, cotangent: Float[Array, "..."]) -> Float[Array, "position unit"]:
    """What belongs to a layer's result, with the positions first."""
    return cotangent.transpose(layer.outputs).reshape(-1, layer.shape[1])


def to_matrix(layer: TracedLayer, leaves: Sequence[Array]) -> Float[Array, "side unit"]:
    """The parameters of a layer as one matrix, the bias last."""
    found = leaves[layer.weight]
    for permutation, shape in layer.steps:
        found = found.transpose(permutation).reshape(shape)
    if layer.bias is None:
        return found
    return jnp.concatenate([found, leaves[layer.bias].reshape(1, -1)])


def from_matrix(layer: TracedLayer, matrix: Float[Array, "side unit"], leaves: list[Array]) -> None:
    """The inverse of `to_matrix`: put the matrix into a list of leaves."""
    found, before = matrix[: layer.shape[0]], [layer.start, *(shape for _, shape in layer.steps)]
    for (permutation, _), shape in zip(reversed(layer.steps), reversed(before[:-1]), strict=True):
        inverse = tuple(permutation.index(axis) for axis in range(len(permutation)))
        found = found.reshape([shape[axis] for axis in permutation]).transpose(inverse)
    leaves[layer.weight] = found.astype(leaves[layer.weight].dtype)
    if layer.bias is not None:
        like = leaves[layer.bias]
        leaves[layer.bias] = matrix[-1].reshape(like.shape).astype(like.dtype)


def _inner(equation: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program of an operation that only groups others, and its constants."""
    if equation.primitive.name not in _INLINED:
        return None
    found = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return (found.jaxpr, found.consts) if isinstance(found, core.ClosedJaxpr) else (found, ())


def _evaluated(program: Any, equation: Any, operands: Sequence[Any]) -> list[Any]:
    pairs = zip(equation.invars, operands, strict=True)
    given = {atom: value for atom, value in pairs if not isinstance(atom, core.Literal)}
    about = program.jaxpr.debug_info
    single = core.Jaxpr((), list(given), equation.outvars, [equation], equation.effects, about)
    return core.jaxpr_as_fun(core.ClosedJaxpr(single, ()))(*given.values())


def _input_rows(layer: TracedLayer, equation: Any, operand: Array) -> Float[Array, "position in"]:
    if layer.window is None:
        return operand.transpose(layer.inputs).reshape(-1, layer.shape[0])
    chosen = equation.params
    patches = jax.lax.conv_general_dilated_patches(
        operand,
        layer.window,
        chosen["window_strides"],
        chosen["padding"],
        chosen["lhs_dilation"],
        chosen["rhs_dilation"],
        dimension_numbers=chosen["dimension_numbers"],
    )
    return patches.transpose(layer.outputs).reshape(-1, layer.shape[0])
