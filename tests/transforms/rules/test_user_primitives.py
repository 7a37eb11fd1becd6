"""Primitives that users make of functions: each transformation asks for the rule that it needs."""

from functools import partial

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.extend import core as jex
from fnx.interpreters import ad, batching, mlir, partial_eval, xla


def front(values, axes):
    size = next(x.shape[k] for x, k in zip(values, axes) if k is not None)
    return [batching.bdim_at_front(x, k, size) for x, k in zip(values, axes)]


def make_affine():
    """x * y + k * z, as a primitive with a rule of every kind."""
    p = jex.Primitive("affine")
    plain = lambda x, y, z, *, k: x * y + k * z
    p.def_impl(plain)
    p.def_abstract_eval(lambda x, y, z, *, k: fnx.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(plain, multiple_results=False))

    def jvp(primals, tangents, *, k):
        x, y, z = primals
        terms = [(tangents[0], y), (tangents[1], x), (tangents[2], k)]
        out = ad.Zero.from_primal_value(x)
        for t, factor in terms:
            if type(t) is not ad.Zero:
                out = ad.add_tangents(out, t * factor)
        return p.bind(x, y, z, k=k), out

    ad.primitive_jvps[p] = jvp
    batching.primitive_batchers[p] = lambda xs, axes, *, k: (p.bind(*front(xs, axes), k=k), 0)
    return p, plain


POINT = jnp.array([0.3, -1.2, 2.0])


def both(p, plain):
    f = lambda apply: lambda x: jnp.sum(jnp.sin(apply(x, jnp.cos(x), x**2)))
    return f(partial(p.bind, k=3.0)), f(partial(plain, k=3.0))


