"""Loops that count up to a traced bound: their derivatives against loops of known length and masks."""

from functools import cache

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.interpreters.primitives.scan import Scan
from fnx.transforms.jit import BACKEND

N = 6
RNG = np.random.default_rng(11)
GENERAL = RNG.normal(size=(N, N)) / N + 2 * np.eye(N)
POSITIVE = GENERAL @ GENERAL.T + np.eye(N)
K = np.arange(N)
JIT = pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])


def known(low, high, length):
    """`fori_loop` whose iterations all run, but do nothing outside the bounds."""

    def loop(first, end, body, state):
        def step(i, s):
            new = body(i, s)
            here = (i >= first) & (i < end)
            return fnx.tree_util.tree_map(lambda a, b: jnp.where(here, a, b), new, s)

        return lax.fori_loop(low, high, step, state)

    return loop if length else lax.fori_loop


def cholesky(a, loop):
    def row(i, a):
        def column(j, a):
            value = a[i, j] - jnp.dot(jnp.where(j > K, a[i], 0.0), jnp.where(j > K, a[j], 0.0))
            return a.at[i, j].set(value / a[j, j])

        a = loop(0, i, column, a)
        left = jnp.where(i > K, a[i], 0.0)
        return a.at[i, i].set(jnp.sqrt(a[i, i] - jnp.dot(left, left)))

    return lax.fori_loop(0, N, row, a)


def lu(a, loop):
    def row(i, a):
        def lower(j, a):
            value = a[i, j] - jnp.dot(jnp.where(j > K, a[i], 0.0), jnp.where(j > K, a[:, j], 0.0))
            return a.at[i, j].set(value / a[j, j])

        def upper(j, a):
            before = i > K
            return a.at[i, j].add(-jnp.dot(jnp.where(before, a[i], 0.0), a[:, j]))

        return loop(i, N, upper, loop(0, i, lower, a))

    return lax.fori_loop(0, N, row, a)


def gram_schmidt(a, loop):
    def direction(k, state):
        a, q, r = state
        r = r.at[k, k].set(jnp.sqrt(jnp.sum(a[:, k] ** 2)))
        q = q.at[:, k].set(a[:, k] / r[k, k])

        def apart(j, state):
            a, r = state
            r = r.at[k, j].set(jnp.dot(q[:, k], a[:, j]))
            return a.at[:, j].add(-q[:, k] * r[k, j]), r

        a, r = loop(k + 1, N, apart, (a, r))
        return a, q, r

    return sum(lax.fori_loop(0, N, direction, (a, jnp.zeros_like(a), jnp.zeros((N, N)))))


def three_deep(a, loop):
    def i_iteration(i, a):
        def j_iteration(j, a):
            term = lambda k, a: a.at[i, j].add(-0.1 * a[i, k] * jnp.sin(a[k, j]))
            return loop(j, i, term, a).at[j, i].multiply(1.1)

        return loop(0, i + 1, j_iteration, a)

    return lax.fori_loop(0, N, i_iteration, a)


KERNELS = [(cholesky, POSITIVE), (lu, GENERAL), (gram_schmidt, GENERAL), (three_deep, GENERAL)]


@JIT
@pytest.mark.parametrize(("kernel", "a"), KERNELS)
def test_triangular_nests(kernel, a, jit):
    loss = lambda loop: lambda a: jnp.sum(jnp.sin(kernel(a, loop)))
    found = jit(fnx.grad(loss(lax.fori_loop)))(a)
    expected = fnx.grad(loss(known(0, N, N)))(a)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    d = RNG.normal(size=a.shape)
    ends = [loss(lax.fori_loop)(a + h * d) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(jnp.sum(found * d), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "a"), KERNELS)
