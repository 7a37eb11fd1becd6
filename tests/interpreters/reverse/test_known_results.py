"""Reverse mode of rules that use forward mode of loops: their values are known before tangents are."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("reference")


def scans(x):
    """A loop reads what another one carried and stacked."""
    (a, n), ys = lax.scan(lambda c, i: ((jnp.sin(c[0]) * x, c[1] + i), c[0]), (x, 0), jnp.arange(4))
    return lax.scan(lambda c, y: (jnp.cos(c) * y * n, None), a, ys)[0]


def whiles(x):
    step = lambda x: lax.while_loop(
        lambda c: c[1] < 3, lambda c: (jnp.sin(c[0]) * x, c[1] + 1), (x, 0)
    )
    y, n = step(x)
    return step(y * n)[0]


def branches(x):
    a, b = lax.cond(x > 0.1, lambda x: (jnp.sin(x), x * x), lambda x: (x, x), x)
    return lax.cond(b > 0.01, lambda a: a * b, lambda a: a, a)


def calls(x):
    a, b = fnx.jit(lambda x: (jnp.sin(x), x * x))(x)
    return fnx.jit(lambda a, b: a * jnp.exp(b))(a, b)


def loops_in_loops(x):
    """The inner loop's values do not depend on tangents, which the outer one carries beside them."""

    def step(c, _):
        a, ys = lax.scan(lambda c, i: (jnp.sin(c) * x, c * i), c, jnp.arange(3.0))
        return fnx.jit(lambda a, y: a + y)(a, ys[1]), ys[2]

    a, ys = lax.scan(step, x, None, 2)
    return lax.scan(lambda c, y: (jnp.cos(c) * y, None), a, ys)[0]


@pytest.mark.parametrize("fun", [scans, whiles, branches, calls, loops_in_loops])
def test_gradients_of_rules_that_use_jvp(fun):
    ruled = fnx.custom_jvp(fun)
    ruled.defjvp(lambda p, t: fnx.jvp(fun, p, t))
    linear = lambda x: fnx.linear_transpose(lambda t: fnx.jvp(fun, (x,), (t,))[1], x)(1.0)[0]
    x = 0.7
    expected = float(fnx.jvp(fun, (x,), (1.0,))[1])
    for slope in fnx.grad(ruled), fnx.jit(fnx.grad(ruled)), fnx.grad(fnx.jit(ruled)), linear:
        assert float(slope(x)) == pytest.approx(expected, rel=1e-13)
    mapped = fnx.vmap(fnx.grad(ruled))(jnp.array([x, 0.3]))
    np.testing.assert_allclose(mapped, [expected, fnx.grad(fun)(0.3)], rtol=1e-13)


def test_a_call_with_one_result_that_is_known():
    double = fnx.jit(lambda x, t: 2.0 * x)
    ruled = fnx.custom_jvp(lambda x: x * x)
    ruled.defjvp(lambda p, t: (p[0] * p[0], double(p[0], t[0]) * t[0]))
    assert float(fnx.grad(ruled)(3.0)) == float(fnx.jit(fnx.grad(ruled))(3.0)) == 6.0
