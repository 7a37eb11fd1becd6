"""What the compiler makes of programs: how many kernels, over which loops, in which vectors."""

import numpy as np
import pytest
from kernels import count, program

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Copy, Loop, Nest, Store

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


def test_the_gradient_of_a_stencil_loop_makes_one_pass_in_each_round():
    def f(x):
        def step(i, u):
            return u.at[1:-1].add(0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2]))

        return jnp.sum(lax.fori_loop(0, 100, step, x) ** 2)

    p = program(fnx.grad(f), X)
    loops = [s for s in p.body if isinstance(s, Loop)]
    backward = loops[-1]
    assert backward.reverse
    assert sum(isinstance(s, Nest) for s in traversal.statements(backward.body)) == 1
    assert not any(isinstance(s, Copy) for s in traversal.statements(backward.body))


@pytest.mark.own_code
@pytest.mark.parametrize("n", [100, 101, 250])
def test_every_size_has_the_same_code(n):
    def f(x):
        y = lax.fori_loop(0, 50, lambda i, x: x.at[1:-1].set(0.5 * (x[2:] + x[:-2])), x)
        return jnp.mean(y), jnp.cumsum(y)

    def text(n):
        return fnx.jit(f).lower(np.linspace(0.0, 1.0, n)).as_text("llvm")

    assert text(n) == text(120)


@pytest.mark.own_code
def test_numbers_of_the_program_are_not_in_the_code():
    texts = {fnx.jit(lambda x, c=c: x * c).lower(X).as_text("llvm") for c in (0.1, 0.7, 3.3)}
    assert len(texts) == 1


def test_inner_values_and_boundaries_of_a_field_are_parts_without_questions():
    def step(u):
        new = u.at[1:-1, 1:-1].add(0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2.0 * u[1:-1, 1:-1]))
        new = new.at[1:-1, 0].set(u[1:-1, -2]).at[1:-1, -1].set(u[1:-1, 1])
        return new.at[0].set(0.0).at[-1].set(new[-2])

    p = program(step, SQUARE)
    nests = [s for s in traversal.statements(p.body) if isinstance(s, Nest)]
    inner = max(nests, key=lambda nest: traversal.work(nest.body))
    ops = {e.op for e in traversal.nodes(inner.body)}
    assert "mul" in ops
    assert not ops & {"select", "min", "max", "and"}
    np.testing.assert_array_equal(fnx.jit(step)(SQUARE), step(jnp.asarray(SQUARE)))


def test_large_boxes_are_made_by_threads():
    def step(u):
        new = jnp.zeros_like(u) + u[0, 0, 0]
        return u.at[1:-1].set(u[1:-1] * 2.0 + 1.0), new

    p = program(lambda u: step(u)[0], np.ones((70, 70, 100)))
    assert any(s.kind.parallel for s in traversal.statements(p.body) if isinstance(s, Loop))


@pytest.mark.own_code
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


def steps_of_neighbours(np_, loop, u, v):
    """Both new fields are made of both old ones; only the old halves of their buffers are read."""
    lap = lambda f: np_.roll(f, 1, 0) + np_.roll(f, -1, 0) + np_.roll(f, 1, 1) - 3 * f
    return loop(lambda c: (c[0] + 0.1 * lap(c[1]) * c[0], c[1] - 0.1 * lap(c[0])), (u, v))


def steps_in_place(np_, loop, u, v):
    """Each element of both fields is read and overwritten in the same round."""
    return loop(lambda c: (c[0] + 0.1 * c[1] * c[0], c[1] - 0.1 * c[0]), (u, v))


def rows_of_a_stack(np_, loop, u, v):
    """What is read lies in the row before the one that is written."""
    return fnx.grad(lambda *c: sum(x.sum() for x in steps_of_neighbours(np_, loop, *c)), (0, 1))(
        u, v
    )


@pytest.mark.own_code
@pytest.mark.parametrize("n", [18, 23, 33, 64, 100])
@pytest.mark.parametrize("steps", [steps_of_neighbours, steps_in_place, rows_of_a_stack])
def test_the_last_vector_overlaps_where_others_of_an_array_are_read_than_written(steps, n):
    u, v = np.random.default_rng(n).normal(size=(2, 5, n))
    native = fnx.jit(
        lambda u, v: steps(jnp, lambda f, c: lax.fori_loop(0, 3, lambda _, c: f(c), c), u, v)
    )
    eager = lambda f, c: f(f(f(c)))
    wanted = steps(jnp, eager, jnp.asarray(u), jnp.asarray(v))
    for found, right in zip(native(u, v), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-13)
    assert ("llvm.smin.i64" in native.lower(u, v).as_text("llvm")) == (steps is not steps_in_place)


@pytest.mark.own_code
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
        assert (n < 4) or any("vector" in line and "rolled" in line for line in rows)
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


@pytest.mark.own_code
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
    reading = [n for n in traversal.statements(p.body) if isinstance(n, Nest)]
    reading = [n for n in reading if p.inputs[0] in traversal.buffers(n.body)]
    assert len(reading) <= 2
    for got, want in zip(fnx.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_what_is_summed_is_not_stored_for_a_product_between():
    def f(x):
        y = jnp.sin(x)
        z = jnp.exp(y)
        return y.T @ y, jnp.sum(-z, axis=0), jnp.max(z, axis=0)

    x = np.linspace(0.0, 1.0, 5000 * 40).reshape(5000, 40)
    assert program(f, x).workspace < 1.5 * x.nbytes
    for got, want in zip(fnx.jit(f)(x), f(jnp.asarray(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.own_code
def test_arithmetic_that_is_written_as_calls_is_optimised():
    """A function is left as it is only if it calls others; minima are calls of LLVM's own."""

    def f(x):
        for _ in range(10):
            x = jnp.clip(x * x + x, jnp.minimum(x, 0.1), jnp.maximum(x, 0.8))
        return jnp.sin(x) * jnp.sin(2.0 * x)

    text = fnx.jit(f).lower(np.linspace(0.0, 1.0, 8)).as_text("llvm")
    assert text.count(" call ") > thresholds.MANY_CALLS
    assert "optnone" not in text


def deposit(grid, p):
    """Particles leave their weights in cells, and read what lies there."""
    i, j = (p * 7).astype(int), (p * 13).astype(int)
    grid = grid.at[i, j].add(p)
    return grid, grid[i, j] + grid[j, i]


def test_columns_of_indices_are_read_where_they_lie():
    grid, p = np.zeros((64, 70)), np.random.default_rng(0).uniform(-0.4, 0.9, 500)
    lowered = fnx.jit(deposit).lower(grid, p)
    assert "concatenate" not in lowered.as_text("kernel")
    for got, want in zip(lowered.compile()(grid, p), deposit(jnp.asarray(grid), p), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_columns_that_others_read_are_joined():
    f = lambda x, i, j: (lambda both: (x[both[:, 0], both[:, 1]], both))(jnp.stack([i, j], 1))
    x, i = np.arange(99.0).reshape(9, 11), np.random.default_rng(0).integers(-9, 9, (2, 500))
    for got, want in zip(fnx.jit(f)(x, *i), f(jnp.asarray(x), *i), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axes", [(4, 2, 3), (4, 0)])
def test_sums_over_axes_that_are_named_in_any_order(axes):
    x = np.random.default_rng(0).normal(size=(10, 5, 4, 3, 2))
    f = lambda x: (2 * x, jnp.sum(3 * x, axes), jnp.max(3 * x, axes))
    for found, expected in zip(fnx.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
