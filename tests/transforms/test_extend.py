"""Names of jax.extend, jax.api_util and jax.interpreters that libraries build on, besides primitives."""

import subprocess
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import api_util, lax
from fnx.extend import core as jex
from fnx.extend import linear_util as lu
from fnx.extend import source_info_util
from fnx.interpreters import partial_eval as pe
from fnx.interpreters import xla


def test_transformations_of_wrapped_functions():
    @lu.transformation
    def scaled(factor, x):
        out = yield (x * factor,), {}
        yield out + 1

    @lu.transformation_with_aux
    def counted(*xs):
        out = yield xs, {}
        yield out, len(xs)

    wrapped, count = counted(scaled(lu.wrap_init(lambda x, by: x / by, {"by": 2}), 10))
    with pytest.raises(lu.StoreException):
        count()
    assert wrapped.call_wrapped(3.0) == 16.0
    assert count() == 1
    other, never = counted(lu.wrap_init(abs))
    assert lu.merge_linear_aux(never, count) == (False, 1)
    with pytest.raises(ValueError, match="neither"):
        lu.merge_linear_aux(never, never)
    twice = lu.transformation2(lambda f, k, x: f(f(x)) * k)
    assert twice(other, 2).call_wrapped(-3) == 6


def test_functions_of_leaves():
    def f(a, *, b):
        return {"sum": a["x"] + b, "pair": (a["x"], b)}

    leaves, tree = fnx.tree.flatten((({"x": 1.0},), {"b": 2.0}))
    info = api_util.debug_info("test", f, (), {})
    flat, out_tree = api_util.flatten_fun(lu.wrap_init(f, debug_info=info), tree)
    assert fnx.make_jaxpr(flat.call_wrapped)(*leaves).jaxpr.invars
    assert fnx.tree.unflatten(out_tree(), flat.call_wrapped(*leaves)) == f({"x": 1.0}, b=2.0)
    assert api_util.shaped_abstractify(np.ones(3, "float32")).shape == (3,)


@pytest.mark.parametrize("instantiate", [False, True])
def test_what_is_known_is_evaluated_and_the_rest_is_a_jaxpr(instantiate):
    table = jnp.arange(3.0)
    known, unknown = pe.PartialVal.known(2.0), pe.PartialVal.unknown(jax_float())
    fun = lu.wrap_init(lambda x, y: (jnp.sin(x), table * y + x, y))
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(fun, [known, unknown], instantiate)
    assert [o.is_known() for o in outs] == [not instantiate, False, False]
    if not instantiate:
        aval, value = outs[0]
        assert aval is None
        np.testing.assert_allclose(value, np.sin(2.0))
    results = fnx.core.eval_jaxpr(jaxpr, consts, 5.0)
    np.testing.assert_allclose(results[-2], np.arange(3.0) * 5 + 2)
    assert results[-1] == 5.0


@pytest.mark.parametrize("instantiate", [False, True])
def test_keys_that_are_known_and_unknown(instantiate):
    key = fnx.random.key(3)
    halves = lambda a, b, x: (
        fnx.random.split(a),
        fnx.random.split(b)[1],
        fnx.random.uniform(b) + x,
    )
    values = [
        pe.PartialVal.known(key),
        pe.PartialVal.unknown(fnx.core.ShapedArray((), key.dtype, sharding=None)),
        pe.PartialVal.known(0.0),
    ]
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(halves), values, instantiate)
    assert [o.is_known() for o in outs] == [not instantiate, False, False]
    assert [o.get_aval().shape for o in outs] == [(2,), (), ()]
    assert [o.get_aval().dtype for o in outs[:2]] == [key.dtype] * 2
    *_, words, number = fnx.core.eval_jaxpr(jaxpr, consts, fnx.random.key_data(key))
    assert (words == fnx.random.key_data(fnx.random.split(key)[1])).all()
    assert number == fnx.random.uniform(key)


def jax_float():
    return fnx.core.ShapedArray((), float, sharding=None)


def test_arrays_of_other_types():
    class Celsius:
        def __init__(self, degrees):
            self.degrees = degrees

    assert not jex.valid_jaxtype(Celsius(3.0))
    xla.canonicalize_dtype_handlers[Celsius] = lambda x: np.asarray(x.degrees)
    try:
        assert jex.valid_jaxtype(Celsius(3.0))
        assert lax.add(Celsius(3.0), 1.0) == 4.0
    finally:
        del xla.canonicalize_dtype_handlers[Celsius]
    assert jex.valid_jaxtype(1.5)
    assert not jex.valid_jaxtype("text")