def test_second_order(kernel, a):
    loss = lambda loop: lambda s: jnp.sum(jnp.sin(kernel(a + s[0] * a.T + s[1] * a * a, loop)))
    s = jnp.array([0.1, 0.02])
    expected = fnx.hessian(loss(known(0, N, N)))(s)
    f = loss(lax.fori_loop)
    for second in (
        fnx.hessian,
        lambda f: fnx.jacrev(fnx.grad(f)),
        lambda f: fnx.jacfwd(fnx.grad(f)),
    ):
        np.testing.assert_allclose(fnx.jit(second(f))(s), expected, rtol=1e-8)
    _, slope = fnx.jvp(fnx.grad(f), (s,), (jnp.array([1.0, -2.0]),))
    np.testing.assert_allclose(slope, expected @ np.array([1.0, -2.0]), rtol=1e-8)


def test_a_nest_keeps_no_more_than_what_it_overwrites():
    n = 40
    a = jnp.asarray(np.eye(n) * 9 + 1)
    ix = np.arange(n)

    def f(a):
        def row(i, a):
            def column(j, a):
                return a.at[i, j].add(-jnp.dot(jnp.where(j > ix, a[i], 0.0), a[j]) / a[j, j])

            return lax.fori_loop(0, i, column, a)

        return jnp.sum(jnp.sin(lax.fori_loop(0, n, row, a)))

    compiled = fnx.jit(fnx.grad(f)).lower(a).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 6 * a.nbytes


# --- bounds ------------------------------------------------------------------------------------


def chain(low, high):
    """A sum and an array, with the counter in both."""

    def step(i, state):
        total, u = state
        u = u.at[i % 4].set(jnp.sin(u[(i + 1) % 4]) * total)
        return total * 0.9 + u.sum() / (2 + i * i), u

    return lambda x: jnp.sum(sum(lax.fori_loop(low, high, step, (x, jnp.cos(x + np.arange(4.0))))))


BOUNDS = [
    (low, high, dtype)
    for low, high in [(0, 5), (0, 0), (0, 1), (3, 1), (-4, 3), (2, 9), (7, -7)]
    for dtype in ("int64", "int32", "uint8")
    if dtype != "uint8" or min(low, high) >= 0
]


@cache
def of_known_length(low, high):
    return fnx.grad(chain(low, high))(0.7)


@pytest.mark.slow
@JIT
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("low", "high", "dtype"), BOUNDS)
def test_bounds(low, high, dtype, small, jit, monkeypatch):
    """Bounds that nothing is known of: in one block, and in several."""
    if small:
        monkeypatch.setattr(policy, "BLOCK_LEAST", 2)
        monkeypatch.setattr(policy, "BLOCK_MOST", 2)
    type_ = jnp.dtype(dtype).type
    gradient = jit(lambda x, a, b: fnx.grad(chain(a, b))(x))
    found = gradient(0.7, jnp.asarray(type_(low)), jnp.asarray(type_(high)))
    np.testing.assert_allclose(found, of_known_length(low, high), rtol=1e-12)
    # The same, with a known number of iterations at most.
    limited = lambda x, a, b: fnx.grad(chain(jnp.clip(a, -8, 10), jnp.clip(b, -8, 10)))(x)
    found = jit(limited)(0.7, jnp.asarray(np.int64(low)), jnp.asarray(np.int64(high)))
    np.testing.assert_allclose(found, of_known_length(low, high), rtol=1e-12)


def up(x, n):
    return lax.while_loop(lambda v: n + 1 >= v[0], lambda v: (1 + v[0], jnp.sin(v[1]) * x), (2, x))[
        1
    ]


def down(x, n):
    return lax.while_loop(lambda v: v[0] > -n, lambda v: (v[0] - 1, v[1] * x + v[0]), (3, x))[1]


