"""What fnx.lax and fnx.numpy refuse, and the dtypes they answer with, traced or not."""

import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy import special

A, V = np.ones((3, 3)), np.ones(3)

# NumPy would broadcast, promote, cut off or truncate in these calls: the result would be wrong.
UNFIT = {
    "add of other ranks": (lambda x: lax.add(x, V), A, ValueError),
    "max of other dtypes": (lambda x: lax.max(x, V.astype("float32")), V, TypeError),
    "exp of integers": (lax.exp, np.arange(3), TypeError),
    "a number that the dtype cannot hold": (lambda x: lax.add(x, 2.5), np.arange(3), TypeError),
    "a complex number beside reals": (lambda x: lax.mul(x, 1j), V, TypeError),
    "select of other shapes": (lambda x: lax.select(A > 0, x, V), A, ValueError),
    "clamp between other shapes": (lambda x: lax.clamp(V, x, V), A, ValueError),
    "slice beyond the end": (lambda x: lax.slice(x, (0,), (5,)), V, ValueError),
    "dynamic_slice too large": (lambda x: lax.dynamic_slice(x, (0, 0), (4, 2)), A, ValueError),
    "update of lower rank": (lambda x: lax.dynamic_update_slice(x, V, (0, 0)), A, ValueError),
    "concatenate of other dtypes": (
        lambda x: lax.concatenate([x, V.astype("float32")], 0),
        V,
        TypeError,
    ),
    "split that leaves a rest": (lambda x: lax.split(x, (1, 1)), V, ValueError),
    "top_k of too few": (lambda x: lax.top_k(x, 5), V, ValueError),
    "comparison with a list": (lambda x: x == [1.0, 1.0, 1.0], V, TypeError),
    "expand_dims without axes": (lambda x: jnp.expand_dims(x, None), V, TypeError),
    "median of complex numbers": (lambda x: jnp.median(x * 1j), V, ValueError),
    "variance in integers": (lambda x: jnp.var(x, dtype=int), V, ValueError),
    "hypot of complex numbers": (lambda x: jnp.hypot(x * 1j, x), V, ValueError),
    "argmax of complex numbers": (lambda x: jnp.argmax(x * 1j), V, TypeError),
    "lax.argmin of complex numbers": (lambda x: lax.argmin(x * 1j, 0, int), V, TypeError),
    "copysign of complex numbers": (lambda x: jnp.copysign(1.0, x * 1j), V, TypeError),
    "signbit of complex numbers": (lambda x: jnp.signbit(x * 1j), V, ValueError),
    "heaviside of complex numbers": (lambda x: jnp.heaviside(x * 1j, x), V, TypeError),
    "round of integers": (lax.round, np.arange(3), TypeError),
    "conj of integers": (lax.conj, np.arange(3), TypeError),
    "sums of truth values": (lax.cumsum, V > 0, TypeError),
    "expi of complex numbers": (lambda x: special.expi(x * 1j), V, ValueError),
    "exp1 of complex numbers": (lambda x: special.exp1(x * 1j), V, ValueError),
    "sici of complex numbers": (lambda x: special.sici(x * 1j), V, ValueError),
    "spence of complex numbers": (lambda x: special.spence(x * 1j), V, TypeError),
    "entr of complex numbers": (lambda x: special.entr(x * 1j), V, ValueError),
    "rel_entr of complex numbers": (lambda x: special.rel_entr(x * 1j, x), V, ValueError),
    "one operand of two": (jnp.logical_or, V, TypeError),
    "reshape without a shape": (lambda x: jnp.asarray(x).reshape(), V, TypeError),
    "take that would raise": (lambda x: jnp.take(x, 0, mode="raise"), V, NotImplementedError),
    "an unknown padding": (lambda x: jnp.pad(x, 1, "zigzag"), V, NotImplementedError),
    "nonzero of a number": (lambda x: jnp.nonzero(x, size=1), np.float64(1.0), ValueError),
}


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_unfit_operands_are_refused(name, compiled):
    function, x, error = UNFIT[name]
    with pytest.raises(error):
        (fnx.jit(function) if compiled else function)(jnp.asarray(x))


