"""Rules of the user's own, under all transformations."""

from functools import partial

import numpy as np
import pytest
from loop_checks import total

import fnx
from fnx import ad_checkpoint
from fnx import control_flow as lax
from fnx import custom_derivatives as custom
from fnx.core import dtypes
from fnx.core.array import as_array
from fnx.ops.elementwise.arithmetic import cos, sin
from fnx.transforms.jit import jit

pytestmark = pytest.mark.usefixtures("reference")


def scaled_sine():
    """sin, whose rule says ten times its tangent, so that one sees whether the rule was used."""

    @custom.custom_jvp
    def f(x):
        return sin(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 10.0 * cos(x) * t

    return f


def scaled_sine_vjp():
    @custom.custom_vjp
    def f(x):
        return sin(x)

    f.defvjp(lambda x: (sin(x), cos(x)), lambda c, ct: (10.0 * c * ct,))
    return f


MAKERS = [scaled_sine, scaled_sine_vjp]
X = 0.3
FIRST = 10 * np.cos(X)


@pytest.mark.parametrize("make", MAKERS)
def test_the_rule_is_used(make):
    f = make()
    grad = fnx.grad
    assert float(f(X)) == np.sin(X)
    assert float(jit(f)(X)) == np.sin(X)
    np.testing.assert_allclose(float(grad(f)(X)), FIRST)
    np.testing.assert_allclose(float(grad(jit(f))(X)), FIRST)
    np.testing.assert_allclose(float(jit(grad(f))(X)), FIRST)
    xs = np.linspace(0, 1, 4)
    np.testing.assert_allclose(np.asarray(fnx.vmap(f)(xs)), np.sin(xs))
    for g in (
        fnx.vmap(grad(f)),
        jit(fnx.vmap(grad(f))),
        fnx.vmap(grad(jit(f))),
        fnx.vmap(jit(grad(f))),
    ):
        np.testing.assert_allclose(np.asarray(g(xs)), 10 * np.cos(xs))
    for h in (
        lambda x: total(fnx.vmap(f)(x)),
        lambda x: total(jit(fnx.vmap(f))(x)),
        lambda x: total(f(x)),
    ):
        np.testing.assert_allclose(np.asarray(grad(h)(as_array(xs))), 10 * np.cos(xs))
    matrix = np.arange(6.0).reshape(2, 3)
    found = grad(lambda m: total(fnx.vmap(fnx.vmap(f, 1), 0)(m)))(matrix[:, None, :])
    np.testing.assert_allclose(np.asarray(found), 10 * np.cos(matrix[:, None, :]))


def test_second_derivatives_go_through_the_rule():
    f = scaled_sine()
    # the rule's own primal call has the rule, cos has none
    np.testing.assert_allclose(float(fnx.grad(fnx.grad(f))(X)), -10 * np.sin(X))
    g = scaled_sine_vjp()
    np.testing.assert_allclose(float(fnx.grad(fnx.grad(g))(X)), -10 * np.sin(X))
    np.testing.assert_allclose(float(fnx.jvp(fnx.grad(g), (X,), (1.0,))[1]), -10 * np.sin(X))


@pytest.mark.parametrize("make", MAKERS)
def test_rules_inside_loops_and_branches(make):
    f = make()
    loop = lambda a: lax.scan(lambda c, _: (f(c) * a, None), a, None, length=2)[0]
    d = lambda v: 10 * np.cos(v)
    s = np.sin(X) * X
    inner = d(X) * X + np.sin(X)
    expected = d(s) * X * inner + np.sin(s)
    for g in (fnx.grad(loop), jit(fnx.grad(loop)), fnx.grad(jit(loop))):
        np.testing.assert_allclose(float(g(X)), expected)
    branch = jit(lambda a: lax.cond(a > 0, f, cos, a))
    np.testing.assert_allclose(float(fnx.grad(branch)(X)), FIRST)
    np.testing.assert_allclose(
        np.asarray(fnx.vmap(fnx.grad(branch))(np.array([X, -X]))), [FIRST, np.sin(X)]
    )
    np.testing.assert_allclose(float(fnx.grad(ad_checkpoint.checkpoint(f))(X)), FIRST)


def test_forward_mode():
    f = scaled_sine()
    np.testing.assert_allclose(float(fnx.jvp(f, (X,), (2.0,))[1]), 2 * FIRST)
    np.testing.assert_allclose(float(fnx.jacfwd(jit(f))(X)), FIRST)
    g = scaled_sine_vjp()
    with pytest.raises(TypeError, match=r"can't apply forward-mode autodiff.*custom_jvp"):
        fnx.jvp(g, (X,), (1.0,))
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        fnx.jacfwd(jit(g))(X)
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        jit(fnx.jacfwd(g))(X)
    np.testing.assert_allclose(np.asarray(fnx.jacrev(g)(X)), FIRST)


def test_python_may_look_at_concrete_values():
    @custom.custom_jvp
    def f(x):
        return x * 2.0 if x > 0 else x

    f.defjvp(
        lambda primals, tangents: (f(*primals), tangents[0] * (3.0 if primals[0] > 0 else 4.0))
    )
    assert float(f(2.0)) == 4.0
    assert float(fnx.grad(f)(2.0)) == 3.0
    assert float(fnx.grad(f)(-2.0)) == 4.0
    with pytest.raises(TypeError, match="truth"):
        jit(f)(2.0)


def test_trees_keywords_methods_and_static_arguments():
    class Model:
        k = 3.0

        @staticmethod
        def plain(x):
            return x

    def apply(fun, params, x=2.0):
        return {"y": fun(params["w"]) * x}

    f = custom.custom_jvp(apply, nondiff_argnums=(0,))

    @f.defjvp
    def rule(fun, primals, tangents):
        (params, x), (dp, dx) = primals, tangents
        return f(fun, params, x), {"y": 100.0 * dp["w"] * x + dx}

    assert float(f(sin, {"w": X})["y"]) == 2 * np.sin(X)
    assert float(f(sin, x=3.0, params={"w": X})["y"]) == 3 * np.sin(X)
    g = fnx.grad(lambda p, x: f(sin, p, x)["y"], (0, 1))({"w": X}, 2.0)
    assert float(g[0]["w"]) == 200.0
    assert float(g[1]) == 1.0

    h = custom.custom_vjp(apply, nondiff_argnums=(0,))
    h.defvjp(
        lambda fun, p, x: (h(fun, p, x), (p, x)),
        lambda fun, res, ct: ({"w": fun(res[0]["w"]) * ct["y"]}, None),
    )
    g = fnx.grad(lambda p, x: h(cos, p, x)["y"], (0, 1))({"w": X}, 2.0)
    np.testing.assert_allclose(float(g[0]["w"]), np.cos(X))
    assert float(g[1]) == 0.0
    assert Model.plain(1) == 1


def test_defjvps():
    @custom.custom_jvp
    def f(x, y):
        return x * y

    f.defjvps(lambda t, out, x, y: 5.0 * t * y, None)
    assert [float(g) for g in fnx.grad(f, (0, 1))(2.0, 3.0)] == [15.0, 0.0]
    np.testing.assert_allclose(float(fnx.jvp(f, (2.0, 3.0), (1.0, 1.0))[1]), 15.0)


def test_integers_have_float0_tangents():
    seen = []

    @custom.custom_jvp
    def f(x, n):
        return x * n, n

    @f.defjvp
    def rule(primals, tangents):
        seen.append(tangents[1].dtype)
        return f(*primals), (tangents[0] * 7.0, tangents[1])

    assert float(fnx.grad(lambda x: f(x, 3)[0])(2.0)) == 7.0
    assert seen == [dtypes.float0]

    @custom.custom_vjp
    def g(x, n):
        return x * n, n

    def bwd(res, cts):
        seen.append(cts[1].dtype)
        return cts[0] * 7.0, None

    g.defvjp(lambda x, n: (g(x, n), None), bwd)
    assert float(fnx.grad(lambda x: g(x, 3)[0])(2.0)) == 7.0
    assert float(jit(fnx.grad(lambda x: g(x, 3)[0]))(2.0)) == 7.0
    assert seen[1] == dtypes.float0


def test_lanes_that_an_argument_lacks_are_summed():
    @custom.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * r[1], ct * r[0] * 2.0))
    xs = np.arange(3.0)
    loss = lambda xs, y: total(fnx.vmap(f, (0, None))(xs, y))
    for g in (fnx.grad(loss, (0, 1)), jit(fnx.grad(loss, (0, 1))), fnx.grad(jit(loss), (0, 1))):
        dx, dy = g(xs, 5.0)
        np.testing.assert_allclose(np.asarray(dx), [5.0, 5.0, 5.0])
        np.testing.assert_allclose(float(dy), 6.0)


