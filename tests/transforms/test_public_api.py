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


# --- finding nan -------------------------------------------------------------------------------


def test_debug_nans_names_the_line():
    def f(x):
        y = x - 2.0
        return jnp.sum(jnp.log(y) * 2.0)  # the log of a negative number

    with fnx.debug_nans():
        for g in (f, fnx.jit(f), fnx.jit(lambda x: fnx.jit(f)(x) + 1)):
            with pytest.raises(FloatingPointError, match=r"test_public_api\.py") as caught:
                g(jnp.ones(2))
            assert "log" in str(caught.value)
        assert float(fnx.jit(f)(jnp.array([3.0, 4.0]))) == pytest.approx(2 * np.log(2))
        with pytest.raises(FloatingPointError):
            fnx.grad(lambda x: jnp.sqrt(x) * 0.0 + jnp.where(x > 0, 0.0, x / x))(0.0)
    assert np.isnan(float(f(jnp.ones(2))))


def test_debug_nans_finds_those_of_16_bits():
    for dtype in ("float16", "bfloat16"):
        with fnx.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
            fnx.jit(jnp.log)(jnp.array(-1.0, dtype))


def test_debug_nans_for_good():
    fnx.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError):
            jnp.zeros(1) / jnp.zeros(1)
    finally:
        fnx.config.update("jax_debug_nans", False)
    assert np.isnan(np.asarray(jnp.zeros(1) / jnp.zeros(1)))[0]


def test_debug_infs_is_as_debug_nans():
    f = lambda x: jnp.sum(1.0 / x)
    with fnx.debug_infs():
        for g in (f, fnx.jit(f)):
            with pytest.raises(FloatingPointError, match="div made an infinity"):
                g(jnp.zeros(2))
            assert g(jnp.array([np.inf, 1.0])) == 1.0
        assert np.isnan(jnp.log(-1.0))
        with fnx.debug_nans(), pytest.raises(FloatingPointError, match="log made a nan"):
            jnp.log(-1.0)
        with fnx.debug_infs(False):
            assert f(jnp.zeros(2)) == np.inf
    assert f(jnp.zeros(2)) == np.inf
    fnx.config.update("jax_debug_infs", True)
    try:
        with pytest.raises(FloatingPointError):
            f(jnp.zeros(1))
    finally:
        fnx.config.update("jax_debug_infs", False)
    assert f(jnp.zeros(2)) == np.inf


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


# --- settings, devices, segments ---------------------------------------------------------------


def test_settings_by_name():
    assert fnx.config.jax_enable_x64 is True
    fnx.config.update("jax_enable_x64", False)
    try:
        assert jnp.asarray(1.0).dtype == np.float32
        assert fnx.jit(lambda: jnp.ones(2))().dtype == np.float32
    finally:
        fnx.config.update("jax_enable_x64", True)
    assert jnp.asarray(1.0).dtype == np.float64
    fnx.config.update("jax_platform_name", "cpu")
    assert fnx.config.jax_platform_name == "cpu"
    assert fnx.config.jax_default_matmul_precision is None  # JAX's own value
    with fnx.default_matmul_precision("highest"):
        assert fnx.config.jax_default_matmul_precision == "highest"
    assert fnx.config.jax_default_matmul_precision is None
    assert fnx.config.parse_flags_with_absl() is None  # what JAX's tests begin with
    with pytest.raises(AttributeError, match="has no setting 'no_such'"):
        fnx.config.no_such
    with fnx.enable_x64(False), fnx.default_matmul_precision("highest"), fnx.log_compiles():
        assert jnp.arange(3).dtype == np.int32
        assert jnp.arange(3, dtype="int64").dtype == np.int64  # what is asked for is given


