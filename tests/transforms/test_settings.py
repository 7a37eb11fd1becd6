"""Settings, devices, segments, and what else stands at the top of the package."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from trees import equal

import fnx
import fnx.numpy as jnp


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


OUTSIDE = {
    "first": (3, "index 3 is out of bounds for axis 0 of size 2; expected -2 to 1"),
    "negative": (np.index_exp[..., -6], "index -6 is out of bounds for axis 2 of size 5"),
    "with a new axis": (np.index_exp[None, :, np.int32(3)], "index 3 is .* axis 1 of size 3"),
    "with arrays": (np.index_exp[np.arange(3), 6, None], "index 6 is .* axis 1 of size 3"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_integers_out_of_bounds_are_refused_where_that_is_asked_for(name):
    index, message = OUTSIDE[name]
    x = jnp.ones((2, 3, 5))
    read = fnx.jit(lambda x: x[index])
    ways = [lambda x: x[index], read, lambda x: x.at[index].get()]
    ways.append(lambda x: x.at[index].get(mode="promise_in_bounds"))
    before = [f(x).shape for f in ways]
    fnx.config.update("jax_check_static_indices", True)
    try:
        for f in ways:
            with pytest.raises(IndexError, match=message):
                f(x)
        assert x[1, -3, 4] == 1.0
        assert x.at[index].get(mode="clip").shape == before[0]
    finally:
        fnx.config.update("jax_check_static_indices", False)
    assert [f(x).shape for f in ways] == before


def test_ranks_do_not_broadcast_once_arrays_lie_on_a_mesh_either():
    with fnx.core.config.num_devices(2):
        fnx.device_put(jnp.ones(2), fnx.NamedSharding(fnx.make_mesh((2,), ("x",)), fnx.P("x")))
    with fnx.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="ranks"):
        jnp.ones(3) + jnp.ones((2, 3))


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
    with pytest.raises(RuntimeError, match="tpu"):
        fnx.devices("tpu")
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


def test_pickles_have_the_dtypes_of_where_they_are_read():
    kept = pickle.dumps(jnp.arange(3.0))
    with fnx.enable_x64(False):
        assert pickle.loads(kept).dtype == "float32"
    assert pickle.loads(kept).dtype == "float64"
    for transform in (fnx.jit, fnx.grad):
        with pytest.raises(fnx.errors.ConcretizationTypeError, match="a pickle of a traced value"):
            transform(pickle.dumps)(1.0)


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


def test_tracing_and_running_can_be_forbidden():
    double = fnx.jit(lambda x: 2 * x)
    for x in (jnp.arange(3), jnp.arange(3)):
        double(x)
    with fnx.no_tracing():
        assert double(jnp.arange(3)).tolist() == [0, 2, 4]
        with pytest.raises(RuntimeError, match="no_tracing"):
            double(jnp.arange(4))
    compiled = double.lower(1.0).compile()
    with fnx.no_execution():
        for call in (lambda: double(jnp.arange(3)), lambda: compiled(1.0)):
            with pytest.raises(RuntimeError, match="no_execution"):
                call()
    fnx.config.update("jax_no_execution", True)
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no_execution"):
                double(jnp.arange(3))
    finally:
        fnx.config.update("jax_no_execution", False)
    assert double(jnp.arange(3)).tolist() == [0, 2, 4]


def test_copies_to_the_host_begin_where_leaves_have_a_way():
    begun = []

    class Leaf:
        def copy_to_host_async(self):
            begun.append(self)

    tree = [Leaf(), 1, jnp.ones(2), object()]
    assert fnx.copy_to_host_async(tree) is tree
    assert begun == tree[:1]
