"""Blocks of layers, found in any network: against the blocks of the dense Fisher, made by autodiff alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

from natgrad.core import Solver
from natgrad.errors import InputError
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics import layer_blocks
from natgrad.metrics.curvature import fisher, monte_carlo_fisher
from natgrad.metrics.tracing import traced_network
from natgrad.optax import (
    Options,
    block_solve,
    constant,
    exact_blocks,
    factored_solve,
    kronecker_blocks,
    layer_report,
    layerwise_gradient,
    linear,
    linked,
    natural_gradient,
    sigmoid,
    softmax,
)
from natgrad.solvers.layer_blocks import inverse_and_root


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def deep_linear():
    """A deep linear network with biases, whose K-FAC is exact for Gaussian targets."""
    params = {f"w{n}": drawn(*shape, seed=n) for n, shape in enumerate([(4, 3), (3, 5), (5, 2)])}
    params |= {f"b{n}": drawn(size, seed=9 + n) for n, size in enumerate([3, 5, 2])}

    def network(p, x):
        for n in range(3):
            x = x @ p[f"w{n}"] + p[f"b{n}"]
        return x

    return network, params, drawn(6, 4, seed=20)


def of_equinox():
    class Net(eqx.Module):
        convolution: eqx.nn.Conv2d
        hidden: eqx.nn.Linear
        last: eqx.nn.Linear

        def __call__(self, x):
            x = jnp.tanh(self.convolution(x)).reshape(-1)
            return self.last(jnp.tanh(self.hidden(x)))

    keys = jax.random.split(jax.random.key(0), 3)
    net = Net(
        eqx.nn.Conv2d(2, 3, 2, stride=2, padding=1, key=keys[0]),
        eqx.nn.Linear(27, 4, key=keys[1]),
        eqx.nn.Linear(4, 3, use_bias=False, key=keys[2]),
    )
    params, rest = eqx.partition(net, eqx.is_array)
    return lambda p, x: jax.vmap(eqx.combine(p, rest))(x), params, drawn(5, 2, 4, 4)


def of_flax():
    class Net(nnx.Module):
        def __init__(self, rngs):
            kinds = {"param_dtype": jnp.float64, "rngs": rngs}
            self.convolution = nnx.Conv(1, 3, (3, 3), strides=2, **kinds)
            self.last = nnx.Linear(12, 3, **kinds)

        def __call__(self, x):
            x = nnx.relu(self.convolution(x))
            return self.last(x.reshape(x.shape[0], -1))

    graph, params = nnx.split(Net(nnx.Rngs(0)), nnx.Param)
    return lambda p, x: nnx.merge(graph, p)(x), params, drawn(5, 4, 4, 1)


def cross_entropy(network, x, labels):
    return lambda p: optax.softmax_cross_entropy_with_integer_labels(network(p, x), labels).mean()


NETWORKS = {"deep linear": deep_linear, "equinox": of_equinox, "flax": of_flax}


def dense_fisher(network, params, x, output):
    """J^T M J / n by the Jacobian of the whole network."""
    flat, unravel = ravel_pytree(params)
    jacobian = jax.jit(jax.jacrev(lambda v: network(unravel(v), x)))(flat)
    rows = np.asarray(jacobian).reshape(len(x), -1, flat.size)
    outputs = network(params, x)
    size = rows.shape[1]
    roots = jax.vmap(lambda e: output.root(outputs, jnp.broadcast_to(e, outputs.shape)))(jnp.eye(size))
    scaled = np.einsum("kro,rop->krp", np.asarray(roots), rows).reshape(-1, flat.size)
    return scaled.T @ scaled / len(x)


def masked_to_blocks(matrix, network, params, x):
    """A matrix without what lies between different layers, or, of leaves without one, off the diagonal."""
    traced = traced_network(network, params, x)
    owner = {leaf: n for n, layer in enumerate(traced.layers) for leaf in (layer.weight, layer.bias)}
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    number = np.concatenate([np.full(size, owner.get(leaf, -1)) for leaf, size in enumerate(sizes)])
    same = (number[:, None] == number[None]) & (number[:, None] >= 0)
    return np.where(same | np.eye(number.size, dtype=bool), matrix, 0)


def operator(metric, network, params, x, output):
    measured, key = metric(Task(network, output)), jax.random.key(0)
    carry = measured.init(key, params, None)
    return jax.jit(lambda p, x: measured.measure(key, carry, p, TaskBatch(Examples(x)))[0])(params, x)


def as_matrix(found, params):
    flat, unravel = ravel_pytree(params)
    product = found.bind().mv
    return jax.jit(jax.vmap(lambda v: ravel_pytree(product(unravel(v)))[0]))(jnp.eye(flat.size))


def close(one, other, share=1e-8):
    np.testing.assert_allclose(one, other, atol=share * np.abs(other).max(), rtol=0)


@pytest.mark.few(1)  # flax has others
@pytest.mark.parametrize("name", ["equinox", "flax", "deep linear"])
def test_exact_blocks_are_those_of_the_dense_fisher(name):
    network, params, x = NETWORKS[name]()
    found = operator(exact_blocks(fisher()), network, params, x, softmax())
    assert found.others == ()
    expected = masked_to_blocks(dense_fisher(network, params, x, softmax()), network, params, x)
    assert np.count_nonzero(expected) > expected.shape[0]
    close(as_matrix(found, params), expected)
    close(ravel_pytree(found.bind().diagonal())[0], np.diag(expected))
    assert found.mean_diagonal(jax.random.key(0)) == pytest.approx(np.trace(expected) / len(expected))


def of_pixels():
    """Convolution, reshape, bias: the last layer's outputs are those of the network, 4 positions each."""
    params = {"filters": drawn(3, 1, 2, 2, seed=1), "bias": drawn(3, seed=2), "first": drawn(9, 9, seed=3)}

    def network(p, x):
        x = jnp.tanh(x @ p["first"]).reshape(-1, 1, 3, 3)
        found = jax.lax.conv_general_dilated(x, p["filters"], (1, 1), "VALID") + p["bias"][:, None, None]
        return found.reshape(len(x), -1)

    return network, params, drawn(6, 9, seed=4)