TRANSFORMATIONS = {
    "call": lambda f: f,
    "jit": fnx.jit,
    "grad": fnx.grad,
    "jit of grad": lambda f: fnx.jit(fnx.grad(f)),
    "grad of jit": lambda f: fnx.grad(fnx.jit(f)),
    "hessian": fnx.hessian,
    "jacfwd": fnx.jacfwd,
    "vmap": lambda f: lambda x: fnx.vmap(f)(jnp.stack([x, 2 * x])),
    "jit of vmap of grad": lambda f: lambda x: fnx.jit(fnx.vmap(fnx.grad(f)))(jnp.stack([x, -x])),
    "scan": lambda f: lambda x: lax.scan(lambda c, t: (c + f(t * c), f(c)), x, x[:2]),
    "grad of scan": lambda f: fnx.grad(
        lambda x: lax.fori_loop(0, 3, lambda _, c: c + f(c), x).sum()
    ),
    "cond": lambda f: fnx.jit(lambda x: lax.cond(x[0] > 0, f, lambda x: x.sum(), x)),
    "checkpoint": lambda f: fnx.jit(fnx.grad(fnx.checkpoint(f))),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_every_transformation_agrees_with_the_plain_function(name):
    mine, plain = both(*make_affine())
    transform = TRANSFORMATIONS[name]
    for a, b in zip(
        fnx.tree.leaves(transform(mine)(POINT)), fnx.tree.leaves(transform(plain)(POINT))
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        assert a.dtype == b.dtype


def make_pair():
    """(2 x, x + y): linear, with two results, and a transpose."""
    p = jex.Primitive("pair")
    p.multiple_results = True
    plain = lambda x, y: [2 * x, x + y]
    p.def_impl(plain)
    p.def_abstract_eval(lambda x, y: [x, x])
    mlir.register_lowering(p, mlir.lower_fun(plain))

    def transpose(cts, x, y):
        assert ad.is_undefined_primal(x)
        assert ad.is_undefined_primal(y)
        a, b = map(ad.instantiate_zeros, cts)
        return [2 * a + b, b]

    ad.deflinear2(p, transpose)
    batching.defbroadcasting(p)
    return p, plain


@pytest.mark.parametrize("name", ["jit", "jit of grad", "hessian", "jit of vmap of grad", "scan"])
def test_linear_primitives_with_several_results(name):
    p, plain = make_pair()
    f = lambda apply: lambda x: jnp.sum(apply(x, jnp.cos(x))[1] * apply(x, x)[0])
    transform = TRANSFORMATIONS[name]
    for a, b in zip(
        fnx.tree.leaves(transform(f(p.bind))(POINT)), fnx.tree.leaves(transform(f(plain))(POINT))
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_bilinear_primitives():
    p = jex.Primitive("product")
    p.def_impl(lambda x, y: x * y)
    p.def_abstract_eval(lambda x, y: x)
    ad.defbilinear(p, lambda ct, x, y: ct * y, lambda ct, x, y: x * ct)
    batching.defvectorized(p)
    f = lambda x: p.bind(p.bind(x, x), jnp.sin(x))
    expected = lambda x: x * x * jnp.sin(x)
    x = jnp.array(0.7)
    np.testing.assert_allclose(fnx.grad(f)(x), fnx.grad(expected)(x), rtol=1e-12)
    np.testing.assert_allclose(fnx.hessian(f)(x), fnx.hessian(expected)(x), rtol=1e-12)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(POINT), fnx.vmap(fnx.grad(expected))(POINT))


def test_one_jvp_rule_for_each_operand():
    p = jex.Primitive("hypot_squared")
    p.def_impl(lambda x, y: x * x + y * y)
    ad.defjvp(p, lambda t, x, y: 2 * x * t, lambda t, x, y: 2 * y * t)
    assert fnx.grad(p.bind, (0, 1))(3.0, 4.0) == (6.0, 8.0)
    q = jex.Primitive("exponential")
    q.def_impl(jnp.exp)
    ad.defjvp2(q, lambda t, out, x: t * out)
    np.testing.assert_allclose(fnx.grad(q.bind)(1.5), np.exp(1.5), rtol=1e-14)


def test_a_batching_rule_that_wants_the_size_and_name_of_the_axis():
    p = jex.Primitive("count")
    p.def_impl(lambda x: x)
    seen = []

    def rule(size, name, trace_type, values, axes):
        seen.append((size, name))
        return values[0] * size, axes[0]

    batching.axis_primitive_batchers[p] = rule
    out = fnx.vmap(p.bind, axis_name="i")(jnp.arange(3.0))
    np.testing.assert_array_equal(out, [0.0, 3.0, 6.0])
    assert seen == [(3, "i")]


def test_without_a_lowering_programs_call_the_implementation():
    p = jex.Primitive("sorted_by_numpy")
    p.def_impl(lambda x: np.sort(np.asarray(x)))
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, lambda ctx, x: None)  # one that writes MLIR
    f = fnx.jit(lambda x: p.bind(-x) + 1.0)
    np.testing.assert_array_equal(f(jnp.array([3.0, 1.0, 2.0])), [-2.0, -1.0, 0.0])
    assert "sorted_by_numpy" in fnx.compile_report(f, jnp.ones(3))


def test_a_primitive_that_has_a_lowering_alone():
    p = jex.Primitive("thrice")
    p.def_impl(partial(xla.apply_primitive, p))
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="lower_fun"):
        p.bind(2.0)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: 3 * x, multiple_results=False))
    assert p.bind(2.0) == fnx.jit(p.bind)(2.0) == 6.0


def test_rules_that_are_missing_are_named():
    p = jex.Primitive("bare")
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'bare'"):
        p.bind(1.0)
    with pytest.raises(NotImplementedError, match="Abstract evaluation for 'bare'"):
        fnx.jit(p.bind)(1.0)
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'bare'"):
        fnx.grad(p.bind)(1.0)
    with pytest.raises(NotImplementedError, match="Batching rule for 'bare'"):
        fnx.vmap(p.bind)(POINT)
    ad.primitive_jvps[p] = lambda xs, ts: (p.bind(*xs), p.bind(*ts))
    with pytest.raises(NotImplementedError, match="Transpose rule"):
        fnx.grad(p.bind)(1.0)


def test_rules_that_disagree_are_told():
    p = jex.Primitive("odd")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x[0], multiple_results=False))
    with pytest.raises(TypeError, match="the lowering of 'odd'"):
        fnx.jit(p.bind)(POINT)
    p.multiple_results = True
    p.def_impl(lambda x: x)
    with pytest.raises(TypeError, match="multiple_results"):
        p.bind(POINT)


def test_parameters_need_no_hash():
    p = jex.Primitive("weighted")
    p.def_impl(lambda x, *, table: x * table["w"][0])
    p.def_abstract_eval(lambda x, *, table: x)
    mlir.register_lowering(
        p, mlir.lower_fun(lambda x, *, table: x * table["w"][0], multiple_results=False)
    )
    f = fnx.jit(lambda x: p.bind(x, table={"w": [2.0]}) + p.bind(x, table={"w": [3.0]}))
    assert f(1.0) == 5.0


