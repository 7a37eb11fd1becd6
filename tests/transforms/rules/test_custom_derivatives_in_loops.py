"""Reverse mode through custom_jvp rules that make results and tangents together."""

from functools import partial

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("checked")


def looped(a):
    def step(s, t):
        return jnp.sin(s) * a + 0.1 * t, s * a

    s, ys = lax.scan(step, a, jnp.arange(4.0))
    return s + jnp.sum(ys, 0)


def branched(a):
    return lax.cond(jnp.sum(a) > 0, lambda x: jnp.sin(x) * x, lambda x: x * x, a)


def both(f, p, t):
    return fnx.jvp(f, p, t)


def apart(f, p, t):
    return f(*p), fnx.jvp(f, p, t)[1]


def in_a_branch(f, p, t):
    """Results and tangents from one branch."""
    return lax.cond(p[0][0] > 9.0, lambda p, t: (p, t), lambda p, t: fnx.jvp(f, (p,), (t,)), *p, *t)


def in_lanes(f, p, t):
    y, d = fnx.vmap(lambda s: fnx.jvp(f, (p[0] * s,), (t[0] * s,)))(jnp.array([1.0, 0.5]))
    return y[0], d[0]


@pytest.mark.parametrize("f", [looped, branched])
@pytest.mark.parametrize("rule", [both, apart, in_a_branch, in_lanes])
@pytest.mark.parametrize("run", [fnx.jit, lambda f: f])
def test_reverse_mode(f, rule, run):
    """One loop, or branch, makes both: results do not depend on tangents all the same."""
    g = fnx.custom_jvp(f)
    g.defjvp(lambda p, t: rule(f, p, t))
    x = jnp.array([0.5, -0.7, 0.9])
    uses = [
        lambda h, x: jnp.sum(jnp.sin(h(x))),
        lambda h, x: jnp.sum(lax.scan(lambda s, t: (0.5 * h(s) + t, None), x, jnp.arange(3.0))[0]),
        lambda h, x: jnp.sum(fnx.vmap(h)(jnp.stack([x, -x, x * x]))),
    ]
    for use in uses:
        for derive, tolerance in ((fnx.grad, 1e-12), (fnx.hessian, 1e-11)):
            found, wanted = (run(derive(partial(use, h)))(x) for h in (g, f))
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=1e-13)
