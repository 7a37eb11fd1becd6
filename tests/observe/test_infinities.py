"""debug_infs names the infinity that results have, not one that the program chooses against."""

import inspect

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax


def innocent(x):
    return jnp.where(x > 0.0, 1.0 / x, 0.0)  # infinite where x is 0, and dropped


def guilty(x):
    return jnp.exp(1e3 * x)  # here


LINE = inspect.getsourcelines(guilty)[1] + 1
X = np.array([0.0, 0.25, 1.0])


def plain(x):
    return innocent(x) + guilty(x)


def in_a_loop(x):
    def step(c, k):
        return c + innocent(x) + guilty(x - 2.0 + k), None

    return lax.scan(step, x, jnp.arange(3.0))[0]


def in_a_while(x):
    body = lambda v: (v[0] + 1, innocent(v[1]) + guilty(v[1] - 2.0 + v[0]) * 0.0 + v[1])
    return lax.while_loop(lambda v: v[0] < 1, body, (0, x))[1] + guilty(x)


def in_a_branch(x):
    return lax.cond(x[0] < 1.0, lambda x: innocent(x) + guilty(x), lambda x: x, x)


def for_members(x):
    return fnx.vmap(lambda y: innocent(y) + guilty(y))(x)


def summed(x):
    return jnp.sum(innocent(x)) + jnp.sum(guilty(x))


def sorted_(x):
    return jnp.sort(innocent(x) - guilty(x))


def multiplied(x):
    return jnp.outer(guilty(x), x + 1.0) @ (innocent(x) + 1.0)


def accumulated(x):
    return jnp.cumsum(innocent(x) + guilty(x))


def greatest(x):
    return jnp.max(guilty(x)) + jnp.min(innocent(x))


def differentiated(x):
    return fnx.grad(lambda x: jnp.sum(innocent(jnp.where(x > 0, x, 1.0)) + guilty(x)))(x)


def of_float32(x):
    return innocent(x.astype(np.float32)) + guilty(x.astype(np.float32))


def of_complex(x):
    return innocent(x) + guilty(x) * (1.0 + 0j)


def written(x):
    return jnp.zeros(5).at[1:4].set(guilty(x)) + jnp.sum(innocent(x))


PROGRAMS = [
    plain, in_a_loop, in_a_while, in_a_branch, for_members, summed, sorted_, multiplied, accumulated,
    greatest, differentiated, of_float32, of_complex, written,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS)
def test_the_line_of_what_is_in_the_results_is_named(f):
    with fnx.debug_infs(), pytest.raises(FloatingPointError) as error:
        fnx.jit(f)(jnp.array(X))
    text = str(error.value)
    assert f"made at {__file__}:{LINE} (guilty)" in text
    assert "the operation exp made an infinity: of " in text
    assert "nan" not in text.partition("made at")[0]  # which stood for infinities


def test_the_iteration_and_the_member():
    with fnx.debug_infs(), pytest.raises(FloatingPointError, match="in iteration 2 of scan at"):
        fnx.jit(in_a_loop)(jnp.array(X))
    with fnx.debug_infs(), pytest.raises(FloatingPointError, match="in member 2 of vmap at"):
        fnx.jit(for_members)(jnp.array(X))


def test_what_is_chosen_against_alone_is_no_mistake():
    with fnx.debug_infs():
        np.testing.assert_array_equal(fnx.jit(innocent)(jnp.array(X)), [0.0, 4.0, 1.0])


def test_an_infinity_of_an_argument_hides_none_that_is_made():
    f = fnx.jit(lambda x, bound: jnp.minimum(guilty(x), bound))
    with fnx.debug_infs():
        f(jnp.array([0.5, 0.25]), jnp.inf)  # a bound that no result has
        with pytest.raises(FloatingPointError, match=r"\(guilty\)"):
            f(jnp.array([0.5, 1.0]), jnp.inf)
        with pytest.raises(
            FloatingPointError, match=r"an infinity that came in: argument 0, .* first at"
        ):
            fnx.jit(lambda x: x * 2.0)(jnp.array([jnp.inf, 0.25]))


def test_values_are_those_of_infinities_while_they_are_traced():
    """What depends on an infinity's value goes the way that it went."""

    def f(x):
        big = guilty(x)  # infinite for 1
        steps = lax.while_loop(lambda v: v[1] < big, lambda v: (v[0] + 1, v[1] * 1e200), (0, 1.0))[
            0
        ]
        small = jnp.where(jnp.isinf(big), 1.0 / big, 7.0)  # 0 then
        return steps, small, -big, jnp.arctan(big)

    with fnx.debug_infs(), pytest.raises(FloatingPointError, match=r"\(guilty\)"):
        fnx.jit(f)(1.0)
