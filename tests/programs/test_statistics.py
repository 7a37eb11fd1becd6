"""Whole programs: statistical physics, random numbers, inference."""

from functools import partial

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg
import scipy.stats
from slopes import directional

import fnx
import fnx.numpy as jnp
import fnx.scipy.linalg as linalg
from fnx import lax

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)

# --- statistical physics and random numbers ----------------------------------------------------


def test_ising_model_replayed_in_numpy():
    size, sweeps, beta = 8, 20, 0.4
    board = np.add.outer(np.arange(size), np.arange(size)) % 2 == 0

    def half_sweep(xp, s, u, parity):
        near = sum(xp.roll(s, d, a) for d in (1, -1) for a in (0, 1))
        return xp.where((u < xp.exp(-2 * beta * s * near)) & parity, -s, s)

    def chain(key):
        def sweep(s, key):
            u = fnx.random.uniform(key, (2, size, size), "float64")
            s = half_sweep(jnp, half_sweep(jnp, s, u[0], board), u[1], ~board)
            return s, jnp.mean(s)

        return lax.scan(sweep, jnp.ones((size, size)), fnx.random.split(key, sweeps))[1]

    keys = fnx.random.split(fnx.random.key(3), 2)
    means = fnx.jit(fnx.vmap(chain))(keys)
    for key, mean in zip(keys, means):
        s = np.ones((size, size))
        for sub, m in zip(fnx.random.split(key, sweeps), np.asarray(mean)):
            u = np.asarray(fnx.random.uniform(sub, (2, size, size), "float64"))
            s = half_sweep(np, half_sweep(np, s, u[0], board), u[1], ~board)
            assert m == s.mean()


def test_brownian_paths_have_the_moments_of_theory():
    def path(key, rate):
        def step(x, noise):
            x = x - rate * x * 0.05 + np.sqrt(0.1) * noise
            return x, x

        return lax.scan(step, 0.0, fnx.random.normal(key, (200,), "float64"))[1]

    keys = fnx.random.split(fnx.random.key(0), 512)
    paths = fnx.jit(fnx.vmap(path, (0, None)))(keys, 1.0)
    late = np.asarray(paths)[:, 100:]
    assert abs(late.mean()) < 0.05
    assert abs(late.var() - 0.1 / (1 - 0.95**2)) < 0.05


def test_molecules_in_a_box():
    n, box = 9, 4.0
    rng = np.random.default_rng(4)
    i, j = np.triu_indices(n, 1)
    grid = np.stack(np.meshgrid(*[np.arange(3) * box / 3] * 2), -1).reshape(n, 2)
    x0 = grid + rng.normal(size=(n, 2)) * 0.05

    def potential(x):
        d = x[i] - x[j]
        d = d - box * jnp.round(d / box)
        s6 = 1 / jnp.sum(d**2, -1) ** 3
        return jnp.sum(4 * (s6**2 - s6))

    force = fnx.jit(lambda x: -fnx.grad(potential)(x))
    d = x0[i] - x0[j]
    d -= box * np.round(d / box)
    r2 = (d**2).sum(-1)
    pull = (24 * (2 / r2**6 - 1 / r2**3) / r2)[:, None] * d
    expected = np.zeros((n, 2))
    np.add.at(expected, i, pull)
    np.add.at(expected, j, -pull)
    close(force(x0), expected, atol=1e-9)

    def step(state, _):
        x, v, f = state
        v = v + 5e-4 * f
        x = (x + 1e-3 * v) % box
        f = force(x)
        v = v + 5e-4 * f
        return (x, v, f), potential(x) + 0.5 * jnp.sum(v**2)

    start = jnp.asarray(x0), jnp.zeros((n, 2)), force(x0)
    energies = np.asarray(fnx.jit(lambda s: lax.scan(step, s, None, length=200)[1])(start))
    close(energies, float(potential(x0)), rtol=1e-3)


# --- inference ---------------------------------------------------------------------------------


def test_gaussian_process():
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 5, 20))
    y = np.sin(x) + 0.1 * rng.normal(size=20)

    def kernel(xp, th):
        far = (x[:, None] - x) ** 2
        return xp.exp(th[0]) * xp.exp(-0.5 * far / xp.exp(th[1])) + xp.exp(th[2]) * xp.eye(20)

    def nll(th):
        low = jnp.linalg.cholesky(kernel(jnp, th))
        z = linalg.solve_triangular(low, y, lower=True)
        return 0.5 * z @ z + jnp.sum(jnp.log(jnp.diag(low))) + 10 * jnp.log(2 * np.pi)

    th = np.array([0.1, -0.3, -2.0])
    value, slope = fnx.jit(fnx.value_and_grad(nll))(th)
    k = kernel(np, th)
    close(value, -scipy.stats.multivariate_normal(np.zeros(20), k).logpdf(y))
    a = np.linalg.solve(k, y)
    inner = np.linalg.inv(k) - np.outer(a, a)
    smooth = k - np.exp(th[2]) * np.eye(20)
    far = (x[:, None] - x) ** 2
    parts = [smooth, smooth * 0.5 * far / np.exp(th[1]), np.exp(th[2]) * np.eye(20)]
    close(slope, [0.5 * np.sum(inner * p) for p in parts], rtol=1e-8)
    h = np.asarray(fnx.jit(fnx.hessian(nll))(th))
    close(h, h.T, rtol=1e-8)
    close(h, np.asarray(fnx.jacfwd(fnx.jacfwd(nll))(th)), rtol=1e-8)


