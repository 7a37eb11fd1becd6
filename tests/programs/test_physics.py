"""Whole programs as physicists write them, against NumPy, SciPy and formulas."""

import tracemalloc
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
from fnx import lax

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def rk4(rhs, y, h):
    k1 = rhs(y)
    k2 = rhs(y + h / 2 * k1)
    k3 = rhs(y + h / 2 * k2)
    k4 = rhs(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


# --- ordinary differential equations -----------------------------------------------------------


def lorenz(u, s, r, b):
    x, y, z = u
    return jnp.array([s * (y - x), x * (r - z) - y, x * y - b * z])


def lorenz_states(p, u0, steps=200):
    def step(u, _):
        u = rk4(lambda u: lorenz(u, p["s"], p["r"], p["b"]), u, 0.005)
        return u, u

    return lax.scan(step, u0, None, length=steps)[1]


def test_lorenz_and_the_gradient_of_a_fit():
    p, u0 = {"s": 10.0, "r": 28.0, "b": 8 / 3}, np.array([1.0, 2.0, 3.0])
    found = fnx.jit(lorenz_states)(p, u0)
    exact = scipy.integrate.solve_ivp(
        lambda t, u: np.asarray(lorenz(u, **p)), (0, 1), u0, rtol=1e-10, atol=1e-12
    )
    close(found[-1], exact.y[:, -1], rtol=2e-5)

    def loss(r):
        return jnp.mean((lorenz_states({**p, "r": r}, u0) - found) ** 2)

    value, slope = fnx.jit(fnx.value_and_grad(loss))(27.0)
    close(value, loss(27.0))
    close(slope, directional(loss, 27.0, 1.0), rtol=1e-7)
    at_truth = fnx.grad(lambda p: jnp.mean((lorenz_states(p, u0) - found) ** 2))(p)
    assert all(abs(float(g)) < 1e-12 for g in at_truth.values())


def test_adaptive_steps_in_a_while_loop_for_many_oscillators():
    def rhs(y, mu):
        return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    def body(mu, state):
        t, h, y = state
        h = jnp.minimum(h, 3.0 - t)
        k1 = rhs(y, mu)
        k2 = rhs(y + h / 2 * k1, mu)
        k3 = rhs(y + 3 * h / 4 * k2, mu)
        new = y + h / 9 * (2 * k1 + 3 * k2 + 4 * k3)
        error = jnp.linalg.norm(h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - rhs(new, mu) / 8))
        fine = error < 1e-9
        wider = h * jnp.clip(0.9 * (1e-9 / (error + 1e-30)) ** (1 / 3), 0.2, 5.0)
        return lax.cond(fine, lambda: (t + h, wider, new), lambda: (t, wider, y))

    def solve(mu):
        start = (0.0, 0.01, jnp.array([2.0, 0.0]))
        return lax.while_loop(lambda s: s[0] < 3.0, partial(body, mu), start)[2]

    stiffness = np.array([0.5, 2.0, 5.0])
    for mu, y in zip(stiffness, fnx.jit(fnx.vmap(solve))(stiffness)):
        one = scipy.integrate.solve_ivp(
            lambda t, y, mu=mu: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]], (0, 3), [2, 0],
            rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        close(y, one.y[:, -1], rtol=2e-6)


def test_keplers_equation_by_newton_in_a_while_loop():
    def anomaly(mean, e):
        def body(state):
            x, _ = state
            d = (x - e * jnp.sin(x) - mean) / (1 - e * jnp.cos(x))
            return x - d, d

        return lax.while_loop(lambda s: jnp.abs(s[1]) > 1e-14, body, (mean, 1.0))[0]

    mean, e = np.linspace(0.1, 3.0, 40), np.linspace(0.0, 0.9, 40)
    solve = fnx.jit(fnx.vmap(lambda m, e: fnx.jvp(anomaly, (m, e), (1.0, 0.0))))
    x, slope = (np.asarray(v) for v in solve(mean, e))
    close(x - e * np.sin(x), mean)
    close(slope, 1 / (1 - e * np.cos(x)))


