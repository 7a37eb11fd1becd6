"""Rules of the user's own, checkpoint and implicit differentiation, under all transformations."""

import numpy as np
import pytest

from fnx import ad_checkpoint, api, implicit
from fnx import control_flow as lax
from fnx import custom_derivatives as custom
from fnx.core import config, dtypes
from fnx.core.array import as_array
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.simplify import simplify
from fnx.jitted import jit
from fnx.ops.contraction import DotGeneral
from fnx.ops.elementwise import cos, exp, sin, tanh
from fnx.ops.reduction import Sum

dot = DotGeneral((((1,), (0,)), ((), ())))


@pytest.fixture(autouse=True)
def _reference():
    with config.backend("reference"):
        yield


def total(x):
    x = as_array(x)
    return Sum(tuple(range(x.ndim)))(x)


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
    grad = api.grad
    assert float(f(X)) == np.sin(X)
    assert float(jit(f)(X)) == np.sin(X)
    np.testing.assert_allclose(float(grad(f)(X)), FIRST)
    np.testing.assert_allclose(float(grad(jit(f))(X)), FIRST)
    np.testing.assert_allclose(float(jit(grad(f))(X)), FIRST)
    xs = np.linspace(0, 1, 4)
    np.testing.assert_allclose(np.asarray(api.vmap(f)(xs)), np.sin(xs))
    for g in (
        api.vmap(grad(f)),
        jit(api.vmap(grad(f))),
        api.vmap(grad(jit(f))),
        api.vmap(jit(grad(f))),
    ):
        np.testing.assert_allclose(np.asarray(g(xs)), 10 * np.cos(xs))
    for h in (
        lambda x: total(api.vmap(f)(x)),
        lambda x: total(jit(api.vmap(f))(x)),
        lambda x: total(f(x)),
    ):
        np.testing.assert_allclose(np.asarray(grad(h)(as_array(xs))), 10 * np.cos(xs))
    matrix = np.arange(6.0).reshape(2, 3)
    found = grad(lambda m: total(api.vmap(api.vmap(f, 1), 0)(m)))(matrix[:, None, :])
    np.testing.assert_allclose(np.asarray(found), 10 * np.cos(matrix[:, None, :]))


def test_second_derivatives_go_through_the_rule():
    f = scaled_sine()
    # the rule's own primal call has the rule, cos has none
    np.testing.assert_allclose(float(api.grad(api.grad(f))(X)), -10 * np.sin(X))
    g = scaled_sine_vjp()
    np.testing.assert_allclose(float(api.grad(api.grad(g))(X)), -10 * np.sin(X))
    np.testing.assert_allclose(float(api.jvp(api.grad(g), (X,), (1.0,))[1]), -10 * np.sin(X))


@pytest.mark.parametrize("make", MAKERS)
def test_rules_inside_loops_and_branches(make):
    f = make()
    loop = lambda a: lax.scan(lambda c, _: (f(c) * a, None), a, None, length=2)[0]
    d = lambda v: 10 * np.cos(v)
    s = np.sin(X) * X
    inner = d(X) * X + np.sin(X)
    expected = d(s) * X * inner + np.sin(s)
    for g in (api.grad(loop), jit(api.grad(loop)), api.grad(jit(loop))):
        np.testing.assert_allclose(float(g(X)), expected)
    branch = jit(lambda a: lax.cond(a > 0, f, cos, a))
    np.testing.assert_allclose(float(api.grad(branch)(X)), FIRST)
    np.testing.assert_allclose(
        np.asarray(api.vmap(api.grad(branch))(np.array([X, -X]))), [FIRST, np.sin(X)]
    )
    np.testing.assert_allclose(float(api.grad(ad_checkpoint.checkpoint(f))(X)), FIRST)


