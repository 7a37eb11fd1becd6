"""Equations come from lines of the user's, whatever transformations made them; so do those of rules."""

import inspect

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.custom_batching import custom_vmap


def here(f):
    lines, start = inspect.getsourcelines(f)
    (at,) = [k for k, line in enumerate(lines) if "# here" in line]
    return f"made at {__file__}:{start + at} ({f.__name__})"


def model(x):
    y = jnp.sqrt(x)
    z = jnp.sin(y) * 3
    return z**2


TRANSFORMED = {
    "vmap of grad": (fnx.vmap(fnx.grad(model)), jnp.ones(3)),
    "vmap of vmap of grad": (fnx.vmap(fnx.vmap(fnx.grad(model))), jnp.ones((2, 3))),
    "grad of grad": (fnx.grad(fnx.grad(model)), 1.0),
    "jacfwd of grad": (fnx.jacfwd(fnx.grad(model)), 1.0),
    "hessian of a sum": (fnx.hessian(lambda x: jnp.sum(fnx.vmap(model)(x))), jnp.ones(3)),
    "linearize": (lambda x: fnx.linearize(model, x)[1](1.0), 1.0),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_equations_of_composed_derivatives(name):
    f, x = TRANSFORMED[name]
    eqns = fnx.make_jaxpr(f)(x).jaxpr.eqns
    products = [e.source.code.co_name for e in eqns if e.prim.name in ("mul", "div", "cos")]
    assert set(products) == {"model"}


def parts(x, k):
    return x[k] + x[1:3]


@pytest.mark.parametrize("transform", [lambda f: f, fnx.jit])
def test_cotangents_that_add_themselves(transform):
    """They are added when all are known, and come from where they were made."""
    slope = transform(fnx.grad(lambda x, k: jnp.sum(parts(x, k) ** 2)))
    jaxpr = fnx.make_jaxpr(slope)(jnp.ones(5), jnp.array([0, 1])).jaxpr
    eqns = jaxpr.eqns[0].prim.jaxpr.eqns if transform is fnx.jit else jaxpr.eqns
    added = [e for e in eqns if e.prim.name in ("slice_add", "scatter-add")]
    assert [e.source.code.co_name for e in added] == ["parts", "parts"]


def halves_reversed(x, ct):
    return (ct / (x - 1.0),)  # here


def rule_of_tangents(primals, tangents):
    (x,), (t,) = primals, tangents
    return jnp.exp(x), t / (x - 1.0)  # here


def pulled_back(ct, x):
    return ct / (x - 1.0)  # here


def for_all_members(size, batched, x):
    return 1.0 / (x - 1.0), True  # here


def by_vjp():
    f = fnx.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (f(x), x), halves_reversed)
    return fnx.grad(f)


def by_jvp():
    f = fnx.custom_jvp(jnp.exp)
    f.defjvp(rule_of_tangents)
    return fnx.grad(f)


def by_gradient():
    return fnx.grad(fnx.custom_gradient(lambda x: (x * 2, lambda ct: pulled_back(ct, x))))


def by_vmap():
    f = custom_vmap(lambda x: x * 2)
    f.def_vmap(for_all_members)
    return f


RULES = [
    (by_vjp, halves_reversed), (by_jvp, rule_of_tangents),
    (by_gradient, pulled_back), (by_vmap, for_all_members),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "written"), RULES, ids=lambda f: f.__name__)
def test_a_mistake_in_a_rule_is_at_its_own_line(rule, written):
    f = rule()
    looped = lambda x: lax.fori_loop(0, 3, lambda k, c: c + f(x), 0.0)
    member = "" if rule is by_vmap else "in member 1 of vmap at "
    for transformed in (fnx.vmap(f), fnx.vmap(looped)):
        with fnx.debug_infs(), pytest.raises(FloatingPointError) as error:
            fnx.jit(transformed)(jnp.array([3.0, 1.0]))
        assert here(written) in str(error.value)
        assert member in str(error.value)


def test_the_vmap_that_a_rule_is_batched_for_is_where_the_user_called_it():
    f = by_vjp()
    mapped = lambda x: 2.0 * fnx.vmap(f)(x)
    with fnx.debug_infs(), pytest.raises(FloatingPointError) as error:
        fnx.jit(mapped)(jnp.array([3.0, 1.0]))
    at = inspect.getsourcelines(mapped)[1]
    assert f"in member 1 of vmap at {__file__}:{at} (<lambda>)" in str(error.value)


def test_devices_are_named_as_devices():
    x = jnp.array([1.0, -1.0])
    with fnx.core.config.num_devices(2), fnx.debug_nans():
        named = fnx.pmap(lambda x: lax.psum(jnp.log(x), "i"), axis_name="i")
        with pytest.raises(
            FloatingPointError, match=r"\n  on device 1 along 'i', mapped at .*test_lines"
        ):
            named(x)
        with pytest.raises(FloatingPointError, match=r"\n  on device 1, mapped at .*test_lines"):
            fnx.pmap(jnp.log)(x)
        with pytest.raises(FloatingPointError, match=r"\n  in member 1 of vmap at .*test_lines"):
            fnx.vmap(lambda x: lax.psum(jnp.log(x), "i"), axis_name="i")(x)
