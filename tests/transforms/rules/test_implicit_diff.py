"""Implicit differentiation: linear solves and roots, under all transformations."""

import numpy as np
import pytest
from loop_checks import total

import fnx
from fnx import control_flow as lax
from fnx.core.array import as_array
from fnx.ops.linalg.contraction import DotGeneral
from fnx.transforms import implicit_diff
from fnx.transforms.jit import jit

pytestmark = pytest.mark.usefixtures("reference")


def inverse(a, b):
    """b / a by a solver that must not be differentiated: it rounds."""
    solve = lambda mv, v: as_array(np.round(np.asarray(v / a), 12)) if False else v / a
    return implicit_diff.custom_linear_solve(lambda x: a * x, b, solve, lambda vm, v: v / a)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_custom_linear_solve(wrap):
    f = wrap(inverse)
    a, b = 4.0, 8.0
    assert float(f(a, b)) == 2.0
    da, db = fnx.grad(f, (0, 1))(a, b)
    np.testing.assert_allclose([float(da), float(db)], [-0.5, 0.25])
    np.testing.assert_allclose(float(fnx.jvp(f, (a, b), (1.0, 0.0))[1]), -0.5)
    np.testing.assert_allclose(float(fnx.grad(fnx.grad(f))(a, b)), 2 * b / a**3)
    values = np.array([2.0, 4.0])
    np.testing.assert_allclose(np.asarray(fnx.vmap(f, (0, None))(values, b)), b / values)
    np.testing.assert_allclose(
        np.asarray(fnx.vmap(fnx.grad(f), (0, None))(values, b)), -b / values**2
    )
    np.testing.assert_allclose(np.asarray(fnx.vmap(f, (None, 0))(a, values)), values / a)


def test_custom_linear_solve_of_systems():
    rng = np.random.default_rng(0)
    m = rng.normal(size=(3, 3)) + 4 * np.eye(3)
    v = rng.normal(size=3)
    apply = DotGeneral((((1,), (0,)), ((), ())))

    def iterate(mv, b):
        """Richardson's iteration."""
        return lax.fori_loop(0, 200, lambda i, x: x + 0.2 * (b - mv(x)), b * 0.0)

    f = lambda m, v: implicit_diff.custom_linear_solve(lambda x: apply(m, x), v, iterate, iterate)
    np.testing.assert_allclose(np.asarray(f(as_array(m), v)), np.linalg.solve(m, v), rtol=1e-8)
    dm, dv = fnx.grad(lambda m, v: total(f(m, v)), (0, 1))(m, v)
    lam = np.linalg.solve(m.T, np.ones(3))
    np.testing.assert_allclose(np.asarray(dv), lam, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(dm), -np.outer(lam, np.linalg.solve(m, v)), rtol=1e-7)


def test_linear_solves_that_lack_something():
    f = lambda b: implicit_diff.custom_linear_solve(lambda x: 2.0 * x, b, lambda mv, v: v / 2.0)
    assert float(fnx.jvp(f, (1.0,), (1.0,))[1]) == 0.5
    with pytest.raises(TypeError, match="transpose_solve"):
        fnx.grad(f)(1.0)
    with pytest.raises(TypeError, match="matvec returned"):
        implicit_diff.custom_linear_solve(lambda x: (x, x), 1.0, lambda mv, v: v)
    x, aux = implicit_diff.custom_linear_solve(
        lambda x: 2.0 * x, 1.0, lambda mv, v: (v / 2.0, 7), symmetric=True, has_aux=True
    )
    assert float(x) == 0.5
    assert int(aux) == 7


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_custom_root(wrap):
    def newton(g, x0):
        return lax.while_loop(
            lambda x: abs(g(x)) > 1e-13, lambda x: x - g(x) / fnx.jvp(g, (x,), (1.0,))[1], x0
        )

    def cube_root(a):
        return implicit_diff.custom_root(
            lambda x: x * x * x - a, 1.0, newton, lambda g, y: y / g(1.0)
        )

    f = wrap(cube_root)
    np.testing.assert_allclose(float(f(8.0)), 2.0)
    np.testing.assert_allclose(float(fnx.grad(f)(8.0)), 1 / 12)
    np.testing.assert_allclose(float(fnx.jvp(f, (8.0,), (1.0,))[1]), 1 / 12)
    np.testing.assert_allclose(float(fnx.grad(fnx.grad(f))(8.0)), -2 / 9 * 8 ** (-5 / 3))
    values = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(np.asarray(fnx.vmap(f)(values)), [1.0, 2.0, 3.0])
    np.testing.assert_allclose(np.asarray(fnx.vmap(fnx.grad(f))(values)), [1 / 3, 1 / 12, 1 / 27])


def diagonal_solve(a, b):
    """b / a by a solver that closes over a, as its operator does."""
    by = lambda _, rhs: rhs / a
    return implicit_diff.custom_linear_solve(lambda x: x * a, b, by, by)


@pytest.mark.parametrize(
    "around",
    [
        lambda f: f,
        fnx.jit,
        fnx.checkpoint,
        lambda f: fnx.jit(fnx.checkpoint(f)),
        lambda f: lambda a: fnx.vmap(f)(fnx.numpy.stack([a, a]))[0],
        lambda f: lambda a: lax.scan(lambda c, _: (c + f(a), None), 0.0, None, length=1)[0],
        lambda f: lambda a: lax.cond(a > 0, f, lambda a: a, a),
    ],
)
def test_solvers_that_close_over_traced_values(around):
    b = fnx.numpy.array([1.0, 2.0])
    loss = around(lambda a: total(diagonal_solve(a, b * a**3)))
    for slope in (fnx.grad(loss), fnx.jit(fnx.grad(loss)), fnx.jacfwd(loss)):
        np.testing.assert_allclose(slope(2.0), 12.0)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(loss))(fnx.numpy.array([2.0, 3.0])), [12.0, 18.0])


def test_a_solution_of_another_shape_or_structure_is_refused():
    same, solve = lambda x: x, lambda f, x: x
    with pytest.raises(ValueError, match=r"solve returned \['f64\[2\]'\]"):
        implicit_diff.custom_linear_solve(same, 1.0, lambda f, x: np.ones(2), solve)
    with pytest.raises(TypeError, match="solve returned"):
        implicit_diff.custom_linear_solve(same, 1.0, lambda f, x: [x], solve)
