"""Interpreters that users write as for JAX: values of their own, and rules for JAX's primitives."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.custom_derivatives import SymbolicZero
from fnx.extend import core as jex
from fnx.extend.linear_util import wrap_init


class Marked:
    """An array, and the names of the primitives that it went through."""

    def __init__(self, array, path=()):
        self.array, self.path = array, path


class MarkedTracer(fnx.core.Tracer):
    def __init__(self, trace, value):
        self._trace = trace
        self.value = value

    @property
    def aval(self):
        return fnx.typeof(self.value.array)


class MarkingTrace(fnx.core.Trace):
    def __init__(self, parent):
        self.parent_trace = parent
        self.bound = []

    def value(self, x):
        mine = isinstance(x, MarkedTracer) and x._trace is self
        return x.value if mine else Marked(x)

    def wrap(self, primitive, outs, values):
        path = (*max((v.path for v in values), key=len, default=()), primitive.name)
        wrapped = [MarkedTracer(self, Marked(o, path)) for o in outs]
        return wrapped if primitive.multiple_results else wrapped[0]

    def process_primitive(self, primitive, tracers, params):
        values = [self.value(t) for t in tracers]
        self.bound.append((primitive, [v.array.shape for v in values], params))
        with jex.set_current_trace(self.parent_trace):
            outs = primitive.bind(*[v.array for v in values], **params)
        outs = outs if primitive.multiple_results else [outs]
        return self.wrap(primitive, outs, values)

    def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
        values = [self.value(t) for t in tracers]
        params = {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros}
        arrays = tuple(v.array for v in values)
        avals = tuple(map(fnx.typeof, arrays))
        outs = primitive.bind_with_trace(self.parent_trace, arrays, avals, params)
        return self.wrap(primitive, outs, values)


def marked(f):
    """f of marked values: results, their paths, and the trace."""

    def call(*args):
        with jex.take_current_trace() as parent:
            trace = MarkingTrace(parent)
            with jex.set_current_trace(trace):
                outs = fnx.tree.leaves(f(*[MarkedTracer(trace, Marked(x)) for x in args]))
        values = [trace.value(o) for o in outs]
        call.trace, call.paths = trace, [v.path for v in values]
        return [v.array for v in values]

    return call


def test_primitives_are_handed_over_with_jax_parameters():
    f = marked(lambda x: jnp.sum(jnp.sin(x) * 2.0, axis=1))
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(f(x)[0], np.sum(np.sin(x) * 2, 1))
    assert f.paths == [("sin", "mul", "reduce_sum")]
    primitives = [p for p, _, _ in f.trace.bound]
    assert primitives[0] is lax.sin_p
    assert all(isinstance(p, jex.Primitive) for p in primitives)
    (shapes,) = [shapes for p, shapes, _ in f.trace.bound if p is lax.mul_p]
    assert shapes == [(2, 3), (2, 3)]  # as in JAX: no numbers of rank 0 among arrays
    (params,) = [params for p, _, params in f.trace.bound if p is lax.reduce_sum_p]
    assert params["axes"] == (1,)


@pytest.mark.parametrize("log", [jnp.log2, jnp.log10])
def test_what_jax_lacks_is_handed_over_in_what_it_has(log):
    f = marked(log)
    np.testing.assert_allclose(
        f(jnp.array([1.0, 8.0, 100.0]))[0], log(jnp.array([1.0, 8.0, 100.0]))
    )
    assert f.paths == [("log", "div")]


def test_traces_name_the_type_of_their_tracers():
    class Trace(fnx.core.Trace[MarkedTracer]):
        """With a parameter."""

    assert issubclass(Trace, fnx.core.Trace)


@pytest.mark.parametrize("around", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_under_other_transformations(around):
    f = lambda x: jnp.sum(jnp.tanh(x) * x)
    x = jnp.arange(3.0)
    np.testing.assert_allclose(around(lambda x: marked(f)(x)[0])(x), f(x))
    np.testing.assert_allclose(
        around(fnx.grad(lambda x: marked(f)(x)[0]))(x), fnx.grad(f)(x), rtol=1e-14
    )
    rows = jnp.ones((2, 3)) * x
    np.testing.assert_allclose(around(fnx.vmap(lambda x: marked(f)(x)[0]))(rows), [f(x)] * 2)


def test_loops_and_calls_are_handed_over_under_jax_names():
    def f(x):
        x = fnx.jit(lambda x: x + 1)(x)
        x = lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 2, x)
        x, ys = lax.scan(lambda c, y: (c + y, c), x, jnp.arange(4.0))
        return lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.cos, x), ys

    g = marked(f)
    for found, expected in zip(g(jnp.ones(2)), f(jnp.ones(2)), strict=True):
        np.testing.assert_allclose(found, expected)
    names = {p.name: set(params) for p, _, params in g.trace.bound}
    assert names["jit"] == {"jaxpr", "name", "inline"}
    assert names["while"] == {"cond_jaxpr", "cond_nconsts", "body_jaxpr", "body_nconsts"}
    scan = {"jaxpr", "length", "reverse", "unroll", "num_consts", "num_carry"}
    assert names["scan"] == scan
    assert names["cond"] == {"branches"}


def test_cumulative_sums_have_jax_parameters():
    f = marked(lambda x: lax.cumsum(x, reverse=True))
    np.testing.assert_allclose(f(jnp.ones(3))[0], [3, 2, 1])
    ((primitive, _, params),) = f.trace.bound
    assert primitive is lax.cumsum_p
    assert params == {"axis": 0, "reverse": True}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("staged", [False, True])
def test_functions_with_rules(symbolic, staged):
    seen = []

    @fnx.custom_jvp
    def product(x, y):
        return x * y, x

    def rule(primals, tangents):
        x, y = primals
        seen.append([type(t) is SymbolicZero for t in tangents])
        dx, dy = (0.0 if type(t) is SymbolicZero else t for t in tangents)
        return (x * y, x), (10 * (dx * y + x * dy), dx + 0.0 * x)

    product.defjvp(rule, symbolic_zeros=symbolic)
    f = fnx.jit(product) if staged else product
    g = marked(lambda x: f(x, jnp.array([2.0, 3.0])))
    x = jnp.array([5.0, 7.0])
    np.testing.assert_allclose(g(x), [[10, 21], [5, 7]])
    (out, _), (tout, _) = fnx.jvp(lambda x: tuple(g(x)), (x,), (jnp.ones(2),))
    np.testing.assert_allclose(out, [10, 21])
    np.testing.assert_allclose(tout, [20, 30])
    np.testing.assert_allclose(fnx.grad(lambda x: jnp.sum(g(x)[0]))(x), [20, 30])
    assert seen
    assert all(flags == [False, symbolic] for flags in seen)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("staged", [False, True])
def test_functions_with_rules_for_reverse_mode(symbolic, staged):
    """A trace gets both halves of the rule with JAX's signatures; here it asks them for itself."""
    table = jnp.array([2.0, 3.0])

    @fnx.custom_vjp
    def product(x, y):
        return x * y * table

    def fwd(x, y):
        x, y = (x.value, y.value) if symbolic else (x, y)
        return x * y * table, (x, y)

    product.defvjp(fwd, lambda xy, ct: (10 * ct * xy[1], ct * xy[0]), symbolic_zeros=symbolic)

    class Reverse(MarkingTrace):
        def process_custom_vjp_call(
            self, primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros
        ):
            assert symbolic_zeros == symbolic
            assert primitive is fnx.custom_derivatives.custom_vjp_call_p
            arrays = [self.value(t).array for t in tracers]
            with jex.set_current_trace(self.parent_trace):
                *residuals, out = fwd.call_wrapped(*[x for a in arrays for x in (a, True)])
                self.cotangents = bwd.call_wrapped(*residuals, jnp.ones(2))
                np.testing.assert_array_equal(fun.call_wrapped(*arrays)[0], out)
            return [out]

    x, y = jnp.array([5.0, 7.0]), jnp.array([1.0, 2.0])
    trace = Reverse(None)
    with jex.take_current_trace() as trace.parent_trace, jex.set_current_trace(trace):
        if staged:
            jaxpr = fnx.make_jaxpr(product)(x, y)
            inner = MarkedTracer(trace, Marked(x))
            (out,) = fnx.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, inner, y)
        else:
            out = product(MarkedTracer(trace, Marked(x)), y)
    np.testing.assert_array_equal(out, [10, 42])
    np.testing.assert_array_equal(trace.cotangents[-2:], [[10, 20], [5, 7]])