def test_planets_keep_energy_and_momentum_and_have_gradients():
    rng = np.random.default_rng(0)
    n = 6
    x, v, m = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.uniform(0.5, 1.5, n)
    v -= (m[:, None] * v).sum(0) / m.sum()

    def acceleration(x, xp=jnp):
        d = x[None] - x[:, None]
        return xp.sum(m[:, None] * d / (xp.sum(d**2, -1) + 0.01)[..., None] ** 1.5, 1)

    def energy(x, v):
        d = x[None] - x[:, None]
        pairs = m[:, None] * m / jnp.sqrt(jnp.sum(d**2, -1) + 0.01)
        return 0.5 * jnp.sum(m[:, None] * v**2) - jnp.sum(jnp.triu(pairs, 1))

    def leap(state, h, xp=jnp):
        x, v, a = state
        v = v + h / 2 * a
        x = x + h * v
        a = acceleration(x, xp)
        return x, v + h / 2 * a, a

    @fnx.jit
    def run(x, v):
        def step(s, _):
            s = leap(s, 1e-3)
            return s, energy(*s[:2])

        return lax.scan(step, (x, v, acceleration(x)), None, length=200)

    (last, speed, _), energies = run(x, v)
    state = x, v, acceleration(x, np)
    for _ in range(200):
        state = leap(state, 1e-3, np)
    close(last, state[0])
    close(np.asarray(m[:, None] * speed).sum(0), 0.0, atol=1e-12)
    close(energies, float(energy(x, v)), rtol=1e-4)

    def miss(v):
        return jnp.sum(run(x, v)[0][0][0] ** 2)

    along = rng.normal(size=(n, 3))
    close(np.vdot(fnx.jit(fnx.grad(miss))(v), along), directional(miss, v, along), rtol=1e-7)


# --- partial differential equations ------------------------------------------------------------


def test_heat_in_place_and_its_adjoint():
    n, steps, c = 32, 100, 0.3
    u0 = np.sin(np.linspace(0, np.pi, n))

    def heat(u):
        def step(_, u):
            return u.at[1:-1].add(c * (u[2:] - 2 * u[1:-1] + u[:-2]))

        return lax.fori_loop(0, steps, step, u)

    one = np.eye(n)
    one[1:-1] += c * (np.eye(n, k=1) - 2 * np.eye(n) + np.eye(n, k=-1))[1:-1]
    whole = np.linalg.matrix_power(one, steps)
    close(fnx.jit(heat)(u0), whole @ u0)
    weights = np.cos(np.arange(n))
    close(fnx.jit(fnx.grad(lambda u: weights @ heat(u)))(u0), weights @ whole)
    close(fnx.jacfwd(heat)(u0), whole)


def test_conductivity_from_temperatures():
    n = 20
    x = np.linspace(0.0, 1.0, n)

    def temperatures(k):
        def step(u, _):
            flux = 0.5 * (k[1:] + k[:-1]) * (u[1:] - u[:-1])
            u = u.at[1:-1].add(0.2 * (flux[1:] - flux[:-1]))
            return u, u

        return lax.scan(step, jnp.sin(np.pi * x) + 0.3 * jnp.sin(4 * np.pi * x), None, length=60)[1]

    truth = 1.0 + 0.5 * np.exp(-(((x - 0.4) / 0.2) ** 2))
    seen = temperatures(truth)
    loss = fnx.jit(fnx.value_and_grad(lambda k: jnp.sum((temperatures(k) - seen) ** 2)))
    found = scipy.optimize.minimize(loss, np.ones(n), jac=True, tol=1e-14, options={"maxiter": 500})
    assert found.fun < 1e-8
    close(found.x[2:-2], truth[2:-2], rtol=0.02)


def test_a_soliton_by_fourier_transforms():
    n, dt, steps = 64, 1e-3, 100
    x = np.linspace(-10, 10, n, endpoint=False)
    k = 2 * np.pi * np.fft.fftfreq(n, 20 / n)
    half = np.exp(0.5j * dt * k**3)  # the linear part of u_t = -6 u u_x - u_xxx, solved exactly

    def slope(v):
        return -3j * dt * k * jnp.fft.fft(jnp.fft.ifft(v).real ** 2)

    def step(v, _):
        a = slope(v)
        b = slope(half * (v + a / 2))
        c = slope(half * v + b / 2)
        d = slope(half**2 * v + half * c)
        return half**2 * v + (half**2 * a + 2 * half * (b + c) + d) / 6, None

    def run(u):
        return jnp.fft.ifft(lax.scan(step, jnp.fft.fft(u), None, length=steps)[0]).real

    speed = 2.0
    soliton = lambda t: speed / 2 / np.cosh(np.sqrt(speed) / 2 * (x - speed * t)) ** 2
    close(fnx.jit(run)(soliton(0.0)), soliton(dt * steps), atol=1e-4)
    mass = fnx.jit(fnx.grad(lambda u: jnp.sum(run(u))))(soliton(0.0))
    close(mass, np.ones(n), rtol=1e-9)  # the equation keeps the integral of u


