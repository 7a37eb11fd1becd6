"""Jaxprs that users ask for: which values are their constants, which stand in their text."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp


@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.asarray(2.0),
        lambda: jnp.float32(2),
        lambda: jnp.zeros(()),
        lambda: jnp.sum(jnp.ones(3)),
        lambda: jnp.full((), 3),
        lambda: fnx.jit(jnp.sin)(1.0),
    ],
)
def test_arrays_of_rank_0_that_a_function_holds_are_constants_of_its_jaxpr(make):
    held = make()
    closed = fnx.make_jaxpr(lambda x: x * held + held)(1.0)
    assert [c is held for c in closed.consts] == [True]
    assert len(closed.jaxpr.constvars) == 1
    run = fnx.extend.core.jaxpr_as_fun(closed)
    np.testing.assert_array_equal(run(jnp.asarray(3.0))[0], 3.0 * held + held)


@pytest.mark.parametrize("number", [2, 2.0, True, np.float32(2), np.asarray(2.0)])
def test_numbers_in_a_programs_text_are_literals_of_its_jaxpr(number):
    closed = fnx.make_jaxpr(lambda x: (x * number, jnp.asarray(number), jnp.zeros(()) + x))(1.0)
    assert closed.consts == []


def inside_a_loop(fun, c):
    """The jaxpr of `fun(c)`, a function, made while a loop's body is traced, where c is a tracer."""
    found = []

    def body(carry, _):
        found.append(fnx.make_jaxpr(fun(carry))(1.0))
        return carry, None

    fnx.lax.scan(body, c, None, length=2)
    return found[0]


CLOSURES = {
    "operators": lambda c: lambda x: x * c + 2.0 * c,
    "where it is weak and where not": lambda c: lambda x: x * c + jnp.sum(jnp.arange(3.0) * c),
    "a loop": lambda c: lambda x: fnx.lax.scan(lambda s, _: (s * c, None), x, None, length=3)[0],
    "jit": lambda c: fnx.jit(lambda x: jnp.sin(c) * x),
    "a branch": lambda c: lambda x: fnx.lax.cond(x > 0, lambda y: y * c, lambda y: y + 1, x),
    "vmap": lambda c: lambda x: fnx.vmap(lambda y: y * c)(jnp.stack([x, x])),
    "a gradient": lambda c: fnx.grad(lambda x: jnp.sin(x * c)),
}


@pytest.mark.parametrize("what", CLOSURES)
def test_closures_have_the_same_constants_outside_of_loops_as_inside(what):
    """Programs that convert closures to arrays and functions rely on it."""
    c = jnp.asarray(2.0)
    fun = CLOSURES[what]
    outside, inside = fnx.make_jaxpr(fun(c))(1.0), inside_a_loop(fun, c)
    assert [x.aval for x in outside.consts] == [x.aval for x in inside.consts] == [c.aval]
    fun(c)(1.0)  # what calls remember is not what make_jaxpr asks for
    assert len(fnx.make_jaxpr(fun(c))(1.0).consts) == 1


def test_compiled_programs_see_the_values_of_arrays_of_rank_0():
    held = jnp.asarray(2.0)
    assert "mul a 2.0" in str(fnx.jit(lambda x: x * held).lower(1.0).as_text("jaxpr"))


@pytest.mark.parametrize(
    "make",
    [lambda: jnp.zeros(()), lambda: jnp.asarray(2.0, jnp.float32), lambda: jnp.full((), 1, int)],
)
def test_a_number_that_a_user_deletes_is_his_alone(make):
    want = np.asarray(make()).copy()
    make().delete()
    np.testing.assert_array_equal(make(), want)


def test_shapes_and_dtypes_differ_by_their_weak_type():
    plain, weak = (
        fnx.ShapeDtypeStruct((2,), float),
        fnx.ShapeDtypeStruct((2,), float, weak_type=True),
    )
    assert plain == fnx.ShapeDtypeStruct((2,), float) != weak
    assert len({plain, weak, weak.update(weak_type=False)}) == 2
    assert repr(plain) == "ShapeDtypeStruct(shape=(2,), dtype=float64)"
    assert repr(weak) == "ShapeDtypeStruct(shape=(2,), dtype=float64, weak_type=True)"