def test_forward_mode():
    f = scaled_sine()
    np.testing.assert_allclose(float(api.jvp(f, (X,), (2.0,))[1]), 2 * FIRST)
    np.testing.assert_allclose(float(api.jacfwd(jit(f))(X)), FIRST)
    g = scaled_sine_vjp()
    with pytest.raises(TypeError, match=r"forward-mode.*custom_jvp"):
        api.jvp(g, (X,), (1.0,))
    with pytest.raises(TypeError, match="forward-mode"):
        api.jacfwd(jit(g))(X)
    np.testing.assert_allclose(np.asarray(api.jacrev(g)(X)), FIRST)


def test_python_may_look_at_concrete_values():
    @custom.custom_jvp
    def f(x):
        return x * 2.0 if x > 0 else x

    f.defjvp(
        lambda primals, tangents: (f(*primals), tangents[0] * (3.0 if primals[0] > 0 else 4.0))
    )
    assert float(f(2.0)) == 4.0
    assert float(api.grad(f)(2.0)) == 3.0
    assert float(api.grad(f)(-2.0)) == 4.0
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
    g = api.grad(lambda p, x: f(sin, p, x)["y"], (0, 1))({"w": X}, 2.0)
    assert float(g[0]["w"]) == 200.0
    assert float(g[1]) == 1.0

    h = custom.custom_vjp(apply, nondiff_argnums=(0,))
    h.defvjp(
        lambda fun, p, x: (h(fun, p, x), (p, x)),
        lambda fun, res, ct: ({"w": fun(res[0]["w"]) * ct["y"]}, None),
    )
    g = api.grad(lambda p, x: h(cos, p, x)["y"], (0, 1))({"w": X}, 2.0)
    np.testing.assert_allclose(float(g[0]["w"]), np.cos(X))
    assert float(g[1]) == 0.0
    assert Model.plain(1) == 1


def test_defjvps():
    @custom.custom_jvp
    def f(x, y):
        return x * y

    f.defjvps(lambda t, out, x, y: 5.0 * t * y, None)
    assert [float(g) for g in api.grad(f, (0, 1))(2.0, 3.0)] == [15.0, 0.0]
    np.testing.assert_allclose(float(api.jvp(f, (2.0, 3.0), (1.0, 1.0))[1]), 15.0)


def test_integers_have_float0_tangents():
    seen = []

    @custom.custom_jvp
    def f(x, n):
        return x * n, n

    @f.defjvp
    def rule(primals, tangents):
        seen.append(tangents[1].dtype)
        return f(*primals), (tangents[0] * 7.0, tangents[1])

    assert float(api.grad(lambda x: f(x, 3)[0])(2.0)) == 7.0
    assert seen == [dtypes.float0]

    @custom.custom_vjp
    def g(x, n):
        return x * n, n

    def bwd(res, cts):
        seen.append(cts[1].dtype)
        return cts[0] * 7.0, None

    g.defvjp(lambda x, n: (g(x, n), None), bwd)
    assert float(api.grad(lambda x: g(x, 3)[0])(2.0)) == 7.0
    assert float(jit(api.grad(lambda x: g(x, 3)[0]))(2.0)) == 7.0
    assert seen[1] == dtypes.float0


def test_lanes_that_an_argument_lacks_are_summed():
    @custom.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * r[1], ct * r[0] * 2.0))
    xs = np.arange(3.0)
    loss = lambda xs, y: total(api.vmap(f, (0, None))(xs, y))
    for g in (api.grad(loss, (0, 1)), jit(api.grad(loss, (0, 1))), api.grad(jit(loss), (0, 1))):
        dx, dy = g(xs, 5.0)
        np.testing.assert_allclose(np.asarray(dx), [5.0, 5.0, 5.0])
        np.testing.assert_allclose(float(dy), 6.0)