def test_equations_show_the_primitive_and_its_parameters():
    p, _ = make_affine()
    jaxpr = fnx.make_jaxpr(lambda x: p.bind(x, x, x, k=2.0))(1.0)
    (eqn,) = jaxpr.jaxpr.eqns
    assert eqn.primitive is p
    assert eqn.params == {"k": 2.0}
    params = eqn.primitive.get_bind_params(eqn.params)
    assert eqn.primitive.bind(1.0, 2.0, 3.0, **params) == 8.0
    assert (
        jex.jaxpr_as_fun(jaxpr)(2.0) == fnx.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, 2.0) == [8.0]
    )


def test_programs_that_read_jaxprs_evaluate_them():
    def evaluate(jaxpr, consts, *args):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
        read = lambda atom: atom.val if isinstance(atom, jex.Literal) else env[atom]
        for eqn in jaxpr.eqns:
            params = eqn.primitive.get_bind_params(eqn.params)
            outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
            outs = outs if eqn.primitive.multiple_results else [outs]
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    p, _ = make_affine()
    table = jnp.arange(3.0)

    def f(x):
        y, _ = lax.scan(lambda c, t: (c * t + x, c), x, table)
        y = fnx.jit(jnp.tanh)(y) + lax.cond(y > 0, jnp.sin, jnp.cos, x)
        return p.bind(jnp.sum(table * y), x, 1.0, k=2.0), jnp.linalg.qr(jnp.outer(table, table) + x)

    closed = fnx.make_jaxpr(f)(0.3)
    for run in (evaluate, fnx.jit(partial(evaluate, closed.jaxpr))):
        args = (closed.consts, 0.3) if run is not evaluate else (closed.jaxpr, closed.consts, 0.3)
        for a, b in zip(run(*args), fnx.tree.leaves(f(0.3)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_lax_primitives_are_bound_as_in_jax():
    assert lax.add_p.bind(1.0, 2.0) == 3.0
    (eqn,) = fnx.make_jaxpr(lambda x: jnp.sum(x, axis=0))(jnp.ones((2, 3))).jaxpr.eqns
    assert eqn.primitive.bind(np.ones((2, 3)), **eqn.params).shape == (3,)
    assert eqn.primitive.bind(np.ones((2, 3)), axes=(1,)).shape == (2,)


def test_effects_keep_a_primitive_that_nobody_reads():
    calls = []
    p = jex.Primitive("note")
    p.def_impl(lambda x: calls.append(float(x)) or x)
    p.def_effectful_abstract_eval(lambda x: (x, {"notes"}))
    mlir.register_lowering(p, lambda ctx, x: None)

    @fnx.jit
    def f(x):
        p.bind(x)
        return x + 1

    assert f(4.0) == 5.0
    assert calls == [4.0]


def test_zeros_and_undefined_operands_are_trees_without_leaves():
    zero = ad.Zero(fnx.core.ShapedArray((2,), np.dtype("float64")))
    assert fnx.tree.leaves([zero, 1.0]) == [1.0]
    assert ad.Zero.from_primal_value(3).aval.dtype == fnx.float0
    np.testing.assert_array_equal(ad.instantiate_zeros(zero), [0.0, 0.0])
    assert fnx.tree.map(lambda x: x, ad.UndefinedPrimal(zero.aval)).aval is zero.aval


def test_dead_equations_of_a_jaxpr():
    jaxpr = fnx.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0).jaxpr
    small, used = partial_eval.dce_jaxpr(jaxpr, [False, True])
    assert used == [False, True]
    assert [e.primitive.name for e in small.eqns] == ["cos"]
    _, used = partial_eval.dce_jaxpr(jaxpr, [False, True], instantiate=True)
    assert used == [True, True]


def test_types_of_lanes():
    aval = fnx.core.ShapedArray((2, 3), np.dtype("float64"))
    assert jex.mapped_aval(3, 1, aval).shape == (2,)
    assert jex.unmapped_aval(4, 1, aval).shape == (2, 4, 3)
    assert aval == fnx.core.ShapedArray([2, 3], float)
    assert jex.mapped_aval(3, None, aval) is aval is jex.unmapped_aval(3, None, aval)