def test_strict_promotion():
    x, k = jnp.ones(3), jnp.arange(3)
    add = fnx.jit(lambda x, y: x + y)
    assert add(x, k).dtype == np.float64
    with fnx.numpy_dtype_promotion("strict"):
        assert (x + 1).dtype == (x + 1.5).dtype == (x + k.astype(float)).dtype == np.float64
        for bad in (
            lambda: x + k,
            lambda: add(x, k),
            lambda: k + 1.5,
            lambda: x.at[0].set(k[0]),
            lambda: jnp.where(x > 0, x, k),
            lambda: (x > 0) + 1,
            lambda: x**k,
        ):
            with pytest.raises(fnx.dtypes.TypePromotionError, match="strict"):
                bad()
        assert jnp.vander(x, 3).shape == (3, 3)
    with pytest.raises(ValueError, match="'standard', 'strict'"):
        fnx.numpy_dtype_promotion("harsh")


def test_ranks_that_do_not_broadcast():
    x, m = jnp.ones(3), jnp.ones((2, 3))
    add = fnx.jit(lambda x, y: x + y)
    with fnx.numpy_rank_promotion("raise"):
        for bad in (
            lambda: x + m,
            lambda: jnp.add(m, x),
            lambda: add(x, m),
            lambda: m * np.ones(3),
        ):
            with pytest.raises(ValueError, match="ranks"):
                bad()
        assert (m + 1).shape == (m + x[None]).shape == (m + x[0]).shape == (2, 3)
        assert jnp.cov(m).shape == (2, 2)  # what fnx does within is its own affair
        assert fnx.nn.standardize(m).shape == (2, 3)
    with fnx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="ranks"):
        add(x, m)
    assert add(x, m).shape == (2, 3)


def test_promotion_of_uint64_and_signed_integers_is_weak():
    out = jnp.ones(2, "uint64") + jnp.ones(2, "int64")
    assert out.dtype == np.float64
    assert out.weak_type
    assert (out * jnp.ones(2, "float32")).dtype == np.float32


def test_environment_variables_are_settings():
    code = "import fnx; print(fnx.config.disable_jit, fnx.numpy.ones(1).dtype)"
    env = {"FNX_DISABLE_JIT": "1", "FNX_DEFAULT_FLOAT32": "yes"}
    import os

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "float32"]


def test_devices():
    (cpu,) = fnx.devices()
    assert (cpu.platform, cpu.id, fnx.device_count(), fnx.default_backend()) == ("cpu", 0, 1, "cpu")
    with pytest.raises(RuntimeError, match="gpu"):
        fnx.devices("gpu")
    tree = fnx.device_put({"a": np.ones(2), "b": 1.0})
    assert isinstance(tree["a"], fnx.Array)
    assert isinstance(fnx.device_get(tree)["a"], np.ndarray)
    for transform in (fnx.jit, fnx.grad, fnx.vmap):  # values that have no numbers yet
        x = jnp.ones(2) if transform is fnx.vmap else 3.0
        equal(transform(lambda x: fnx.device_get(x) * 2)(x), transform(lambda x: x * 2)(x))
    assert fnx.block_until_ready(tree) is tree
    assert tree["a"].block_until_ready() is tree["a"]


def test_ravel_pytree():
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": (jnp.float32(7.0), jnp.int32(8))}
    flat, unravel = fnx.flatten_util.ravel_pytree(tree)
    assert flat.shape == (8,)
    back = unravel(flat)
    equal(back, tree)
    assert [x.dtype for x in fnx.tree.leaves(back)] == [x.dtype for x in fnx.tree.leaves(tree)]
    g = fnx.grad(lambda v: jnp.sum(unravel(v)["a"] ** 2))(flat)
    equal(g[:6], 2 * np.arange(6.0))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        unravel(jnp.ones(3))


