"""linear_call: functions whose transposes users give, under all transformations."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.custom_derivatives import linear_call


def scaled(x, r=3.0):
    """r x, with a transpose that is told from the true one by a factor of 7."""
    return linear_call(lambda r, x: r * x, lambda r, ct: 7.0 * r * ct, r, x)


def test_values_and_tangents_are_the_functions():
    for f in (scaled, fnx.jit(scaled)):
        assert float(f(2.0)) == 6.0
        assert [float(v) for v in fnx.jvp(f, (2.0,), (1.0,))] == [6.0, 3.0]


def test_cotangents_are_the_transposes():
    assert float(fnx.grad(scaled)(2.0)) == float(fnx.jit(fnx.grad(scaled))(2.0)) == 21.0
    assert float(fnx.linear_transpose(scaled, 2.0)(1.0)[0]) == 21.0
    twice = fnx.linear_transpose(lambda ct: fnx.linear_transpose(scaled, 2.0)(ct)[0], 2.0)
    assert float(twice(1.0)[0]) == 3.0


def test_batches_of_both_arguments():
    xs, rs = jnp.arange(3.0), jnp.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(fnx.vmap(scaled)(xs, rs), xs * rs)
    np.testing.assert_array_equal(fnx.vmap(fnx.grad(scaled))(xs, rs), 7 * rs)
    np.testing.assert_array_equal(fnx.vmap(fnx.grad(scaled), (None, 0))(1.0, rs), 7 * rs)


def test_trees_and_what_functions_close_over():
    def loss(k, v):
        f = lambda r, v: {"out": (k * v["a"], r * v["b"])}
        back = lambda r, ct: {"a": 5.0 * k * ct["out"][0], "b": r * ct["out"][1]}
        a, b = linear_call(f, back, 2.0, v)["out"]
        return jnp.sum(a) + jnp.sum(b)

    v = {"a": jnp.ones(2), "b": jnp.ones(())}
    for grad in (fnx.grad(loss, 1), fnx.jit(fnx.grad(loss, 1))):
        found = grad(3.0, v)
        assert found["a"].tolist() == [15.0, 15.0]
        assert float(found["b"]) == 2.0


def test_there_is_no_derivative_by_residuals():
    with pytest.raises(NotImplementedError, match="residual"):
        fnx.grad(lambda r: scaled(2.0, r))(3.0)


def test_transposes_that_do_not_fit():
    with pytest.raises(TypeError, match="as its linear arguments"):
        linear_call(lambda r, x: x, lambda r, ct: (ct, ct), 1.0, 2.0)
    with pytest.raises(TypeError, match=r"f64\[2\].*expected"):
        linear_call(lambda r, x: x, lambda r, ct: jnp.stack([ct, ct]), 1.0, 2.0)


def test_linear_transpose_of_integers_to_numbers_with_a_fraction():
    with pytest.raises(TypeError, match="on both sides"):
        fnx.linear_transpose(lambda x: 2.0 * x, 1)
    assert int(fnx.linear_transpose(lambda x: 2 * x, 1)(3)[0]) == 6