def test_the_interpreter_at_work_is_put_aside():
    @fnx.jit
    def f(x):
        with jex.take_current_trace() as trace:
            assert float(jnp.sin(0.0)) == 0.0
            with jex.set_current_trace(trace):
                return jnp.sin(x)

    assert f(0.0) == 0.0
    assert jex.find_top_trace() is jex.get_opaque_trace_state()


def test_errors_name_the_callers_of_excluded_libraries(tmp_path, monkeypatch):
    from fnx.core import source

    monkeypatch.setattr(source, "_excluded", [])
    monkeypatch.setattr(source, "_known", {})
    library = tmp_path / "library.py"
    library.write_text("def bad(x):\n    return x + x[:2]\n")
    space: dict = {}
    exec(compile(library.read_text(), str(library), "exec"), space)
    with pytest.raises(TypeError, match=r"library\.py"):
        space["bad"](jnp.ones(3))
    source_info_util.register_exclusion(str(tmp_path))
    with pytest.raises(TypeError, match=r"test_extend\.py"):
        space["bad"](jnp.ones(3))


def test_primitives_are_listed_by_name():
    from fnx.extend.core import primitives

    assert primitives.add_p is lax.add_p
    (eqn,) = fnx.make_jaxpr(fnx.jit(jnp.sin))(1.0).jaxpr.eqns
    assert isinstance(eqn.primitive, primitives.jit_p)
    assert not isinstance(eqn.primitive, type(primitives.call_p))
    assert not any(isinstance(v, fnx.core.DropVar) for v in eqn.outvars)
    assert fnx.core.get_aval(np.ones(3)).shape == (3,)


@pytest.mark.parametrize("name", ["call_p", "closed_call_p"])
def test_calls_within_jaxprs_are_calls_of_jit(name):
    from fnx.extend.core import primitives

    def f(x, y):
        fun = lu.wrap_init(lambda a, b: (a * jnp.sin(b), b))
        product, _ = getattr(primitives, name).bind(x, y, subfuns=(fun,))
        return product

    assert getattr(primitives, name).call_primitive
    (eqn,) = fnx.make_jaxpr(f)(2.0, 3.0).eqns
    assert [e.primitive.name for e in eqn.params["jaxpr"].eqns] == ["sin", "mul"]
    np.testing.assert_allclose(f(2.0, 3.0), 2 * np.sin(3.0))
    np.testing.assert_allclose(fnx.grad(f, 1)(2.0, 3.0), 2 * np.cos(3.0))
    np.testing.assert_allclose(fnx.vmap(f, (None, 0))(2.0, jnp.ones(2)), [2 * np.sin(1.0)] * 2)


def test_backends_layouts_and_primitives_by_name():
    from fnx.experimental.layout import Format, Layout
    from fnx.extend import backend

    assert backend.get_backend().platform == "cpu" == next(iter(backend.backends()))
    assert backend.get_backend("cpu").devices() == fnx.devices()
    assert backend.get_default_device() == fnx.devices()[0]
    with pytest.raises(RuntimeError, match="runs on: cpu"):
        backend.get_backend("tpu")
    assert Format(Layout((1, 0))).layout == Layout((1, 0))

    @fnx.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    (eqn,) = fnx.make_jaxpr(f)(1.0).eqns
    assert isinstance(eqn.primitive, fnx.custom_derivatives.custom_jvp_call_p)


def test_jaxprs_tell_their_effects():
    quiet = fnx.make_jaxpr(lambda x: x * 2)(1.0)
    loud = fnx.make_jaxpr(fnx.jit(lambda y: fnx.debug.print("{}", y)))(1.0)
    assert not quiet.effects
    assert not quiet.eqns[0].effects
    assert not quiet.jaxpr.effects
    assert loud.effects
    assert loud.jaxpr.effects == loud.eqns[0].effects
    assert not lax.sin_p.call_primitive


def test_types_lie_on_no_mesh():
    sharding = fnx.typeof(jnp.ones((2, 3))).sharding
    assert sharding.mesh.empty
    assert not sharding.mesh.are_all_axes_explicit
    assert len(sharding.spec) == 2
    mesh = fnx.make_mesh((1,), ("x",), (fnx.sharding.AxisType.Explicit,))
    assert mesh.are_all_axes_explicit
    assert not mesh.are_all_axes_auto
    here = jnp.ones(2).sharding
    assert here.is_equivalent_to(fnx.NamedSharding(mesh, fnx.P("x")), 1)
    assert here.num_devices == 1


