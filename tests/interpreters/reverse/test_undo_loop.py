"""Loops in loops that update arrays in place: restored on the way back, level by level."""

import numpy as np
import pytest
from loop_checks import python_loop

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.def_use import definitions
from fnx.core.jaxpr import Var, check_jaxpr
from fnx.interpreters.analysis.updates import chain
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.scan import Scan
from fnx.interpreters.reverse.undo_loop import UndoLoop

RNG = np.random.default_rng(3)
N = 9
A = RNG.normal(size=(N, N)) / N + 2 * np.eye(N)
B = RNG.normal(size=N)
K = np.arange(N)


def lu(a):
    """Element by element: each takes a product of what was written before."""

    def element(i):
        def update(j, a):
            before = jnp.minimum(i, j) > K
            value = a[i, j] - jnp.dot(jnp.where(before, a[i], 0.0), a[:, j])
            return a.at[i, j].set(jnp.where(j < i, value / a[j, j], value))

        return update

    return lax.fori_loop(0, N, lambda i, a: lax.fori_loop(0, N, element(i), a), a)


def lu_three_deep(a):
    def term(i, j):
        def add(k, a):
            here = k < jnp.minimum(i, j)
            return a.at[i, j].add(jnp.where(here, -a[i, k] * a[k, j], 0.0))

        return add

    def element(i):
        def update(j, a):
            a = lax.fori_loop(0, N, term(i, j), a)
            return a.at[i, j].set(jnp.where(j < i, a[i, j] / a[j, j], a[i, j]))

        return update

    return lax.fori_loop(0, N, lambda i, a: lax.fori_loop(0, N, element(i), a), a)