@pytest.mark.parametrize(
    "use",
    [
        lambda n: fnx.random.permutation(fnx.random.key(0), n),
        lambda n: fnx.nn.one_hot(np.arange(3), n),
        lambda n: jnp.sum(A, n),
        lambda n: jnp.linspace(0, 1, n),
    ],
)
def test_parameters_that_must_be_known_are_concretization_errors(use):
    with pytest.raises(fnx.errors.ConcretizationTypeError):
        fnx.jit(use)(1)


def test_powers_of_uint64_by_int64_are_floats():
    found = jnp.power(jnp.array([3, 2], "uint64"), jnp.array([2, 3], "int64"))
    expected = np.power(np.array([3, 2], "uint64"), np.array([2, 3], "int64"))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype == np.float64


def test_round_without_digits_gives_an_integer():
    assert round(jnp.float32(2.6)).dtype == np.int64
    assert round(jnp.float32(2.6)) == 3
    assert round(jnp.array(2.67), 1).dtype == np.float64


@pytest.mark.parametrize("mode", ["maximum", "minimum"])
def test_padding_of_bools_by_extrema(mode):
    x = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(jnp.pad(jnp.asarray(x), 1, mode), np.pad(x, 1, mode))


def test_shapes_of_lists():
    assert jnp.shape([[1, 2], [3, 4]]) == (2, 2)
    assert jnp.ndim([1, 2]) == 1
    assert jnp.size([[1, 2, 3]]) == 3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_python_numbers_do_not_make_strong_results_weak(compiled):
    def density(x):
        return fnx.scipy.stats.uniform.logpdf(x, 0.0, 2.0)

    found = (fnx.jit(density) if compiled else density)(jnp.array([0.5, 3.0], "float32"))
    assert found.dtype == np.float32
    assert not found.weak_type
    np.testing.assert_allclose(found, [-np.log(2.0), -np.inf], rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (4, 4)])
def test_middles_of_correlations_are_scipys(shape):
    import scipy.signal

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 4)), rng.normal(size=shape)
    for mode in ("full", "same", "valid"):
        expected = scipy.signal.correlate2d(x, y, mode)
        found = fnx.scipy.signal.correlate2d(x, y, mode)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "area"])
def test_resized_images(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 5))
    same = fnx.image.resize(x, (6, 5), method)
    np.testing.assert_array_equal(same, x)
    flat = fnx.image.resize(np.full((6, 5), 2.0), (9, 3), method)
    np.testing.assert_allclose(flat, np.full((9, 3), 2.0), rtol=1e-12)
    mirrored = fnx.image.resize(x[:, ::-1], (9, 11), method)
    np.testing.assert_allclose(
        mirrored, fnx.image.resize(x, (9, 11), method)[:, ::-1], rtol=1e-10, atol=1e-12
    )