def test_bad_rules():
    f = custom.custom_jvp(lambda x: x)
    with pytest.raises(AttributeError, match="defjvp"):
        f(1.0)
    f.defjvp(lambda p, t: (p[0], (t[0], t[0])))
    with pytest.raises(TypeError, match="structure"):
        api.grad(f)(1.0)
    f.defjvp(lambda p, t: p[0])
    with pytest.raises(TypeError, match="pair"):
        api.grad(f)(1.0)
    f.defjvp(lambda p, t: (p[0], np.zeros(3)))
    with pytest.raises(TypeError, match=r"f64\[3\]"):
        api.grad(f)(1.0)
    g = custom.custom_vjp(lambda x, y: x)
    with pytest.raises(AttributeError, match="defvjp"):
        g(1.0, 2.0)
    g.defvjp(lambda x, y: (x, None), lambda r, ct: (ct,))
    with pytest.raises(TypeError, match="tuple of 2 cotangents"):
        api.grad(g)(1.0, 2.0)
    g.defvjp(lambda x, y: x, lambda r, ct: (ct, ct))
    with pytest.raises(TypeError, match="pair"):
        api.grad(g)(1.0, 2.0)


def test_a_closed_over_value_cannot_be_differentiated():
    def outer(a, x):
        f = custom.custom_jvp(lambda v: v * a)
        f.defjvp(lambda p, t: (p[0], t[0]))
        return jit(f)(x)

    assert float(api.grad(outer, 1)(2.0, 3.0)) == 1.0
    with pytest.raises(ValueError, match="closed over"):
        api.grad(outer, 0)(2.0, 3.0)


def test_custom_gradient_and_closure_convert():
    @custom.custom_gradient
    def f(x, y):
        return x * y, lambda ct: (ct * y * 3.0, ct * x)

    for g in (api.grad(f, (0, 1)), jit(api.grad(f, (0, 1))), api.grad(jit(f), (0, 1))):
        assert [float(v) for v in g(2.0, 5.0)] == [15.0, 2.0]

    def outer(a):
        fun, consts = custom.closure_convert(lambda x: a * x, 1.0)
        assert len(consts) == 1
        return fun(3.0, *consts)

    assert float(api.grad(outer)(2.0)) == 3.0


# --- checkpoint --------------------------------------------------------------------------------


def deep(w, x):
    for _ in range(3):
        x = tanh(dot(w, x))
    return total(x)


W, H = np.arange(16.0).reshape(4, 4) / 20, np.ones((4, 4))


def dots(f, *args):
    jaxpr = simplify(api.make_jaxpr(f)(*args).jaxpr, final=True)
    check_jaxpr(jaxpr)

    def count(j):
        inner = [sub for e in j.eqns for sub in [getattr(e.prim, "jaxpr", None)] if sub]
        return sum(e.prim.name == "dot_general" for e in j.eqns) + sum(map(count, inner))

    return count(jaxpr)


def test_checkpoint_computes_again():
    def gradient(f):
        return api.value_and_grad(f, (0, 1))

    plain, again = gradient(deep), gradient(ad_checkpoint.checkpoint(deep))
    for a, b, c in zip(plain(W, H)[1], again(W, H)[1], jit(again)(W, H)[1]):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(a), np.asarray(c), rtol=1e-14)
    assert dots(plain, W, H) == 9, "three forward, two for each of them backward"
    assert dots(again, W, H) == 12
    policy = ad_checkpoint.checkpoint_policies.dots_saveable
    kept = gradient(ad_checkpoint.checkpoint(deep, policy=policy))
    assert dots(kept, W, H) == 9
    np.testing.assert_allclose(
        np.asarray(kept(W, H)[1][0]), np.asarray(plain(W, H)[1][0]), rtol=1e-14
    )


