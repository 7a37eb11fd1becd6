"""Loops and branches: results, derivatives against finite differences, lanes, nesting, errors.

The interpreters are tested through the public functions, on the reference backend; native code has
tests of its own.
"""

import numpy as np
import pytest
from loop_checks import A, V, X, check_grads, check_lanes, step, total

import fnx
from fnx import control_flow as lax
from fnx.core import config
from fnx.core.array import as_array
from fnx.ops.elementwise.arithmetic import cos, exp, sin
from fnx.ops.structure.join import Iota
from fnx.transforms.jit import jit

pytestmark = pytest.mark.usefixtures("reference")


# --- fori_loop, while_loop, map ----------------------------------------------------------------


def for_loop(a, x):
    return lax.fori_loop(0, 4, lambda i, c: sin(c) * i + a, a * total(x))


def for_from_two(a):
    return lax.fori_loop(2, 5, lambda i, c: c * a + i, a)


def mapped(a, x):
    return total(lax.map(lambda r: sin(r * a), x))


@pytest.mark.parametrize(
    ("f", "args"), [(for_loop, (A, X)), (for_from_two, (A,)), (mapped, (A, X))]
)
def test_derivatives_of_counted_loops(f, args):
    check_grads(f, *args)
    check_lanes(f, args)


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize(
    "transform",
    [lambda f: f, fnx.grad, lambda f: lambda x: fnx.vjp(f, x)[1](1.0)[0], fnx.hessian,
     lambda f: lambda x: fnx.vmap(f)(x[None])[0], lambda f: lambda x: fnx.jvp(f, (x,), (1.0,))],
)  # fmt: skip
def test_a_long_fori_loop_outside_a_trace_makes_no_array_of_its_iterations(
    transform, branch, monkeypatch
):
    class Made(Exception):
        pass

    def refused(self):
        raise Made

    with config.backend("cpu"):
        loop = lambda x: lax.fori_loop(0, 200_000, lambda i, c: c + x, x)
        f = transform((lambda x: lax.cond(x > 0, loop, lambda x: x, x)) if branch else loop)
        expected = np.asarray(f(as_array(0.5)))
        monkeypatch.setattr(Iota, "impl", refused)
        np.testing.assert_array_equal(np.asarray(f(as_array(0.5))), expected)
        with pytest.raises(Made):
            Iota(0, np.dtype("int64"), (3,))()


def test_fori_loop_counts():
    assert int(lax.fori_loop(3, 7, lambda i, t: t * 10 + i, 0)) == 3456
    assert int(lax.fori_loop(7, 3, lambda i, t: t + 1, 5)) == 5
    run = jit(lambda n: lax.fori_loop(0, n, lambda i, t: t + i, 0))
    assert int(run(5)) == 10
    with pytest.raises(TypeError, match="integer"):
        lax.fori_loop(0.0, 3, lambda i, t: t, 0)
    for start, stop in ((0.0, 3.0), (0.5, 3.0), (1.0, 0.0)):
        counted = lambda a, b: lax.fori_loop(a, b, lambda k, t: t * 10 + k, 0.0)
        want = np.polyval(np.arange(start, stop), 10.0)
        with config.disable_jit():
            assert float(counted(start, stop)) == want
        assert float(counted(start, stop)) == float(jit(counted)(start, stop)) == want
    assert fnx.make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, c: c + i, x))(np.float32(0))
    assert lax.fori_loop(0, 3, lambda i, c: c + i, as_array(np.float32(0))).dtype == np.float32


def test_map_in_batches():
    x = np.arange(14.0).reshape(7, 2)
    expected = np.sin(x) * 2
    for size in (None, 1, 3, 7, 10):
        found = lax.map(lambda r: sin(r) * 2.0, x, batch_size=size)
        np.testing.assert_allclose(np.asarray(found), expected)


def newton(a):
    """The square root of a by a loop whose length depends on it."""

    def far(v):
        x, _n = v
        return abs(x * x - a) > 1e-12

    return lax.while_loop(far, lambda v: (0.5 * (v[0] + a / v[0]), v[1] + 1), (a, 0))[0]