def run_by_hand(closed, *args):
    """What a program for JAX does that evaluates a jaxpr equation by equation."""
    env = dict(zip(closed.jaxpr.constvars + closed.jaxpr.invars, (*closed.consts, *args)))

    def read(atom):
        return atom.val if isinstance(atom, fnx.extend.core.Literal) else env[atom]

    for eqn in closed.jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(v) for v in closed.jaxpr.outvars]


def test_functions_with_rules_give_their_parts():
    @fnx.custom_jvp
    def f(x):
        return 3.0 * x * offset

    offset = jnp.array(2.0)
    f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * tangents[0]))
    closed = fnx.make_jaxpr(f)(1.0)
    (eqn,) = closed.eqns
    assert (eqn.params["num_consts"], eqn.params["call_jaxpr"].eqns) == (
        1,
        eqn.params["jaxpr"].eqns,
    )
    params = eqn.primitive.get_bind_params(eqn.params)
    fun, rule = params["subfuns"]
    assert fun.call_wrapped(offset, 5.0) == [30.0]
    assert [float(x) for x in rule.call_wrapped(offset, 5.0, 0.0, 1.0)] == [30.0, 10.0]
    assert run_by_hand(closed, 5.0) == [30.0]

    g = fnx.custom_vjp(lambda x: 3.0 * x)
    g.defvjp(lambda x: (3.0 * x, None), lambda _, ct: (10.0 * ct,))
    (eqn,) = fnx.make_jaxpr(g)(1.0).eqns
    fun, fwd, bwd = eqn.primitive.get_bind_params(eqn.params)["subfuns"]
    assert fun.call_wrapped(jnp.array(5.0)) == fwd.call_wrapped(5.0) == [15.0]
    assert bwd.call_wrapped(jnp.array(1.0)) == [10.0]


EQUATIONS = {
    "dot_general": lambda x: x @ x,
    "reduce_sum": lambda x: jnp.sum(x, 0),
    "exp": jnp.exp,
    "div": lambda x: x / x,
    "pow": lambda x: x**x,
    "integer_pow": lambda x: x**3,
    "transpose": lambda x: x.T,
    "sort": jnp.sort,
    "cumsum": jnp.cumsum,
    "cummax": lambda x: lax.cummax(x, reverse=True),
    "concatenate": lambda x: jnp.concatenate([x, x]),
    "convert_element_type": lambda x: x.astype(int),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (0, 0), (1, 1)),
    "scan": lambda x: lax.scan(lambda c, y: (c + y, c), x[0], x),
    "while": lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, x),
    "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "jit": lambda x: fnx.jit(lambda y: y * x)(x),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations_name_their_primitives_as_jax_does(name):
    x = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    closed = fnx.make_jaxpr(EQUATIONS[name])(x)
    (eqn,) = [e for e in closed.eqns if e.primitive.name == name]
    wanted = getattr(fnx.extend.core.primitives, name + "_p")
    assert eqn.primitive is wanted
    assert {wanted: 1}[eqn.primitive] == 1
    assert str(wanted) == name
    for mine, own in zip(
        run_by_hand(closed, x), fnx.tree_util.tree_leaves(EQUATIONS[name](x)), strict=True
    ):
        np.testing.assert_array_equal(mine, own)


def test_products_tell_the_precision_that_was_asked_of_them():
    closed = fnx.make_jaxpr(lambda x: x @ x)(jnp.ones(3))
    assert closed.eqns[0].params["precision"] is None
    assert closed.pretty_print(use_color=False) == closed.jaxpr.pretty_print() == str(closed)


def test_jaxprs_among_the_parameters_of_equations_are_closed():
    outside = jnp.arange(2.0)
    (eqn,) = fnx.make_jaxpr(fnx.jit(lambda x: x * outside))(1.0).eqns
    inner = eqn.params["jaxpr"]
    assert eqn.params["name"] == "<lambda>"
    assert inner.consts == inner.jaxpr.constvars == []
    assert len(inner.jaxpr.invars) == len(eqn.invars) == 2
    with_constants = fnx.make_jaxpr(lambda x: x * outside)(1.0)
    (out,) = eqn.primitive.bind(2.0, jaxpr=with_constants)
    np.testing.assert_array_equal(out, [0, 2])


def test_primitives_are_bound_with_parameters_of_jax_that_mean_nothing_here():
    x = jnp.arange(3.0)
    dims = (((0,), (0,)), ((), ()))
    assert (
        lax.dot_general_p.bind(x, x, dimension_numbers=dims, precision=None, out_sharding=None) == 5
    )
    np.testing.assert_array_equal(lax.exp_p.bind(x, accuracy=None), jnp.exp(x))