def test_checkpoint_by_names():
    def f(x):
        y = ad_checkpoint.checkpoint_name(sin(x), "y")
        return sin(y) * exp(y)

    policies = ad_checkpoint.checkpoint_policies

    def sines(policy):
        g = api.grad(ad_checkpoint.checkpoint(f, policy=policy))
        np.testing.assert_allclose(float(g(X)), float(api.grad(f)(X)))
        text = str(simplify(api.make_jaxpr(api.value_and_grad(
            ad_checkpoint.checkpoint(f, policy=policy)))(X).jaxpr, final=True))  # fmt: skip
        return text.count("= sin ")

    everything = sines(policies.everything_saveable)
    assert sines(policies.save_only_these_names("y")) < sines(policies.nothing_saveable)
    assert sines(policies.save_only_these_names("z")) == sines(policies.nothing_saveable)
    assert everything <= sines(policies.save_only_these_names("y"))
    assert sines(policies.save_any_names_but_these("z")) == sines(
        policies.save_only_these_names("y")
    )


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_checkpoint_under_transformations(wrap):
    f = lambda x, k: sin(x * k) * cos(x)
    g = (
        wrap(ad_checkpoint.checkpoint(f, static_argnums=1))
        if wrap is not jit
        else jit(ad_checkpoint.checkpoint(f))
    )
    h = lambda x: g(x, 2.0)
    p = lambda x: f(x, 2.0)
    xs = np.linspace(0.1, 1, 3)
    for t in (
        lambda q: q,
        api.grad,
        lambda q: api.grad(api.grad(q)),
        api.jacfwd,
        lambda q: api.grad(api.jacfwd(q)),
    ):
        np.testing.assert_allclose(float(t(h)(X)), float(t(p)(X)), rtol=1e-13)
        np.testing.assert_allclose(
            np.asarray(api.vmap(t(h))(xs)), np.asarray(api.vmap(t(p))(xs)), rtol=1e-13
        )
    loop = lambda q: lambda x: lax.scan(lambda c, _: (q(c), None), x, None, length=3)[0]
    np.testing.assert_allclose(float(api.grad(loop(h))(X)), float(api.grad(loop(p))(X)), rtol=1e-13)


def test_print_saved_residuals(capsys):
    ad_checkpoint.print_saved_residuals(lambda x: sin(x) * x, X)
    assert "f64[]" in capsys.readouterr().out


# --- implicit differentiation ------------------------------------------------------------------


def inverse(a, b):
    """b / a by a solver that must not be differentiated: it rounds."""
    solve = lambda mv, v: as_array(np.round(np.asarray(v / a), 12)) if False else v / a
    return implicit.custom_linear_solve(lambda x: a * x, b, solve, lambda vm, v: v / a)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_custom_linear_solve(wrap):
    f = wrap(inverse)
    a, b = 4.0, 8.0
    assert float(f(a, b)) == 2.0
    da, db = api.grad(f, (0, 1))(a, b)
    np.testing.assert_allclose([float(da), float(db)], [-0.5, 0.25])
    np.testing.assert_allclose(float(api.jvp(f, (a, b), (1.0, 0.0))[1]), -0.5)
    np.testing.assert_allclose(float(api.grad(api.grad(f))(a, b)), 2 * b / a**3)
    values = np.array([2.0, 4.0])
    np.testing.assert_allclose(np.asarray(api.vmap(f, (0, None))(values, b)), b / values)
    np.testing.assert_allclose(
        np.asarray(api.vmap(api.grad(f), (0, None))(values, b)), -b / values**2
    )
    np.testing.assert_allclose(np.asarray(api.vmap(f, (None, 0))(a, values)), values / a)


def test_custom_linear_solve_of_systems():
    rng = np.random.default_rng(0)
    m = rng.normal(size=(3, 3)) + 4 * np.eye(3)
    v = rng.normal(size=3)
    apply = DotGeneral((((1,), (0,)), ((), ())))

    def iterate(mv, b):
        """Richardson's iteration."""
        return lax.fori_loop(0, 200, lambda i, x: x + 0.2 * (b - mv(x)), b * 0.0)

    f = lambda m, v: implicit.custom_linear_solve(lambda x: apply(m, x), v, iterate, iterate)
    np.testing.assert_allclose(np.asarray(f(as_array(m), v)), np.linalg.solve(m, v), rtol=1e-8)
    dm, dv = api.grad(lambda m, v: total(f(m, v)), (0, 1))(m, v)
    lam = np.linalg.solve(m.T, np.ones(3))
    np.testing.assert_allclose(np.asarray(dv), lam, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(dm), -np.outer(lam, np.linalg.solve(m, v)), rtol=1e-7)


