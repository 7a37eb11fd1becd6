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


# --- members -----------------------------------------------------------------------------------


def looped(f):
    return lambda y: lax.fori_loop(0, 3, lambda i, c: f(y) + 0 * c, y)


@pytest.mark.parametrize("compile_it", [fnx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("mistake", CHOSEN, ids=lambda f: f.__name__)
def test_the_member_is_named(mistake, compile_it):
    x = {inverse_sine: -1.5, overflow: 0.1, log_of_small: 0.5}.get(mistake, 5.0)
    for place in (lambda f: f, looped):
        text = found(compile_it(fnx.vmap(place(mistake))), jnp.array([x, x, 2.0, x]))
        assert here(mistake) in text or compile_it is not fnx.jit
        assert "in member 2 of vmap at " in text
    grid = jnp.full((3, 4), x).at[1, 3].set(2.0)
    text = found(compile_it(fnx.vmap(fnx.vmap(mistake), in_axes=1)), grid)
    inner, outer = text.index("in member 1 of vmap at "), text.index("in member 3 of vmap at ")
    assert inner < outer


@pytest.mark.parametrize("mistake", SLOPES, ids=lambda f: f.__name__)
def test_the_member_of_a_derivative_is_named(mistake):
    x = jnp.array([5.0, 2.0, 5.0])
    for f in (fnx.vmap(fnx.grad(mistake)), fnx.grad(lambda x: fnx.vmap(mistake)(x).sum())):
        text = found(fnx.jit(f), x)
        assert here(mistake) in text
        assert "in member 1 of vmap at " in text


INDEXED = {
    "gather": lambda x, k: x[k],
    "slice": lambda x, k: lax.dynamic_slice(x, (k,), (2,)),
    "set": lambda x, k: x.at[k].set(0.0),
    "add": lambda x, k: x.at[k].add(1.0),
    "loop": lambda x, k: lax.fori_loop(0, 3, lambda i, c: c + x[k + i], 0.0),
}


@pytest.mark.parametrize("transform", [fnx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("what", INDEXED)
def test_the_member_of_an_index_is_named(what, transform):
    f = transform(fnx.vmap(INDEXED[what]))
    with fnx.debug_index():
        f(jnp.ones((3, 6)), jnp.array([0, 1, 2]))
        with pytest.raises(IndexError, match=r"in member 2 of vmap at "):
            f(jnp.ones((3, 6)), jnp.array([0, 1, 9]))


# --- what is wrong before anything runs --------------------------------------------------------


def carry_of_another_shape(x):
    return lax.scan(lambda c, y: (jnp.stack([c, y]), y), 0.0, x)  # here


def carry_of_another_dtype(x):
    return lax.fori_loop(0, 3, lambda i, c: c + 1j, x)  # here


def carry_of_another_structure(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: c[0] + 1, (x, x))  # here


def condition_of_many(x):
    return lax.while_loop(lambda c: c < 3, lambda c: c + 1, x)  # here


def branches_that_differ(x):
    return lax.cond(x[0] > 0, lambda x: x, lambda x: x[:2], x)  # here


def not_a_pair(x):
    return lax.scan(lambda c, y: c + y, 0.0, x)  # here


def rows_of_other_lengths(x):
    return lax.scan(lambda c, y: (c, None), 0.0, (x, x[:2]))  # here


def shapes_of_a_sum(x):
    return x + jnp.ones(4)  # here


def shapes_of_a_product(x):
    return jnp.ones((2, 2)) @ x  # here


def shapes_of_a_stack(x):
    return jnp.stack([x, x[:2]])  # here


def shapes_of_a_concatenation(x):
    return jnp.concatenate([x, jnp.ones((2, 2))])  # here


def size_of_a_reshape(x):
    return x.reshape(2, 2)  # here


def axis_out_of_range(x):
    return jnp.sum(x, axis=2)  # here


def subscripts(x):
    return jnp.einsum("ij,j->i", x, x)  # here


def window_too_large(x):
    return lax.dynamic_slice(x, (0,), (7,))  # here


def update_too_large(x):
    return x.at[0].set(jnp.ones(4))  # here


def members_of_other_numbers(x):
    return fnx.vmap(lambda a, b: a + b)(x, x[:2])  # here


def python_branch(x):
    return x if x[0] > 0 else -x  # here


BEFORE = [
    carry_of_another_shape, carry_of_another_dtype, carry_of_another_structure, condition_of_many,
    branches_that_differ, not_a_pair, rows_of_other_lengths, shapes_of_a_sum, shapes_of_a_product,
    shapes_of_a_stack, shapes_of_a_concatenation, size_of_a_reshape, axis_out_of_range, subscripts,
    window_too_large, update_too_large, members_of_other_numbers, python_branch,
]  # fmt: skip


@pytest.mark.parametrize("place", ["alone", "vmap", "grad", "scan"])
@pytest.mark.parametrize("mistake", BEFORE, ids=lambda f: f.__name__)
def test_the_line_of_shapes_carries_and_branches(mistake, place):
    f = {
        "alone": mistake,
        "vmap": lambda x: fnx.vmap(mistake)(jnp.stack([x, x])),
        "grad": fnx.grad(lambda x: jnp.sum(fnx.tree.leaves(mistake(x))[0])),
        "scan": lambda x: lax.scan(lambda c, _: (c, mistake(x)), 0.0, None, length=2),
    }[place]
    with pytest.raises((TypeError, ValueError)) as error:
        fnx.jit(f)(jnp.ones(3))
    lines, start = inspect.getsourcelines(mistake)
    (at,) = [k for k, line in enumerate(lines) if "# here" in line]
    assert f"{__file__}:{start + at} ({mistake.__name__})" in str(error.value)