def test_bad_rules():
    f = custom.custom_jvp(lambda x: x)
    with pytest.raises(AttributeError, match="defjvp"):
        f(1.0)
    f.defjvp(lambda p, t: (p[0], (t[0], t[0])))
    with pytest.raises(TypeError, match="structure"):
        fnx.grad(f)(1.0)
    f.defjvp(lambda p, t: p[0])
    with pytest.raises(TypeError, match="pair"):
        fnx.grad(f)(1.0)
    f.defjvp(lambda p, t: (p[0], np.zeros(3)))
    with pytest.raises(TypeError, match=r"f64\[3\]"):
        fnx.grad(f)(1.0)
    g = custom.custom_vjp(lambda x, y: x)
    with pytest.raises(AttributeError, match="defvjp"):
        g(1.0, 2.0)
    g.defvjp(lambda x, y: (x, None), lambda r, ct: (ct,))
    with pytest.raises(TypeError, match="tuple of 2 cotangents"):
        fnx.grad(g)(1.0, 2.0)
    g.defvjp(lambda x, y: x, lambda r, ct: (ct, ct))
    with pytest.raises(TypeError, match="pair"):
        fnx.grad(g)(1.0, 2.0)


def test_a_closed_over_value_cannot_be_differentiated():
    def outer(a, x):
        f = custom.custom_jvp(lambda v: v * a)
        f.defjvp(lambda p, t: (p[0], t[0]))
        return jit(f)(x)

    assert float(fnx.grad(outer, 1)(2.0, 3.0)) == 1.0
    with pytest.raises(fnx.errors.ClosedOverValue, match="closed over"):
        fnx.grad(outer, 0)(2.0, 3.0)


