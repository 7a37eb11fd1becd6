"""What the compiler makes of programs: how many kernels, what is stored, what is overwritten in place."""

import itertools
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering import program as lowering_program
from fnx.lowering.build import memory, storage
from fnx.lowering.build.values import Handle
from fnx.lowering.emit import emit_llvm
from fnx.lowering.ir import walk
from fnx.lowering.ir.kernel import Buffer, Copy, Loop, Nest, Store


def program(f, *args):
    """The Kernel IR of a jitted function on arguments."""
    return fnx.jit(f).lower(*args).program.compiled().program


def count(p, kind):
    return sum(isinstance(s, kind) for s in walk.statements(p.body))


X = np.linspace(0.0, 1.0, 1000)
SQUARE = np.linspace(0.0, 1.0, 40 * 50).reshape(40, 50)


def test_a_chain_of_elementwise_functions_is_one_kernel():
    def f(x):
        for k in range(20):
            x = jnp.sin(x) * 2.0 + k
        return x

    p = program(f, X)
    assert count(p, Nest) == 1
    assert p.workspace == 0


def test_values_shared_by_results_are_computed_in_one_pass_and_not_stored():
    def f(x):
        e = jnp.exp(x)
        return e + 1.0, e * 2.0

    p = program(f, X)
    assert count(p, Nest) == 1
    assert p.workspace == 0


def test_reductions_over_one_array_share_a_pass_with_what_they_reduce():
    p = program(lambda x: (jnp.sum(jnp.exp(x)), jnp.max(x), jnp.sum(x * x)), X)
    assert count(p, Nest) == 1
    assert p.workspace == 0


def test_an_expensive_value_that_is_repeated_along_an_axis_is_stored_before():
    p = program(lambda x, v: x + jnp.exp(v), SQUARE, SQUARE[0])
    assert count(p, Nest) == 2
    assert p.workspace >= 50 * 8


def test_arrays_of_equal_layout_are_one_loop():
    p = program(lambda x, y: x * y + 1.0, SQUARE, SQUARE)
    (nest,) = [s for s in p.body if isinstance(s, Nest)]
    assert count(p, Loop) == 1
    assert nest.body[0].extent.attr == SQUARE.size


def test_small_arrays_live_in_registers():
    def f(u):
        def step(u, _):
            return u + 0.1 * jnp.stack([u[1], -u[0], u[2]]), None

        return lax.scan(step, u, None, length=100)[0]

    p = program(f, np.ones(3))
    (loop,) = [s for s in p.body if isinstance(s, Loop)]
    assert len(loop.carries) == 3
    assert count(p, Store) == 3  # the result alone
    assert p.workspace == 0


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
    assert not any(isinstance(s, Copy) for s in walk.statements(loop.body))
    assert p.workspace == 2 * X.nbytes  # two halves


def test_the_gradient_of_a_stencil_loop_makes_one_pass_in_each_round():
    def f(x):
        def step(i, u):
            return u.at[1:-1].add(0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2]))

        return jnp.sum(lax.fori_loop(0, 100, step, x) ** 2)

    p = program(fnx.grad(f), X)
    loops = [s for s in p.body if isinstance(s, Loop)]
    backward = loops[-1]
    assert backward.reverse
    assert sum(isinstance(s, Nest) for s in walk.statements(backward.body)) == 1
    assert not any(isinstance(s, Copy) for s in walk.statements(backward.body))


@pytest.mark.parametrize("n", [100, 101, 250])
def test_every_size_has_the_same_code(n):
    def f(x):
        y = lax.fori_loop(0, 50, lambda i, x: x.at[1:-1].set(0.5 * (x[2:] + x[:-2])), x)
        return jnp.mean(y), jnp.cumsum(y)

    def text(n):
        return fnx.jit(f).lower(np.linspace(0.0, 1.0, n)).as_text("llvm")

    assert text(n) == text(120)


def test_numbers_of_the_program_are_not_in_the_code():
    texts = {fnx.jit(lambda x, c=c: x * c).lower(X).as_text("llvm") for c in (0.1, 0.7, 3.3)}
    assert len(texts) == 1


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


# --- memory ------------------------------------------------------------------------------------


def buffers(n):
    return [Buffer(f"b{k}", "float64", 8, "workspace", -1) for k in range(n)]


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
    assert memory.plan([store(a), store(b, a), store(c, b)], found) == 2 * 64
    assert a.place == c.place != b.place


