"""Memory of programs: what is overwritten in place, what shares bytes, what is stored at all."""

from itertools import pairwise

import numpy as np
import pytest
from kernels import count, program

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Buffer, Copy, Loop, Nest, Store
from fnx.lowering.transform import buffer_assignment

X = np.linspace(0.0, 1.0, 1000)
SQUARE = np.linspace(0.0, 1.0, 40 * 50).reshape(40, 50)


def test_a_carry_that_is_updated_is_overwritten_in_place():
    def f(x):
        return lax.fori_loop(0, 100, lambda i, x: x.at[i].set(2.0 * x[i]), x)

    p = program(f, X)
    assert p.workspace == 0
    assert count(p, Copy) == 1  # the argument into the result, once


def test_a_carry_that_is_computed_anew_is_not_copied_in_each_round():
    def f(x):
        return lax.fori_loop(0, 100, lambda i, x: x.at[1:-1].set(x[2:] + x[:-2]), x)

    p = program(f, X)
    (loop,) = [s for s in p.body if isinstance(s, Loop)]
    assert not any(isinstance(s, Copy) for s in traversal.statements(loop.body))
    assert p.workspace == 2 * X.nbytes  # two halves


def test_readers_go_before_the_update_that_overwrites_what_they_read():
    def f(x):
        y = x * 2.0 + jnp.cumsum(x)
        z = y.at[3].set(0.0)
        return z, y[5]  # written after the update, but does not depend on it

    p = program(f, X)
    assert count(p, Copy) == 0
    z, y5 = fnx.jit(f)(X)
    np.testing.assert_allclose(y5, X[5] * 2.0 + np.cumsum(X)[5])
    assert z[3] == 0.0


def buffers(n):
    return [Buffer(f"b{k}", "float64", 8, "global", -1) for k in range(n)]


def store(b, *reads):
    from fnx.core import scalar

    value = scalar.const(1.0, "float64")
    for r in reads:
        value = scalar.add(value, scalar.load(r, scalar.size(0), "float64"))
    return Store(b, scalar.size(0), value)


def loop(*body):
    from fnx.core import scalar

    return Loop(scalar.var("int64"), scalar.size(9), list(body))


def test_buffers_whose_lives_are_apart_share_bytes():
    a, b, c = found = buffers(3)
    assert buffer_assignment.plan([store(a), store(b, a), store(c, b)], found) == 2 * 64
    assert a.place == c.place != b.place


def test_a_buffer_that_is_read_after_a_loop_lives_through_all_of_it():
    a, b = found = buffers(2)
    out = Buffer("out", "float64", 8, "argument", 0)
    body = [loop(store(a), store(b, a)), store(out, b)]
    assert (
        buffer_assignment.plan(body, found) == 2 * 64
    )  # the next round writes a while b is needed


def test_a_buffer_that_is_written_before_a_loop_lives_through_all_of_it():
    a, b = found = buffers(2)
    assert buffer_assignment.plan([store(a), loop(store(b, a))], found) == 2 * 64


def large(*sizes):
    return [Buffer(f"b{k}", "float64", n, "global", -1) for k, n in enumerate(sizes)]


@pytest.mark.parametrize("n", [64 * 64, 40 * 40 * 40, 256 * 256, 512 * 5 - 1])
def test_elements_of_an_index_of_large_arrays_are_in_sets_of_the_cache_apart(n):
    found = large(*[n] * 8)
    total = buffer_assignment.plan([store(*found)], found, thresholds.machine())
    ways = sorted(b.place % 4096 for b in found)
    gaps = [b - a for a, b in zip(ways, [*ways[1:], ways[0] + 4096])]
    assert min(gaps) >= 3 * 64
    assert total <= 8 * (8 * n + 1664)
    places = sorted(b.place for b in found)
    assert all(b - a >= 8 * n and a % 64 == 0 for a, b in pairwise(places))