def rows_by_slices(a):
    """Two loops in an iteration, each over rows taken and put back as slices."""

    def scaled(j, a):
        row = lax.dynamic_slice(a, (j, 0), (1, N))
        return lax.dynamic_update_slice(a, jnp.sin(row) * row[:, :1], (j, 0))

    def mixed(i):
        def step(j, a):
            return a.at[j].add(0.1 * a[i] * a[(j + i) % N])

        return step

    def outer(i, a):
        a = lax.fori_loop(0, N // 2, scaled, a)
        a = a.at[i, 1:4].multiply(a[0, 0])
        return lax.fori_loop(2, N, mixed(i), a)

    return lax.fori_loop(0, 5, outer, a)


def two_arrays(a):
    """The inner loop updates two arrays; the outer one writes between."""

    def direction(k, state):
        a, q, r = state
        norm = jnp.sqrt(jnp.sum(a[:, k] ** 2))
        r, q = r.at[k, k].set(norm), q.at[:, k].set(a[:, k] / norm)

        def column(j, state):
            a, r = state
            share = jnp.where(j > k, q[:, k] @ a[:, j], 0.0)
            return a.at[:, j].add(-q[:, k] * share), r.at[k, j].add(share)

        a, r = lax.fori_loop(0, N, column, (a, r))
        return a, q, r

    _, q, r = lax.fori_loop(0, N, direction, (a, jnp.zeros((N, N)), jnp.zeros((N, N))))
    return q * (1.0 + K) + jnp.sin(r)


def chosen_places(a):
    """Where to write is read from the array, in the outer and in the inner loop."""

    def inner(j, a):
        k = jnp.argmax(jnp.abs(a[:, j]))
        return a.at[k, j].multiply(1.0 + 0.1 * jnp.sin(a[j, j]))

    def outer(i, a):
        k = jnp.argmax(a[i])
        a = a.at[i, k].set(2.0 + 0.1 * jnp.cos(a[k, i]))
        return lax.fori_loop(0, N, inner, a)

    return lax.fori_loop(0, N, outer, a)


def stacked_and_reversed(a):
    """Scans that also give results, the inner one from the other end."""

    def inner(carry, x):
        a, s = carry
        a = a.at[x].add(0.1 * jnp.sin(a[N - 1 - x]) * s)
        return (a, s + a[x, 0]), a[x, 1] * s

    def outer(a, x):
        (a, s), ys = lax.scan(inner, (a, jnp.sum(a[x])), jnp.arange(N), reverse=True)
        return a, ys * s

    a, ys = lax.scan(outer, a, jnp.arange(N)[::-1])
    return a + jnp.tanh(ys)


def old_rows_kept(a):
    """What was read before an update is used after the inner loop."""

    def outer(i, a):
        old = a[i]
        a = a.at[i].set(jnp.cos(a[i]))
        new = lax.fori_loop(0, N, lambda j, a: a.at[j, i].multiply(a[i, j]), a)
        return new.at[(i + 1) % N].add(old * a[i] * new[i])

    return lax.fori_loop(0, N, outer, a)


PROGRAMS = [
    lu, lu_three_deep, rows_by_slices, two_arrays, chosen_places, stacked_and_reversed, old_rows_kept
]  # fmt: skip


@pytest.fixture(params=PROGRAMS, ids=lambda f: f.__name__)
def program(request):
    f = request.param
    weights = np.cos(np.arange(N * N).reshape(N, N))
    return lambda a: jnp.sum(jnp.tanh(f(a)) * weights)


DIRECTION = RNG.normal(size=(N, N))


def slope(f, d=DIRECTION, h=1e-6):
    return (float(f(A + h * d)) - float(f(A - h * d))) / (2 * h)


def test_gradients_are_slopes(program):
    expected = slope(fnx.jit(program))
    for g in (fnx.grad(program), fnx.jit(fnx.grad(program)), fnx.grad(fnx.jit(program))):
        np.testing.assert_allclose(np.sum(np.asarray(g(A)) * DIRECTION), expected, rtol=1e-5)


def test_compiled_gradients_are_those_of_plain_python(program):
    with fnx.disable_jit():
        expected = np.asarray(fnx.grad(program)(A))
    with fnx.core.config.check():
        found = np.asarray(fnx.jit(fnx.grad(program))(A))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_linear_maps_run_forward(program):
    """Nobody kept the arrays: they are restored to their first values before."""
    gradient = np.asarray(fnx.grad(program)(A))
    _, push = fnx.linearize(program, A)
    np.testing.assert_allclose(push(DIRECTION), np.sum(gradient * DIRECTION), rtol=1e-9)
    both = fnx.jit(lambda a, d: fnx.linearize(program, a)[1](d))(A, DIRECTION)
    np.testing.assert_allclose(both, np.sum(gradient * DIRECTION), rtol=1e-9)
    lanes = fnx.vmap(push)(np.stack([DIRECTION, 2 * DIRECTION]))
    np.testing.assert_allclose(lanes, np.array([1, 2]) * np.sum(gradient * DIRECTION), rtol=1e-9)


def test_lanes_of_gradients(program):
    points = np.stack([A, A + 0.01])
    lanes = np.asarray(fnx.jit(fnx.vmap(fnx.grad(program)))(points))
    for point, found in zip(points, lanes):
        np.testing.assert_allclose(found, np.asarray(fnx.grad(program)(point)), atol=1e-10)


def test_second_derivatives(program):
    along = lambda a: jnp.sum(fnx.grad(program)(a) * DIRECTION)
    forward = float(fnx.jvp(along, (A,), (DIRECTION,))[1])
    np.testing.assert_allclose(slope(fnx.jit(along)), forward, rtol=1e-4, atol=1e-6)
    backward = np.asarray(fnx.jit(fnx.grad(along))(A))
    np.testing.assert_allclose(np.sum(backward * DIRECTION), forward, rtol=1e-8)


# --- what is kept ------------------------------------------------------------------------------


def scans(f, *args):
    jaxpr = fnx.make_jaxpr(fnx.grad(lambda *xs: jnp.sum(f(*xs) ** 2)))(*args).jaxpr
    small = simplify(jaxpr, True)
    check_jaxpr(small)
    return [e for e in small.eqns if isinstance(e.prim, Scan)]


def test_an_outer_iteration_keeps_what_was_overwritten():
    """Not the array that the inner loop had in each of its iterations: N times N numbers an iteration."""
    forward = scans(lu, A)[0]
    kept = sum(a.nbytes for a in forward.prim.jaxpr.out_avals[forward.prim.carry :])
    assert kept <= 2 * N * 8


def test_places_that_stay_are_kept_once():
    """A loop that adds to one element overwrites one element."""
    total = lambda i, a: lax.fori_loop(0, N, lambda k, a: a.at[i, i].add(jnp.sin(a[0, k])), a)
    jaxpr = simplify(fnx.make_jaxpr(total)(2, A).jaxpr)
    (loop,) = [e for e in jaxpr.eqns if isinstance(e.prim, Scan)]
    steps = chain(definitions(jaxpr.eqns), loop.inputs[loop.prim.consts], loop.outs[0])
    (item,) = steps[0].items()
    assert item.nbytes == 8
    assert all(type(v) is Var for v in item.needs)


def test_what_nobody_reads_is_not_restored():
    linear = lambda i, a: lax.fori_loop(0, N, lambda j, a: a.at[j].add(2.0 * a[i]), a)
    jaxpr = fnx.make_jaxpr(fnx.grad(lambda a: jnp.sum(lax.fori_loop(0, N, linear, a))))(A).jaxpr
    names = [e.prim for e in simplify(jaxpr).eqns]
    assert not any(isinstance(p, UndoLoop) for p in names)
    for e in simplify(jaxpr, True).eqns:
        if isinstance(e.prim, Scan):
            assert e.prim.carry == len(e.prim.jaxpr.outs), "nothing is stacked"


# --- loops inside run again --------------------------------------------------------------------


def eliminated(loop, a):
    """LU row by row: each row has the rows above taken out of it, one after the other."""
    index = np.arange(a.shape[0])

    def row(i, a):
        def take(j, a):
            share = jnp.where(j < i, a[i, j] / a[j, j], 0.0)
            new = a[i] - share * jnp.where(index > j, a[j], 0.0)
            return a.at[i].set(jnp.where((index == j) & (j < i), share, new))

        return loop(0, a.shape[0], take, a)

    return loop(0, a.shape[0], row, a)


def by_terms(loop, a):
    """A triangular solve, term by term."""
    n = a.shape[0]

    def row(i, x):
        term = lambda j, x: x.at[i].add(jnp.where(j < i, -a[i, j] * x[j], 0.0))
        return loop(0, n, term, x).at[i].divide(a[i, i])

    return loop(0, n, row, jnp.sin(jnp.arange(float(n))))


@pytest.mark.parametrize("program", [eliminated, by_terms])
def test_gradients_of_loops_that_run_again(program):
    a = jnp.eye(7) * 3.0 + jnp.cos(jnp.arange(49.0)).reshape(7, 7)
    loss = lambda a, loop: jnp.sum(jnp.sin(program(loop, a)))
    found = fnx.jit(fnx.grad(lambda a: loss(a, lax.fori_loop)))(a)
    np.testing.assert_allclose(found, fnx.grad(loss)(a, python_loop), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("program", "numbers"), [
    (eliminated, lambda n: 4.5 * n * n), (by_terms, lambda n: 8 * n),
])  # fmt: skip
def test_what_loops_inside_stack_is_not_kept_for_each_outer_iteration(program, numbers):
    n = 60
    loss = lambda a: jnp.sum(program(lax.fori_loop, a) ** 2)
    compiled = fnx.jit(fnx.grad(loss)).lower(jnp.eye(n) * n + 1.0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 8 * numbers(n)


def test_whole_arrays_that_loops_inside_overwrite_are_kept_in_blocks():
    """LU pivot by pivot, the rows below one after the other: some states, not one for each pivot."""
    n = 90
    index = np.arange(n)

    def pivot(k, a):
        def row(i, a):
            share = jnp.where(i > k, a[i, k] / a[k, k], 0.0)
            return a.at[i].add(-share * jnp.where(index > k, a[k], 0.0))

        return lax.fori_loop(0, n, row, a)

    loss = lambda a: jnp.sum(lax.fori_loop(0, n, pivot, a) ** 2)
    compiled = fnx.jit(fnx.grad(loss)).lower(jnp.eye(n) * n + 1.0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 30 * 8 * n * n