def test_linear_solves_that_lack_something():
    f = lambda b: implicit.custom_linear_solve(lambda x: 2.0 * x, b, lambda mv, v: v / 2.0)
    assert float(api.jvp(f, (1.0,), (1.0,))[1]) == 0.5
    with pytest.raises(TypeError, match="transpose_solve"):
        api.grad(f)(1.0)
    with pytest.raises(TypeError, match="matvec returned"):
        implicit.custom_linear_solve(lambda x: (x, x), 1.0, lambda mv, v: v)
    x, aux = implicit.custom_linear_solve(
        lambda x: 2.0 * x, 1.0, lambda mv, v: (v / 2.0, 7), symmetric=True, has_aux=True
    )
    assert float(x) == 0.5
    assert int(aux) == 7


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_custom_root(wrap):
    def newton(g, x0):
        return lax.while_loop(
            lambda x: abs(g(x)) > 1e-13, lambda x: x - g(x) / api.jvp(g, (x,), (1.0,))[1], x0
        )

    def cube_root(a):
        return implicit.custom_root(lambda x: x * x * x - a, 1.0, newton, lambda g, y: y / g(1.0))

    f = wrap(cube_root)
    np.testing.assert_allclose(float(f(8.0)), 2.0)
    np.testing.assert_allclose(float(api.grad(f)(8.0)), 1 / 12)
    np.testing.assert_allclose(float(api.jvp(f, (8.0,), (1.0,))[1]), 1 / 12)
    np.testing.assert_allclose(float(api.grad(api.grad(f))(8.0)), -2 / 9 * 8 ** (-5 / 3))
    values = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(np.asarray(api.vmap(f)(values)), [1.0, 2.0, 3.0])
    np.testing.assert_allclose(np.asarray(api.vmap(api.grad(f))(values)), [1 / 3, 1 / 12, 1 / 27])


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

        return api.vmap(lane)(np.arange(3.0))

    out, tangent = api.jvp(scaled, (2.0,), (1.0,))
    np.testing.assert_array_equal(out, [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(tangent, [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(api.jacrev(scaled)(2.0), [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(jit(api.jacfwd(scaled))(2.0), [0.0, 10.0, 20.0])
    np.testing.assert_array_equal(api.vmap(scaled)(np.ones(2)), [[0.0, 1.0, 2.0]] * 2)

    def closed_over(z):
        def lane(x):
            @custom.custom_vjp
            def g(y):
                return x * y, y

            g.defvjp(lambda y: (g(y), x), lambda x, cts: (100.0 * x * cts[0],))
            return g(z)

        a, b = api.vmap(lane, out_axes=(0, None))(np.arange(3.0))
        return total(a) + b

    assert float(api.grad(closed_over)(2.0)) == 300.0
    assert float(jit(api.grad(closed_over))(2.0)) == 300.0

    @custom.custom_vjp
    def shared(x):
        return x * named.psum(1.0, "i")

    shared.defvjp(lambda x: (shared(x), named.psum(1.0, "i")), lambda n, ct: (ct * n,))
    f = lambda x: total(api.vmap(lambda y: shared(x) * y, axis_name="i")(np.arange(3.0)))
    assert float(f(2.0)) == 18.0
    assert float(api.grad(f)(2.0)) == 9.0

    ruled = custom.custom_jvp(lambda a, y: a * y, nondiff_argnums=(0,))
    ruled.defjvp(lambda a, p, t: (ruled(a, *p), 5.0 * a * t[0]))
    lanes = lambda y: api.vmap(ruled)(np.arange(3.0), y)  # both arguments have lanes
    out, tangent = api.jvp(lanes, (np.ones(3),), (np.ones(3),))
    np.testing.assert_array_equal(out, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(tangent, [0.0, 5.0, 10.0])
    np.testing.assert_array_equal(
        jit(api.grad(lambda y: total(lanes(y))))(np.ones(3)), [0.0, 5.0, 10.0]
    )
