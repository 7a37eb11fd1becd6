"""Rules of users that close over traced values, traced after the function that has them."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

SLOPE = 10.0  # what each rule says of the derivative, as a multiple of what it closed over


def jvp_rule(y):
    f = fnx.custom_jvp(lambda x: 2.0 * x)
    f.defjvp(lambda p, t: (f(*p), SLOPE * y * t[0]))
    return f


def jvp_function_and_rule(y):
    f = fnx.custom_jvp(lambda x: x * y)
    f.defjvp(lambda p, t: (f(*p), SLOPE * y * t[0]))
    return f


def vjp_fwd(y):
    f = fnx.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(lambda x: (2.0 * x, y), lambda kept, ct: (SLOPE * kept * ct,))
    return f


def vjp_bwd(y):
    f = fnx.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (SLOPE * y * ct,))
    return f


def scanned(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


def repeated(f):
    return lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]


def chosen(f):
    return lambda x: lax.cond(x > -100.0, f, lambda x: x, x)


def nested(f):
    return scanned(chosen(fnx.checkpoint(fnx.jit(f))))


# The last is how often the rule is applied.
WRAPPERS = [
    (fnx.checkpoint, 1),
    (fnx.jit, 1),
    (scanned, 2),
    (chosen, 1),
    (repeated, 2),
    (nested, 2),
    (lambda f: lambda x: jnp.sum(fnx.vmap(f)(x * jnp.ones(1))), 1),
    (lambda f: fnx.vmap(scanned(fnx.checkpoint(f)), axis_size=1, out_axes=None, in_axes=None), 2),
]
MAKERS = [jvp_rule, jvp_function_and_rule, vjp_fwd, vjp_bwd]


@pytest.mark.parametrize(("wrap", "times"), WRAPPERS)
@pytest.mark.parametrize("make", MAKERS)
def test_what_a_rule_closed_over_is_an_operand(make, wrap, times):
    def slope(y):
        return fnx.grad(wrap(make(y)))(3.0)

    ys = np.array([0.5, 2.0])
    expected = (SLOPE * ys) ** times
    np.testing.assert_allclose([float(slope(y)) for y in ys], expected, rtol=1e-14)
    np.testing.assert_allclose([float(fnx.jit(slope)(y)) for y in ys], expected, rtol=1e-14)
    np.testing.assert_allclose(fnx.vmap(slope)(ys), expected, rtol=1e-14)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(slope))(ys), expected, rtol=1e-14)
    rows = lax.scan(lambda c, y: (c, slope(y)), 0.0, ys)[1]
    np.testing.assert_allclose(rows, expected, rtol=1e-14)


@pytest.mark.parametrize(("wrap", "times"), [w for w in WRAPPERS if w[0] is not repeated])
def test_derivatives_by_what_a_rule_alone_closed_over(wrap, times):
    def slope(y):
        return fnx.grad(wrap(jvp_rule(y)))(3.0)

    expected = times * SLOPE**times * 0.5 ** (times - 1)
    for g in (fnx.grad(slope), fnx.jit(fnx.grad(slope)), fnx.grad(fnx.jit(slope))):
        np.testing.assert_allclose(g(0.5), expected, rtol=1e-14)


def test_the_operand_shows_in_the_jaxpr():
    def slope(y):
        return fnx.grad(fnx.checkpoint(vjp_bwd(y)))(3.0)

    closed = fnx.make_jaxpr(slope)(2.0)
    calls = [e for e in closed.eqns if e.primitive.name == "checkpoint"]
    assert any(closed.jaxpr.invars[0] in e.invars for e in calls)
    assert not closed.consts


def test_a_value_whose_transformation_is_over_is_refused():
    kept = []
    fnx.jit(lambda y: kept.append(scanned(vjp_bwd(y))) or y)(2.0)
    with pytest.raises(fnx.errors.UnexpectedTracerError, match="had ended"):
        fnx.grad(kept[0])(3.0)