def test_segment_reductions():
    data, ids = jnp.array([5.0, 1.0, 2.0, 7.0]), jnp.array([0, 2, 0, 9])
    equal(fnx.ops.segment_sum(data, ids, 3), [7.0, 0.0, 1.0])
    equal(fnx.ops.segment_max(data, ids, 3), [5.0, -np.inf, 1.0])
    equal(fnx.ops.segment_min(data, ids, 3), [2.0, np.inf, 1.0])
    equal(fnx.ops.segment_prod(data, ids, 3), [10.0, 1.0, 1.0])
    equal(fnx.jit(fnx.ops.segment_sum, static_argnums=2)(data, ids, 3), [7.0, 0.0, 1.0])
    equal(fnx.grad(lambda d: fnx.ops.segment_sum(d, ids, 3)[0])(data), [1.0, 0.0, 1.0, 0.0])
    waves = data + 1j * data[::-1]
    equal(fnx.ops.segment_max(waves, ids, 3), [5.0 + 7.0j, -np.inf, 1.0 + 2.0j])
    equal(fnx.ops.segment_min(waves, ids, 3), [2.0 + 1.0j, np.inf, 1.0 + 2.0j])
    rows = jnp.stack([waves, -waves], 1)
    for largest in (fnx.ops.segment_max, fnx.jit(fnx.ops.segment_max, static_argnums=2)):
        expected = [[5.0 + 7.0j, -2.0 - 1.0j], [-np.inf] * 2, [1.0 + 2.0j, -1.0 - 2.0j]]
        equal(largest(rows, ids, 3), expected)


def test_threads_can_be_set():
    before = fnx.get_num_threads()
    fnx.set_num_threads(1)
    assert fnx.get_num_threads() == 1
    fnx.set_num_threads(before)
    with pytest.raises(ValueError, match="0"):
        fnx.set_num_threads(0)


def test_annotations():
    assert isinstance(jnp.ones(2), fnx.typing.ArrayLike)
    assert isinstance(1.0, fnx.typing.ArrayLike)
    assert not isinstance("x", fnx.typing.ArrayLike)
    assert fnx.dtypes.issubdtype(fnx.random.key(0).dtype, fnx.dtypes.prng_key)
    assert not fnx.dtypes.issubdtype(np.float32, fnx.dtypes.prng_key)


def test_tree_partial_and_pickle():
    f = fnx.tree_util.Partial(jnp.add, 1.0)
    assert float(fnx.jit(lambda g, x: g(x))(f, 2.0)) == 3.0
    x = pickle.loads(pickle.dumps(jnp.arange(3.0)))
    equal(x, np.arange(3.0))
    assert isinstance(x, fnx.Array)


def test_a_rule_may_use_a_jitted_function_that_has_rules_on_its_tangents():
    @fnx.custom_jvp
    def scale(x):
        return 3.0 * x

    @scale.defjvp
    def scale_rule(primals, tangents):
        return scale(primals[0]), 3.0 * tangents[0]

    @fnx.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def f_rule(primals, tangents):
        moved = fnx.jit(lambda t: scale(t) * jnp.cos(primals[0]) / 3)
        return f(primals[0]), moved(tangents[0])

    for wrap in (lambda g: g, fnx.jit):
        np.testing.assert_allclose(wrap(fnx.grad(f))(0.7), np.cos(0.7))
        np.testing.assert_allclose(wrap(fnx.grad(fnx.grad(f)))(0.7), -np.sin(0.7))
        np.testing.assert_allclose(wrap(fnx.vmap(fnx.grad(f)))(jnp.ones(2)), np.cos(np.ones(2)))


def test_arrays_of_parts():
    whole = np.arange(6.0).reshape(2, 3)
    made = fnx.make_array_from_callback((2, 3), None, lambda index: whole[index])
    np.testing.assert_array_equal(made, whole)
    again = fnx.make_array_from_single_device_arrays((2, 3), made.sharding, [made])
    np.testing.assert_array_equal(again, whole)
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        fnx.make_array_from_single_device_arrays((3, 2), made.sharding, [made])
    np.testing.assert_array_equal(fnx.make_array_from_process_local_data(None, whole), whole)