def test_custom_gradient_and_closure_convert():
    @custom.custom_gradient
    def f(x, y):
        return x * y, lambda ct: (ct * y * 3.0, ct * x)

    for g in (fnx.grad(f, (0, 1)), jit(fnx.grad(f, (0, 1))), fnx.grad(jit(f), (0, 1))):
        assert [float(v) for v in g(2.0, 5.0)] == [15.0, 2.0]

    def outer(a):
        fun, consts = custom.closure_convert(lambda x: a * x, 1.0)
        assert len(consts) == 1
        return fun(3.0, *consts)

    assert float(fnx.grad(outer)(2.0)) == 3.0


# --- rules that use lanes which their arguments have not -----------------------------------------


def test_a_rule_may_close_over_lanes_or_name_their_axis():
    from fnx import lax as named

    def scaled(z):
        def lane(x):
            @custom.custom_jvp
            def g(y):
                return x * y

            g.defjvp(lambda p, t: (x * p[0], 10.0 * x * t[0]))
            return g(z)

        return fnx.vmap(lane)(np.arange(3.0))

    out, tangent = fnx.jvp(scaled, (2.0,), (1.0,))
    np.testing.assert_array_equal(out, [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(tangent, [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(fnx.jacrev(scaled)(2.0), [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(jit(fnx.jacfwd(scaled))(2.0), [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(fnx.vmap(scaled)(np.ones(2)), [[0.0, 1.0, 2.0]] * 2)

    def closed_over(z):
        def lane(x):
            @custom.custom_vjp
            def g(y):
                return x * y, y

            g.defvjp(lambda y: (g(y), x), lambda x, cts: (100.0 * x * cts[0],))
            return g(z)

        a, b = fnx.vmap(lane, out_axes=(0, None))(np.arange(3.0))
        return total(a) + b

    assert float(fnx.grad(closed_over)(2.0)) == 300.0
    assert float(jit(fnx.grad(closed_over))(2.0)) == 300.0

    @custom.custom_vjp
    def shared(x):
        return x * named.psum(1.0, "i")

    shared.defvjp(lambda x: (shared(x), named.psum(1.0, "i")), lambda n, ct: (ct * n,))
    f = lambda x: total(fnx.vmap(lambda y: shared(x) * y, axis_name="i")(np.arange(3.0)))
    assert float(f(2.0)) == 18.0
    assert float(fnx.grad(f)(2.0)) == 9.0

    ruled = custom.custom_jvp(lambda a, y: a * y, nondiff_argnums=(0,))
    ruled.defjvp(lambda a, p, t: (ruled(a, *p), 5.0 * a * t[0]))
    lanes = lambda y: fnx.vmap(ruled)(np.arange(3.0), y)  # both arguments have lanes
    out, tangent = fnx.jvp(lanes, (np.ones(3),), (np.ones(3),))
    np.testing.assert_array_equal(out, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(tangent, [0.0, 5.0, 10.0])
    np.testing.assert_array_equal(
        jit(fnx.grad(lambda y: total(lanes(y))))(np.ones(3)), [0.0, 5.0, 10.0]
    )


def test_cotangents_are_a_prefix_of_their_argument():
    @fnx.custom_vjp
    def f(x):
        return x["a"][0] * x["b"]["c"] + x["d"]

    def back(_, ct):  # one for a container, None for another
        return ({"a": 2.0 * ct, "b": 3.0 * ct, "d": None},)

    f.defvjp(lambda x: (f(x), None), back)
    slopes = fnx.grad(f)({"a": [1.0], "b": {"c": 5.0}, "d": 7.0})
    assert fnx.tree.map(float, slopes) == {"a": [2.0], "b": {"c": 3.0}, "d": 0.0}
    f.defvjp(lambda x: (f(x), None), lambda _, ct: ({"a": [ct, ct], "b": ct, "d": ct},))
    with pytest.raises(TypeError, match="bwd of f gave a cotangent of structure"):
        fnx.grad(f)({"a": [1.0], "b": {"c": 5.0}, "d": 7.0})


def test_python_numbers_stay_so_where_nothing_is_done_to_them():
    seen = []
    square = fnx.custom_jvp(lambda x: x * x)

    @square.defjvp
    def rule(primals, tangents):
        seen.extend([*primals, *tangents])
        return primals[0] ** 2, 2.0 * primals[0] * tangents[0]

    y, dy = fnx.jvp(square, (3.0,), (1.0,))
    assert [type(x) for x in (*seen, y, dy)] == [float] * 4
    assert (y, dy) == (9.0, 6.0)
    fnx.linearize(square, 3.0)
    assert isinstance(seen[-2], fnx.Array)  # where derivatives are staged, arrays
    y, dy = fnx.jvp(lambda x: x + 3.0, (3.0,), (1.0,))
    assert isinstance(y, fnx.Array)
    assert isinstance(dy, fnx.Array)
    assert [type(x) for x in fnx.jvp(lambda x: x, (3.0,), (1.0,))] == [float, float]


@pytest.mark.parametrize("kind", [fnx.custom_jvp, fnx.custom_vjp])
def test_results_that_are_python_numbers_stay_so_where_no_rule_is_asked_for(kind):
    f = kind(lambda x: {"number": 2, "array": x + 1.0})
    f.rule = f.fwd = f.bwd = abs  # not called
    out = f(1.0)
    assert type(out["number"]) is int
    assert isinstance(out["array"], fnx.Array)


def test_rules_get_the_defaults_of_arguments_that_were_not_given():
    seen = []

    @partial(fnx.custom_jvp, nondiff_argnums=(1, 2))
    def power(x, n=2, how="plain", *, scale=1.0):
        return scale * x**n

    @power.defjvp
    def rule(n, how, primals, tangents):
        seen.append((n, how, len(primals)))
        return power(*primals, n, how), n * primals[0] ** (n - 1) * tangents[0]

    assert fnx.grad(power)(3.0) == 6.0
    assert fnx.grad(lambda x: power(x, how="other"))(3.0) == 6.0
    assert seen == [(2, "plain", 1), (2, "other", 1)]
    with pytest.raises(TypeError, match="keyword-only arguments scale"):
        power(3.0, scale=2.0)

    @fnx.custom_vjp
    def scaled(x, y=3.0, *more):
        return x * y

    seen.clear()
    scaled.defvjp(lambda *args: (scaled(*args), seen.append(len(args)) or args), lambda r, c: r)
    assert fnx.grad(scaled, 0)(2.0) == 2.0
    assert fnx.grad(scaled, 0)(2.0, 4.0, 5.0) == 2.0
    assert seen == [2, 3]
    product = fnx.custom_jvp(lambda x, y=3.0: x * y)
    product.defjvps(lambda t, out, x, y: t * y, lambda t, out, x, y: t * x)
    assert fnx.grad(product)(2.0) == 3.0