def test_modules_that_programs_use_without_importing_them():
    code = (
        "import fnx; assert fnx.version.__version_info__ == fnx.__version_info__; "
        "assert fnx.version.__version__ == fnx.__version__; import fnx.interpreters; "
        "assert fnx.interpreters.xla.apply_primitive and fnx.interpreters.ad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for module in (fnx.interpreters, fnx.version):
        with pytest.raises(AttributeError, match="nothing"):
            module.nothing


def test_types_can_be_made_with_where_arrays_lie():
    aval = fnx.typeof(jnp.ones((3, 2)))
    row = aval.sharding.update(spec=fnx.P(*aval.sharding.spec[1:]))
    assert len(row.spec) == 1
    assert row.mesh == aval.sharding.mesh
    assert fnx.P("x", None).update(partitions=(None,)) == fnx.P(None) != fnx.P("x").update()
    made = fnx.core.ShapedArray((2,), "float64", sharding=row, manual_type=None)
    assert made == aval.update(shape=(2,))


def test_programs_that_invert_jaxprs():
    """As libraries of distributions do: by equation, from the last, and into what is compiled."""
    inverses = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh, lax.neg_p: jnp.negative}

    def inverse(closed, y):
        env = dict(zip(closed.jaxpr.outvars, [y]))
        for eqn in reversed(closed.jaxpr.eqns):
            params, given = dict(eqn.params), api_util.safe_map(env.get, eqn.outvars)
            if eqn.primitive is jex.primitives.jit_p:
                inner = params.pop("jaxpr")
                params["jaxpr"] = fnx.make_jaxpr(lambda v, inner=inner: inverse(inner, v))(*given)
                out = eqn.primitive.bind(*given, **params)[0]
            else:
                out = inverses[eqn.primitive](*given, **params)
            api_util.safe_map(env.__setitem__, eqn.invars, [out])
        return env[closed.jaxpr.invars[0]]

    f = lambda x: -fnx.jit(lambda y: jnp.exp(jnp.tanh(y)))(x)
    x = jnp.array([0.3, -0.2])
    np.testing.assert_allclose(inverse(fnx.make_jaxpr(f)(x), f(x)), x, rtol=1e-12)
    with pytest.raises(ValueError, match="shorter"):
        api_util.safe_map(max, [1, 2], [3])


def test_equations_tell_the_names_that_their_scopes_have():
    @fnx.named_call
    def step(x):
        with fnx.named_scope("inner"):
            y = jnp.sin(x)
        return jnp.cos(y) * fnx.jit(fnx.named_scope("called")(jnp.exp))(x)

    names = lambda jaxpr: [str(e.source_info.name_stack) for e in jaxpr.eqns]
    with fnx.named_scope("outside"):  # of whoever traces, and not of what is traced
        jaxpr = fnx.make_jaxpr(lambda x: step(x) + 1)(1.0)
    assert names(jaxpr) == ["step/inner", "step", "step", "step", ""]
    (call,) = [e for e in jaxpr.eqns if e.primitive.name == "jit"]
    assert names(call.params["jaxpr"]) == ["called"]
    assert call.source_info.name_stack.stack == ("step",)
    again = fnx.make_jaxpr(lambda x: fnx.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x))(1.0)
    assert names(again) == names(jaxpr)
    slope = fnx.make_jaxpr(fnx.grad(step))(1.0)
    assert {"step", "step/inner"} <= set(names(slope))
    with pytest.raises(TypeError, match="needs a name"), fnx.named_scope(3):
        pass
    assert str(fnx.core.jaxpr.Eqn(call.prim, (), ()).source_info.name_stack) == ""


def test_functions_of_some_arguments():
    argnums_partial = api_util.argnums_partial
    f = lu.wrap_init(lambda x, y, z, scale: (x - y + z) * scale, {"scale": 10})
    some, rest = argnums_partial(f, (-1, 0), (1, 2, 3))
    assert rest == (3, 1)
    assert some.call_wrapped(30, 5) == 330
    with pytest.raises(ValueError, match=r"argnums \(3,\) of a function of 2"):
        argnums_partial(f, 3, (1, 2))
    with pytest.raises(ValueError, match="argument 1, of type list"):
        argnums_partial(f, 0, (1, []))
    assert argnums_partial(f, 0, (1, [], 2), require_static_args_hashable=False)[1] == (1,)
