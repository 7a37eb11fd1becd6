"""Gradients of loops that update an array in place: right, and without a copy of it in each iteration."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.scan import Scan

RNG = np.random.default_rng(0)
N = 24
SPD = (lambda m: m @ m.T + N * np.eye(N))(RNG.normal(size=(N, N)))
A = RNG.normal(size=(N, N)) + 6 * np.eye(N)
B = RNG.normal(size=N)


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def backend(request):
    with fnx.core.config.backend(request.param):
        yield request.param


def cholesky(a):
    """Row by row, with whole rows and masks."""
    n = a.shape[0]
    k = jnp.arange(n)

    def body(j, l):
        row = jnp.where(k < j, l[j], 0.0)
        col = (a[:, j] - l @ row) / jnp.sqrt(a[j, j] - row @ row)
        return l.at[:, j].set(jnp.where(k >= j, col, 0.0))

    return lax.fori_loop(0, n, body, jnp.zeros_like(a))


def gram_schmidt(a):
    n = a.shape[0]

    def body(j, q):
        v = a[:, j] - q @ (q.T @ a[:, j])
        return q.at[:, j].set(v / jnp.sqrt(v @ v))

    return lax.fori_loop(0, n, body, jnp.zeros_like(a))


def lu(a):
    """Right-looking elimination: the whole array changes in each iteration."""
    n = a.shape[0]
    k = jnp.arange(n)

    def body(j, m):
        factors = jnp.where(k > j, m[:, j] / m[j, j], 0.0)
        m = m - jnp.outer(factors, jnp.where(k >= j, m[j], 0.0))
        return m.at[:, j].add(factors)

    return lax.fori_loop(0, n, body, a)


def solve_lower(a, b):
    n = a.shape[0]

    def body(i, x):
        return x.at[i].set((b[i] - jnp.where(jnp.arange(n) < i, a[i], 0.0) @ x) / a[i, i])

    return lax.fori_loop(0, n, body, jnp.zeros_like(b))


def durbin(r):
    """Levinson's recursion for the Yule-Walker equations."""
    n = r.shape[0]
    k = jnp.arange(n)

    def body(j, state):
        y, alpha, beta = state
        beta = (1 - alpha * alpha) * beta
        turned = jnp.where(k < j, jnp.roll(y[::-1], j), 0.0)
        alpha = -(r[j] + jnp.where(k < j, jnp.roll(r[::-1], j), 0.0) @ y) / beta
        y = jnp.where(k < j, y + alpha * turned, y)
        return y.at[j].set(alpha), alpha, beta

    y = jnp.zeros(n).at[0].set(-r[0])
    return lax.fori_loop(1, n, body, (y, -r[0], jnp.asarray(1.0)))[0]


def seidel(a):
    n = a.shape[0]

    def body(t, m):
        i = 1 + t % (n - 2)
        row = (m[i - 1] + m[i] + m[i + 1]) / 3.0
        return m.at[i].set(row * m[i])

    return lax.fori_loop(0, 3 * (n - 2), body, a)


def scattered(a, b):
    """Updates of other kinds: added, multiplied, strided, at index vectors, twice in an iteration."""
    where = jnp.array([3, 1, 1, 7])

    def body(i, m):
        m = m.at[where + i, i].add(b[:4] * m[i, i])
        m = m.at[i].multiply(jnp.cos(m[:, i]))
        return m.at[0, ::3].set(jnp.sin(m[1, ::3]))

    return lax.fori_loop(0, 8, body, a * 0.1)


def nested(a):
    """A loop in a loop, element by element."""
    n = 6

    def outer(i, l):
        def inner(j, l):
            s = a[i, j] - jnp.where(jnp.arange(n) < j, l[i] * l[j], 0.0).sum()
            return l.at[i, j].set(jnp.where(i == j, jnp.sqrt(jnp.abs(s)), s / (l[j, j] + (i == j))))

        return lax.fori_loop(0, n, lambda j, l: lax.cond(j <= i, inner, lambda j, l: l, j, l), l)

    return lax.fori_loop(0, n, outer, jnp.zeros((n, n)))


CASES = [
    (cholesky, (SPD,)),
    (gram_schmidt, (A,)),
    (lu, (A,)),
    (solve_lower, (A, B)),
    (durbin, (0.5 * RNG.normal(size=N) / N,)),
    (seidel, (A[:8],)),
    (scattered, (A, B)),
    (nested, (SPD[:6, :6],)),
]