def of_logits():
    params = {"first": drawn(4, 3, seed=1), "last": drawn(3, 5, seed=2), "bias": drawn(5, seed=3)}
    return lambda p, x: jnp.tanh(x @ p["first"]) @ p["last"] + p["bias"], params, drawn(6, 4, seed=4)


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [of_pixels, of_logits])
def test_the_last_factor_of_independent_outputs_is_their_mean_fisher(make):
    """Not drawn: the diagonal of y (1 - y), over rows and positions."""
    network, params, x = make()
    found = operator(kronecker_blocks(), network, params, x, sigmoid())
    (last,) = [block for layer, block in zip(found.layers, found.blocks, strict=True) if layer.last]
    y = jax.nn.sigmoid(network(params, x))
    expected = (y * (1 - y)).reshape(len(x), len(last.outputs), -1 if make is of_pixels else 1).mean((0, 2))
    close(last.outputs, expected)
    matrix, damped = as_matrix(found, params), 0.1 * np.eye(ravel_pytree(params)[0].size)
    close(ravel_pytree(found.bind().diagonal())[0], np.diag(matrix))
    close(solved(found, params, block_solve()), np.linalg.solve(matrix + damped, np.ones(len(damped))))
    one = solved(found, params, factored_solve())
    blocks = [  # with G as a matrix
        block._replace(outputs=jnp.diag(block.outputs)) if layer.last else block
        for layer, block in zip(found.layers, found.blocks, strict=True)
    ]
    close(one, solved(dataclasses.replace(found, blocks=tuple(blocks)), params, factored_solve()))


@pytest.mark.parametrize("after", [jnp.tanh, lambda r: r[:, ::-1], lambda r: 2 * r])
def test_a_layer_that_something_comes_after_is_not_the_last(after):
    network, params, x = of_logits()
    traced = traced_network(lambda p, x: after(network(p, x)), params, x)
    assert [layer.last for layer in traced.layers] == [False, False]
    assert [layer.last for layer in traced_network(network, params, x).layers] == [False, True]


def test_a_layer_whose_outputs_are_moved_is_not_the_last():
    network, params, x = of_pixels()
    moved = lambda p, x: network(p, x).reshape(-1, 3, 4).transpose(0, 2, 1).reshape(len(x), -1)  # noqa: E731
    assert not any(layer.last for layer in traced_network(moved, params, x).layers)
    assert [layer.last for layer in traced_network(network, params, x).layers] == [False, True]


def test_kronecker_blocks_are_exact_for_deep_linear_networks():
    network, params, x = deep_linear()
    found = operator(kronecker_blocks(fisher()), network, params, x, linear())
    expected = masked_to_blocks(dense_fisher(network, params, x, linear()), network, params, x)
    close(as_matrix(found, params), expected)
    close(solved(found, params, block_solve()), np.linalg.solve(expected + 0.1 * np.eye(len(expected)),
                                                                np.ones(len(expected))))  # fmt: skip


def perceptron(p, x):
    return jnp.tanh(x @ p["w"] + p["b"]) @ p["out"]