def test_a_buffer_that_is_read_after_a_loop_lives_through_all_of_it():
    a, b = found = buffers(2)
    out = Buffer("out", "float64", 8, "argument", 0)
    body = [loop(store(a), store(b, a)), store(out, b)]
    assert memory.plan(body, found) == 2 * 64  # the next round writes a while b is needed


def test_a_buffer_that_is_written_before_a_loop_lives_through_all_of_it():
    a, b = found = buffers(2)
    assert memory.plan([store(a), loop(store(b, a))], found) == 2 * 64


# --- memory of dead arrays ---------------------------------------------------------------------


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
    assert not any(isinstance(s, Copy) for s in walk.statements(loop_.body))
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


def chain_of_products(length):
    def f(m):
        for k in range(length):
            m = jnp.tanh(m @ m.T + 0.1 * k)
        return m

    return f, np.linspace(-1.0, 1.0, 16).reshape(4, 4)


def test_products_of_small_matrices_are_unrolled_up_to_a_limit_and_functions_beyond():
    f, m = chain_of_products(3)
    assert count(program(f, m), Nest) == 0
    f, m = chain_of_products(60)
    lowered = fnx.jit(f).lower(m)
    assert 30 < count(lowered.program.compiled().program, Nest) < 60
    text = lowered.as_text("llvm")
    assert text.count("dot_general") == 0
    assert text.count("define internal void @k") < 6  # equal kernels share a function
    with fnx.disable_jit():
        expected = np.asarray(f(jnp.asarray(m)))
    np.testing.assert_allclose(fnx.jit(f)(m), expected, rtol=1e-9, atol=1e-12)


def test_what_expressions_read_is_found_once():
    from fnx.core import scalar
    from fnx.lowering.ir.expressions import buffers_read

    known = {}
    one, two = (Buffer(name, "float64", 4, "workspace", 0) for name in "ab")
    e = scalar.load(one, scalar.size(1), "float64")
    for _ in range(50):
        e = scalar.add(scalar.apply("mul", e, e), e)
    assert buffers_read([e], known) == {one}
    seen = len(known)
    other = scalar.add(e, scalar.load(two, scalar.size(0), "float64"))
    assert buffers_read([other, e], known) == {one, two}
    assert len(known) - seen <= 3


def test_inner_values_and_boundaries_of_a_field_are_parts_without_questions():
    def step(u):
        new = u.at[1:-1, 1:-1].add(0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2.0 * u[1:-1, 1:-1]))
        new = new.at[1:-1, 0].set(u[1:-1, -2]).at[1:-1, -1].set(u[1:-1, 1])
        return new.at[0].set(0.0).at[-1].set(new[-2])

    p = program(step, SQUARE)
    nests = [s for s in walk.statements(p.body) if isinstance(s, Nest)]
    inner = max(nests, key=lambda nest: walk.work(nest.body))
    ops = {e.op for e in walk.nodes(inner.body)}
    assert "mul" in ops
    assert not ops & {"select", "min", "max", "and"}
    np.testing.assert_array_equal(fnx.jit(step)(SQUARE), step(jnp.asarray(SQUARE)))


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


def test_large_boxes_are_made_by_threads():
    def step(u):
        new = jnp.zeros_like(u) + u[0, 0, 0]
        return u.at[1:-1].set(u[1:-1] * 2.0 + 1.0), new

    p = program(lambda u: step(u)[0], np.ones((70, 70, 100)))
    assert any(s.parallel for s in walk.statements(p.body) if isinstance(s, Loop))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("n", [18, 23, 31, 33, 64, 100])
def test_the_last_vector_of_a_row_overlaps_the_one_before(n, dtype):
    x = (np.arange(n * n) % 51).reshape(n, n).astype(dtype)

    def f(a):
        return a[1:, :-1] * a[:-1, 1:] + a[1:, 1:]

    np.testing.assert_array_equal(fnx.jit(f)(x), f(x))
    text = fnx.jit(f).lower(x).as_text("llvm")
    assert "llvm.smin.i64" in text
    assert text == fnx.jit(f).lower(np.ones((n + 40, n + 40), dtype)).as_text("llvm")


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


def test_small_arrays_read_at_varying_positions_are_laid_in_memory():
    def f(x, depth):
        return x * (1.0 / depth) + jnp.cumsum(depth)

    x, depth = np.linspace(0.0, 1.0, 900 * 11).reshape(900, 11), np.arange(1.0, 12.0)
    (nest,) = [s for s in walk.statements(program(f, x, depth).body) if isinstance(s, Nest)]
    assert {s.buffer.space for s in nest.body if isinstance(s, Store)} == {"stack"}
    loop = nest.body[-1]
    assert "select" not in {e.op for e in walk.nodes([loop])}
    np.testing.assert_allclose(fnx.jit(f)(x, depth), f(x, depth), rtol=1e-14)


