"""Mistakes of simulations, wherever a program can make them: the line and the iteration are named."""

import inspect

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.source import origin


def logarithm(x):
    shifted = x - 2.0
    return jnp.log(shifted)  # here


def root_of_negative(x):
    return jnp.sqrt(x - 3.0) + 1.0  # here


def division_by_zero(x):
    speed = x - 2.0
    return 1.0 / speed  # here


def nothing_by_nothing(x):
    zero = x - x
    return zero / zero  # here


def overflow(x):
    y = 1000.0 * x
    return jnp.exp(y)  # here


def power(x):
    return (x - 3.0) ** 0.3  # here


def inverse_sine(x):
    return jnp.arcsin(x + 1.0)  # here


def inverse_hyperbolic(x):
    return jnp.arccosh(x - 2.0)  # here


def remainder(x):
    return jnp.remainder(x, x - x)  # here


def reciprocal_root(x):
    y = x - 2.0
    return lax.rsqrt(y)  # here


def log_of_small(x):
    return jnp.log1p(-x)  # here


# The derivative alone is wrong: at 0 of a root, of a norm, of a power, and behind a `where`.
def slope_of_root(x):
    y = x - 2.0
    return jnp.sqrt(y)  # here


def slope_of_norm(x):
    y = x - 2.0
    return jnp.sqrt(y * y + y * y)  # here


def slope_behind_where(x):
    y = x - 2.0
    r = jnp.sqrt(y)  # here
    return jnp.where(y > 0, r, 0.0)


def slope_of_power(x):
    y = x - 2.0
    return y**0.5  # here


def by_scan(f):
    return lambda x: lax.scan(lambda c, y: (c + f(y), None), 0.0, jnp.array([5.0, 4.0, x]))[0]


def stacked(f):
    return lambda x: lax.scan(lambda c, y: (c, f(y)), 0.0, jnp.array([5.0, 4.0, x]))[1].sum()


def by_fori(f):
    def body(k, c):
        return c + f(4.0 - k + (x0 - 2.0))

    def run(x):
        nonlocal x0
        x0 = x
        return lax.fori_loop(0, 3, body, 0.0)

    x0 = 0.0
    return run


def by_while(f):
    def run(x):
        body = lambda c: (c[0] + 1, c[1] + f(x + 2.0 - c[0]))
        return lax.while_loop(lambda c: c[0] < 3, body, (0, 0.0))[1]

    return run


def nested(f):
    inner = by_scan(f)
    return lambda x: lax.scan(lambda c, _: (c + inner(x), None), 0.0, None, length=2)[0]


PLACES = [by_scan, stacked, by_fori, by_while, nested]
VALUES = [
    logarithm, root_of_negative, division_by_zero, nothing_by_nothing, overflow, power,
    inverse_sine, inverse_hyperbolic, remainder, reciprocal_root, log_of_small,
]  # fmt: skip
CHOSEN = [f for f in VALUES if f not in (nothing_by_nothing, remainder)]  # right for some numbers
SLOPES = [slope_of_root, slope_of_norm, slope_behind_where, slope_of_power]
FIRST = {nothing_by_nothing, overflow, inverse_sine, remainder, log_of_small}  # wrong at once


def here(f):
    lines, start = inspect.getsourcelines(f)
    (at,) = [k for k, line in enumerate(lines) if "# here" in line]
    return f"made at {__file__}:{start + at} ({f.__name__})"


def found(f, x):
    with fnx.debug_nans(), fnx.debug_infs(), pytest.raises(FloatingPointError) as error:
        f(x)
    return str(error.value)


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mistake", VALUES, ids=lambda f: f.__name__)
def test_the_line_and_the_iteration_of_a_wrong_value(mistake, place):
    text = found(fnx.jit(place(mistake)), 2.0)
    assert here(mistake) in text
    where = "while_loop" if place is by_while else "fori_loop" if place is by_fori else "scan"
    assert f"in iteration {0 if mistake in FIRST else 2} of {where} at " in text
    if place is nested:
        assert text.count("in iteration") == 2


@pytest.mark.parametrize("place", [by_scan, stacked, nested], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mistake", SLOPES, ids=lambda f: f.__name__)
def test_the_line_and_the_iteration_of_a_wrong_derivative(mistake, place):
    f = place(mistake)
    text = found(fnx.jit(fnx.grad(f)), 2.0)
    assert here(mistake) in text
    assert "iteration 2 of" in text
    fnx.jit(f)(2.5)


@pytest.mark.parametrize("mistake", CHOSEN, ids=lambda f: f.__name__)
def test_the_member_of_a_batch(mistake):
    x = {inverse_sine: -1.5, overflow: 0.1, log_of_small: 0.5}.get(mistake, 5.0)
    f = fnx.jit(fnx.vmap(lambda y: lax.fori_loop(0, 3, lambda i, c: mistake(y) + 0 * c, y)))
    text = found(f, jnp.array([x, x, 2.0, x]))
    assert here(mistake) in text
    assert "first at [2]" in text


@pytest.mark.parametrize("mistake", CHOSEN, ids=lambda f: f.__name__)
def test_no_alarm_where_all_is_well(mistake):
    x = {inverse_sine: -1.5, overflow: 0.1, log_of_small: 0.5}.get(mistake, 4.5)
    with fnx.debug_nans(), fnx.debug_infs():
        mistake(jnp.array(x))
        fnx.jit(fnx.grad(mistake))(x)


def test_a_rule_that_raises_leaves_no_place_behind():
    """What is recorded later comes from where it is written, not from the rule that failed."""

    @fnx.custom_vjp
    def f(x):
        return x * 2

    def back(kept, ct):
        raise RuntimeError("no")

    f.defvjp(lambda x: (f(x), None), back)
    slopes = fnx.vmap(fnx.grad(lambda x: f(x) * x))
    for transformed, x in ((fnx.grad(f), 1.0), (fnx.jit(fnx.grad(f)), 1.0), (slopes, jnp.ones(2))):
        with pytest.raises(RuntimeError, match="no"):
            transformed(x)
        assert origin.get() is None