def test_functions_as_parameters_of_a_call_with_a_rule():
    call = fnx.custom_derivatives.custom_jvp_call_p
    fun = wrap_init(lambda x: [jnp.sin(x)])
    rule = wrap_init(lambda x, t: [jnp.sin(x), 3.0 * t])
    bound = lambda x: call.bind(x, subfuns=(fun, rule))[0]
    assert float(fnx.grad(bound)(0.5)) == 3.0
    assert float(fnx.jit(fnx.grad(bound))(0.5)) == 3.0


@pytest.mark.parametrize("symbolic", [False, True])
def test_functions_with_rules_in_jaxprs_are_bound_with_other_rules(symbolic):
    table = jnp.array([2.0, 3.0])

    @fnx.custom_jvp
    def f(x, y):
        return jnp.sum(x * table) + y

    zero = lambda t: 0.0 if type(t) is SymbolicZero else t
    rule = lambda ps, ts: (f(*ps), 5.0 * jnp.sum(zero(ts[0])) + zero(ts[1]))
    f.defjvp(rule, symbolic_zeros=symbolic)
    jaxpr = fnx.make_jaxpr(f)(jnp.ones(2), 1.0)
    (eqn,) = jaxpr.jaxpr.eqns
    call, params = eqn.primitive, eqn.primitive.get_bind_params(eqn.params)
    bound = lambda params: lambda x: call.bind(*jaxpr.consts, x, 1.0, **params)[0]
    assert float(bound(params)(jnp.ones(2))) == 6.0
    np.testing.assert_array_equal(fnx.grad(bound(params))(jnp.ones(2)), [5, 5])
    fun, jvp = params["subfuns"]

    def doubled(*values):
        out, tangent = jvp.call_wrapped(*values)
        return [out, 2.0 * tangent]

    other = params | {"subfuns": (fun, wrap_init(doubled))}
    np.testing.assert_array_equal(fnx.grad(bound(other))(jnp.ones(2)), [10, 10])