def test_threads_share_small_arrays_in_memory():
    x, depth = np.ones((1 << 16, 11)), np.arange(1.0, 12.0)
    wanted = np.exp(-x * depth) / depth
    found = fnx.jit(lambda x, d: jnp.exp(-x * d) * (1.0 / d))(x, depth)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 11, 16])
def test_short_rows_are_vectors(n):
    """Written out, or unrolled too early, their elements would be gathered and scattered."""
    x, c = (np.random.default_rng(k).normal(size=(s, n)) for k, s in enumerate((40, 20)))
    w = np.random.default_rng(2).normal(size=(40, 20))
    apart = lambda x, c: (x[:, None] - c[None]) ** 2
    weighted = lambda x, c, w: jnp.sum((x[:, None] - c[None]) * w[:, :, None], axis=0)
    for fn, args in ((apart, (x, c)), (weighted, (x, c, w))):
        lowered = fnx.jit(fn).lower(*map(jnp.asarray, args))
        found = np.asarray(lowered.compile()(*map(jnp.asarray, args)))
        np.testing.assert_allclose(found, np.asarray(fn(*map(jnp.asarray, args))), rtol=1e-12)
        rows = [line for line in lowered.as_text("kernel").splitlines() if f"< {n}:" in line]
        assert (n < 4) or any("vector" in line and "unroll" in line for line in rows)
        if n > 3:
            assert "scatter" not in lowered.as_text("asm")


def test_pieces_of_short_rows_are_written_out():
    """What the index of a short row decides is decided once."""
    x = jnp.linspace(0, 1, 60)
    fn = lambda x: jnp.stack([x, x + 1, x * 2, jnp.sin(x), -x, x], axis=-1)
    text = fnx.jit(fn).lower(x).as_text("kernel")
    assert text.count("sin(") == 1
    assert "for i1 < 6" not in text
    np.testing.assert_allclose(np.asarray(fnx.jit(fn)(x)), np.asarray(fn(x)), rtol=1e-15)


def sweep(u, flux, levels):
    """Thomas's algorithm along the last axis, level by level."""

    def down(k, carry):
        c, d = carry
        pivot = 1.0 / (2.0 + flux[:, :, k] - flux[:, :, k - 1] * c[:, :, k - 1])
        c = c.at[:, :, k].set(flux[:, :, k] * pivot)
        return c, d.at[:, :, k].set((u[:, :, k] + flux[:, :, k - 1] * d[:, :, k - 1]) * pivot)

    def up(k, d):
        k = levels - 2 - k
        return d.at[:, :, k].add(c[:, :, k] * d[:, :, k + 1])

    c = jnp.zeros_like(u).at[:, :, 0].set(flux[:, :, 0] / 2.0)
    d = jnp.zeros_like(u).at[:, :, 0].set(u[:, :, 0] / 2.0)
    c, d = lax.fori_loop(1, levels, down, (c, d))
    return lax.fori_loop(0, levels - 1, up, d)


def test_sweeps_along_the_last_axis_go_row_by_row():
    shape = (70, 80, 40)
    u, flux = np.random.default_rng(0).uniform(size=(2, *shape))
    p = program(lambda u, flux: sweep(u, flux, shape[2]), u, flux)
    assert not any(isinstance(s, Loop) for s in p.body)
    rows = [s for s in p.body if isinstance(s, Nest) and s.name.endswith("strips")]
    assert [n.body[0].extent.attr for n in rows] == [35]
    found = fnx.jit(lambda u, flux: sweep(u, flux, shape[2]))(u, flux)
    c, d = np.zeros(shape), np.zeros(shape)
    for k in range(shape[2]):
        before = flux[:, :, k - 1] if k else 0.0 * u[:, :, 0]
        pivot = 1.0 / (2.0 + (flux[:, :, k] if k else 0.0) - before * c[:, :, k - 1])
        c[:, :, k] = flux[:, :, k] * pivot
        d[:, :, k] = (u[:, :, k] + before * d[:, :, k - 1]) * pivot
    for k in range(shape[2] - 2, -1, -1):
        d[:, :, k] += c[:, :, k] * d[:, :, k + 1]
    np.testing.assert_allclose(found, d, rtol=1e-12, atol=1e-14)