def test_while_loop():
    np.testing.assert_allclose(float(newton(as_array(2.0))), np.sqrt(2.0))
    np.testing.assert_allclose(float(jit(newton)(2.0)), np.sqrt(2.0))
    _, t = fnx.jvp(newton, (2.0,), (1.0,))
    np.testing.assert_allclose(float(t), 0.5 / np.sqrt(2.0))
    _, t = fnx.jvp(jit(newton), (2.0,), (1.0,))
    np.testing.assert_allclose(float(t), 0.5 / np.sqrt(2.0))
    np.testing.assert_allclose(float(fnx.jacfwd(newton)(2.0)), 0.5 / np.sqrt(2.0))
    assert int(lax.while_loop(lambda v: v < 0, lambda v: v + 1, 5)) == 5
    with config.disable_jit():
        np.testing.assert_allclose(float(newton(as_array(2.0))), np.sqrt(2.0))


def test_lanes_of_while_loop_stop_one_by_one():
    values = np.array([2.0, 9.0, 1e4, 1e-3])
    np.testing.assert_allclose(np.asarray(fnx.vmap(newton)(values)), np.sqrt(values), rtol=1e-9)
    collatz = lambda n: lax.while_loop(
        lambda v: v[0] != 1,
        lambda v: (lax.cond(v[0] % 2 == 0, lambda k: k // 2, lambda k: 3 * k + 1, v[0]), v[1] + 1),
        (n, 0),
    )[1]
    assert np.asarray(fnx.vmap(collatz)(np.array([1, 2, 3, 27]))).tolist() == [0, 1, 7, 111]
    # a condition without lanes, a body with them
    power = lambda a: lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * a), (0, 1.0))[
        1
    ]
    np.testing.assert_allclose(np.asarray(fnx.vmap(power)(values)), values**3)
    # lanes in the condition's constants only
    upto = lambda n: lax.while_loop(lambda v: v < n, lambda v: v + 1, 0)
    assert np.asarray(fnx.vmap(upto)(np.array([0, 4, 2]))).tolist() == [0, 4, 2]


def test_loops_through_which_no_tangents_go():
    def f(a):
        return a * lax.while_loop(lambda v: v < 3, lambda v: v + 1, 0)

    assert float(fnx.grad(f)(2.0)) == 3.0


def test_while_loop_conditions():
    with pytest.raises(TypeError, match="one bool of rank 0"):
        lax.while_loop(lambda v: v, lambda v: v, 1.0)
    with pytest.raises(TypeError, match="one bool of rank 0"):
        lax.while_loop(lambda v: v > 0, lambda v: v, np.zeros(3))


# --- branches ----------------------------------------------------------------------------------


def branching(a, x):
    y = lax.cond(a > 0.5, lambda v: sin(v) * a, lambda v: v * v, x)
    return total(lax.switch(as_array(2), [cos, exp, lambda v: v * a * total(v)], y))


def branch_in_scan(a, x):
    def body(c, r):
        new = lax.cond(r > 0.5, lambda z: sin(z) * a, lambda z: z * z + r, c)
        return new, new * c

    last, ys = lax.scan(body, a, x)
    return last + total(ys)


def scan_in_branch(a, x):
    def on_true(v):
        return lax.scan(step, v, x)[0]

    return lax.scan(lambda c, r: (lax.cond(r > 0.5, on_true, sin, c), None), a, x)[0]


def branch_without_tangents(a, x):
    def body(c, r):
        return c + lax.cond(r > 0.5, lambda: a * r, lambda: as_array(1.0)), None

    return lax.scan(body, 0.0, x)[0]


BRANCHES = [branching, branch_in_scan, scan_in_branch, branch_without_tangents]


@pytest.mark.parametrize("f", BRANCHES, ids=[f.__name__ for f in BRANCHES])
def test_derivatives_of_branches(f):
    check_grads(f, A, X)
    check_grads(jit(f), A, X, order=1)
    check_lanes(f, (A, X))
    check_lanes(fnx.grad(f), (A, X))