@pytest.mark.slow
def test_kronecker_blocks_are_exact_for_one_row():
    params, network = {"w": drawn(4, 3), "b": drawn(3, seed=1), "out": drawn(3, 2, seed=2)}, perceptron
    x = drawn(1, 4, seed=3)
    found = operator(kronecker_blocks(fisher()), network, params, x, softmax())
    close(
        as_matrix(found, params),
        masked_to_blocks(dense_fisher(network, params, x, softmax()), network, params, x),
    )


def solved(found, params, solver: Solver, damping=0.1):
    ones = jax.tree.map(jnp.ones_like, params)

    @jax.jit
    def solve():
        factor, _ = solver.prepare(found, jnp.asarray(damping), 0.0)
        solution = solver.solve(factor, ones, None)
        return solution.value, solution.curvature, solution.result

    value, curvature, result = solve()
    flat = ravel_pytree(value)[0]
    assert result == 0
    assert curvature == pytest.approx(float(flat @ ravel_pytree(found.bind().mv(value))[0]), rel=1e-8)
    return flat


def test_solves_are_those_of_the_blocks():
    """The exact damping of a Kronecker product and of an exact block; the factored one by its definition."""
    network, params, x = of_flax()
    for metric in (kronecker_blocks(fisher()), exact_blocks(fisher())):
        found = operator(metric, network, params, x, softmax())
        matrix = np.asarray(as_matrix(found, params))
        close(
            solved(found, params, block_solve()),
            np.linalg.solve(matrix + 0.1 * np.eye(len(matrix)), np.ones(len(matrix))),
        )
    found = operator(kronecker_blocks(fisher()), network, params, x, softmax())
    changed = []
    for block in found.blocks:
        a, g = map(np.asarray, block)
        ratio = np.sqrt((np.trace(a) / len(a)) / (np.trace(g) / len(g)))
        p, q = np.sqrt(0.1) * ratio, np.sqrt(0.1) / ratio
        changed.append(type(block)(jnp.asarray(a + p * np.eye(len(a))), jnp.asarray(g + q * np.eye(len(g)))))
    damped = type(found)(found.parameters, tuple(changed), (), found.layers, ())
    expected = np.linalg.solve(np.asarray(as_matrix(damped, params)), np.ones(len(matrix)))
    close(solved(found, params, factored_solve()), expected)


@pytest.mark.parametrize("side", [3, 7, 12])
def test_an_inverse_by_halves(side):
    root = np.random.default_rng(0).normal(size=(side, side))
    matrix = root @ root.T + np.eye(side)
    found, inverse = jax.jit(lambda: inverse_and_root(jnp.asarray(matrix), largest=4))()
    close(found, np.linalg.inv(np.linalg.cholesky(matrix)), share=1e-12)
    close(inverse, np.linalg.inv(matrix), share=1e-12)


def odd(p, x):
    """A tied weight, a scale, a bias that is used twice, a layer in a loop, and two layers."""
    x = jnp.tanh(x @ p["tied"]) @ p["tied"].T
    x = x * p["scale"]
    x = x @ p["kernel"].reshape(4, 3) + p["twice"]
    x = x + jax.lax.scan(lambda c, _: (c @ p["loop"], None), x, length=2)[0] + p["twice"]
    return x @ p["last"].T