def test_closed_jaxprs_keep_their_constants_when_they_are_bound():
    table, x = jnp.arange(1.0, 4.0), jnp.ones(3)

    def f(offset, x):
        body = fnx.make_jaxpr(lambda x: [x * table + offset])(x)
        cond = fnx.make_jaxpr(lambda x: [jnp.sum(x) < 100])(x)
        assert len(body.consts) == 2
        counts = {"cond_nconsts": 0, "body_nconsts": 0}
        (out,) = lax.while_p.bind(x, cond_jaxpr=cond, body_jaxpr=body, **counts)
        return out

    def plain(offset, x):
        return lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x * table + offset, x)

    offset = jnp.full(3, 0.5)
    for g in (f, fnx.jit(f), lambda o, x: fnx.vmap(f, (0, None))(o[None], x)[0]):
        np.testing.assert_allclose(g(offset, x), plain(offset, x))
    slopes = fnx.jvp(lambda o: f(o, x), (offset,), (jnp.ones(3),))
    for found, expected in zip(slopes, fnx.jvp(lambda o: plain(o, x), (offset,), (jnp.ones(3),))):
        np.testing.assert_allclose(found, expected)


def test_counts_of_constants_may_be_said_in_jax_words():
    total = lambda x, ys: lax.scan(lambda c, y: (c + y, c), x, ys)[0]
    (eqn,) = fnx.make_jaxpr(total)(jnp.ones(2), jnp.ones((3, 2))).jaxpr.eqns
    body = fnx.make_jaxpr(lambda k, c, y: [c + k * y, c])(1.0, jnp.ones(2), jnp.ones(2))
    params = eqn.params | {"jaxpr": body, "num_consts": 1, "num_carry": 1}
    out, _ = eqn.primitive.bind(10.0, jnp.ones(2), jnp.ones((3, 2)), **params)
    np.testing.assert_allclose(out, [31, 31])


def test_jaxprs_of_parameters_are_known_again():
    (eqn,) = fnx.make_jaxpr(fnx.jit(jnp.sin))(1.0).jaxpr.eqns
    assert eqn.params["jaxpr"] is eqn.params["jaxpr"]


def test_traces_without_a_method_say_so():
    class Nothing(fnx.core.Trace):
        pass

    with jex.set_current_trace(Nothing()), pytest.raises(NotImplementedError, match="Nothing"):
        jnp.sin(jnp.ones(2))


def test_primitives_that_are_functions_of_others():
    x = jnp.arange(4.0).reshape(2, 2)
    np.testing.assert_array_equal(lax.tile_p.bind(x, reps=(2, 1)), np.tile(x, (2, 1)))
    np.testing.assert_array_equal(lax.stack_p.bind(x, x, axis=1), np.stack([x, x], 1))
    np.testing.assert_array_equal(lax.unstack_p.bind(x, axis=1), [x[:, 0], x[:, 1]])
    values, at = lax.approx_top_k_p.bind(x, k=1, reduction_dimension=-1, is_max_k=True)
    np.testing.assert_array_equal((values, at), ([[1], [3]], [[1], [1]]))
    assert lax.zeta_p.bind(2.0, 1.0) == lax.zeta(2.0, 1.0)
    assert lax.polygamma_p.bind(1.0, 2.0) == lax.polygamma(1.0, 2.0)
    (a, b) = lax.optimization_barrier_p.bind(x, 1.0)
    assert (a.shape, b.shape) == ((2, 2), ())
    packed, taus = lax.linalg.geqrf(x)
    q = lax.linalg.householder_product_p.bind(packed, taus)
    np.testing.assert_array_equal(q, lax.linalg.householder_product(packed, taus))
    grad = fnx.grad(lambda x: jnp.sum(lax.tile_p.bind(x, reps=(3, 1))))(x)
    np.testing.assert_array_equal(grad, np.full((2, 2), 3.0))
    with pytest.raises(NotImplementedError, match="stage"):
        lax.stage_p.bind(x)