def test_particles_in_cells():
    cells, rng = 16, np.random.default_rng(1)
    x, q = rng.uniform(size=200), rng.normal(size=200)

    def density(x, q):
        place = x * cells
        left = jnp.floor(place).astype(int)
        right = place - left
        rho = jnp.zeros(cells).at[left % cells].add(q * (1 - right))
        return rho.at[(left + 1) % cells].add(q * right)

    left = np.floor(x * cells).astype(int)
    part = x * cells - left
    expected = np.bincount(left, q * (1 - part), cells) + np.bincount(
        (left + 1) % cells, q * part, cells
    )
    close(fnx.jit(density)(x, q), expected)
    potential = np.cos(np.arange(cells))
    force, charge = fnx.jit(fnx.grad(lambda x, q: potential @ density(x, q), argnums=(0, 1)))(x, q)
    close(charge, potential[left] * (1 - part) + potential[(left + 1) % cells] * part)
    close(force, q * cells * (potential[(left + 1) % cells] - potential[left]))


# --- equations solved inside -------------------------------------------------------------------


def test_conjugate_gradients_on_a_sparse_matrix():
    n, rng = 40, np.random.default_rng(3)
    rows = np.concatenate([np.arange(n), np.arange(n - 1), np.arange(1, n)])
    cols = np.concatenate([np.arange(n), np.arange(1, n), np.arange(n - 1)])
    values = np.concatenate([np.full(n, 4.0), -np.ones(2 * n - 2)])
    b = rng.normal(size=n)

    def matvec(values, x):
        return jnp.zeros(n).at[rows].add(values * x[cols])

    def cg(matvec, b):
        def body(s):
            x, r, rr, p = s
            ap = matvec(p)
            a = rr / (p @ ap)
            r = r - a * ap
            new = r @ r
            return x + a * p, r, new, r + new / rr * p

        return lax.while_loop(lambda s: s[2] > 1e-28, body, (jnp.zeros(n), b, b @ b, b))[0]

    def loss(values, b):
        x = lax.custom_linear_solve(partial(matvec, values), b, cg, symmetric=True)
        return jnp.sum(x**2)

    a = scipy.sparse.csr_matrix((values, (rows, cols)), (n, n))
    x = scipy.sparse.linalg.spsolve(a, b)
    value, (by_values, by_b) = fnx.jit(fnx.value_and_grad(loss, argnums=(0, 1)))(values, b)
    adjoint = scipy.sparse.linalg.spsolve(a.T.tocsr(), 2 * x)
    close(value, x @ x)
    close(by_b, adjoint, atol=1e-11)
    close(by_values, -adjoint[rows] * x[cols], atol=1e-11)


def test_implicit_derivative_of_a_fixed_point():
    @fnx.custom_vjp
    def fixed(a):
        def body(state):
            return jnp.cos(a * state[0]), state[0]

        far = lambda s: jnp.max(jnp.abs(s[0] - s[1])) > 1e-14
        return lax.while_loop(far, body, (jnp.ones_like(a), jnp.zeros_like(a)))[0]

    def forward(a):
        x = fixed(a)
        return x, (a, x)

    def backward(saved, ct):
        a, x = saved
        jacobian = fnx.jacobian(lambda x: jnp.cos(a * x))(x)
        w = jnp.linalg.solve((jnp.eye(x.size) - jacobian).T, ct)
        return fnx.vjp(lambda a: jnp.cos(a * x), a)[1](w)

    fixed.defvjp(forward, backward)
    a = np.linspace(0.1, 0.8, 5)
    x = np.array(
        [scipy.optimize.brentq(lambda x, k=k: x - np.cos(k * x), 0, 1, xtol=1e-15) for k in a]
    )
    close(fnx.jit(fixed)(a), x)
    s = np.sin(a * x)
    close(fnx.jit(fnx.grad(lambda a: jnp.sum(fixed(a))))(a), -x * s / (1 + a * s), rtol=1e-9)


def test_energy_levels_by_hellmann_and_feynman():
    n = 24
    x = np.linspace(-4, 4, n)
    kinetic = (np.eye(n) - 0.5 * (np.eye(n, k=1) + np.eye(n, k=-1))) / (x[1] - x[0]) ** 2

    def levels(p):
        return jnp.linalg.eigh(kinetic + jnp.diag(p[0] * x**2 + p[1] * x**4))[0][:3]

    p = np.array([0.5, 0.1])
    energies, states = scipy.linalg.eigh(kinetic + np.diag(p[0] * x**2 + p[1] * x**4))
    close(fnx.jit(levels)(p), energies[:3])
    weight = states[:, :3].T ** 2
    expected = np.column_stack([weight @ x**2, weight @ x**4])
    close(fnx.jit(fnx.jacrev(levels))(p), expected, rtol=1e-8)
    close(fnx.jit(fnx.jacfwd(levels))(p), expected, rtol=1e-8)


def test_a_long_loop_outside_a_trace_needs_no_memory():
    rounds = 10**7
    tracemalloc.start()
    total = lax.fori_loop(0, rounds, lambda i, total: total + i, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == rounds * (rounds - 1) // 2
    assert peak < rounds
