"""Whole programs: fitting, filters and networks."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from slopes import slope_check

import fnx
import fnx.numpy as jnp
from fnx import lax, random

close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10)

# --- fitting -----------------------------------------------------------------------------------


@partial(fnx.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["activation"])
@dataclass
class Layer:
    w: fnx.Array
    b: fnx.Array
    activation: str = "tanh"

    def __call__(self, x):
        return getattr(jnp, self.activation)(x @ self.w + self.b)


def test_a_network_of_dataclasses_learns_by_adam():
    keys = random.split(random.key(0), 3)
    sizes = [(2, 16), (16, 16), (16, 1)]
    layers = [
        Layer(random.normal(k, s) / np.sqrt(s[0]), jnp.zeros(s[1])) for k, s in zip(keys, sizes)
    ]
    x = random.uniform(random.key(1), (64, 2), minval=-1.0, maxval=1.0)
    y = jnp.sin(3.0 * x[:, :1]) * x[:, 1:]

    def loss(layers):
        h = x
        for layer in layers:
            h = layer(h)
        return jnp.mean((h - y) ** 2)

    def adam(state, t):
        params, m, v = state
        value, g = fnx.value_and_grad(loss)(params)
        m = fnx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = fnx.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        move = lambda p, m, v: p - 0.02 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return (fnx.tree.map(move, params, m, v), m, v), value

    zeros = fnx.tree.map(jnp.zeros_like, layers)
    train = fnx.jit(lambda layers: lax.scan(adam, (layers, zeros, zeros), jnp.arange(1.0, 201.0)))
    (trained, _, _), losses = train(layers)
    assert isinstance(trained[0], Layer)
    assert float(losses[-1]) < 0.05 * float(losses[0])
    with fnx.disable_jit():
        state, first = (layers, zeros, zeros), []
        for t in (1.0, 2.0, 3.0):
            state, value = adam(state, t)
            first.append(float(value))
    close(losses[:3], first)


def test_logistic_regression_by_newton():
    rng = np.random.default_rng(2)
    x = jnp.asarray(np.c_[np.ones(50), rng.normal(size=(50, 2))])
    y = jnp.asarray(
        (rng.random(50) < 1 / (1 + np.exp(-np.asarray(x) @ [0.5, 1.0, -2.0]))).astype(float)
    )
    loss = lambda w: jnp.mean(jnp.logaddexp(0.0, x @ w) - y * (x @ w)) + 0.01 * jnp.sum(w**2)

    @fnx.jit
    def newton(w):
        step = lambda i, w: w - jnp.linalg.solve(fnx.hessian(loss)(w), fnx.grad(loss)(w))
        return lax.fori_loop(0, 8, step, w)

    w = newton(jnp.zeros(3))
    close(fnx.grad(loss)(w), np.zeros(3), atol=1e-12)
    starts = jnp.asarray(rng.normal(size=(4, 3)) * 0.3)
    close(fnx.vmap(newton)(starts), np.tile(w, (4, 1)), rtol=1e-7)


def test_gaussian_process_likelihood():
    rng = np.random.default_rng(3)
    x, y = np.sort(rng.random(12)), rng.normal(size=12)

    def negative_log(theta):
        length, noise = jnp.exp(theta[0]), jnp.exp(theta[1])
        kernel = jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + (noise + 1e-6) * jnp.eye(12)
        factor = jnp.linalg.cholesky(kernel)
        white = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
        return 0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diagonal(factor)))

    theta = np.array([-1.0, -2.0])
    kernel = np.exp(-0.5 * ((x[:, None] - x) / np.exp(-1)) ** 2) + (np.exp(-2) + 1e-6) * np.eye(12)
    expected = 0.5 * y @ np.linalg.solve(kernel, y) + 0.5 * np.linalg.slogdet(kernel)[1]
    assert float(fnx.jit(negative_log)(jnp.asarray(theta))) == pytest.approx(expected)
    slope_check(negative_log, theta)
    h = fnx.jit(fnx.hessian(negative_log))(jnp.asarray(theta))
    close(h, np.asarray(h).T, rtol=1e-7)


def test_kalman_filter():
    a, c = np.array([[1.0, 0.1], [0.0, 0.95]]), np.array([[1.0, 0.0]])
    q, r = 0.01 * np.eye(2), np.array([[0.1]])
    ys = np.cumsum(np.random.default_rng(4).normal(size=(25, 1)), 0)

    def update(solve, m, p, y):
        m, p = a @ m, a @ p @ a.T + q
        s = c @ p @ c.T + r
        gain = solve(s, c @ p).T
        return m + gain @ (y - c @ m), p - gain @ s @ gain.T

    def run(ys):
        def step(state, y):
            state = update(jnp.linalg.solve, *state, y)
            return state, state[0]

        return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), ys)[1]

    m, p, expected = np.zeros(2), np.eye(2), []
    for y in ys:
        m, p = update(np.linalg.solve, m, p, y)
        expected.append(m)
    close(fnx.jit(run)(jnp.asarray(ys)), expected)
    slope_check(lambda ys: jnp.sum(run(ys) ** 2), ys)


def test_viterbi():
    rng = np.random.default_rng(5)
    move, emit = np.log(rng.dirichlet(np.ones(4), 4)), np.log(rng.dirichlet(np.ones(4), 20))

    @fnx.jit
    def path(move, emit):
        def forward(score, e):
            table = score[:, None] + move
            return jnp.max(table, 0) + e, jnp.argmax(table, 0)

        last, back = lax.scan(forward, emit[0], emit[1:])
        end = jnp.argmax(last)
        _, states = lax.scan(lambda s, b: (b[s], b[s]), end, back, reverse=True)
        return jnp.append(states, end), jnp.max(last)

    states, best = path(jnp.asarray(move), jnp.asarray(emit))
    states = np.asarray(states)
    score = emit[0, states[0]] + sum(
        move[a, b] + emit[t + 1, b] for t, (a, b) in enumerate(pairwise(states))
    )
    assert float(best) == pytest.approx(score)
    other = rng.integers(0, 4, (200, 20))
    for s in other:
        assert float(best) >= emit[0, s[0]] + sum(
            move[a, b] + emit[t + 1, b] for t, (a, b) in enumerate(pairwise(s))
        )


# --- networks ----------------------------------------------------------------------------------


def test_attention():
    rng = np.random.default_rng(6)
    x, *ws = rng.normal(size=(2, 5, 8)), *rng.normal(size=(3, 8, 2, 4))

    def attention(x, wq, wk, wv):
        q, k, v = (jnp.einsum("btd,dhk->bhtk", x, w) for w in (wq, wk, wv))
        scores = jnp.einsum("bhsk,bhtk->bhst", q, k) / np.sqrt(4)
        scores = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), scores, -jnp.inf)
        scores = jnp.exp(scores - jnp.max(scores, -1, keepdims=True))
        weights = scores / jnp.sum(scores, -1, keepdims=True)
        return jnp.einsum("bhst,bhtk->bshk", weights, v)

    q, k, v = (np.einsum("btd,dhk->bhtk", x, w) for w in ws)
    scores = np.where(
        np.tril(np.ones((5, 5), bool)), np.einsum("bhsk,bhtk->bhst", q, k) / 2, -np.inf
    )
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    close(fnx.jit(attention)(x, *ws), np.einsum("bhst,bhtk->bshk", weights, v))
    slope_check(lambda x: jnp.sum(attention(x, *map(jnp.asarray, ws)) ** 2), x)


def test_a_recurrent_network_in_lanes():
    rng = np.random.default_rng(7)
    params = {"w": rng.normal(size=(4, 4)) * 0.4, "u": rng.normal(size=(3, 4)), "b": np.zeros(4)}
    xs, ys = rng.normal(size=(6, 10, 3)), rng.normal(size=(6, 4))

    def run(p, x):
        return lax.scan(
            lambda h, v: (jnp.tanh(h @ p["w"] + v @ p["u"] + p["b"]), None), jnp.zeros(4), x
        )[0]

    def loss(p):
        return jnp.mean((fnx.vmap(run, (None, 0))(p, jnp.asarray(xs)) - ys) ** 2)

    h = np.zeros((6, 4))
    for t in range(10):
        h = np.tanh(h @ params["w"] + xs[:, t] @ params["u"])
    tree = fnx.tree.map(jnp.asarray, params)
    assert float(fnx.jit(loss)(tree)) == pytest.approx(np.mean((h - ys) ** 2))
    flat, unravel = fnx.flatten_util.ravel_pytree(tree)
    slope_check(lambda v: loss(unravel(v)), flat)


def test_gradient_of_each_example():
    x, y = jnp.arange(12.0).reshape(4, 3) * 0.1, jnp.arange(4.0)
    loss = lambda w, x, y: (jnp.tanh(x @ w) - y) ** 2
    w = jnp.array([0.1, -0.2, 0.3])
    rows = fnx.jit(fnx.vmap(fnx.grad(loss), (None, 0, 0)))(w, x, y)
    close(rows, [fnx.grad(loss)(w, x[i], y[i]) for i in range(4)])
