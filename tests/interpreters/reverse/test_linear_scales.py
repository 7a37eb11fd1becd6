"""Numbers that cotangents are multiplied with on their way, which are multiplied once."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import ConcreteArray
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import check_jaxpr, eval_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.reverse.linear_scales import scaled_once

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(2)
T, X, Y = [RNG.normal(size=12) for _ in range(3)]


def both(fn, *args):
    """The names of the primitives before and after, of a function linear in its first operand."""
    before = simplify(fnx.make_jaxpr(fn)(*args).jaxpr)
    after = scaled_once(before, before.inputs[:1])
    check_jaxpr(after)
    arrays = [ConcreteArray(np.asarray(a)) for a in args]
    with use(evaluate):
        for a, b in zip(eval_jaxpr(after, arrays), eval_jaxpr(before, arrays), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-14)
    return [sorted(e.prim.name for e in j.eqns) for j in (before, after)]


@pytest.mark.parametrize(
    ("fn", "left"),
    [
        (lambda t, x, y: -(2.0 * (t / 0.3)), ["mul"]),
        (lambda t, x, y: 0.5 * (0.5 * t) * 4.0, []),
        (lambda t, x, y: x * (0.1 * -t / 0.3), ["mul", "mul", "neg"]),
        (lambda t, x, y: t - (0.5 * t[::-1] - 0.5 * jnp.roll(t[::-1], 0)), None),
        (lambda t, x, y: jnp.where(x > 0, 0.2 * t, 0.0) / 0.3, ["gt", "mul", "select_n"]),
        (lambda t, x, y: 3.0 * (t * x) + 3.0 * (t * y), ["add", "mul", "mul", "mul"]),
        (lambda t, x, y: jnp.sum(-t) * 2.0, ["mul", "reduce_sum"]),
        (lambda t, x, y: t / x + t / x * y, ["add", "div", "mul"]),
        (lambda t, x, y: t / x[0] + x, None),
        (lambda t, x, y: 2.0 * t + x, ["add", "mul"]),  # of which nobody says that it is zero
        (lambda t, x, y: jnp.where(y > 0, 2.0 * t, x) * 0.5, None),
        (lambda t, x, y: 2.0 / t + t * (3.0 * t), None),
    ],
)
def test_scales_are_met_once(fn, left):
    _, after = both(fn, T, X, Y)
    assert left is None or after == left


def test_quotients_by_one_array_share_its_reciprocal():
    before, after = both(lambda t, x, y: (t / x, (t * y) / x, (y * t) / x * y), T, X, Y)
    assert (before.count("div"), after.count("div")) == (3, 1)
    before, after = both(lambda t, x, y: (t / x, t / y), T, X, Y)
    assert after == before == ["div", "div"]


def test_what_depends_on_no_cotangent_keeps_its_bits():
    def fn(t, x, y):
        return t * 1.0, -(2.0 * (x / 0.3)), x / y[0], x / y + y / x / y

    before, after = both(fn, T, X, Y)
    assert after == before


@pytest.mark.parametrize(
    ("first", "second", "t"), [(1e-200, 1e-200, 1e300), (1e200, 1e200, 1e-300)]
)
def test_scales_that_leave_the_range_together_stay_apart(first, second, t):
    before, after = both(lambda t: first * t * second, np.array([t, 2 * t]))
    assert after == before == ["mul", "mul"]


def random_linear(seed):
    """A function that is linear in its first operand, of random operations."""

    def fn(t, x, y):
        rng = np.random.default_rng(seed)
        found = [t, 0.5 * t]
        for _ in range(15):
            a, b = [found[k] for k in rng.integers(0, len(found), 2)]
            c = float(rng.choice([-2.0, 0.3, -1.0, 3.0]))
            coefficient = (x, y, x[0])[rng.integers(3)]
            choices = (
                lambda a=a: -a,
                lambda a=a, c=c: c * a,
                lambda a=a, c=c: a / c,
                lambda a=a, k=coefficient: a * k,
                lambda a=a, k=coefficient: a / (2.0 + k**2),
                lambda a=a, b=b: a + b,
                lambda a=a, b=b: a - b,
                lambda a=a, b=b: jnp.where(x > y, a, b),
                lambda a=a: jnp.where(x > 0, a, 0.0),
                lambda a=a: jnp.roll(a, 1),
                lambda a=a, b=b: a.at[2:].add(b[:-2]),
            )
            found.append(choices[rng.integers(len(choices))]())
        return found[-4:]

    return fn


@pytest.mark.parametrize("seed", range(12))
def test_random_linear_functions(seed):
    fn = random_linear(seed)
    before = simplify(fnx.make_jaxpr(fn)(T, X, Y).jaxpr)
    after = scaled_once(before, before.inputs[:1])
    check_jaxpr(after)
    arrays = [ConcreteArray(a) for a in (T, X, Y)]
    with use(evaluate):
        for a, b in zip(eval_jaxpr(after, arrays), eval_jaxpr(before, arrays), strict=True):
            b = np.asarray(b)
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12, atol=1e-13 * abs(b).max())


def test_rules_of_users_need_not_be_linear():
    @fnx.custom_vjp
    def bounded(x):
        return 3.0 * x

    bounded.defvjp(
        lambda x: (3.0 * x, x), lambda x, t: (2.0 * t / (1.0 + (0.5 * t) ** 2) + 0.1 * x,)
    )

    def last(x):
        return jnp.sum(lax.scan(lambda x, _: (bounded(-x) / 4.0, None), x, None, length=3)[0])

    expected, rows = np.ones(12), [X, -0.75 * X, 0.5625 * X]
    for x in reversed(rows):
        t = expected / 4.0
        expected = -(2.0 * t / (1.0 + (0.5 * t) ** 2) - 0.1 * x)
    np.testing.assert_allclose(fnx.jit(fnx.grad(last))(X), expected, rtol=1e-13)