def carried_bound(x, n):
    step = lambda v: (v[0] + 1, v[1], v[2] * x + v[1])
    return lax.while_loop(lambda v: v[0] <= v[1] // 2, step, (0, n, x))[2]


def bound_from_a_float(x, n):
    return lax.fori_loop(0, jnp.floor(n / x).astype(int), lambda i, y: y * x + i, x)


@JIT
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("f", [up, down, carried_bound, bound_from_a_float])
def test_loops_that_users_write(f, n, jit):
    value, slope = jit(fnx.value_and_grad(f))(0.8, n)
    np.testing.assert_allclose(value, f(0.8, n), rtol=1e-13)
    np.testing.assert_allclose(slope, fnx.jacfwd(f)(0.8, n), rtol=1e-13)
    ends = [f(0.8 + h, n) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n", [-5, -2, 3])
def test_the_counter_after_the_loop(n):
    def f(x, n):
        i, y = lax.while_loop(
            lambda v: v[0] < n, lambda v: (v[0] + 1, v[1] * x), (jnp.int32(-2), x)
        )
        return y * i, i

    (_, i), g = fnx.jit(fnx.value_and_grad(f, has_aux=True))(1.1, jnp.int32(n))
    assert i.dtype == np.int32
    assert i == max(n, -2)
    np.testing.assert_allclose(g, fnx.jacfwd(lambda x: f(x, n)[0])(1.1), rtol=1e-13)


# --- inside other transformations --------------------------------------------------------------


def ragged(x, n):
    """Rows of different lengths."""

    def row(i, state):
        def element(j, state):
            u, total = state
            return u.at[j % 3].multiply(jnp.sin(total) + i), total * x + 0.1

        u, total = lax.fori_loop(0, n[i], element, state)
        return u, total + u[i % 3]

    return lax.fori_loop(0, n.shape[0], row, (jnp.ones(3), x))[1]


COUNTS = jnp.array([[3, 0, 2], [1, 5, 0], [0, 0, 0], [7, 1, 2]])


@pytest.mark.slow
def test_vmap():
    x = jnp.array([0.3, 0.9, 1.1, -0.4])
    expected = [fnx.jacfwd(ragged)(a, n) for a, n in zip(x, COUNTS)]
    for f in (fnx.vmap(fnx.grad(ragged)), fnx.grad(lambda x, n: fnx.vmap(ragged)(x, n).sum())):
        np.testing.assert_allclose(f(x, COUNTS), expected, rtol=1e-12)
        np.testing.assert_allclose(fnx.jit(f)(x, COUNTS), expected, rtol=1e-12)
    one = fnx.vmap(fnx.grad(ragged), (0, None))(x, COUNTS[0])
    np.testing.assert_allclose(one, [fnx.jacfwd(ragged)(a, COUNTS[0]) for a in x], rtol=1e-12)
    lanes = fnx.jit(fnx.vmap(fnx.hessian(lambda x, n: ragged(x * x, jnp.minimum(n, 7)))))(x, COUNTS)
    second = [
        fnx.jacfwd(fnx.jacfwd(lambda x, n: ragged(x * x, n)))(a, n) for a, n in zip(x, COUNTS)
    ]
    np.testing.assert_allclose(lanes, second, rtol=1e-11)


@pytest.mark.parametrize("limit", [8, None])
def test_lanes_that_speak_to_each_other(limit):
    def f(x, n):
        n = n if limit is None else jnp.minimum(n, limit)
        step = lambda i, v: jnp.sin(v) * x + 0.1 * lax.psum(v, "lanes")
        return lax.fori_loop(0, n, step, x)

    def by_hand(x, n):
        v = x
        for i in range(4):
            v = jnp.where(i < n, jnp.sin(v) * x + 0.1 * v.sum(), v)
        return v

    x, n = jnp.array([0.3, 0.9, 1.1]), jnp.array([2, 4, 3])
    lanes = fnx.vmap(f, axis_name="lanes")
    np.testing.assert_allclose(lanes(x, n), by_hand(x, n), rtol=1e-12)
    weights = np.array([1.0, 2.0, -1.0])
    found = fnx.jit(fnx.grad(lambda x: (lanes(x, n) * weights).sum()))(x)
    expected = fnx.grad(lambda x: (by_hand(x, n) * weights).sum())(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_complex_carries():
    def f(loop):
        def iterations(x):
            def outer(i, z):
                return loop(i, 5, lambda j, z: z.at[j % 3].set(z[i % 3] * x * (1 + 0.3j) + j), z)

            return jnp.sum(jnp.abs(lax.fori_loop(0, 5, outer, jnp.ones(3) * (x + 1j))) ** 2)

        return iterations

    expected = fnx.grad(f(known(0, 5, 5)))(0.7)
    np.testing.assert_allclose(fnx.jit(fnx.grad(f(lax.fori_loop)))(0.7), expected, rtol=1e-12)


@pytest.mark.slow
def test_inside_branches_checkpoints_and_calls():
    def f(loop, wrap):
        def iterations(a):
            @wrap
            def inner(i, a):
                return loop(0, i, lambda j, a: a.at[i, j].multiply(jnp.cos(a[j, i])), a)

            def outer(i, a):
                return lax.cond(i % 3 == 1, lambda a: a * 0.9, lambda a: inner(i, a), a)

            return jnp.sum(jnp.sin(lax.fori_loop(0, N, outer, a)))

        return iterations

    expected = fnx.grad(f(known(0, N, N), lambda g: g))(GENERAL)
    for wrap in (lambda g: g, fnx.jit, fnx.checkpoint):
        g = fnx.grad(f(lax.fori_loop, wrap))
        np.testing.assert_allclose(fnx.jit(g)(GENERAL), expected, rtol=1e-12)
        np.testing.assert_allclose(g(GENERAL), expected, rtol=1e-12)
        np.testing.assert_allclose(
            fnx.grad(fnx.checkpoint(f(lax.fori_loop, wrap)))(GENERAL), expected, rtol=1e-12
        )
    with fnx.disable_jit():
        np.testing.assert_allclose(fnx.grad(f(lax.fori_loop, lambda g: g))(GENERAL), expected)


def test_linearize_runs_forward():
    _, push = fnx.linearize(lambda a: cholesky(a, lax.fori_loop), POSITIVE)
    d = RNG.normal(size=(N, N))
    _, expected = fnx.jvp(lambda a: cholesky(a, known(0, N, N)), (POSITIVE,), (d,))
    np.testing.assert_allclose(push(d), expected, rtol=1e-10, atol=1e-13)
    back = fnx.linear_transpose(push, POSITIVE)
    np.testing.assert_allclose(
        jnp.sum(back(d)[0] * d), jnp.sum(fnx.jvp(push, (d,), (d,))[1] * d), rtol=1e-10
    )


def test_large_arrays_in_blocks():
    """Rows are overwritten in place: what a block keeps does not depend on the array's size."""
    n = 300
    a = jnp.asarray(RNG.normal(size=(n, 50)))

    def f(loop):
        def iterations(a, m):
            step = lambda i, a: a.at[i % n].set(jnp.sin(a[(i - 1) % n]) + a[i % n])
            return jnp.sum(jnp.cos(loop(0, m, step, a)))

        return iterations

    gradient = fnx.jit(fnx.grad(f(lax.fori_loop)))
    for m in (0, 7, 700):
        expected = fnx.grad(lambda a: f(lax.fori_loop)(a, m))(a)  # noqa: B023
        np.testing.assert_allclose(gradient(a, m), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_a_traced_number_of_iterations(reverse):
    """The primitive itself, with a counter among the carries and stacked results."""

    def body(n, k, y, x):
        new = jnp.sin(y) * x + k
        return k + 2, new, y * x

    jaxpr = fnx.make_jaxpr(body)(0, 0, 0.0, 0.0).jaxpr
    scan = Scan(jaxpr, 1, 2, 9, reverse=reverse, counted=True, backend=BACKEND)
    xs = jnp.linspace(-1.0, 1.0, 9)

    def f(y, xs, n):
        _, last, ys = scan(n, jnp.asarray(3), y, xs)
        return last + jnp.sum(jnp.where(np.arange(9) < n, ys, 0.0) ** 2)

    def by_hand(y, xs, n):
        k, total = 3, 0.0
        for t in reversed(range(n)) if reverse else range(n):
            total += (y * xs[t]) ** 2
            k, y = k + 2, jnp.sin(y) * xs[t] + k
        return y + total

    for n in (0, 1, 6, 9):
        expected = fnx.grad(by_hand, (0, 1))(0.3, xs, n)
        for g in (fnx.grad(f, (0, 1)), fnx.jit(fnx.grad(f, (0, 1)))):
            found = g(jnp.float64(0.3), xs, jnp.asarray(n))
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
            np.testing.assert_allclose(found[1][:n], expected[1][:n], rtol=1e-12)