def test_rows_that_meet_stay_in_steps():
    def mixed(u):
        def step(k, u):
            return u.at[:, :, k].set(u[:, :, k - 1] + jnp.roll(u[:, :, k - 1], 1, axis=0))

        return lax.fori_loop(1, 40, step, u)

    u = np.random.default_rng(0).uniform(size=(70, 80, 40))
    assert any(isinstance(s, Loop) for s in program(mixed, u).body)
    wanted = u.copy()
    for k in range(1, 40):
        wanted[:, :, k] = wanted[:, :, k - 1] + np.roll(wanted[:, :, k - 1], 1, axis=0)
    np.testing.assert_allclose(fnx.jit(mixed)(u), wanted, rtol=1e-13)


def test_a_loop_of_one_round_is_no_loop():
    def once(x):
        return lax.scan(lambda c, row: (c + row, c * row), x[0], x[None, 1])

    assert not any(isinstance(s, Loop) for s in program(once, SQUARE).body)
    for found, wanted in zip(
        fnx.jit(once)(SQUARE), (SQUARE[0] + SQUARE[1], SQUARE[:1] * SQUARE[1])
    ):
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_one_array_are_one_pass_whatever_stands_between_them(axis):
    def f(x):
        mean, variance = x.mean(axis), x.var(axis)
        return mean, variance, x.max(axis), (x**3).sum(axis), variance.sum(), (mean * x).min(axis)

    x = SQUARE[:, :40]
    p = program(f, x)
    reading = [n for n in walk.statements(p.body) if isinstance(n, Nest)]
    reading = [n for n in reading if p.inputs[0] in walk.buffers(n.body)]
    assert len(reading) <= 2
    for got, want in zip(fnx.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_what_is_shared_in_indices_and_choices_is_walked_once():
    """Expressions whose parts are used twice at each of many steps: walked as trees, without end."""

    def doubled(i, x):
        for _ in range(70):
            i = i + i
        return x[i % 11] + x[(i ^ (i >> 3)) % 11]

    def mixed(x):
        for k in range(40):
            x = jnp.where(x > 0.1 * k, x * x, x + x)
        return x * jnp.where(jnp.arange(8) > x, 2.0, x)

    x = np.linspace(0.0, 1.0, 11)
    i = np.arange(300)
    np.testing.assert_array_equal(fnx.jit(doubled)(i, x), doubled(jnp.asarray(i), jnp.asarray(x)))
    rows = np.linspace(0.0, 0.5, 600 * 8).reshape(600, 8)
    np.testing.assert_allclose(fnx.jit(mixed)(rows), mixed(jnp.asarray(rows)), rtol=1e-12)


def test_a_scope_forgets_whom_nobody_reads_any_more():
    """Or each update in place would look at every value there has ever been."""
    scope = storage.Scope()
    handles = [Handle((100,), "float64") for _ in range(4)]
    for last_use, handle in zip((0, 1, 2, 2), handles, strict=True):
        handle.last_use = last_use
        scope.add(object(), handle)
    assert scope.waiting() == handles
    scope.position = 1
    assert scope.waiting() == handles[1:]
    scope.position = 2
    assert scope.waiting() == handles[2:]


def test_arithmetic_that_is_written_as_calls_is_optimised():
    """A function is left as it is only if it calls others; minima are calls of LLVM's own."""

    def f(x):
        for _ in range(10):
            x = jnp.clip(x * x + x, jnp.minimum(x, 0.1), jnp.maximum(x, 0.8))
        return jnp.sin(x) * jnp.sin(2.0 * x)

    text = fnx.jit(f).lower(np.linspace(0.0, 1.0, 8)).as_text("llvm")
    assert text.count(" call ") > emit_llvm._MANY_CALLS
    assert "optnone" not in text


def chain(n):
    def f(x):
        for k in range(n):
            x = x * x - 0.1 * k
        return x

    return f


def updates_and_readers(n):
    def f(x):
        total = 0.0
        for k in range(n):
            x = x.at[k].add(0.1 * x[k + 1])
            total = total + x[k]
        return x, total

    return f


@pytest.mark.parametrize(
    ("program", "size", "n", "most"), [(chain, 500, 200, 2.5), (updates_and_readers, 500, 50, 4.5)]
)
def test_building_a_program_twice_as_long_takes_no_more_than_its_share(program, size, n, most):
    """Of calls of functions; who reads what is updated may be looked for at each update."""

    def calls(n):
        jaxpr = fnx.jit(program(n)).lower(np.ones(size)).program.jaxpr
        count = itertools.count()
        sys.setprofile(lambda *_: next(count))
        try:
            lowering_program.build(jaxpr)
        finally:
            sys.setprofile(None)
        return next(count)

    calls(10)
    assert calls(2 * n) < most * calls(n)
