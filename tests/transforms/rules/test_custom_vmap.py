"""Rules of users for vmap: who asks for them, and what they are told."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.custom_batching import custom_vmap, sequential_vmap

XS = jnp.arange(3.0)


def make():
    """sin(x) * y and x + y, and a list of what the rule was told."""
    calls = []

    @custom_vmap
    def f(x, y):
        return {"a": jnp.sin(x) * y, "b": x + y}

    @f.def_vmap
    def rule(size, batched, x, y):
        calls.append((size, batched))
        return {"a": jnp.sin(x) * y, "b": x + y}, {"a": True, "b": True}

    return f, f.fun, calls


CASES = {
    "call": (lambda f: f(1.0, 2.0), []),
    "jit": (lambda f: fnx.jit(f)(1.0, 2.0), []),
    "vmap": (lambda f: fnx.vmap(f)(XS, XS), [[True, True]]),
    "first": (lambda f: fnx.vmap(f, (0, None))(XS, 2.0), [[True, False]]),
    "second": (lambda f: fnx.vmap(f, (None, 0))(2.0, XS), [[False, True]]),
    "jit of vmap": (lambda f: fnx.jit(fnx.vmap(f, (0, None)))(XS, 2.0), [[True, False]]),
    "vmap of jit": (lambda f: fnx.vmap(fnx.jit(f), (0, None))(XS, 2.0), [[True, False]]),
    "inner axis": (lambda f: fnx.vmap(f, (1, 0))(jnp.ones((2, 3)), XS[:, None]), [[True, True]]),
    "two": (
        lambda f: fnx.vmap(fnx.vmap(f, (0, None)), (None, 0))(XS, XS),
        [[True, False]],
    ),
    "jvp": (lambda f: fnx.jvp(f, (1.0, 2.0), (1.0, 1.0)), []),
    "vmap of jvp": (lambda f: fnx.vmap(lambda x: fnx.jvp(f, (x, 2.0), (1.0, x)))(XS), None),
    "jit of vmap of jvp": (
        lambda f: fnx.jit(fnx.vmap(lambda x: fnx.jvp(f, (x, 2.0), (1.0, x))))(XS),
        None,
    ),
    "jvp of vmap": (
        lambda f: fnx.jvp(lambda x: fnx.vmap(f, (0, None))(x, 2.0), (XS,), (XS,)),
        [[True, False]],
    ),
    "grad": (lambda f: fnx.grad(lambda x: f(x, 2.0)["a"])(1.0), []),
    "jit of grad": (lambda f: fnx.jit(fnx.grad(lambda x: f(x, 2.0)["a"]))(1.0), []),
    "vmap of grad": (lambda f: fnx.vmap(fnx.grad(lambda x: f(x, 2.0)["a"]))(XS), None),
    "grad of vmap": (
        lambda f: fnx.grad(lambda x: fnx.vmap(f, (0, None))(x, 2.0)["a"].sum())(XS),
        [[True, False]],
    ),
    "scan": (
        lambda f: fnx.vmap(lambda x: lax.scan(lambda c, _: (f(c, x)["a"], c), x, None, length=2))(
            XS
        ),
        None,
    ),
    "keywords": (lambda f: fnx.vmap(lambda x: f(y=x, x=1.0))(XS), [[False, True]]),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_functions_and_the_rule_is_asked(name):
    f, plain, calls = make()
    run, told = CASES[name]
    for a, b in zip(fnx.tree.leaves(run(f)), fnx.tree.leaves(run(plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    if told is not None:
        assert [batched for _, batched in calls] == told


def test_the_rule_decides():
    f = custom_vmap(lambda x: x)
    f.def_vmap(lambda size, batched, x: (10 * x, True))
    slope = lambda x: fnx.jvp(f, (x,), (1.0,))[1]
    assert f(1.0) == slope(1.0) == 1.0
    for run in (fnx.vmap, lambda f: fnx.jit(fnx.vmap(f)), lambda f: fnx.vmap(fnx.jit(f))):
        np.testing.assert_array_equal(run(f)(XS), 10 * XS)
        np.testing.assert_array_equal(run(slope)(XS), [10.0, 10.0, 10.0])


def test_results_without_lanes():
    f = custom_vmap(lambda x: (x, 1.0))
    f.def_vmap(lambda size, batched, x: ((x, float(size)), (True, False)))
    _, count = fnx.vmap(f, out_axes=(0, None))(XS)
    assert count == 3.0


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None)])
def test_one_lane_after_the_other(in_axes):
    f = lambda x, y: {"s": jnp.sin(x["u"]) + y}
    x, y = {"u": XS}, XS if in_axes[1] == 0 else 1.0
    found = fnx.jit(fnx.vmap(sequential_vmap(f), in_axes))(x, y)
    np.testing.assert_allclose(found["s"], fnx.vmap(f, in_axes)(x, y)["s"], rtol=1e-14)


def test_rules_that_do_not_fit_are_told():
    f = custom_vmap(lambda x: (x, x))
    with pytest.raises(AttributeError, match="def_vmap"):
        f(1.0)
    f.def_vmap(lambda size, batched, x: ((x, x), True))
    with pytest.raises(ValueError, match="which leaves"):
        fnx.vmap(f)(XS)
    f.def_vmap(lambda size, batched, x: ((x, x, x), (True, True, True)))
    with pytest.raises(ValueError, match="the function itself"):
        fnx.jit(fnx.vmap(fnx.jit(f)))(XS)
    f.def_vmap(lambda size, batched, x: ((x[:2], x), (True, True)))
    with pytest.raises(TypeError, match="both must agree"):
        fnx.vmap(fnx.jit(f))(XS)


def _scaled():
    @custom_vmap
    def f(x, y=2.0, *, z=1.0):
        return x * y * z

    @f.def_vmap
    def rule(size, batched, x, y):
        return x * y, True

    return f


def test_arguments_are_those_of_the_function():
    f = _scaled()
    assert f(3.0) == 6.0
    assert fnx.vmap(f)(XS).tolist() == [0.0, 2.0, 4.0]
    with pytest.raises(TypeError, match="keyword-only arguments z; expected arguments that can be"):
        f(3.0, 2.0, z=5.0)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        f()


def test_a_rule_gives_what_the_function_gives():
    f = custom_vmap(lambda x: x)
    f.def_vmap(lambda size, batched, x: ([x], [True]))
    with pytest.raises(ValueError, match=r"the rule of .* gives .*; the function itself gives"):
        fnx.vmap(f)(XS)


def test_rules_of_methods():
    class Lens:
        power = 3.0

        @custom_vmap
        def focus(self, x):
            return x / self.power

        @focus.def_vmap
        def rule(size, batched, self, x):
            return x * self.power, True

    fnx.tree_util.register_static(Lens)
    assert fnx.vmap(Lens().focus)(XS).tolist() == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
@pytest.mark.parametrize("outside", ["vmap", "derivative"])
def test_one_function_with_rules_for_vmap_and_for_derivatives(outside, jit):
    wraps = [custom_vmap, fnx.custom_vjp]
    f = jnp.sin
    for wrap in wraps if outside == "derivative" else wraps[::-1]:
        f = wrap(f)
    f.def_vmap(lambda size, batched, x: (jnp.cos(x), True))
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (10.0 * ct,))
    np.testing.assert_allclose(jit(fnx.vmap(f))(XS), np.cos(XS))
    assert jit(fnx.grad(f))(1.0) == 10.0
    with pytest.raises(AttributeError, match="no attribute 'rules'"):
        f.rules
