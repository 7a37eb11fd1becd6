"""Programs as people write them, against NumPy, closed forms and finite differences."""

from functools import partial

import numpy as np
import pytest
from slopes import slope_check

import fnx
import fnx.numpy as jnp
from fnx import lax, random

close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10)


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