def test_lanes_choose_their_own_branch():
    f = lambda k, v: lax.switch(k, [sin, cos, lambda z: z * z], v)
    k, v = np.array([0, 1, 2, 7, -1]), np.linspace(0.1, 0.5, 5)
    expected = [np.sin(v[0]), np.cos(v[1]), v[2] ** 2, v[3] ** 2, np.sin(v[4])]
    np.testing.assert_allclose(np.asarray(fnx.vmap(f)(k, v)), expected)
    np.testing.assert_allclose(np.asarray(fnx.vmap(f, (0, None))(k, V)[3]), V**2)
    np.testing.assert_allclose(np.asarray(fnx.vmap(fnx.grad(f, 1))(k, v))[1], -np.sin(v[1]))
    jf = jit(f)
    np.testing.assert_allclose(np.asarray(fnx.vmap(jf)(k, v)), expected)


def test_only_one_branch_runs():
    f = jit(lambda p, x: lax.cond(p, lambda v: v, lambda v: 1.0 / v, x))
    assert float(f(True, 0.0)) == 0.0
    assert float(f(False, 4.0)) == 0.25
    grad = fnx.grad(f, 1)
    assert float(grad(True, 0.0)) == 1.0


def test_forms_of_cond():
    assert float(lax.cond(True, 1.0, lambda v: v + 1, 2.0, lambda v: v + 2)) == 2.0
    assert float(lax.cond(0.0, lambda: 1.0, lambda: 2.0)) == 2.0
    assert float(lax.cond(True, sin, cos, operand=0.0)) == 0.0
    assert float(lax.switch(9, [lambda: 1.0])) == 1.0
    out = lax.cond(True, lambda: 1.0, lambda: as_array(np.float32(2)))
    assert out.dtype == np.float32


def test_branches_must_agree():
    with pytest.raises(TypeError, match=r"f64\[2\] and f64\[3\]"):
        lax.cond(True, lambda: np.zeros(2), lambda: np.zeros(3))
    with pytest.raises(TypeError, match="same pytree structure"):
        lax.cond(True, lambda x: (x, x), lambda x: x, 1.0)
    with pytest.raises(TypeError, match="rank 0"):
        lax.cond(np.array([True, False]), sin, cos, 1.0)
    with pytest.raises(TypeError, match="integer"):
        lax.switch(1.0, [sin, cos], 1.0)
    with pytest.raises(ValueError, match="no branches"):
        lax.switch(1, [], 1.0)


# --- associative scan --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(n, reverse):
    x = np.random.default_rng(n).normal(size=(2, n))
    flip = (lambda v: v[:, ::-1]) if reverse else (lambda v: v)
    found = lax.associative_scan(lambda a, b: a + b, x, reverse=reverse, axis=1)
    np.testing.assert_allclose(np.asarray(found), flip(np.cumsum(flip(x), 1)))
    # not commutative: x -> p x + q
    pair = (x[0], x[1])
    compose = lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])
    p, q = lax.associative_scan(compose, pair, reverse=reverse)
    a, b = 1.0, 0.0
    order = range(n)[::-1] if reverse else range(n)
    for k in order:
        a, b = a * x[0, k], b * x[0, k] + x[1, k]
        np.testing.assert_allclose([float(p[k]), float(q[k])], [a, b], rtol=1e-12)


def test_gradient_of_associative_scan():
    check_grads(lambda x: total(sin(lax.associative_scan(lambda a, b: a * b, x))), X)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_a_carry_whose_dtype_gives_way_becomes_strong(wrap):
    scan = lambda c: lax.scan(lambda c, x: (c + 1.0, c), c, None, 3)
    loop = lambda c: lax.fori_loop(0, 3, lambda k, c: c + 0.5, c)
    until = lambda c: lax.while_loop(lambda c: c < 3, lambda c: c + 1.0, c)
    for f in (scan, loop, until):
        for out in fnx.tree_util.tree_leaves(wrap(f)(0)):
            assert (out.dtype, fnx.typeof(out).weak_type) == (float, False)
        for out in fnx.tree_util.tree_leaves(wrap(f)(0.0)):
            assert fnx.typeof(out).weak_type
