"""Carries that loops hand to loops inside them: where they are, and that nothing else changes."""

import numpy as np
import pytest
from kernels import count, program

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Copy, Loop

pytestmark = pytest.mark.usefixtures("checked")

N = 50


def smoothed(np_, x):
    return (np_.roll(x, 1) + 2 * np_.roll(x, -1) + x) // 3 + 1


def nested(outer, inner, step, *init):
    """Loops of loops, compiled; and the same in Python, where `step` is given NumPy."""

    def compiled(*init):
        within = lambda c, _: (step(jnp, *c), None)
        body = lambda c, _: (lax.scan(within, c, None, length=inner)[0], None)
        return lax.scan(body, init, None, length=outer)[0]

    wanted = init
    for _ in range(outer * inner):
        wanted = step(np, *wanted)
    for got, want in zip(fnx.jit(compiled)(*init), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return compiled


def copies_in_loops(f, *args):
    loops = [s for s in traversal.statements(program(f, *args).body) if isinstance(s, Loop)]
    return sum(isinstance(s, Copy) for loop in loops for s in loop.body)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int32", "uint8"])
@pytest.mark.parametrize("inner", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("n", [0, 1, 17, 200])
def test_a_loop_inside_goes_on_where_the_loop_around_it_is(dtype, inner, n):
    x = np.arange(n).astype(dtype)
    step = lambda np_, x: (x * np_.roll(x, 1) + np_.asarray(3, dtype),)
    if dtype in ("float64", "float32", "complex64"):
        step = lambda np_, x: (np_.roll(x, 1) * np_.asarray(0.5, dtype) + x,)
    nested(3, inner, step, x)


def test_nothing_is_copied_after_an_even_number_of_iterations():
    x = np.arange(200)
    even = nested(5, 4, lambda np_, x: (smoothed(np_, x),), x)
    odd = nested(5, 3, lambda np_, x: (smoothed(np_, x),), x)
    assert copies_in_loops(even, x) == 0 < copies_in_loops(odd, x)
    assert count(program(even, x), Copy) == 2  # in, and out


def test_carries_that_change_places():
    x, y = np.arange(N), np.arange(N) * 3 + 1
    nested(3, 4, lambda np_, x, y: (smoothed(np_, y), smoothed(np_, x)), x, y)
    nested(3, 4, lambda np_, x, y: (y, smoothed(np_, x)), x, y)
    nested(4, 2, lambda np_, x, y: (smoothed(np_, x), smoothed(np_, x) - y), x, y)


def test_a_value_that_others_read_after_the_loop_is_kept():
    x = np.arange(N)

    def body(np_, x, run):
        y = run(lambda x: smoothed(np_, x), x, 4)
        z = run(lambda x: smoothed(np_, x) + 1, x, 2)
        return y - z + x

    def run(f, x, n):
        return lax.scan(lambda c, _: (f(c), None), x, None, length=n)[0]

    def python(f, x, n):
        for _ in range(n):
            x = f(x)
        return x

    got = fnx.jit(lambda x: lax.fori_loop(0, 3, lambda _, x: body(jnp, x, run), x))(x)
    wanted = x
    for _ in range(3):
        wanted = body(np, wanted, python)
    np.testing.assert_array_equal(got, wanted)


def test_stacked_and_handed_on():
    x = np.arange(N)

    def f(x):
        within = lambda c, _: (smoothed(jnp, c), None)
        body = lambda c, _: (lax.scan(within, c, None, length=4)[0], c)
        return lax.scan(body, x, None, length=3)

    last, rows = fnx.jit(f)(x)
    for k in range(3):
        np.testing.assert_array_equal(rows[k], x)
        for _ in range(4):
            x = smoothed(np, x)
    np.testing.assert_array_equal(last, x)


def test_three_loops_and_a_while_loop_around_two():
    x = np.arange(N)
    step = lambda c, _: (smoothed(jnp, c), None)
    two = lambda c: lax.scan(step, c, None, length=2)[0]
    four = lambda c, _: (lax.scan(lambda c, _: (two(c), None), c, None, length=2)[0], None)
    eight = fnx.jit(lambda x: lax.scan(four, x, None, length=2)[0])(x)
    until = fnx.jit(
        lambda x: lax.while_loop(lambda c: c[0] < 8, lambda c: (c[0] + 2, two(c[1])), (0, x))
    )
    for _ in range(8):
        x = smoothed(np, x)
    np.testing.assert_array_equal(eight, x)
    np.testing.assert_array_equal(until(np.arange(N))[1], x)


@pytest.mark.parametrize("length", [100, 99, 128])
def test_derivatives_in_blocks_of_a_stencil(length):
    x = np.random.default_rng(0).normal(size=(20, 40))

    def f(x):
        step = lambda c, _: (c + 0.01 * c * (jnp.roll(c, 1, 0) - jnp.roll(c, -1, 1)), None)
        return (lax.scan(step, x, None, length=length)[0] ** 2).sum()

    slope = fnx.jit(fnx.grad(f))(x)
    d = np.random.default_rng(1).normal(size=x.shape)
    tangent = fnx.jit(lambda x: fnx.jvp(f, (x,), (d,))[1])(x)
    np.testing.assert_allclose(np.vdot(slope, d), tangent, rtol=1e-10)
    both = fnx.jit(fnx.vmap(fnx.grad(f)))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(both[0], slope, rtol=1e-12)
    ends = [fnx.jit(fnx.grad(f))(x + h * d) for h in (1e-6, -1e-6)]
    curve = fnx.jit(lambda x: fnx.jvp(fnx.grad(f), (x,), (d,))[1])(x)
    np.testing.assert_allclose(curve, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-4)


def test_a_chain_of_boxes_that_reads_neighbours_is_computed_anew():
    """What is added to a carry is read from it at other places: the sum goes to the other half."""

    def step(np_, x):
        inner = x[1:-1] // 2
        if np_ is np:
            found = x * 2
            found[:-2] += inner
            found[2:] += inner
            return (found,)
        return ((x * 2).at[:-2].add(inner).at[2:].add(inner),)

    f = nested(3, 2, step, np.arange(N))
    assert copies_in_loops(f, np.arange(N)) == 0