def numeric(f, args, k, direction, eps=1e-6):
    moved = [
        [
            jnp.asarray(a + s * eps * direction) if j == k else jnp.asarray(a)
            for j, a in enumerate(args)
        ]
        for s in (1, -1)
    ]
    return (float(f(*moved[0])) - float(f(*moved[1]))) / (2 * eps)


@pytest.mark.parametrize(("f", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_gradients(f, args):
    args = [jnp.asarray(a) for a in args]
    weights = RNG.normal(size=np.shape(f(*args)))
    loss = lambda *xs: jnp.sum(weights * f(*xs) ** 2)
    for k, x in enumerate(args):
        direction = RNG.normal(size=x.shape)
        expected = numeric(fnx.jit(loss), args, k, direction)
        for g in (fnx.grad(loss, k), fnx.jit(fnx.grad(loss, k)), fnx.grad(fnx.jit(loss), k)):
            found = np.sum(np.asarray(g(*args)) * direction)
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_values():
    np.testing.assert_allclose(
        np.asarray(cholesky(jnp.asarray(SPD))), np.linalg.cholesky(SPD), rtol=1e-10
    )
    q = np.asarray(gram_schmidt(jnp.asarray(A)))
    np.testing.assert_allclose(q.T @ q, np.eye(N), atol=1e-10)
    np.testing.assert_allclose(
        np.asarray(solve_lower(jnp.asarray(A), jnp.asarray(B))),
        np.linalg.solve(np.tril(A), B),
        rtol=1e-8,
    )
    m = np.asarray(lu(jnp.asarray(A)))
    lower, upper = np.tril(m, -1) + np.eye(N), np.triu(m)
    np.testing.assert_allclose(lower @ upper, A, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("f", [cholesky, gram_schmidt], ids=lambda f: f.__name__)
def test_second_derivatives_and_lanes(f, backend):
    x = SPD[:5, :5] if f is cholesky else A[:5, :5]
    loss = lambda v: jnp.sum(jnp.sin(f(v)))
    d = RNG.normal(size=x.shape)
    slope = lambda v: jnp.sum(fnx.grad(loss)(v) * d)
    expected = numeric(fnx.jit(slope), (x,), 0, d, 1e-5)
    for h in (fnx.grad(slope), fnx.jit(fnx.grad(slope))):
        np.testing.assert_allclose(np.sum(np.asarray(h(x)) * d), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(float(fnx.jvp(slope, (x,), (d,))[1]), expected, rtol=1e-4, atol=1e-6)
    xs = np.stack([x, x + 0.1 * np.eye(5)])
    lanes = np.asarray(fnx.jit(fnx.vmap(fnx.grad(loss)))(xs))
    for k in range(2):
        np.testing.assert_allclose(
            lanes[k], np.asarray(fnx.grad(loss)(xs[k])), rtol=1e-9, atol=1e-12
        )


def scans(f, *args):
    loss = lambda *xs: jnp.sum(f(*xs) ** 2)
    jaxpr = simplify(
        fnx.make_jaxpr(fnx.value_and_grad(loss, tuple(range(len(args)))))(*args).jaxpr, True
    )
    check_jaxpr(jaxpr)
    return [e for e in jaxpr.eqns if isinstance(e.prim, Scan)]


def bytes_stacked(loops):
    return [sum(a.nbytes for a in e.prim.jaxpr.out_avals[e.prim.carry :]) for e in loops]


@pytest.mark.parametrize("f", [cholesky, gram_schmidt], ids=lambda f: f.__name__)
def test_an_array_updated_in_place_is_restored(f, backend):
    """Forward, what is overwritten is kept, beside a few vectors; backward without the array."""
    forward, back = scans(f, A)
    assert bytes_stacked([forward])[0] <= 4 * N * 8, (
        "a few vectors an iteration, and never the array"
    )
    assert back.prim.reverse
    assert back.prim.carry == 3


def test_slices_that_are_read_are_stored(backend):
    loops = scans(seidel, A[:8])
    assert bytes_stacked(loops)[0] <= 4 * N * 8
    assert all(e.prim.jaxpr.out_avals[0].size >= 0 for e in loops)


def test_no_zeros_are_added_in_a_iteration(backend):
    """The cotangent of a row that is read is added in place."""
    f = lambda a, b: lax.fori_loop(0, N, lambda i, c: c + jnp.sin(a[i]) * b[i], jnp.zeros(N))
    back = scans(f, A, B)[-1]
    for e in back.prim.jaxpr.eqns:
        if e.prim.name == "broadcast_in_dim":
            assert e.outs[0].aval.size <= N
    big = [e.prim.name for e in back.prim.jaxpr.eqns if e.outs[0].aval.size == N * N]
    assert len(big) == 1
    assert big[0] in ("scatter-add", "dynamic_slice_add")


def test_a_value_stored_as_the_start_of_a_stacked_result_is_read_before_it_changes():
    from fnx.ops.structure.dynamic_slice import dynamic_slice_add

    def arm(x, d):
        half = 0.5 * x
        moved = 2.0 * half[:2]
        cleared = lax.dynamic_update_slice(half, jnp.zeros((2, 20)), (0, 0))
        return dynamic_slice_add(cleared, moved, d, jnp.asarray(0))

    def rows(flags, xs, ds):
        one = lambda t: lax.cond(t[0], arm, lambda x, d: x, t[1], t[2])
        return lax.map(one, (flags, xs, ds))

    xs = np.random.default_rng(0).normal(size=(3, 4, 20))
    flags, ds = np.array([True, False, True]), np.array([1, 0, 2])
    expected = xs.copy()
    for k in (0, 2):
        half = 0.5 * xs[k]
        expected[k] = half
        expected[k, :2] = 0.0
        expected[k, ds[k] : ds[k] + 2] += 2.0 * half[:2]
    np.testing.assert_allclose(fnx.jit(rows)(flags, xs, ds), expected, rtol=1e-14)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("shape", [(2, 0), (2, 3, 0), (2, 30, 0)])
def test_a_loop_that_writes_in_place_may_go_over_arrays_without_elements(shape, n):
    def iterations(xs, nothing, y):
        def step(y, row):
            x, none = row
            y = lax.fori_loop(0, 3, lambda i, y: y.at[i].add(x[i] + jnp.sum(none)), y)
            return y, (none, jnp.sum(y))

        return lax.scan(step, y, (xs, nothing))

    xs, nothing = np.arange(2.0 * n).reshape(2, n), np.zeros(shape)
    y, (none, sums) = fnx.jit(iterations)(xs, nothing, np.zeros(n))
    expected = np.where(np.arange(n) < 3, xs, 0.0).cumsum(0)
    np.testing.assert_array_equal(y, expected[-1])
    np.testing.assert_array_equal(sums, expected.sum(1))
    assert none.shape == shape
    over = lambda xs: jnp.sum(iterations(xs, nothing, jnp.zeros(n))[0])
    np.testing.assert_array_equal(fnx.jit(fnx.grad(over))(xs), np.arange(n) < np.full((2, 1), 3))


def test_an_array_updated_with_itself_is_read_as_it_was():
    to = np.random.default_rng(3).permutation(24)

    def whole(x, p):
        return x.at[p].set(x)

    def another_shape(x, p):
        return x.at[p // 6, p % 6].add(x.reshape(24))

    def own_places(x, p):
        return x.at[x.astype(int) % 24].set(x)

    cases = [(whole, 24), (whole, (24, 3, 5)), (another_shape, (4, 6)), (own_places, 24)]
    for step, shape in cases:
        x = np.arange(float(np.prod(shape))).reshape(shape)
        expected = jnp.asarray(x)
        for _ in range(3):
            expected = step(expected, to)
        loop = fnx.jit(lambda x, p, step=step: lax.fori_loop(0, 3, lambda _, x: step(x, p), x))
        np.testing.assert_array_equal(loop(x, to), expected)
        given = fnx.jit(step, donate_argnums=0)(jnp.array(x), to)
        np.testing.assert_array_equal(given, step(jnp.asarray(x), to))


def test_updates_by_arrays_without_elements():
    def f(x, none, i):
        step = lambda _, x: lax.dynamic_update_slice(x, none * 2.0, (i, 0, i + 1))
        return lax.fori_loop(0, 3, step, step(0, x)).at[jnp.full(0, i)].add(3.0)

    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(fnx.jit(f)(x, np.zeros((0, 1, 0)), 1), x)
