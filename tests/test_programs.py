"""Programs as people write them, against NumPy, closed forms and finite differences."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, random


def close(found, expected, rtol=1e-9, atol=1e-10):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=rtol, atol=atol)


def slope_check(f, x, rtol=1e-5, step=1e-6):
    """The compiled gradient of f at x along a direction, against central differences of the compiled f."""
    f = fnx.jit(f)
    direction = np.random.default_rng(0).normal(size=np.shape(x))
    value = lambda s: float(f(jnp.asarray(np.asarray(x) + s * direction)))
    expected = (value(step) - value(-step)) / (2 * step)
    gradient = fnx.jit(fnx.grad(f))(jnp.asarray(x))
    assert float(np.sum(np.asarray(gradient) * direction)) == pytest.approx(
        expected, rel=rtol, abs=1e-7
    )
    return gradient


# --- simulations -------------------------------------------------------------------------------


def lorenz(state):
    x, y, z = state
    return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


def rk4(f, y, h):
    k1 = f(y)
    k2 = f(y + 0.5 * h * k1)
    k3 = f(y + 0.5 * h * k2)
    k4 = f(y + h * k3)
    return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def test_lorenz_and_its_gradient():
    def loss(y):
        last, path = lax.scan(lambda c, _: (rk4(lorenz, c, 0.01),) * 2, y, None, length=150)
        return jnp.sum(last) + 0.1 * jnp.mean(path**2)

    start = np.array([1.0, 2.0, 20.0])
    y, path = start, []
    f = lambda v: np.array(
        [10 * (v[1] - v[0]), v[0] * (28 - v[2]) - v[1], v[0] * v[1] - 8 / 3 * v[2]]
    )
    for _ in range(150):
        y = rk4(f, y, 0.01)
        path.append(y)
    assert float(fnx.jit(loss)(jnp.asarray(start))) == pytest.approx(
        y.sum() + 0.1 * np.mean(np.square(path))
    )
    gradient = slope_check(loss, start)
    many = fnx.jit(fnx.vmap(fnx.grad(loss)))(jnp.stack([start, start + 1.0]))
    close(many[0], gradient)


def test_planets_keep_their_energy():
    masses = jnp.array([1.0, 0.1, 0.05])

    def potential(q):
        d = q[:, None] - q[None]
        r = jnp.sqrt(jnp.sum(d**2, -1) + 1e-3)
        return -0.5 * jnp.sum(jnp.where(jnp.eye(3, dtype=bool), 0.0, masses[:, None] * masses / r))

    def step(state, _):
        q, p = state
        p = p - 0.005 * fnx.grad(potential)(q)
        q = q + 0.01 * p / masses[:, None]
        p = p - 0.005 * fnx.grad(potential)(q)
        return (q, p), jnp.sum(p**2 / masses[:, None]) / 2 + potential(q)

    q = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    p = jnp.array([[0.0, 0.0], [0.0, 0.1], [-0.03, 0.0]])
    (last, _), energies = fnx.jit(lambda q, p: lax.scan(step, (q, p), None, length=400))(q, p)
    assert np.ptp(np.asarray(energies)) < 1e-3 * abs(float(energies[0]))
    assert float(jnp.max(jnp.abs(last - q))) > 0.1
    slope_check(lambda q: jnp.sum(lax.scan(step, (q, p), None, length=20)[0][0] ** 2), q)


def test_heat_equation_with_updates_in_place():
    def heat(u, k, steps=40):
        def step(i, u):
            inner = u[1:-1, 1:-1]
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            return u.at[1:-1, 1:-1].add(k * (around - 4.0 * inner))

        return lax.fori_loop(0, steps, step, u)

    u = np.random.default_rng(1).normal(size=(12, 15))
    expected = u.copy()
    for _ in range(40):
        around = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] += 0.2 * (around - 4 * expected[1:-1, 1:-1])
    close(fnx.jit(heat)(jnp.asarray(u), 0.2), expected)
    slope_check(lambda k: jnp.sum(heat(jnp.asarray(u), k) ** 3), np.asarray(0.2))
    slope_check(lambda v: jnp.sum(heat(v, 0.2) ** 3), u)
    slope_check(lambda v: jnp.sum(fnx.checkpoint(heat)(v, 0.2) ** 3), u)


def test_spectral_derivative_and_burgers():
    n = 64
    x = np.arange(n) * 2 * np.pi / n
    k = jnp.fft.fftfreq(n, 1.0 / n)

    def derivative(u):
        return jnp.real(jnp.fft.ifft(1j * k * jnp.fft.fft(u)))

    close(fnx.jit(derivative)(jnp.sin(3 * x)), 3 * np.cos(3 * x), atol=1e-12)

    def burgers(u):
        step = lambda u, _: (u - 0.01 * u * derivative(u) + 0.002 * derivative(derivative(u)), None)
        return lax.scan(step, u, None, length=30)[0]

    slope_check(lambda u: jnp.sum(burgers(u) ** 2), np.sin(x))


def test_game_of_life():
    def step(board):
        moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
        neighbours = sum(jnp.roll(board, m, (0, 1)) for m in moves)
        return ((neighbours == 3) | ((board == 1) & (neighbours == 2))).astype(board.dtype)

    glider = np.zeros((8, 8), np.int8)
    glider[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    out = fnx.jit(lambda b: lax.fori_loop(0, 32, lambda i, b: step(b), b))(jnp.asarray(glider))
    np.testing.assert_array_equal(np.asarray(out), glider)  # once around the torus


def test_mandelbrot_by_a_while_loop_in_lanes():
    def rounds(c):
        more = lambda s: (s[1] < 50) & (jnp.abs(s[0]) <= 2.0)
        return lax.while_loop(more, lambda s: (s[0] * s[0] + c, s[1] + 1), (0.0 * c, 0))[1]

    re, im = np.meshgrid(np.linspace(-2, 0.5, 7), np.linspace(-1, 1, 6))
    cs = re + 1j * im

    def plain(c):
        z, n = 0j, 0
        while n < 50 and abs(z) <= 2:
            z, n = z * z + c, n + 1
        return n

    found = fnx.jit(fnx.vmap(fnx.vmap(rounds)))(jnp.asarray(cs))
    np.testing.assert_array_equal(np.asarray(found), np.vectorize(plain)(cs))


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


# --- implicit functions, searching, sampling ---------------------------------------------------


def test_a_fixed_point_with_a_rule_of_its_own():
    @partial(fnx.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f, a, guess):
        far = lambda s: jnp.abs(s[0] - s[1]) > 1e-12
        return lax.while_loop(far, lambda s: (s[1], f(a, s[1])), (guess, f(a, guess)))[1]

    def forward(f, a, guess):
        x = fixed_point(f, a, guess)
        return x, (a, x)

    def backward(f, residuals, ct):
        a, x = residuals
        _, pull_x = fnx.vjp(lambda x: f(a, x), x)
        _, pull_a = fnx.vjp(lambda a: f(a, x), a)
        far = lambda s: jnp.abs(s[0] - s[1]) > 1e-13
        u = lax.while_loop(far, lambda s: (s[1], ct + pull_x(s[1])[0]), (ct * 0.0, ct))[1]
        return pull_a(u)[0], jnp.zeros_like(x)

    fixed_point.defvjp(forward, backward)
    root = lambda a: fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)
    for f in (root, fnx.jit(root)):
        assert float(f(3.0)) == pytest.approx(np.sqrt(3.0))
        assert float(fnx.grad(f)(3.0)) == pytest.approx(0.5 / np.sqrt(3.0))
    close(fnx.jit(fnx.vmap(fnx.grad(root)))(jnp.array([2.0, 5.0])), 0.5 / np.sqrt([2.0, 5.0]))


def test_bisection_and_its_implicit_derivative():
    def bisect(f, _):
        def halve(i, ends):
            low, high = ends
            middle = 0.5 * (low + high)
            up = f(middle) > 0
            return jnp.where(up, low, middle), jnp.where(up, middle, high)

        return lax.fori_loop(0, 60, halve, (0.0, 10.0))[0]

    root = lambda a: lax.custom_root(lambda x: x**3 - a, 1.0, bisect, lambda g, y: y / g(1.0))
    assert float(fnx.jit(root)(8.0)) == pytest.approx(2.0)
    assert float(fnx.jit(fnx.grad(root))(8.0)) == pytest.approx(1 / 12)


def test_sorting_by_exchange():
    @fnx.jit
    def bubble(x):
        n = x.shape[0]

        def inner(j, x):
            a, b = x[j], x[j + 1]
            return x.at[j].set(jnp.minimum(a, b)).at[j + 1].set(jnp.maximum(a, b))

        return lax.fori_loop(0, n, lambda i, x: lax.fori_loop(0, n - 1 - i, inner, x), x)

    x = np.random.default_rng(8).normal(size=30)
    np.testing.assert_array_equal(np.asarray(bubble(jnp.asarray(x))), np.sort(x))


def test_sieve_and_collatz():
    @fnx.jit
    def sieve(flags):
        def strike(p, flags):
            multiples = (jnp.arange(100) % p == 0) & (jnp.arange(100) > p)
            return jnp.where(flags[p] & multiples, False, flags)

        return lax.fori_loop(2, 10, strike, flags)

    primes = np.flatnonzero(np.asarray(sieve(jnp.arange(100) >= 2)))
    assert len(primes) == 25
    steps = lambda n: lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (lax.cond(s[0] % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, s[0]), s[1] + 1),
        (n, 0),
    )[1]
    assert [int(v) for v in fnx.jit(fnx.vmap(steps))(jnp.array([1, 6, 27]))] == [0, 8, 111]


def test_metropolis_and_monte_carlo():
    @fnx.jit
    def chain(key):
        def step(state, key):
            x, accepted = state
            a, b = random.split(key)
            y = x + 1.5 * random.normal(a)
            take = jnp.log(random.uniform(b)) < 0.5 * (x * x - y * y)
            return (jnp.where(take, y, x), accepted + take), jnp.where(take, y, x)

        (_, accepted), xs = lax.scan(step, (0.0, 0), random.split(key, 4000))
        return accepted, jnp.mean(xs), jnp.var(xs)

    accepted, mean, var = chain(random.key(7))
    assert 1500 < int(accepted) < 3500
    assert abs(float(mean)) < 0.15
    assert float(var) == pytest.approx(1.0, abs=0.15)
    points = random.uniform(random.key(1), (20000, 2))
    assert float(4 * jnp.mean(jnp.sum(points**2, 1) < 1)) == pytest.approx(np.pi, abs=0.05)


def test_dynamic_programming_edit_distance():
    a, b = np.array([1, 2, 3, 3, 2, 4]), np.array([1, 3, 3, 2, 2])

    @fnx.jit
    def distance(a, b):
        def row(previous, x):
            def cell(left, args):
                up, diagonal, y = args
                value = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + (x != y))
                return value, value

            first = previous[0] + 1
            _, rest = lax.scan(cell, first, (previous[1:], previous[:-1], b))
            return jnp.concatenate([first[None], rest]), None

        return lax.scan(row, jnp.arange(len(b) + 1), a)[0][-1]

    table = np.zeros((7, 6), int)
    table[:, 0], table[0] = np.arange(7), np.arange(6)
    for i in range(6):
        for j in range(5):
            table[i + 1, j + 1] = min(
                table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + (a[i] != b[j])
            )
    assert int(distance(jnp.asarray(a), jnp.asarray(b))) == table[-1, -1]


def test_lu_by_updates_and_its_gradient():
    def lu(a):
        def step(k, a):
            rows = jnp.arange(5)
            factor = jnp.where(rows > k, a[:, k] / a[k, k], 0.0)
            right = jnp.where(rows > k, a[k], 0.0)
            a = a - factor[:, None] * right
            return a.at[:, k].set(jnp.where(rows > k, factor, a[:, k]))

        return lax.fori_loop(0, 4, step, a)

    a = np.random.default_rng(9).normal(size=(5, 5)) + 5 * np.eye(5)
    packed = np.asarray(fnx.jit(lu)(jnp.asarray(a)))
    close((np.tril(packed, -1) + np.eye(5)) @ np.triu(packed), a)
    log_det = lambda a: jnp.sum(jnp.log(jnp.diagonal(lu(a))))
    close(fnx.jit(fnx.grad(log_det))(jnp.asarray(a)), np.linalg.inv(a).T, rtol=1e-7)


@pytest.mark.parametrize(("f", "x", "expected"), [
    (lambda x: jnp.logaddexp(0.0, x), 0.0, 0.25), (lambda x: jnp.hypot(x, 1.0), 0.0, 1.0),
    (lambda x: jnp.hypot(x, 1.0), 1.0, 2.0**-1.5), (lambda x: jnp.abs(x) ** 2, 0.0, 2.0),
    (lambda x: jnp.logaddexp2(x, x * x), 1.0, 1.0 + np.log(2) / 4),
], ids=["logaddexp", "hypot0", "hypot1", "abs2", "logaddexp2"])  # fmt: skip
def test_second_derivatives_where_two_branches_meet(f, x, expected):
    h = 1e-4
    slope = fnx.grad(f)
    assert float(fnx.grad(slope)(x)) == pytest.approx(
        float(slope(x + h) - slope(x - h)) / (2 * h), rel=1e-5
    )
    assert float(fnx.jit(fnx.grad(slope))(x)) == pytest.approx(expected, rel=1e-6)


def test_reduce_by_a_function_with_control_flow():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 6, 2)))
    larger = lambda a, b: lax.cond(a > b, lambda: a, lambda: b + 0.0)
    total = lambda a, b: jnp.sum(jnp.stack([a, b]))
    for fn, expected in ((larger, np.max), (total, np.sum)):
        for axes in ((0,), (0, 2), (0, 1, 2)):
            run = lambda x, fn=fn, axes=axes: lax.reduce(x, 0.0, fn, axes)
            right = expected(np.asarray(x), axes, initial=0.0)
            np.testing.assert_allclose(run(x), right, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(fnx.jit(run)(x), right, rtol=1e-12, atol=1e-12)
            assert "host call" not in fnx.jit(run).lower(x).compile().report()
