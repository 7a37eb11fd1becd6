"""Loops that stack a carry before and after each iteration, and those that need one stack of it."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.passes.predictive_commoning import without_shifted_stacks
from fnx.interpreters.passes.simplify import simplify

pytestmark = pytest.mark.usefixtures("checked")

X = np.linspace(0.1, 0.9, 3)


def there(x, reverse):
    """Stacks of a carry before and after each iteration, and what a loop back makes of them."""

    def step(c, k):
        new = 0.5 * jnp.sin(c) + 0.1 * (k + 1)
        return new, (c, new)

    last, (before, after) = lax.scan(step, x, jnp.arange(7.0), reverse=reverse)
    return last, before, after


def back(total, rows):
    a, b = rows
    return total * 0.5 + a * b, a + 2 * b


def iteration_trip(x, reverse):
    _, before, after = there(x, reverse)
    return lax.scan(back, jnp.zeros_like(x), (before, after), reverse=not reverse)


def same_way(x, reverse):
    _, before, after = there(x, reverse)
    return lax.scan(back, jnp.zeros_like(x), (before, after), reverse=reverse)


def read_elsewhere(x, reverse):
    _, before, after = there(x, reverse)
    out = lax.scan(back, jnp.zeros_like(x), (before, after), reverse=not reverse)
    return out, after[1]


def returned(x, reverse):
    _, before, after = there(x, reverse)
    return lax.scan(back, jnp.zeros_like(x), (before, after), reverse=not reverse), after


def after_alone(x, reverse):
    _, _, after = there(x, reverse)
    return lax.scan(back, jnp.zeros_like(x), (after, after), reverse=not reverse)


def twice_back(x, reverse):
    """Two loops read both stacks."""
    _, before, after = there(x, reverse)
    one = lax.scan(back, jnp.zeros_like(x), (before, after), reverse=not reverse)
    return one, lax.scan(back, x, (after, before), reverse=not reverse)


def counted(x, reverse):
    """The gradient of a loop that learns its number of iterations when it runs."""

    def loss(x, n):
        def step(_, s):
            a, b = s
            b = (1.0 + 0.1 * a * a) * b
            return jnp.exp(-a) / b, b

        return sum(lax.fori_loop(0, jnp.minimum(n, 9), step, (x, x + 2.0))).sum()

    return [fnx.grad(loss)(x, n) for n in (0, 1, 6)]


CASES = (iteration_trip, same_way, read_elsewhere, returned, after_alone, twice_back, counted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("x", [X, X[0], X[:0], np.tile(X, 10)], ids=["few", "one", "none", "many"])
@pytest.mark.parametrize("case", CASES)
def test_compiled_as_eager(case, x, reverse):
    with fnx.disable_jit():
        expected = case(jnp.asarray(x), reverse)
    found = fnx.jit(lambda x: case(x, reverse))(jnp.asarray(x))
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), found, expected)


def stacks(case, reverse):
    jaxpr = simplify(fnx.make_jaxpr(lambda x: case(x, reverse))(X).jaxpr, final=True)
    return _stacks(jaxpr)


def _stacks(jaxpr: Jaxpr) -> int:
    loops = [e for e in jaxpr.eqns if e.prim.name == "scan"]
    return sum(len(e.outs) - e.prim.carry for e in loops)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_stack_for_two(reverse):
    assert stacks(iteration_trip, reverse) == 1 + 1
    assert stacks(twice_back, reverse) == 1 + 2


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", [same_way, read_elsewhere, returned])
def test_two_stacks_where_both_are_needed(case, reverse):
    assert stacks(case, reverse) == 2 + 1


def test_nothing_to_do_is_the_same_jaxpr():
    jaxpr = fnx.make_jaxpr(jnp.sin)(X).jaxpr
    assert without_shifted_stacks(jaxpr) is jaxpr


def test_memory_of_a_gradient():
    """A recurrence of scalars keeps one stack of each, not two."""

    def loss(a, b):
        def step(s, _):
            a, b = s
            b = (1.0 - a * a) * b
            return (jnp.cos(a) / b, b), None

        return sum(lax.scan(step, (a, b), None, length=1000)[0])

    compiled = fnx.jit(fnx.grad(loss)).lower(0.3, 2.0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 2 * 8 * 1000 + 256