def odd_parameters():
    shapes = {"tied": (4, 4), "scale": (4,), "kernel": (12,), "twice": (3,), "loop": (3, 3), "last": (2, 3)}
    return {name: drawn(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}


def test_what_is_no_layer_has_the_diagonal_and_it_is_said():
    params, x = odd_parameters(), drawn(5, 4, seed=30)
    said = layer_report(odd, params, x)
    assert said == [
        "['kernel']: dense, 4 x 3",
        "['last']: dense, 3 x 2",
        "['loop']: diagonal, since it is used by `scan`",
        "['scale']: diagonal, since it is used by `mul`",
        "['tied']: diagonal, since it is used 2 times",
        "['twice']: diagonal, since it is used 2 times",
    ]
    with pytest.warns(UserWarning, match="not all parameters belong to layers: .*'scale'.*used by `mul`"):
        found = operator(exact_blocks(fisher()), odd, params, x, softmax())
    expected = masked_to_blocks(dense_fisher(odd, params, x, softmax()), odd, params, x)
    close(as_matrix(found, params), expected)


def test_diagonals_of_large_leaves_are_added_up_row_by_row(monkeypatch):
    monkeypatch.setattr(layer_blocks, "_ROOM_MB", 0.0)
    params, x = odd_parameters(), drawn(5, 4, seed=30)
    with pytest.warns(UserWarning, match="not all parameters"):
        found = operator(exact_blocks(fisher()), odd, params, x, softmax())
    close(as_matrix(found, params), masked_to_blocks(dense_fisher(odd, params, x, softmax()), odd, params, x))


def normalized(p, x):
    """Statistics over the batch between two layers."""
    hidden = x @ p["in"]
    return ((hidden - hidden.mean(axis=0)) / hidden.std(axis=0)) @ p["out"]


def drawn_for_all_rows(p, x):
    """Dropout with one key for the whole batch."""
    kept = jax.random.bernoulli(jax.random.key(0), 0.5, (len(x), 3))
    return jnp.where(kept, x @ p["in"], 0) @ p["out"]


@pytest.mark.parametrize("network", [normalized, drawn_for_all_rows])
def test_rows_that_influence_each_other_are_refused_where_rows_are_taken_apart(network):
    params, x = {"in": drawn(4, 3), "out": drawn(3, 2, seed=1)}, drawn(5, 4, seed=2)
    whole = operator(fisher(), network, params, x, softmax())
    assert np.isfinite(as_matrix(whole, params)).all()  # products take the batch as a whole
    for refused in (
        lambda: operator(exact_blocks(fisher()), network, params, x, softmax()),
        lambda: jax.jit(whole.factor_rows)(),
    ):
        with pytest.raises(InputError, match="a row other outputs among others than alone"):
            refused()


def test_a_convolution_in_groups_has_the_diagonal():
    def network(p, x):
        options = {"feature_group_count": 2, "dimension_numbers": ("NCHW", "OIHW", "NCHW")}
        hidden = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "VALID", **options) + p["b"][:, None, None]
        return jnp.tanh(hidden).reshape(x.shape[0], -1) @ p["o"]

    params, x = {"w": drawn(4, 1, 2, 2), "b": drawn(4, seed=1), "o": drawn(16, 2, seed=2)}, drawn(3, 2, 3, 3)
    assert layer_report(network, params, x) == [
        "['o']: dense, 16 x 2",
        "['b']: diagonal, since it is used by `add`",
        "['w']: diagonal, since it is used by `conv_general_dilated`",
    ]
    with pytest.warns(UserWarning, match="'w'.*used by `conv_general_dilated`"):
        found = operator(exact_blocks(fisher()), network, params, x, softmax())
    expected = masked_to_blocks(dense_fisher(network, params, x, softmax()), network, params, x)
    close(as_matrix(found, params), expected)


def test_an_output_that_is_used_before_its_bias_has_no_bias():
    def network(p, x):
        before = x @ p["w"]
        return jnp.concatenate([before, before + p["b"]], axis=1)

    params = {"w": drawn(4, 3), "b": drawn(3)}
    traced = traced_network(network, params, drawn(2, 4))
    assert [(layer.weight, layer.bias) for layer in traced.layers] == [(1, None)]
    assert traced.others == {0: "it is used by `add`"}


def test_averages_are_exponential_and_corrected():
    network, params, _ = deep_linear()
    task = Task(network, linear())
    metric = kronecker_blocks(fisher(), decay=0.5)(task)
    key, batches = jax.random.key(0), [TaskBatch(Examples(drawn(6, 4, seed=n))) for n in range(2)]
    own = kronecker_blocks(fisher())(task).measure
    alone = [jax.jit(own)(key, (), params, batch)[0].blocks for batch in batches]
    carry, measure = metric.init(key, params, batches[0]), jax.jit(metric.measure)
    first, carry = measure(key, carry, params, batches[0])
    second, _ = measure(key, carry, params, batches[1])
    close(first.blocks[0].inputs, alone[0][0].inputs)
    close(second.blocks[0].inputs, (alone[0][0].inputs + 2 * alone[1][0].inputs) / 3)