def test_kalman_filter_is_the_dense_gaussian():
    rng = np.random.default_rng(2)
    n = 25
    y = np.cumsum(rng.normal(size=n)) + rng.normal(size=n)

    def nll(th):
        q, r = jnp.exp(th)

        def step(state, obs):
            m, p = state
            p = p + q
            s = p + r
            gain, e = p / s, obs - m
            return (m + gain * e, p * (1 - gain)), 0.5 * (e**2 / s + jnp.log(2 * np.pi * s))

        return jnp.sum(lax.scan(step, (0.0, 0.0), y)[1])

    th = np.array([0.2, -0.1])
    steps = np.minimum.outer(np.arange(1, n + 1), np.arange(1, n + 1))
    cov = np.exp(0.2) * steps + np.exp(-0.1) * np.eye(n)
    value, slope = fnx.jit(fnx.value_and_grad(nll))(th)
    close(value, -scipy.stats.multivariate_normal(np.zeros(n), cov).logpdf(y))
    a = np.linalg.solve(cov, y)
    inner = np.linalg.inv(cov) - np.outer(a, a)
    close(slope, [0.5 * np.sum(inner * p) for p in (np.exp(0.2) * steps, np.exp(-0.1) * np.eye(n))])


def test_logistic_regression_by_newton():
    rng = np.random.default_rng(7)
    features = rng.normal(size=(80, 4))
    y = (rng.uniform(size=80) < 1 / (1 + np.exp(-features @ rng.normal(size=4)))).astype(float)

    def cost(w):
        z = features @ w
        return jnp.sum(jnp.logaddexp(0.0, z) - y * z) + 0.5 * w @ w

    @fnx.jit
    def newton(w):
        def step(_, w):
            return w - jnp.linalg.solve(fnx.hessian(cost)(w), fnx.grad(cost)(w))

        return lax.fori_loop(0, 8, step, w)

    w = newton(jnp.zeros(4))
    best = scipy.optimize.minimize(cost, np.zeros(4), jac=fnx.grad(cost), method="BFGS", tol=1e-9)
    close(w, best.x, rtol=1e-6)
    p = 1 / (1 + np.exp(-features @ np.asarray(w)))
    close(fnx.hessian(cost)(w), features.T * (p * (1 - p)) @ features + np.eye(4))


def test_a_recurrent_network_learns():
    rng = np.random.default_rng(5)
    hidden = 5
    params = {
        "w": rng.normal(size=(4 * hidden, 2 + hidden)) * 0.5,
        "b": np.zeros(4 * hidden),
        "out": rng.normal(size=hidden),
    }
    xs, ys = rng.normal(size=(3, 12, 2)), rng.normal(size=(3, 12))
    sigmoid = lambda z: 1 / (1 + np.exp(-z))

    def predict(p, xs):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(p["w"] @ jnp.concatenate([x, h]) + p["b"], 4)
            c = fnx.nn.sigmoid(f) * c + fnx.nn.sigmoid(i) * jnp.tanh(g)
            h = fnx.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), p["out"] @ h

        return lax.scan(cell, (jnp.zeros(hidden), jnp.zeros(hidden)), xs)[1]

    def loss(p):
        return jnp.mean((fnx.vmap(predict, (None, 0))(p, xs) - ys) ** 2)

    total = 0.0
    for x_run, y_run in zip(xs, ys):
        h, c = np.zeros(hidden), np.zeros(hidden)
        for x, y in zip(x_run, y_run):
            i, f, g, o = np.split(params["w"] @ np.concatenate([x, h]) + params["b"], 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            total += (params["out"] @ h - y) ** 2
    value, slope = fnx.jit(fnx.value_and_grad(loss))(params)
    close(value, total / ys.size)
    for name, part in slope.items():
        along = rng.normal(size=part.shape)
        change = directional(lambda v, name=name: loss({**params, name: v}), params[name], along)
        close(np.vdot(part, along), change, rtol=1e-7)


def test_adam_on_a_pytree():
    rng = np.random.default_rng(6)
    features, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    tree_map = fnx.tree_util.tree_map

    def loss(p):
        return jnp.mean((features @ p["w"] + p["b"][0] - y) ** 2)

    def rule(t, p, m, v, g, root):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.05 * (m / (1 - 0.9**t)) / (root(v / (1 - 0.99**t)) + 1e-8), m, v

    @fnx.jit
    def train(p):
        def step(k, state):
            p, m, v = state
            new = tree_map(partial(rule, k + 1.0, root=jnp.sqrt), p, m, v, fnx.grad(loss)(p))
            return fnx.tree_util.tree_transpose(
                fnx.tree_util.tree_structure(p), fnx.tree_util.tree_structure((0, 0, 0)), new
            )

        zero = tree_map(jnp.zeros_like, p)
        return lax.fori_loop(0, 50, step, (p, zero, zero))[0]

    found = train({"w": jnp.zeros(3), "b": [jnp.float64(0.0)]})
    design = np.column_stack([features, np.ones(30)])
    p = m = v = np.zeros(4)
    for t in range(1, 51):
        p, m, v = rule(t, p, m, v, 2 / 30 * design.T @ (design @ p - y), np.sqrt)
    close(np.append(found["w"], found["b"][0]), p, rtol=1e-8)