@pytest.mark.parametrize("n", [0, 1, 7, 100, 1000, 5000])
def test_small_arrays_and_those_that_are_apart_anyway_have_no_lines_between(n):
    found = large(*[n] * 3)
    total = buffer_assignment.plan([store(*found)], found, thresholds.machine())
    assert total == 3 * (-(-8 * n // 64) * 64)


def test_elementwise_carries_are_overwritten_where_they_are_read():
    def f(x, v):
        def step(c, _):
            x, v = c
            v = v - 0.1 * x
            return (x + 0.1 * v, v), None

        return lax.scan(step, (x, v), None, length=50)[0]

    p = program(f, X, 1.0 - X)
    assert p.workspace == 0
    (loop_,) = [s for s in p.body if isinstance(s, Loop)]
    assert not any(isinstance(s, Copy) for s in traversal.statements(loop_.body))
    x, v = X, 1.0 - X
    for _ in range(50):
        v = v - 0.1 * x
        x = x + 0.1 * v
    np.testing.assert_allclose(fnx.jit(f)(X, 1.0 - X), (x, v), rtol=1e-12)


def test_an_array_that_is_kept_is_not_overwritten():
    def f(x):
        return lax.scan(lambda c, _: (c * 1.5 + 1.0, c), x, None, length=5)

    last, old = fnx.jit(f)(X)
    np.testing.assert_allclose(old[0], X)
    np.testing.assert_allclose(old[1], X * 1.5 + 1.0)
    np.testing.assert_allclose(last, old[4] * 1.5 + 1.0)


def test_a_carry_that_is_read_at_other_indices_is_not_overwritten_too_early():
    def f(x):
        return lax.fori_loop(0, 7, lambda i, c: 0.5 * (c + jnp.roll(c, 1)) + c[::-1], x)

    y = X
    for _ in range(7):
        y = 0.5 * (y + np.roll(y, 1)) + y[::-1]
    np.testing.assert_allclose(fnx.jit(f)(X), y, rtol=1e-12)


def test_cotangents_of_constants_add_up_in_place():
    def f(a, x):
        def outer(c, i):
            def inner(c, j):
                return jnp.tanh(c + a[i, j]), None

            return lax.scan(inner, c, jnp.arange(50))[0], None

        return lax.scan(outer, x, jnp.arange(40))[0]

    p = program(fnx.grad(f), SQUARE, 0.3)
    # One array of cotangents, the result; what is stored besides is one number a step.
    assert p.workspace <= 2 * SQUARE.nbytes


def test_a_box_made_of_its_own_elements_is_made_in_place():
    def step(_, fields):
        e, h = fields
        e = e.at[1:].set(e[1:] - 0.5 * (h[1:] - h[:-1]))
        return e, h.at[:-1].add(-0.7 * (e[1:] - e[:-1]))

    fields = (SQUARE, SQUARE.T.reshape(40, 50).copy())
    p = program(lambda *x: lax.fori_loop(0, 9, step, x), *fields)
    assert p.workspace == 0
    expected = fields = tuple(map(jnp.asarray, fields))
    for _ in range(9):
        expected = step(0, expected)
    for found, wanted in zip(fnx.jit(lambda *x: lax.fori_loop(0, 9, step, x))(*fields), expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_a_large_array_that_is_soon_computed_is_not_stored():
    def limited(u, difference):
        d = difference(u)
        s = jnp.where(d[1:] * d[:-1] > 0.0, d[1:] - d[:-1], 0.5 * d[1:])
        f = u[1:-1] + s * s
        return f[1:] - f[:-1]

    def slope(u):
        return u[1:] - u[:-1] + 0.5 * (u[1:] * u[:-1])

    large, small = np.linspace(0.0, 3.0, 200_000), np.linspace(0.0, 3.0, 2_000)
    assert program(lambda u: limited(u, slope), small).workspace > 0
    p = program(lambda u: limited(u, slope), large)
    assert count(p, Nest) == 1
    assert p.workspace == 0
    ours = fnx.jit(lambda u: limited(u, slope))
    np.testing.assert_allclose(ours(large), limited(jnp.array(large), slope), rtol=0, atol=1e-14)
    # A costly one is computed once, and so is one of many arrays.
    assert program(lambda u: limited(u, lambda v: slope(jnp.exp(v))), large).workspace > 0
    many = [large] * 3
    p = program(lambda *us: limited(us[0], lambda v: slope(v) + slope(us[1]) * us[2][1:]), *many)
    assert p.workspace > 0


@pytest.mark.own_code
def test_small_arrays_read_at_varying_positions_are_laid_in_memory():
    def f(x, depth):
        return x * (1.0 / depth) + jnp.cumsum(depth)

    x, depth = np.linspace(0.0, 1.0, 900 * 11).reshape(900, 11), np.arange(1.0, 12.0)
    (nest,) = [s for s in traversal.statements(program(f, x, depth).body) if isinstance(s, Nest)]
    assert {s.buffer.space for s in nest.body if isinstance(s, Store)} == {"private"}
    loop = nest.body[-1]
    assert "select" not in {e.op for e in traversal.nodes([loop])}
    np.testing.assert_allclose(fnx.jit(f)(x, depth), f(x, depth), rtol=1e-14)


def test_threads_share_small_arrays_in_memory():
    x, depth = np.ones((1 << 16, 11)), np.arange(1.0, 12.0)
    wanted = np.exp(-x * depth) / depth
    found = fnx.jit(lambda x, d: jnp.exp(-x * d) * (1.0 / d))(x, depth)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("n", [5, 6, 7, 20])
def test_a_sum_reads_an_array_across_that_is_updated_then(n):
    """Both have the same iteration space where the array is square."""

    def f(np_, a, k):
        a = a * 2.0
        new = np_.ones(6) @ a
        if np_ is np:
            a[k] = new
            return a
        return a.at[k].set(new)

    a = np.random.default_rng(n).normal(size=(6, n))
    found = fnx.jit(lambda a, k: f(jnp, a, k))(a, 2)
    np.testing.assert_allclose(found, f(np, a, 2), rtol=1e-14)
    loop = lambda a: fnx.lax.fori_loop(0, 3, lambda k, a: f(jnp, a, k), a)
    wanted = a
    for k in range(3):
        wanted = f(np, wanted, k)
    np.testing.assert_allclose(fnx.jit(loop)(a), wanted, rtol=1e-13)


def scanned(a, w):
    """Rows of a stack that are reshaped products."""
    step = lambda c, _: (c + 1.0, ((c * a) @ w).reshape(-1))
    return fnx.lax.scan(step, 1.0, None, length=3)[1]


def branched(a, w):
    return fnx.lax.cond(
        a[0, 0] > 0.5, lambda: (a @ w).reshape(-1), lambda: a.reshape(-1)[: 60 * 50]
    )


RESHAPED = {
    "product": lambda a, w: (a.reshape(20, 3, 50) @ w).reshape(60, 50),
    "vector": lambda a, w: (a @ w[:, :1])[:, 0],
    "sorted": lambda a, w: jnp.sort(a.reshape(-1)).reshape(20, 150),
    "loop": lambda a, w: fnx.lax.fori_loop(0, 4, lambda _, x: x @ w, a).reshape(20, 150),
    "scan": scanned,
    "branch": branched,
    "twice": lambda a, w: (lambda p: (p.reshape(-1), p.reshape(30, 100), p))(a @ w),
    "chain": lambda a, w: jnp.cumsum((a @ w).reshape(3000)).reshape(60, 50),
    "update": lambda a, w: (a @ w).reshape(-1).at[::7].add(1.0).reshape(60, 50),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("donated", [(), (0,)])
@pytest.mark.parametrize("name", RESHAPED)
def test_what_is_reshaped_into_a_result_is_made_there(name, donated):
    rng, f = np.random.default_rng(0), RESHAPED[name]
    a, w = rng.uniform(size=(60, 50)), rng.uniform(size=(50, 50)) / 25
    wanted = fnx.tree.leaves(f(jnp.asarray(a), jnp.asarray(w)))
    made = fnx.tree.leaves(fnx.jit(f, donate_argnums=donated)(jnp.asarray(a), jnp.asarray(w)))
    for got, want in zip(made, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    if name in ("product", "vector"):
        assert "copy" not in fnx.jit(f).lower(a, w).as_text("kernel")