@pytest.mark.slow
def test_a_chain_under_jit_and_scan_keeps_its_blocks():
    """Two steps with one measurement: the second has the first one's inverses, as the definition has it."""
    network, params, x = of_flax()
    labels = jnp.arange(5) % 3
    loss = cross_entropy(network, x, labels)
    blocks = {"metric": kronecker_blocks(fisher()), "solver": block_solve(), "example": x[:1]}
    options = Options(damping=constant(0.1), refresh=2)
    optimizer = linked(natural_gradient(network, softmax(), options=options, **blocks), optax.scale(-0.5))

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, inputs=x)
        return (optax.apply_updates(params, updates), state), updates

    (_, state), updates = jax.jit(lambda: jax.lax.scan(step, (params, optimizer.init(params)), length=3))()
    matrix = np.asarray(as_matrix(operator(blocks["metric"], network, params, x, softmax()), params))
    now = params
    for number in range(2):
        gradient = ravel_pytree(jax.grad(loss)(now))[0]
        change = -0.5 * np.linalg.solve(matrix + 0.1 * np.eye(len(matrix)), gradient)
        got = ravel_pytree(jax.tree.map(lambda leaf, number=number: leaf[number], updates))[0]
        close(got, change)
        now = optax.apply_updates(now, ravel_pytree(params)[1](change))
    fresh = as_matrix(operator(blocks["metric"], network, now, x, softmax()), params)
    gradient = ravel_pytree(jax.grad(loss)(now))[0]
    change = -0.5 * np.linalg.solve(fresh + 0.1 * np.eye(len(matrix)), gradient)
    close(ravel_pytree(jax.tree.map(lambda leaf: leaf[2], updates))[0], change)
    assert state.evidence.result == 0


@pytest.mark.slow
def test_the_preset_learns():
    network, params, x = of_equinox()
    labels = jnp.arange(5) % 3
    loss = cross_entropy(network, x, labels)
    optimizer = linked(layerwise_gradient(network, softmax(), x, damping=0.1, refresh=5), optax.scale(-0.5))

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, inputs=x)
        return optax.apply_updates(params, updates), state

    state, now = optimizer.init(params), params
    for _ in range(30):
        now, state = step(now, state)
    assert loss(now) < 0.05 * loss(params)


def test_mistakes_are_said():
    network, params, x = deep_linear()
    with pytest.raises(InputError, match="the decay of an average is a number from 0 to below 1, got 1"):
        kronecker_blocks(decay=1)
    with pytest.raises(InputError, match=r"an average of blocks needs the shape of a batch .* give example="):
        natural_gradient(network, linear(), metric=kronecker_blocks(decay=0.5)).init(params)
    with pytest.raises(InputError, match=r"cannot keep .* got refresh 3; give example"):
        natural_gradient(network, linear(), options=Options(refresh=3))
    with pytest.raises(InputError, match="blocks of layers need a metric with a factor: fisher"):
        operator(kronecker_blocks(fisher()), network, params, x, linear()._replace(root=None))
    with pytest.raises(InputError, match="this solver needs blocks of layers; use kronecker_blocks"):
        block_solve().prepare(operator(monte_carlo_fisher(), network, params, x, linear()), 0.1, 0.0)


def under_a_checkpoint(p, x):
    hidden = jax.checkpoint(lambda p, x: jnp.tanh(jax.jit(lambda a, b: a @ b)(x, p["w"]) + p["b"]))(p, x)
    return hidden @ p["o"]


def with_heads(p, x):
    hidden = jnp.tanh(jnp.einsum("nti,ihd->nthd", x, p["w"]) + p["b"])
    return jnp.einsum("nthd,hdo->nto", hidden, p["o"]).sum(axis=1)


def transposed(p, x):
    axes = ("NWC", "WIO", "NWC")
    hidden = jnp.tanh(jax.lax.conv_transpose(x, p["w"], (2,), "SAME", dimension_numbers=axes) + p["b"])
    return hidden.reshape(x.shape[0], -1) @ p["o"]


def dilated(p, x):
    options = {"rhs_dilation": (1, 2), "dimension_numbers": ("NCHW", "OIHW", "NCHW")}
    hidden = jax.lax.conv_general_dilated(x, p["w"], (2, 1), ((1, 0), (2, 2)), **options)
    return jnp.tanh(hidden + p["b"][:, None, None]).reshape(x.shape[0], -1)[:, :4] @ p["o"]


FURTHER = {  # shapes of w, b, o and x
    under_a_checkpoint: ((4, 3), (3,), (3, 2), (5, 4)),
    with_heads: ((4, 2, 3), (2, 3), (2, 3, 2), (5, 3, 4)),
    transposed: ((3, 2, 2), (2,), (16, 2), (5, 4, 2)),
    dilated: ((2, 2, 2, 3), (2,), (4, 2), (3, 2, 4, 5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("network", FURTHER, ids=lambda network: network.__name__)
def test_further_layers_are_found(network):
    *shapes, rows = FURTHER[network]
    params = {name: drawn(*shape, seed=n) for n, (name, shape) in enumerate(zip("wbo", shapes, strict=True))}
    x = drawn(*rows, seed=9)
    found = operator(exact_blocks(fisher()), network, params, x, softmax())
    assert [(layer.weight, layer.bias) for layer in found.layers] == [(2, 0), (1, None)]
    close(
        as_matrix(found, params),
        masked_to_blocks(dense_fisher(network, params, x, softmax()), network, params, x),
    )