def test_linear_resizing_by_hand():
    found = fnx.jit(lambda x: fnx.image.resize(x, (4,), "linear"))(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(found, [0.0, 0.25, 0.75, 1.0], atol=1e-15)
    halved = fnx.image.resize(jnp.array([0.0, 1.0, 2.0, 3.0]), (2,), "linear", antialias=False)
    np.testing.assert_allclose(halved, [0.5, 2.5], atol=1e-15)


def test_resizing_by_areas_and_as_pytorch():
    halved = fnx.image.resize(jnp.arange(6.0), (3,), "area")
    np.testing.assert_allclose(halved, [0.5, 2.5, 4.5], atol=1e-15)
    np.testing.assert_allclose(fnx.image.resize(jnp.arange(3.0), (2,), "area"), [1 / 3, 5 / 3])
    # Of a ramp 0..4, five pixels made ten, as torch.nn.functional.interpolate(bicubic) has it.
    found = fnx.image.resize(jnp.arange(5.0), (10,), "bicubic-pytorch", antialias=False)
    expected = [-0.1055, 0.1914, 0.6680, 1.2969, 1.7031, 2.2969, 2.7031, 3.3320, 3.8086, 4.1055]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    with pytest.raises(TypeError, match="integers"):
        fnx.image.resize(jnp.ones((3, 4)), [10.5, 3], "linear")


def test_translated_images():
    x = np.arange(5.0)
    found = fnx.image.scale_and_translate(
        x, (5,), (0,), jnp.array([1.0]), jnp.array([1.0]), "linear"
    )
    np.testing.assert_allclose(found, [0.0, 0.0, 1.0, 2.0, 3.0], atol=1e-12)
    grad = fnx.grad(
        lambda t: fnx.image.scale_and_translate(x**2, (5,), (0,), jnp.array([1.0]), t, "linear")[2]
    )(jnp.array([0.5]))
    np.testing.assert_allclose(grad, [-3.0], atol=1e-10)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integers_choose_between_two_cases_by_being_zero(dtype):
    which = jnp.arange(3, dtype=dtype)
    np.testing.assert_array_equal(lax.select(which, V, 0 * V), [0, 1, 1])
    np.testing.assert_array_equal(lax.select_n(which, 0 * V, V, 2 * V), [0, 1, 2])


X8, X32 = np.ones((2, 2), "int8"), np.ones((2, 2), "float32")
SUMS = {
    "dot": lambda x: lax.dot(x, x, preferred_element_type="float64"),
    "conv": lambda x: lax.conv_general_dilated(
        x[None], x[None], (1,), [(0, 0)], preferred_element_type="float64"
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_products_have_the_dtype_that_is_asked_for_where_promotion_is_strict(name):
    f = lambda x: SUMS[name](x).sum()
    expected = fnx.value_and_grad(f)(jnp.asarray(X32))
    with fnx.numpy_dtype_promotion("strict"):
        for wrap in (lambda g: g, fnx.jit):
            value, slope = wrap(fnx.value_and_grad(f))(jnp.asarray(X32))
            assert value == expected[0]
            assert value.dtype == np.float64
            np.testing.assert_array_equal(slope, expected[1])
            assert slope.dtype == np.float32
        assert lax.dot(X8, X32).dtype == np.float32  # of two dtypes, as in JAX
        with pytest.raises(TypeError):
            jnp.dot(X8, X32)


def test_vectorized_functions_check_the_ranks_of_their_arguments():
    add = jnp.vectorize(jnp.add, signature="(),()->()")
    with fnx.numpy_rank_promotion("raise"):
        with pytest.raises(ValueError, match="ranks"):
            add(A, V)
        np.testing.assert_array_equal(add(A, 1.0), A + 1.0)
    with fnx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="ranks"):
        add(A, V)


def test_powers_of_arrays_are_strict():
    x, i = jnp.ones(3, "float32"), jnp.arange(3, dtype="int32")
    with fnx.numpy_dtype_promotion("strict"):
        for y in (i, np.asarray(i)):
            with pytest.raises(fnx.errors.TypePromotionError):
                x**y
            with pytest.raises(fnx.errors.TypePromotionError):
                fnx.jit(jnp.power)(x, y)
        assert (x**2).dtype == (x ** jnp.int32(2)).dtype == x.dtype
    assert (x**i).dtype == x.dtype


def test_updates_are_strict():
    with fnx.numpy_dtype_promotion("strict"):
        assert jnp.zeros(2, int).at[0].set(True).tolist() == [1, 0]
        assert jnp.zeros(2, "float32").at[0].set(2).tolist() == [2, 0]
        for x, value in [
            (jnp.zeros(2, int), 0.5),
            (jnp.zeros(2), True),
            (jnp.zeros(2), jnp.float32(1)),
        ]:
            with pytest.raises(fnx.errors.TypePromotionError):
                x.at[0].add(value)


def test_outer_tables_of_strict_ranks():
    product = jnp.frompyfunc(lambda x, y: x * y, 2, 1)
    with fnx.numpy_rank_promotion("raise"):
        for f in (product, jnp.multiply):
            np.testing.assert_array_equal(f.outer(V, A[0, :2]), np.ones((3, 2)))


def test_numbers_are_instances_of_scalar_types():
    assert isinstance(np.float32(1), jnp.float32)
    assert not isinstance(np.float64(1), jnp.float32)
    assert not isinstance(1.0, (jnp.float64, jnp.int32))


def test_places_to_put_arrays():
    device = fnx.devices()[0]
    for bad in ("cpu", 0, (device, device), {"a": None}):
        with pytest.raises(ValueError):
            fnx.device_put((1.0, 2.0, 3.0), bad)
    for good in (None, device, (device, None, fnx.sharding.SingleDeviceSharding(device))):
        assert fnx.device_put((1.0, 2.0, 3.0), good) == (1.0, 2.0, 3.0)
    assert pickle.loads(pickle.dumps(device)) == device
    sharding = fnx.sharding.SingleDeviceSharding(device)
    assert pickle.loads(pickle.dumps(sharding)) == sharding


NARROW = {
    "nonzero": jnp.nonzero,
    "nonzero, static": lambda x: jnp.nonzero(x, size=2),
    "argwhere": lambda x: jnp.argwhere(x, size=2),
    "flatnonzero": lambda x: jnp.flatnonzero(x, size=2),
    "compress": lambda x: jnp.compress(jnp.array([True, False, True]), x, axis=0, size=1),
    "count_nonzero": lambda x: (jnp.count_nonzero(x), jnp.count_nonzero(x, axis=0)),
    "bincount": lambda x: (jnp.bincount(jnp.arange(3)), jnp.bincount(np.arange(3), length=2)),
    "lexsort": lambda x: jnp.lexsort((x[0], x[1])),
    "unique": lambda x: jnp.unique(x, True, True, True, size=2),
    "histogram2d": lambda x: jnp.histogram2d(x[0], x[1]),
    "like": lambda x: [
        f(y) for f in (jnp.zeros_like, jnp.ones_like, jnp.empty_like) for y in (A, np.arange(3))
    ],
    "full_like": lambda x: jnp.full_like(A, 2.0),
    "argsort": lambda x: (jnp.argsort(x), jnp.argmax(x), jnp.searchsorted(x[0], x[1])),
    "choice": lambda x: fnx.random.choice(fnx.random.key(0), 5, (3,)),
    "ldexp": lambda x: (jnp.ldexp(x, 2), jnp.frexp(x)),
}


@pytest.mark.parametrize("name", NARROW)
def test_results_have_32_bits_where_those_are_the_default(name):
    with fnx.enable_x64(False):
        for promotion in ("standard", "strict"):
            with fnx.numpy_dtype_promotion(promotion):
                found = fnx.tree.leaves(NARROW[name](jnp.asarray(A)))
            assert {y.dtype.itemsize for y in found} == {4}
        assert jnp.result_type(A) == jnp.result_type(A, jnp.ones(1)) == np.float32
        assert jnp.zeros_like(fnx.ShapeDtypeStruct((), "float64")).dtype == np.float64


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_ldexp_is_that_of_numpy_to_the_last_bit(dtype, wrap):
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    x = rng.normal(size=300) * 2.0 ** rng.uniform(info.minexp, info.maxexp - 3, 300)
    x = np.r_[x, 0.0, -0.0, np.inf, -np.inf, np.nan, info.smallest_subnormal, info.max].astype(
        dtype
    )
    n = rng.integers(-2 * info.maxexp, 2 * info.maxexp, x.size).astype("int32")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wrap(jnp.ldexp)(x, n), np.ldexp(x, n))
    assert wrap(fnx.grad(jnp.ldexp))(0.0, 3) == 8.0


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_views_of_truth_values(wrap):
    truths = np.array([[True, False, True, True], [False, False, True, False]])
    for dtype in ("bool", "int8", "uint8", "uint16", "float32"):
        found = wrap(lambda x, dtype=dtype: x.view(dtype))(truths)
        np.testing.assert_array_equal(found, truths.view(dtype))
        assert found.dtype == dtype
    bytes_ = truths.view("uint16")
    np.testing.assert_array_equal(wrap(lambda x: x.view(bool))(bytes_), truths)


def test_products_of_two_dtypes_in_a_third():
    x, y = np.float32(2.0), V
    product = lambda x, y: lax.mul(x, y, out_dtype="float64")
    assert product(x, y).dtype == np.float64
    slopes = fnx.grad(lambda x, y: product(x, y).sum(), (0, 1))(jnp.asarray(x), jnp.asarray(y))
    assert [s.dtype.name for s in slopes] == ["float32", "float64"]
    with pytest.raises(TypeError):
        lax.mul(np.ones(3, "float32"), y)


@pytest.mark.parametrize("collective", [lax.psum, lax.pmean, lax.pmax])
def test_groups_of_different_sizes_under_strict_promotion(collective):
    f = lambda x: collective(x, "i", axis_index_groups=[[0, 1], [2, 3, 4]])
    x = jnp.arange(5, dtype="float32")
    with fnx.numpy_dtype_promotion("strict"):
        out = fnx.vmap(f, axis_name="i")(x)
    assert out.dtype == np.float32
    of = {lax.psum: np.sum, lax.pmean: np.mean, lax.pmax: np.max}[collective]
    np.testing.assert_allclose(out, [of([0, 1])] * 2 + [of([2, 3, 4])] * 3)
