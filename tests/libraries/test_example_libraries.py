"""Optimisers and layers under the names of `jax.example_libraries`."""

import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.example_libraries import optimizers, stax
from fnx.nn import initializers

OPTIMIZERS = {
    "sgd": optimizers.sgd,
    "momentum": lambda rate: optimizers.momentum(rate, 0.5),
    "nesterov": lambda rate: optimizers.nesterov(rate, 0.5),
    "adagrad": optimizers.adagrad,
    "rmsprop": optimizers.rmsprop,
    "rmsprop_momentum": lambda rate: optimizers.rmsprop_momentum(rate, momentum=0.5),
    "adam": optimizers.adam,
    "adamax": optimizers.adamax,
    "sm3": optimizers.sm3,
}
# What two steps with the step size 0.1 and the gradients 1 and 3 take from a number, by hand.
FALLS = {
    "sgd": 0.1 + 0.3,
    "momentum": 0.1 + 0.35,
    "nesterov": 0.15 + 0.475,
    "adagrad": 0.01 + 0.1 * (0.1 * 3 / np.sqrt(10) + 0.9 * 0.1),
    "rmsprop": 0.1 / np.sqrt(0.1) + 0.3 / np.sqrt(0.09 + 0.9),
    "rmsprop_momentum": 1.5 * 0.1 / np.sqrt(0.1) + 0.3 / np.sqrt(0.09 + 0.9),
    "adam": 0.1 + 0.1 * ((0.09 + 0.3) / 0.19) / np.sqrt((0.000999 + 0.009) / (1 - 0.999**2)),
    "adamax": 0.1 + 0.1 / 0.19 * (0.09 + 0.3) / 3,
    "sm3": 0.01 + 0.1 * (0.1 * 3 / np.sqrt(10) + 0.9 * 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_steps(name):
    init, update, params = OPTIMIZERS[name](0.1)
    start = {"a": jnp.array([1.0, -2.0]), "b": (jnp.array([[3.0]]),)}
    grads = fnx.tree.map(jnp.ones_like, start)
    state = update(1, fnx.tree.map(lambda g: 3 * g, grads), update(0, grads, init(start)))
    for x, x0 in zip(fnx.tree.leaves(params(state)), fnx.tree.leaves(start), strict=True):
        np.testing.assert_allclose(x, x0 - FALLS[name], rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_loops_of_steps_find_a_minimum(name):
    init, update, params = OPTIMIZERS[name](optimizers.polynomial_decay(0.2, 400, 0.0))
    goal = {"a": jnp.array([0.5, -1.0]), "b": jnp.array([[2.0]])}

    def loss(x):
        return sum(jnp.sum((u - v) ** 2) for u, v in zip(*map(fnx.tree.leaves, (x, goal))))

    @fnx.jit
    def fit(state):
        step = lambda i, s: update(i, fnx.grad(loss)(params(s)), s)
        return fnx.lax.fori_loop(0, 400, step, state)

    assert loss(params(fit(init(fnx.tree.map(jnp.zeros_like, goal))))) < 1e-2


def test_states_can_be_stored():
    init, update, _ = optimizers.adam(0.1)
    grads = {"w": jnp.ones(3), "b": 1.0}
    state = update(0, grads, init({"w": jnp.arange(3.0), "b": 2.0}))
    marked = optimizers.unpack_optimizer_state(state)
    assert set(marked) == {"w", "b"}
    again = optimizers.pack_optimizer_state(pickle.loads(pickle.dumps(marked)))
    for x, y in zip(*map(fnx.tree.leaves, (update(1, grads, again), update(1, grads, state)))):
        np.testing.assert_array_equal(x, y)
    with pytest.raises(TypeError, match="JoinPoint"):
        optimizers.pack_optimizer_state({"w": 1.0})
    with pytest.raises(TypeError, match="structure"):
        update(1, {"w": jnp.ones(3)}, state)


SCHEDULES = {
    "constant": (optimizers.constant(0.3), [0.3] * 5),
    "exponential": (optimizers.exponential_decay(1.0, 2, 0.25), [1, 0.5, 0.25, 0.125, 0.0625]),
    "inverse": (optimizers.inverse_time_decay(1.0, 2, 2.0), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    "staircase": (optimizers.inverse_time_decay(1.0, 2, 1.0, True), [1, 1, 1 / 2, 1 / 2, 1 / 3]),
    "polynomial": (optimizers.polynomial_decay(1.0, 2, 0.5, 2.0), [1, 0.625, 0.5, 0.5, 0.5]),
    "piecewise": (optimizers.piecewise_constant([1, 3], [3.0, 2.0, 1.0]), [3, 3, 2, 2, 1]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_step_sizes(name):
    schedule, wanted = SCHEDULES[name]
    np.testing.assert_allclose([schedule(i) for i in range(5)], wanted, rtol=1e-12)
    np.testing.assert_allclose(fnx.jit(lambda i: 1.0 * schedule(i))(3), wanted[3], rtol=1e-12)


def test_step_sizes_that_are_none():
    with pytest.raises(TypeError, match="step size"):
        optimizers.make_schedule(jnp.ones(2))
    with pytest.raises(ValueError, match="boundaries"):
        optimizers.piecewise_constant([1, 2], [0.1, 0.2])


def test_gradients_are_clipped_together():
    grads = {"a": jnp.array(3.0), "b": jnp.array(4.0)}
    assert float(optimizers.l2_norm(grads)) == 5.0
    clipped = optimizers.clip_grads(grads, 1.0)
    np.testing.assert_allclose([clipped["a"], clipped["b"]], [0.6, 0.8], rtol=1e-12)
    assert fnx.tree.map(float, optimizers.clip_grads(grads, 9.0)) == {"a": 3.0, "b": 4.0}


NETS = {
    "dense": (stax.serial(stax.Dense(8), stax.Tanh, stax.Dense(3), stax.LogSoftmax), (4, 5)),
    "images": (
        stax.serial(
            stax.Conv(4, (3, 3), padding="SAME"), stax.BatchNorm(), stax.Relu,
            stax.MaxPool((2, 2), strides=(2, 2)), stax.Conv(2, (2, 2), (2, 2)),
            stax.AvgPool((2, 2), padding="SAME"), stax.Flatten, stax.Dense(3),
        ),
        (2, 8, 8, 3),
    ),
    "branches": (
        stax.serial(
            stax.FanOut(2), stax.parallel(stax.Dense(4), stax.serial(stax.Dense(4), stax.Gelu)),
            stax.FanInSum, stax.FanOut(2), stax.parallel(stax.Identity, stax.Elu), stax.FanInConcat(),
        ),
        (2, 5),
    ),
    "larger images": (
        stax.serial(stax.ConvTranspose(4, (3, 3), strides=(2, 2)), stax.SumPool((2, 2))),
        (2, 4, 4, 3),
    ),
    "sequences": (stax.Conv1DTranspose(4, (3,), strides=(2,), padding="SAME"), (2, 4, 3)),
    "channels first": (stax.GeneralConv(("NCHW", "OIHW", "NCHW"), 4, (2, 2)), (2, 3, 5, 5)),
    "by shape": (stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1])), (3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_layers_tell_the_shapes_of_what_they_compute(name):
    (init, apply), shape = NETS[name]
    found, params = init(fnx.random.key(0), shape)
    x = np.random.default_rng(0).normal(size=shape)
    out = apply(params, x)
    assert out.shape == tuple(found)
    np.testing.assert_allclose(fnx.jit(apply)(params, x), out, rtol=1e-9, atol=1e-12)
    anything, _ = init(fnx.random.key(0), (-1, *shape[1:]))
    assert tuple(anything) == (-1, *out.shape[1:])


def test_a_dense_layer_by_hand():
    init, apply = stax.Dense(2, initializers.ones, initializers.constant(3.0))
    _, params = init(fnx.random.key(0), (1, 3))
    np.testing.assert_array_equal(apply(params, jnp.arange(3.0)[None]), [[6.0, 6.0]])


def test_pools_by_hand():
    x = jnp.arange(4.0).reshape(1, 2, 2, 1)
    for layer, wanted in [(stax.MaxPool, 3.0), (stax.SumPool, 6.0), (stax.AvgPool, 1.5)]:
        np.testing.assert_array_equal(layer((2, 2))[1]((), x), [[[[wanted]]]])
    edge = stax.AvgPool((2, 2), padding="SAME")[1]((), x)  # the mean of what is there
    np.testing.assert_array_equal(edge[0, ..., 0], [[1.5, 2.0], [2.5, 3.0]])


def test_dropout_needs_a_key():
    _, apply = stax.serial(stax.Dropout(0.5))
    x = jnp.ones(1000)
    out = apply([()], x, rng=fnx.random.key(0))
    assert set(np.unique(out).tolist()) == {0.0, 2.0}
    assert abs(float(out.mean()) - 1) < 0.2
    with pytest.raises(ValueError, match="key"):
        apply([()], x)
    test = stax.Dropout(0.5, mode="test")[1]
    np.testing.assert_array_equal(test((), x, rng=fnx.random.key(0)), x)
