"""Functions of fnx.lax: what operands they take, and what they give."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RUN = pytest.mark.parametrize("run", [lambda f: f, fnx.jit], ids=["eager", "jit"])


@RUN
def test_axes_of_size_one_are_repeated(run):
    a, b = np.arange(3.0).reshape(3, 1), np.arange(1.0, 5.0).reshape(1, 4)
    np.testing.assert_array_equal(run(lax.add)(a, b), a + b)
    np.testing.assert_array_equal(run(lax.lt)(a, b), a < b)
    np.testing.assert_allclose(run(lax.pow)(a, b), a**b)
    np.testing.assert_allclose(run(fnx.grad(lambda x: lax.mul(x, b).sum()))(a), np.full((3, 1), 10))
    assert run(lax.betainc)(np.ones((3, 1)), b, 0.5).shape == (3, 4)
    for wrong in (lambda: lax.add(a, np.ones(4)), lambda: lax.add(np.ones((3, 2)), b)):
        with pytest.raises(TypeError):
            run(wrong)()
    with pytest.raises(TypeError):
        run(lax.clamp)(a, np.ones((3, 4)), b)


def test_conv_transpose_by_the_padding_of_the_convolution():
    x, w = np.random.default_rng(0).normal(size=(2, 5, 3)), np.ones((4, 3, 2))
    found = lax.conv_transpose(x, w, (2,), [(1, 1)], use_consistent_padding=True)
    same = lax.conv_transpose(x, w, (2,), [(2, 2)])
    np.testing.assert_allclose(found, same)
    assert found.shape == (2, 10, 2)  # 2 (5 - 1) + 4 - 1 - 1


@RUN
def test_patches_times_a_kernel_are_the_convolution(run):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 6, 7, 3)), rng.normal(size=(2, 3, 3, 4))
    layout = ("NHWC", "HWIO", "NHWC")
    options = {"window_strides": (1, 2), "padding": "SAME", "dimension_numbers": layout}
    patches = run(lambda x: lax.conv_general_dilated_patches(x, (2, 3), **options))(x)
    plain = lax.conv_general_dilated(x, w, **options)
    np.testing.assert_allclose(patches @ w.transpose(2, 0, 1, 3).reshape(18, 4), plain)
    everywhere = np.broadcast_to(w.transpose(2, 0, 1, 3).reshape(1, 1, 18, 4), (6, 4, 18, 4))
    local = run(lambda x, w: lax.conv_general_dilated_local(x, w, filter_shape=(2, 3), **options))
    np.testing.assert_allclose(local(x, everywhere), plain)
    assert lax.conv_general_shape_tuple(x.shape, w.shape, (1, 2), "SAME", layout) == plain.shape
    enlarged = lax.conv_transpose(x, w, (1, 2), "VALID", dimension_numbers=layout)
    found = lax.conv_transpose_shape_tuple(x.shape, w.shape, (1, 2), "VALID", layout)
    assert found == enlarged.shape
    folded = lax.reduce_window(x[0, ..., 0], 0.0, lax.add, (2, 3), (1, 2), "SAME")
    assert lax.reduce_window_shape_tuple((6, 7), (2, 3), (1, 2), "SAME") == folded.shape


@RUN
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_mulhi_is_the_upper_half_of_products(run, dtype):
    info, rng = np.iinfo(dtype), np.random.default_rng(1)
    a, b = rng.integers(info.min, info.max, (2, 50), dtype, endpoint=True)
    a[:3], b[:3] = (info.min, info.max, info.min), (info.min, info.max, info.max)
    expected = [int(x) * int(y) >> info.bits for x, y in zip(a, b)]
    assert np.asarray(run(lax.mulhi)(a, b)).tolist() == expected


@RUN
def test_ragged_dot(run):
    rng = np.random.default_rng(2)
    x, w, sizes = rng.normal(size=(7, 4)), rng.normal(size=(3, 4, 5)), np.array([2, 0, 4])
    expected = np.concatenate([x[:2] @ w[0], x[2:6] @ w[2], np.zeros((1, 5))])
    np.testing.assert_allclose(run(lax.ragged_dot)(x, w, sizes), expected)
    fnx.test_util.check_grads(lambda x, w: lax.ragged_dot(x, w, sizes), (x, w), 1)


@RUN
def test_windows_of_several_arrays_are_folded_together(run):
    x = np.random.default_rng(3).normal(size=(5, 6))

    def first_largest(a, b):
        keep = a[0] >= b[0]
        return tuple(jnp.where(keep, p, q) for p, q in zip(a, b))

    numbers = np.arange(30).reshape(5, 6)
    f = lambda x: lax.reduce_window(
        (x, numbers), (-np.inf, -1), first_largest, (2, 3), (1, 3), "VALID"
    )
    values, where = run(f)(x)
    assert values.shape == (4, 2)
    np.testing.assert_array_equal(x.ravel()[where], values)
    np.testing.assert_array_equal(values[0], [x[:2, :3].max(), x[:2, 3:].max()])


@RUN
@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize(
    ("op", "fold"),
    [(lax.add, np.add), (lax.max, np.maximum), (lax.min, np.minimum), (lax.mul, np.multiply)],
)
def test_what_surrounds_the_operand_takes_no_part_in_windows(run, op, fold, dtype):
    """Windows begin with the first value, once, and go on with elements of the operand alone."""
    x = np.random.default_rng(4).integers(-3, 9, (4, 5)).astype(dtype)
    window, strides, pads, base, inner = (2, 3), (1, 2), ((1, 2), (2, 0)), (2, 1), (1, 2)
    f = lambda x, first: lax.reduce_window(x, first, op, window, strides, pads, base, inner)
    spread = {(2 * i + 1, j + 2): x[i, j] for i, j in np.ndindex(4, 5)}
    for first in (2, 0):
        found = np.asarray(run(f)(x, np.asarray(first, dtype)))
        assert found.shape == (9, 2)
        for i, j in np.ndindex(found.shape):
            seen = [spread.get((i + a, 2 * j + 2 * b)) for a in range(2) for b in range(3)]
            seen = [v for v in seen if v is not None]
            assert found[i, j] == fold.reduce(seen, initial=first)


@RUN
def test_windows_fold_by_users_operations_of_any_name(run):
    def add(a, b):
        return a + 2 * b

    out = run(lambda x: lax.reduce_window(x, 0, add, (2,)))(np.array([1, 2, 3]))
    np.testing.assert_array_equal(out, [6, 10])
    wide = lambda x: lax.reduce_window(x, 1, lax.mul, (1, 4), (2, 1), "VALID", (1, 1), (1, 2))
    assert run(wide)(np.ones((3, 4))).shape == (2, 0)


@RUN
@pytest.mark.parametrize("shape", [(1, 3), (0, 4), (2, 0)])
@pytest.mark.parametrize(("op", "first"), [(lax.max, -np.inf), (lax.min, np.inf), (lax.add, 0.0)])
def test_no_windows(run, op, first, shape):
    """Fewer elements than a window has: nothing is reduced, and the gradient is zero."""
    f = lambda x: lax.reduce_window(x, first, op, (2, 2), (1, 1), "VALID")
    x = np.ones(shape)
    assert run(f)(x).shape == tuple(max(n - 1, 0) for n in shape)
    np.testing.assert_array_equal(run(fnx.grad(lambda x: f(x).sum()))(x), np.zeros(shape))


@RUN
def test_small_functions_of_lax(run):
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(run(lambda x: lax.stack([x, x], axis=1))(x), np.stack([x, x], 1))
    parts = run(lambda x: lax.unstack(x, axis=1))(x)
    np.testing.assert_array_equal(parts, x.T)
    assert int(run(lambda a: lax.mul(a, a, out_dtype=np.int32))(np.int8(100))) == 10000
    for given, dtype in (
        (("int16", "float32"), "float32"),
        (("int64", "float16"), "float16"),
        (("float16", "bfloat16"), "bfloat16"),
        (("complex64", "float64"), "complex64"),
        (("int32", "uint32"), "int32"),
    ):  # of the two, that which XLA takes for the finer
        x, y = (np.ones(shape, d) for shape, d in zip([(2, 3), (3,)], map(jnp.dtype, given)))
        assert run(lax.dot)(x, y).dtype == jnp.dtype(dtype)
    assert not lax.full((2,), 1.0, float).weak_type
    dims = lax.ScatterDimensionNumbers((), (0,), (0,))
    found = run(
        lambda x: lax.scatter_apply(x, np.array([[1], [1]]), jnp.exp, dims, update_shape=(2,))
    )(np.zeros(3))
    np.testing.assert_array_equal(found, [0.0, 1.0, 0.0])
    assert float(lax.platform_dependent(3.0, cpu=lambda x: 2 * x, default=lambda x: x)) == 6.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: lax.squeeze(np.ones((1, 3)), (0, 0)),
        lambda: lax.expand_dims(np.ones(3), (0, 0)),
        lambda: lax.broadcast_in_dim(np.ones((2, 2)), (2,), (0, 1)),
        lambda: lax.broadcast_in_dim(np.ones((2, 2)), (2, 2), (0, 0)),
        lambda: lax.argmin(np.ones((2, 2)), 0, np.float32),
        lambda: lax.dynamic_slice(np.ones((2, 2)), (0.0, 0), (1, 1)),
        lambda: lax.reduce({"x": np.ones(5)}, {"y": 0.0}, lambda a, b: a, [0]),
        lambda: lax.reduce(np.ones(5), np.ones(5), lambda a, b: a, [0]),
        lambda: lax.reduce_window(np.ones(2), 0.0, lax.add, (0,), (1,)),
        lambda: lax.reduce_window(np.ones(2), 0.0, lax.add, (1,), (0,)),
    ],
)
def test_arguments_of_lax_that_mean_nothing_are_refused(wrong):
    with pytest.raises((TypeError, ValueError)):
        wrong()


@RUN
def test_vmap_hands_on_what_is_not_mapped_whatever_it_is(run):
    apply = fnx.vmap(lambda f, x, how: f(x) if how == "once" else f(f(x)), in_axes=(None, 0, None))
    double = lambda x: 2.0 * x
    np.testing.assert_array_equal(run(lambda x: apply(double, x, "once"))(jnp.ones(2)), [2.0, 2.0])
    np.testing.assert_array_equal(run(lambda x: apply(double, x, "twice"))(jnp.ones(2)), [4.0, 4.0])
    with pytest.raises(TypeError, match="arrays"):
        fnx.vmap(lambda f, x: x)(double, jnp.ones(2))
    with pytest.raises(TypeError, match="in_axes"):
        fnx.vmap(lambda x: x["a"], in_axes={"a": 0})


def test_static_arguments_by_number_and_by_name_are_those_alone():
    seen = []

    def f(x, y):
        seen.append((isinstance(x, int), isinstance(y, int)))
        return 1.0

    fnx.jit(f, static_argnums=(0,), static_argnames=("y",))(1, y=2)
    fnx.jit(f, static_argnums=(0,), static_argnames=())(x=1, y=2)
    fnx.jit(f, static_argnums=(0,))(x=1, y=2)
    assert seen == [(True, True), (False, False), (True, False)]
    for kind in ("static", "donate"):
        with pytest.raises(ValueError, match="by position alone"):
            fnx.jit(lambda a, /, b: a, **{f"{kind}_argnames": "a"})


def test_traced_values_are_copied_as_themselves():
    import copy

    assert float(fnx.jit(lambda x: copy.deepcopy([x])[0] + copy.copy(x))(1.0)) == 2.0


def test_enumerations_of_numbers_are_numbers():
    import enum

    kind = enum.IntEnum("kind", {"two": 2})
    assert int(fnx.jit(lambda x, k: x + k)(1, kind.two)) == 3


def test_compiled_functions_cannot_be_transformed():
    compiled = fnx.jit(lambda x: 2.0 * x).lower(1.0).compile()
    assert float(compiled(3.0)) == 6.0
    for transformed in (lambda: fnx.grad(compiled)(1.0), lambda: fnx.jit(compiled)(1.0)):
        with pytest.raises(TypeError, match="inside a transformation"):
            transformed()


def test_each_device_of_a_pmap_calls_back_for_itself():
    calls = []

    def host(x):
        calls.append(np.shape(x))
        return np.sin(x)

    f = fnx.pmap(lambda x: fnx.pure_callback(host, fnx.ShapeDtypeStruct((), float), x))
    np.testing.assert_allclose(f(jnp.ones(1)), np.sin([1.0]))
    assert calls == [()]
    with pytest.raises(TypeError, match="float64"):
        fnx.linear_transpose(lambda x: 2.0 * x, 1.0)(jnp.arange(1)[0])


def test_shard_map_hands_on_what_is_not_cut_whatever_it_is():
    mesh, spec = fnx.make_mesh((1,), ("i",)), fnx.P("i")
    f = lambda apply, x: apply(x)
    mapped = fnx.shard_map(f, mesh=mesh, in_specs=(None, spec), out_specs=spec)
    np.testing.assert_array_equal(mapped(lambda x: 2.0 * x, jnp.ones(2)), [2.0, 2.0])
    struct = fnx.ShapeDtypeStruct((2,), "float32").update(shape=(3,))
    assert struct == fnx.ShapeDtypeStruct.like(jnp.ones(3, "float32"))


@RUN
def test_what_branches_pass_on_stays_the_same_for_all_lanes(run):
    def f(x, y):
        branch = lambda k: lambda x, y: (x * k, y)
        return lax.cond(x < 2, branch(2), branch(3), x, y)

    mapped = fnx.vmap(f, in_axes=(0, None), out_axes=(0, None))
    x, y = run(mapped)(jnp.arange(4), 3.0)
    np.testing.assert_array_equal(x, [0, 2, 6, 9])
    assert float(y) == 3.0


def test_broadcast_in_dim_may_permute():
    x = np.arange(6.0).reshape(3, 2)
    out = lax.broadcast_in_dim(x, (2, 3, 4), (1, 0))
    np.testing.assert_array_equal(out, np.broadcast_to(x.T[:, :, None], (2, 3, 4)))
    slope = fnx.grad(lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 0))[1].sum())(x)
    np.testing.assert_array_equal(slope, [[0, 4], [0, 4], [0, 4]])
    with pytest.raises(ValueError, match="broadcast_dimensions"):
        lax.broadcast_in_dim(jnp.ones((3, 3)), (3, 3), (0, 0))


def test_windows_of_dilated_operands():
    # "SAME" counts the operand as it was: ceil(4 / 2) windows fit into it, three into the dilated one.
    out = lax.reduce_window(jnp.ones((4, 6)), 0.0, lax.add, (3, 2), (2, 2), "SAME", (2, 1), (1, 2))
    np.testing.assert_array_equal(out, [[4, 4, 2]] * 3)
    x, w = jnp.ones((1, 1, 5, 4)), jnp.ones((1, 1, 3, 2))
    with pytest.raises(ValueError, match="lhs_dilation"):
        lax.conv_general_dilated(x, w, (1, 1), "SAME", lhs_dilation=(2, 1))


def test_a_transform_over_no_axes_is_none():
    x = jnp.ones((2, 3), "complex64")
    assert lax.fft(x, "fft", ()) is x


@pytest.mark.parametrize(
    "dims", [((1,), (0,), (7,)), ((1,), (0, 0), (0,)), ((7,), (0,), (0,)), ((1,), (5,), (0,))]
)
def test_axes_of_gathers_and_scatters_must_exist(dims):
    x, i = jnp.ones((3, 3)), jnp.zeros((2, 1), int)
    with pytest.raises(TypeError):
        lax.gather(x, i, lax.GatherDimensionNumbers(*dims), (1, 3))
    with pytest.raises(TypeError):
        lax.scatter(x, i, jnp.ones((2, 3)), lax.ScatterDimensionNumbers(*dims))


@pytest.mark.parametrize("index", [0, 1, None])
def test_results_of_branches_are_weak_where_those_of_the_first_one_are(index):
    weak, strong = jnp.where(jnp.ones(()) > 0.0, 1, -1), jnp.ones((), int)

    def chosen(*branches):
        run = lambda k: lax.switch(k, [lambda b=b: b for b in branches])
        out = fnx.jit(run)(1) if index is None else run(jnp.asarray(index))
        return out.weak_type

    assert chosen(weak, strong, weak)
    assert chosen(weak, weak)
    assert not chosen(strong, weak)
    assert not chosen(strong, strong)
    assert lax.cond(weak > 0, lambda: strong, lambda: weak).weak_type  # the False one comes first
    assert not lax.cond(weak > 0, lambda: weak, lambda: strong).weak_type


@RUN
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("name", "fold"),
    [
        ("cummax", np.maximum.accumulate),
        ("cummin", np.minimum.accumulate),
        ("cumlogsumexp", lambda z: np.log(np.cumsum(np.exp(z), 0))),
    ],
)
def test_cumulative_functions_of_complex_numbers(run, name, fold, reverse):
    z = np.array([0.3 + 1j, -0.5 + 0.2j, 0.3 - 1j, 0.9 + 0.4j, 0.9 + 0.7j, -0.1 + 0j, 0.2 + 0.1j])
    turn = slice(None, None, -1 if reverse else 1)
    expected = fold(z[turn])[turn]
    cumulative = lambda z: getattr(lax, name)(z, reverse=reverse)
    np.testing.assert_allclose(run(cumulative)(z), expected, rtol=1e-12)
    columns = run(fnx.vmap(cumulative, 1, 1))(np.stack([z, z], 1))
    np.testing.assert_allclose(columns, np.stack([expected, expected], 1), rtol=1e-12)
    # each result is a holomorphic function of the elements, and of all of them together nothing new
    total = fnx.jvp(run(cumulative), (z,), (np.ones_like(z),))[1]
    np.testing.assert_allclose(total, np.ones_like(z), rtol=1e-12)


def test_cumlogsumexp_of_infinities_has_slopes():
    """Each result has the derivatives of logsumexp of the elements up to it, also beside log(0)."""
    total = fnx.grad(lambda x: lax.cumlogsumexp(x).sum())
    inf = np.inf
    for x, expected in (([-inf, 1.0], [1, 1]), ([1.0, -inf], [2, 0]), ([inf, 1.0], [2, 0])):
        assert total(np.array(x)).tolist() == expected


def test_operands_of_two_dtypes_are_refused():
    x, at = jnp.ones(3), jnp.array([[0]])
    one = lax.ScatterDimensionNumbers((), (0,), (0,))
    for value in (0, jnp.float32(0), 1j, True):
        with pytest.raises(TypeError, match="pad"):
            lax.pad(x, value, [(1, 0, 0)])
    with pytest.raises(TypeError, match="pad"):
        lax.pad(x.astype(complex), 0.0, [(1, 0, 0)])
    np.testing.assert_array_equal(lax.pad(x, 0.0, [(1, 0, 0)]), [0.0, 1.0, 1.0, 1.0])
    for scatter in (lax.scatter, lax.scatter_add, lax.scatter_mul, lax.scatter_min):
        with pytest.raises(TypeError, match="updates of dtype float32"):
            scatter(x, at, jnp.ones(1, jnp.float32), one)
    with pytest.raises(TypeError, match="init_values of dtypes"):
        lax.reduce(x, jnp.int32(0), lax.add, (0,))
    with pytest.raises(TypeError, match="init_values of dtypes"):
        lax.reduce_window(x, jnp.float32(0), lax.add, (2,))


def test_enumerations_print_as_in_jax():
    # Names of parametrised tests, of checkpoints and of metrics are made of them.
    said = [f"{x} {x!r}" for x in (lax.Precision.HIGH, lax.DotAlgorithmPreset.DEFAULT)]
    assert said == ["HIGH Precision.HIGH", "DEFAULT DotAlgorithmPreset.DEFAULT"]
    assert str(lax.RandomAlgorithm.RNG_DEFAULT) == "RNG_DEFAULT"
    assert repr(fnx.sharding.AxisType.Auto) == "Auto"


@RUN
def test_operands_that_are_sorted_together_keep_their_weak_types(run):
    strong, weak = jnp.array([2, 1]), jnp.array([True, False]) * 2.0
    for num_keys in (1, 2):
        both = run(lambda x, y, n=num_keys: lax.sort((x, y), num_keys=n))
        assert [fnx.typeof(x).weak_type for x in both(strong, weak)] == [False, True]
        assert [fnx.typeof(x).weak_type for x in both(weak, strong)] == [True, False]


@RUN
def test_conjugates_of_reals_have_no_imaginary_part(run):
    found = np.asarray(run(lax.conj)(jnp.array([np.inf, np.nan, 1.0])))
    assert found.dtype == complex
    assert not found.imag.any()


@RUN
def test_rectified_complex_numbers_are_ordered_by_their_real_parts(run):
    z = jnp.array([1 + 1j, -2 + 9j, 8 - 1j])
    assert run(fnx.nn.relu)(z).tolist() == [1 + 1j, 0, 8 - 1j]
    assert run(fnx.nn.relu6)(z).tolist() == [1 + 1j, 0, 6]
