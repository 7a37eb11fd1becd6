"""The public face: names, derivatives, vmap, pytrees, settings, devices."""

import ast
import gc
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trees import equal

import fnx
import fnx.numpy as jnp
from fnx.core import lazy_imports

# The names of jax, beside those of its modules, that two or more of forty projects use.
NAMES = """
Array Device NamedSharding P ShapeDtypeStruct block_until_ready checkpoint checkpoint_policies
clear_caches closure_convert config custom_gradient custom_jvp custom_vjp debug_nans default_backend
default_device device_count device_get device_put devices disable_jit effects_barrier enable_x64
ensure_compile_time_eval eval_shape grad hessian jacfwd jacobian jacrev jit jvp linear_transpose
linearize local_device_count local_devices log_compiles make_jaxpr make_mesh named_call named_scope
pmap process_count process_index pure_callback remat typeof value_and_grad vjp vmap __version__
tree.all tree.flatten tree.flatten_with_path tree.leaves tree.leaves_with_path tree.map
tree.map_with_path tree.reduce tree.structure tree.transpose tree.unflatten
tree_util.Partial tree_util.PyTreeDef tree_util.keystr tree_util.register_dataclass
tree_util.register_pytree_node tree_util.register_pytree_node_class
tree_util.register_pytree_with_keys tree_util.register_static tree_util.treedef_is_leaf
debug.breakpoint debug.callback debug.print errors.ConcretizationTypeError
errors.TracerArrayConversionError errors.TracerBoolConversionError errors.UnexpectedTracerError
flatten_util.ravel_pytree experimental.io_callback sharding.AxisType sharding.Mesh
sharding.NamedSharding sharding.PartitionSpec sharding.SingleDeviceSharding test_util.check_grads
typing.ArrayLike typing.DTypeLike ad_checkpoint.checkpoint_name ad_checkpoint.print_saved_residuals
dtypes.bfloat16 dtypes.canonicalize_dtype dtypes.float0 dtypes.issubdtype dtypes.prng_key
dtypes.result_type ops.segment_max ops.segment_min ops.segment_prod ops.segment_sum core.Tracer
core.ShapedArray stages.Compiled stages.Lowered stages.Traced lax.scan lax.while_loop lax.fori_loop
lax.cond lax.switch lax.map lax.associative_scan lax.custom_root lax.custom_linear_solve
cache.info cache.clear compile_report compile_stats get_num_threads set_num_threads
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_name(name):
    thing = fnx
    for part in name.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            thing = importlib.import_module(f"fnx.{part}")
    assert thing is not None
    if callable(thing) and getattr(thing, "__module__", "").startswith("fnx"):
        assert thing.__doc__, f"{name} has no docstring"


def test_names_that_checkers_of_types_see_are_those_that_are_imported_later():
    tree = ast.parse(Path(fnx.__file__).read_text())
    block = next(x for x in tree.body if isinstance(x, ast.If))
    seen = {
        (f"fnx.{a.name}", "") if x.module == "fnx" else (x.module, a.name)
        for x in block.body
        for a in x.names
    }
    known = set(lazy_imports._known["fnx"].values())
    assert seen <= known
    assert {attribute for _, attribute in known} <= {attribute for _, attribute in seen}
    for name in lazy_imports.names("fnx"):
        assert getattr(fnx, name) is not None


def test_arrays_of_another_process_have_their_operators():
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()) * 2.0)"
    data = pickle.dumps(jnp.arange(3.0))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True)
    assert done.stdout.decode() == "[0. 2. 4.]\n", done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        fnx.no_such_name
    assert "grad" in dir(fnx)
    assert not [n for n in dir(fnx) if n.startswith("_")]


# --- vmap --------------------------------------------------------------------------------------


def test_axes_of_pytrees():
    f = lambda p, y: {"sum": p["a"] + y, "y": y}
    p = {"a": jnp.arange(6.0).reshape(2, 3), "b": 7.0}
    out = fnx.vmap(f, in_axes=({"a": 1, "b": None}, None), out_axes={"sum": 1, "y": None})(p, 1.0)
    equal(out["sum"], np.arange(6.0).reshape(2, 3) + 1)
    assert out["y"].shape == ()
    assert fnx.vmap(f, in_axes=({"a": -1, "b": None}, None))(p, 1.0)["sum"].shape == (3, 2)
    assert fnx.vmap(lambda: jnp.ones(2), axis_size=3)().shape == (3, 2)
    assert fnx.vmap(lambda x, *, k: x + k)(jnp.ones(3), k=jnp.ones(3)).shape == (3,)
    assert fnx.vmap(lambda x: x, out_axes=-1)(jnp.ones((3, 2))).shape == (2, 3)
    assert fnx.vmap(lambda x: 1.0)(jnp.ones(3)).shape == (3,)


def test_lanes_in_lanes():
    outer = fnx.vmap(fnx.vmap(lambda a, b: a * b, (None, 0)), (0, None))
    equal(outer(jnp.arange(3.0), jnp.arange(4.0)), np.outer(np.arange(3), np.arange(4)))


def test_lanes_of_keys():
    keys = fnx.random.split(fnx.random.key(0), 4)
    rows = fnx.vmap(lambda k: fnx.random.normal(k, (3,)))(keys)
    equal(rows[2], fnx.random.normal(keys[2], (3,)))


# --- looking at functions ----------------------------------------------------------------------


def test_make_jaxpr():
    closed, shapes = fnx.make_jaxpr(
        lambda x, n: {"y": jnp.sin(x) * n}, static_argnums=1, return_shape=True
    )(jnp.ones(3), 2)
    assert [e.primitive.name for e in closed.jaxpr.eqns] == ["sin", "mul"]
    assert shapes == {"y": fnx.ShapeDtypeStruct((3,), float)}
    table = jnp.arange(3.0)
    closed = fnx.make_jaxpr(lambda x: x + table)(1.0)
    assert len(closed.consts) == 1
    assert "lambda" in str(closed)


def test_eval_shape_computes_nothing():
    huge = fnx.ShapeDtypeStruct((100_000, 100_000), "float32")
    out = fnx.eval_shape(lambda x: {"y": x @ x.T, "s": jnp.sum(x)}, huge)
    assert (out["y"].shape, out["s"].dtype) == ((100_000, 100_000), np.float32)
    assert (out["y"].size, out["y"].ndim, len(out["y"])) == (10**10, 2, 100_000)
    assert hash(out["s"]) == hash(fnx.ShapeDtypeStruct((), "float32"))


def test_ensure_compile_time_eval():
    @fnx.jit
    def f(x):
        with fnx.ensure_compile_time_eval():
            n = int(jnp.sum(jnp.arange(4)))  # known while tracing
        return x * n

    assert float(f(2.0)) == 12.0


def test_ensure_compile_time_eval_with_traced_values():
    def f(x):
        with fnx.ensure_compile_time_eval():
            n = int(jnp.sum(jnp.arange(4)))
            y = fnx.vmap(lambda a: a * x)(jnp.arange(3.0))
            return jnp.where(x > 0, y, n)

    expected = [0.0, 2.0, 4.0]
    assert np.asarray(fnx.jit(f)(2.0)).tolist() == np.asarray(f(2.0)).tolist() == expected
    assert float(fnx.jit(fnx.grad(lambda x: f(x).sum()))(2.0)) == 3.0


def test_eval_shape_of_shapes():
    shape = fnx.ShapeDtypeStruct((4,), "float32")
    assert fnx.eval_shape(lambda x: {"a": shape, "b": x}, 1.0)["a"] == shape


def test_callables_with_odd_names():
    class Mean:
        __name__ = 3.0

        def __call__(self, x):
            return x * 2.0

    for transform in (fnx.vmap, fnx.jit, fnx.jacfwd, fnx.checkpoint):
        transform(Mean())(jnp.ones(2))
    assert float(fnx.grad(Mean())(1.0)) == 2.0


def test_names_do_not_change_results():
    with fnx.named_scope("part"):
        f = fnx.named_call(lambda x: x * 2.0, name="double")
    assert float(f(3.0)) == 6.0
    assert f.__name__ == "double"
    choose = fnx.named_call(lambda x, y: y if x else None, name="choose")
    assert float(fnx.jit(lambda y: choose("a Python value", y))(3.0)) == 3.0
    assert fnx.typeof(jnp.ones(2)).sharding.mesh.empty


# --- callbacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_pure_callback_in_lanes(wrap, method):
    shapes = []

    def host(x, y):
        shapes.append((x.shape, y.shape))
        return np.asarray(x + y)

    def f(x, y):
        return fnx.pure_callback(host, fnx.ShapeDtypeStruct((), float), x, y, vmap_method=method)

    out = wrap(fnx.vmap(f, in_axes=(0, None)))(jnp.arange(3.0), 10.0)
    equal(out, [10.0, 11.0, 12.0])
    expected = {
        "sequential": [((), ())] * 3,
        "expand_dims": [((3,), (1,))],
        "broadcast_all": [((3,), (3,))],
    }
    assert shapes == expected[method]


def test_pure_callback_with_a_rule():
    import math

    @fnx.custom_jvp
    def gamma(x):
        return fnx.pure_callback(
            np.vectorize(math.gamma, otypes=[float]),
            fnx.ShapeDtypeStruct(x.shape, x.dtype),
            x,
            vmap_method="expand_dims",
        )

    gamma.defjvp(lambda p, t: (gamma(*p), gamma(p[0] + 1.0) * t[0]))  # any rule: it is what is used
    x = jnp.array([2.5, 3.0])
    equal(fnx.jit(gamma)(x), [math.gamma(2.5), 2.0])
    equal(fnx.jit(fnx.grad(lambda x: jnp.sum(gamma(x))))(x), [math.gamma(3.5), 6.0])
    equal(fnx.vmap(gamma)(x[:, None])[:, 0], gamma(x))


def test_numbers_in_a_programs_text_are_no_live_arrays():
    gc.collect()  # the garbage of other tests is not to go meanwhile
    before = len(fnx.live_arrays())
    x = jnp.ones(3)
    y = fnx.jit(lambda v: v * 2.5 + 7)(x) * 3.25 + jnp.zeros(())
    assert len(fnx.live_arrays()) == before + 2
    del x, y


def test_live_arrays():
    x = jnp.ones(3)
    assert any(a is x for a in fnx.live_arrays())
    x.delete()
    assert not any(a is x for a in fnx.live_arrays())


def test_modules_under_two_names():
    from fnx.experimental.pjit import pjit
    from fnx.ref import Ref
    from fnx.stages import Compiled, Lowered, Wrapped

    assert pjit is fnx.jit
    assert Ref is fnx.Ref
    jitted = fnx.jit(lambda x, y: x["a"] + y, donate_argnums=1)
    lowered = jitted.lower({"a": jnp.ones(3)}, 1.0)
    assert isinstance(jitted, Wrapped)
    assert isinstance(lowered, Lowered)
    with pytest.warns(UserWarning, match=r"donated buffers were not usable: f64\[\], which"):
        assert isinstance(lowered.compile({"xla_embed_ir_in_executable": True}), Compiled)
    for compile_ in (
        lambda: lowered.compile({"speed": "high"}),
        lambda: fnx.jit(jnp.sin, compiler_options={"speed": "high"})(1.0),
    ):
        with pytest.raises(fnx.errors.JaxRuntimeError, match="No such compile option: 'speed'"):
            compile_()
    (x, y), named = lowered.args_info
    assert (x["a"].shape, x["a"].dtype, x["a"].donated) == ((3,), np.float64, False)
    assert (y.shape, y.donated, named) == ((), True, {})
    assert lowered.in_avals[0][1] == fnx.core.ShapedArray((), np.float64, weak_type=True)
