"""What becomes an array: numbers that do not fit, lists, bytes, arrays of others; the array API."""

import enum
import inspect
from functools import partial

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp

same = partial(close, atol=1e-14)

# --- numbers that do not fit -------------------------------------------------------------------


def test_python_integers_that_do_not_fit_raise():
    big = 2**63
    for fn in (
        lambda: jnp.arange(3) + big,
        lambda: jnp.arange(3).at[0].set(big),
        lambda: jnp.array(big),
        lambda: jnp.array([0, -big - 1]),
        lambda: jnp.array([300], "uint8"),
        lambda: fnx.jit(lambda x: x)(big),
    ):
        with pytest.raises(OverflowError):
            fn()


def test_python_integers_that_need_uint64():
    big = 2**63
    assert (jnp.array([1], "uint64") + big).tolist() == [big + 1]
    assert jnp.full(2, big, "uint64").tolist() == [big, big]
    assert jnp.array([big]).dtype == "uint64"
    assert (jnp.arange(3, dtype="uint64") < big).all()


def test_integer_powers_of_many_bits():
    x = np.array([0, 1, -1, 2, 4])
    for y in (63, 64, 127, 128, 2**40):
        found = fnx.jit(jnp.power)(x, np.full(5, y))
        wanted = [pow(b, y, 2**64) for b in (2, 4)]
        wanted = [w - 2**64 if w >= 2**63 else w for w in wanted]
        assert found.tolist() == [0, 1, (-1) ** y, *wanted]


# --- lists, None, bytes ------------------------------------------------------------------------


def test_what_cannot_become_an_array():
    for bad in (None, [None, 1], [[1], [2, 3]]):
        with pytest.raises(ValueError, match=r"None|ragged"):
            jnp.array(bad)
    from array import array

    assert jnp.asarray(array("d", [1.0, 2.0])).tolist() == [1.0, 2.0]


def test_byteswap():
    for x in (np.arange(3), np.array([[1.5 + 2j]]), np.array([7], "uint8")):
        found = np.asarray(fnx.jit(lambda x: x.byteswap())(x))
        assert found.tobytes() == x.byteswap().tobytes()


def test_saved_bfloat16(tmp_path):
    x = jnp.array([1.0, 2.5], jnp.bfloat16)
    jnp.save(tmp_path / "x.npy", x)
    assert jnp.load(tmp_path / "x.npy").dtype == jnp.bfloat16
    assert x.is_ready()


def test_like_keeps_weak_types():
    weak = jnp.asarray(1.0)
    assert jnp.zeros_like(weak).weak_type
    assert jnp.full_like(weak, 2).weak_type
    assert not jnp.zeros_like(weak, dtype=float).weak_type


# --- the array API, and arrays of others -------------------------------------------------------


def test_what_libraries_may_ask_of_the_namespace():
    info = jnp.ones(2).__array_namespace__().__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == np.float64
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {
        "bool",
        "complex64",
        "complex128",
    }
    assert len(info.dtypes()) == 13  # none of the small ones
    assert info.default_device() is None
    assert jnp.ones(2).device in info.devices()
    assert info.capabilities()["max dimensions"] == 64
    assert info.dtypes(device=jnp.ones(2).device) == info.dtypes()
    for ask in (info.dtypes, info.default_dtypes):
        with pytest.raises(ValueError, match="there is no device 'gpu'"):
            ask(device="gpu")


def test_versions_of_the_array_api():
    x = jnp.ones(2)
    for version in (None, "2022.12", jnp.__array_api_version__):
        assert x.__array_namespace__(api_version=version) is jnp
    with pytest.raises(ValueError, match=r"'1999.1' of the array API standard.*2024.12"):
        x.__array_namespace__(api_version="1999.1")


def test_exchange_of_memory_as_the_array_api_has_it():
    x = jnp.arange(3.0)
    kind, number = x.__dlpack_device__()
    assert isinstance(kind, enum.Enum)
    assert (kind, number) == (1, 0)
    named = inspect.signature(x.__dlpack__).parameters
    assert list(named) == ["stream", "max_version", "dl_device", "copy"]
    assert np.shares_memory(np.from_dlpack(x), np.asarray(x))
    assert not np.shares_memory(np.from_dlpack(x, copy=True), np.asarray(x))


def test_functions_take_what_is_like_an_array():
    class Wrapped:
        def __init__(self, x):
            self.x = jnp.asarray(x)

        def __jax_array__(self):
            return self.x

    m, k = Wrapped(np.eye(3)), Wrapped(1)
    assert jnp.diag_indices_from(m)[0].tolist() == [0, 1, 2]
    assert jnp.tril_indices_from(m)[0].shape == jnp.triu_indices_from(m)[0].shape == (6,)
    same(jnp.roll(m, k, 0), np.roll(np.eye(3), 1, 0))
    same(jnp.insert(m, k, 5.0, axis=0), np.insert(np.eye(3), 1, 5.0, axis=0))
    same(jnp.delete(m, k, axis=0), np.delete(np.eye(3), 1, axis=0))
    assert jnp.iscomplexobj(Wrapped(1j))
    assert not jnp.iscomplexobj(m)
    assert jnp.isscalar(k)


def test_operators_ask_the_other_operand_where_it_is_no_array_after_all():
    class Operator:
        def __getattr__(self, name):  # as jaxquantum's
            return lambda *args: NotImplemented

        def __rmul__(self, other):
            return "operator", float(other)

        def __rmatmul__(self, other):
            return "operator", other.shape

    assert jnp.sqrt(4.0) * Operator() == ("operator", 2.0)
    assert jnp.ones(2) @ Operator() == ("operator", (2,))
    assert jnp.sqrt(4.0) != Operator()
    with pytest.raises(TypeError, match="unsupported operand"):
        jnp.sqrt(4.0) + Operator()


def test_axes_of_a_transpose_may_be_an_array():
    x = np.arange(24.0).reshape(2, 3, 4)
    for axes in (np.array([2, 0, 1]), [2, 0, 1], (2, 0, 1)):
        same(jnp.asarray(x).transpose(axes), x.transpose(2, 0, 1))
    same(jnp.asarray(x).transpose(None), x.T)
    same(jnp.ones(2).transpose(np.int64(0)), np.ones(2))


def test_common_divisors_are_loops():
    a, b = np.array([[12], [-8], [0]]), np.array([18, 0, 5], "int32")
    for fn, np_fn in ((jnp.gcd, np.gcd), (jnp.lcm, np.lcm)):
        same(fn(a, b), np_fn(a, b))
        same(fnx.jit(fn)(a, b), np_fn(a, b))
        same(fnx.jit(fnx.vmap(fn, in_axes=(0, None)))(a, b), np_fn(a, b))
        assert int(fnx.jit(fn)(12, 18)) == np_fn(12, 18)
    least = np.array([-128, 5, 0], "int8")  # which has no magnitude of its dtype
    for x, y in ((least, least[::-1]), (least[1:], least[:1])):
        same(jnp.gcd(x, y), np.gcd(x, y))
        same(fnx.jit(jnp.gcd)(x, y), np.gcd(x, y))
    assert "while" in fnx.jit(jnp.gcd).lower(a, b).as_text("jaxpr")


def test_at_of_ufuncs_with_values_for_each_position():
    x, i = np.ones((5, 3)), np.array([0, 4, 0])
    values = np.arange(9.0).reshape(3, 3)
    fn = jnp.frompyfunc(lambda a, b: a + b, 2, 1)
    wanted = x.copy()
    np.add.at(wanted, i, values)
    same(fn.at(x, i, values, inplace=False), wanted)
    same(fnx.jit(lambda *a: fn.at(*a, inplace=False))(x, i, values), wanted)
    wanted = x.copy()
    np.hypot.at(wanted, i, values)
    same(jnp.hypot.at(x, i, values, inplace=False), wanted)


def test_histograms_and_quantiles_promote_by_themselves():
    x = np.array([1, 2, 2, 5], "int8")
    heavy = np.full(4, 100, "int8")
    counts, _ = jnp.histogramdd(x[:, None], [np.array([0, 3, 6])], weights=heavy)
    assert counts.tolist() == [300.0, 100.0]
    with fnx.numpy_dtype_promotion("strict"):
        assert jnp.histogram(x.astype("float32"), np.array([0, 3, 6]))[0].tolist() == [3.0, 1.0]
        assert float(jnp.quantile(x, np.float32(0.5))) == 2.0
    edges = np.array([0.0, 3.0, 6.0])
    for dtype in ("float32", "float64"):  # the edges' type is the data's
        found = jnp.histogram(x.astype(dtype), edges)
        assert [v.dtype.name for v in found] == [dtype, dtype]
    for fn in (jnp.var, jnp.nanvar):
        with pytest.raises(ValueError, match="complex"):
            fn(np.ones(3, complex), dtype=float)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_polynomials_keep_their_dtype(dtype):
    p = jnp.array([1.0, 2.0, 4.0], dtype)
    assert jnp.polyder(p).dtype == jnp.polyint(p).dtype == p.dtype
    assert jnp.polyder(p).tolist() == [2.0, 2.0]
    assert jnp.polyint(jnp.array([2.0, 3.0], dtype)).tolist() == [1.0, 3.0, 0.0]


@pytest.mark.parametrize("period", [2, 5])
def test_unwrap_of_integers(period):
    x = np.random.default_rng(5).integers(-20, 20, (4, 30)).astype("int16")
    wanted = np.unwrap(x, period=period)
    found = jnp.unwrap(x, period=period)
    assert found.dtype == wanted.dtype
    same(found, wanted)
    same(fnx.jit(lambda x: jnp.unwrap(x, period=period))(x), wanted)
    same(jnp.unwrap(x * 0.7), np.unwrap(x * 0.7))


def test_convolutions_in_integers():
    x, y = np.array([1, 2, 3], "int8"), np.array([1, -1], "int8")
    found = jnp.convolve(x, y, preferred_element_type="int32")
    assert found.dtype == np.int32
    assert found.tolist() == [1, 1, 1, -3]


def test_roll_by_a_list_of_traced_shifts():
    x = jnp.arange(6).reshape(2, 3)
    found = fnx.jit(lambda a, b: jnp.roll(x, [a, b], [0, 1]))(1, 2)
    same(found, np.roll(np.arange(6).reshape(2, 3), [1, 2], [0, 1]))


@pytest.mark.parametrize(
    "name", ["add", "maximum", "negative", "logaddexp", "logaddexp2", "logical_or"]
)
def test_universal_functions_say_that_they_have_no_where(name):
    function, count = getattr(jnp, name), 1 if name == "negative" else 2
    mask = jnp.array([True, False])
    with pytest.raises(TypeError, match=f"{name} has no where="):
        function(*[jnp.ones(2)] * count, where=mask)
    with pytest.raises(TypeError, match=f"{name} takes {count} array"):
        function(*[jnp.ones(2)] * (count + 1))
    with pytest.raises(NotImplementedError, match=f"'out' argument of {name}"):
        function(*[jnp.ones(2)] * count, out=np.ones(2))


def test_ranges_are_axes():
    x = jnp.ones((2, 3))
    assert jnp.expand_dims(x, range(2)).shape == (1, 1, 2, 3)
    assert jnp.expand_dims(jnp.ones(()), range(2)).shape == (1, 1)
    assert jnp.sum(x, range(2)) == 6
    assert (jnp.shape(None), jnp.ndim(None), jnp.size(None)) == ((), 0, 1)


def test_names_of_dtypes():
    assert jnp.int4 != jnp.int8
    assert np.int32 in {jnp.int32, jnp.int64}
    assert jnp.float8_e4m3fn == "float8_e4m3fn"
    assert jnp.zeros(3, jnp.int4).dtype == jnp.int4


# --- shapes and dtypes as JAX documents them -----------------------------------------------------


def test_roots_with_leading_zeros():
    """Not stripped they make nan at the end, after the zeros; so the number may be traced."""
    p = jnp.array([0.0, 0.0, 1.0, -3.0, 2.0, 0.0])
    find = partial(jnp.roots, strip_zeros=False)
    for found in (find(p), fnx.jit(find)(p)):
        same(jnp.sort(found[:2].real), [1.0, 2.0])
        assert found[2] == 0
        assert np.isnan(found[3:].real).all()
        assert np.isnan(found[3:].imag).all()
    assert np.isnan(find(jnp.zeros(3)).real).all()
    assert find(jnp.zeros(1)).shape == find(jnp.zeros(0)).shape == (0,)
    same(jnp.sort(jnp.roots(p).real), [0.0, 1.0, 2.0])


def test_sums_of_polynomials_with_matrices_as_coefficients():
    x, y = jnp.array([[2, 3, 1]]), jnp.array([[5, 7, 3], [8, 2, 6]])
    same(jnp.polyadd(x, y), [[5, 7, 3], [10, 5, 7]])
    same(jnp.polyadd(y, jnp.array([2])), [[5, 7, 3], [10, 4, 8]])
    same(jnp.polysub(x, y), [[-5, -7, -3], [-6, 1, -5]])
    for add in (jnp.polyadd, jnp.polysub):
        with pytest.raises(ValueError, match=r"\(3,\) and \(2, 3\); expected rows of the shorter"):
            add(jnp.array([1, 3, 5]), y)
    with pytest.raises(ValueError, match=r"polymul of shapes \(2, 3\) and \(1, 3\); expected two"):
        jnp.polymul(y, x)


def test_default_dtypes_of_jax():
    assert jnp.tri(3).dtype == fnx.scipy.linalg.pascal(3).dtype == np.float32
    assert jnp.tri(3, dtype=float).dtype == fnx.scipy.linalg.invpascal(3).dtype == np.float64
    assert fnx.scipy.cluster.vq.vq(jnp.ones(3), jnp.ones(2))[0].dtype == np.int64


def test_segments_of_what_is_broadcast_to_their_numbers():
    ids = jnp.array([0, 0, 1, 3])
    for found in (fnx.ops.segment_sum(2, ids), fnx.ops.segment_sum(jnp.array([2]), ids)):
        same(found, [4, 2, 0, 2])
    same(fnx.ops.segment_max(2.5, ids, 5), [2.5, 2.5, -np.inf, 2.5, -np.inf])
    same(fnx.ops.segment_sum(2.5, 1), [0, 2.5])
    x = jnp.arange(4.0).reshape(2, 2)
    same(fnx.ops.segment_sum(x, ids.reshape(2, 2)), [[2, 4], [0, 1], [0, 0], [2, 3]])
    with pytest.raises(ValueError, match=r"of shape \(3,\) and segment_ids of shape \(4,\)"):
        fnx.ops.segment_sum(jnp.ones(3), ids)


def test_bins_that_decrease():
    x, bins = np.array([1.0, 2.0, 2.5, 1.5, 3.0, 3.5, 0.0]), np.array([3.0, 2.0, 1.0])
    for right in (False, True):
        same(jnp.digitize(jnp.asarray(x), jnp.asarray(bins), right), np.digitize(x, bins, right))


def test_nearest_quantiles_take_the_lower_of_two():
    x = jnp.arange(7.0)
    assert jnp.percentile(x, jnp.array([25, 50, 75]), method="nearest").tolist() == [1, 3, 4]


def test_weights_of_quantiles():
    x, weights = jnp.arange(3.0), jnp.array([1.0, -1.0, 2.0])
    assert jnp.isnan(jnp.quantile(x, 0.5, weights=weights, method="inverted_cdf"))
    for wrong in ("linear", "nearest"):
        with pytest.raises(NotImplementedError, match="inverted_cdf"):
            jnp.quantile(x, 0.5, weights=abs(weights), method=wrong)
    with pytest.raises(ValueError, match=r"weights of shape \(2,\)"):
        jnp.nanquantile(x, 0.5, weights=weights[:2], method="inverted_cdf")


def test_functions_of_indices_see_scalars():
    found = jnp.fromfunction(lambda i: (i + 1) * jnp.arange(3), shape=(2,))
    same(found, [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])
    shapes = []
    pair = jnp.fromfunction(lambda i, j, k: shapes.append(i.shape) or (i - j, k), (2, 3), k=5)
    assert shapes == [()]
    same(pair[0], [[0, -1, -2], [1, 0, -1]])
    same(pair[1], np.full((2, 3), 5))


def test_fill_values_of_nonzero_may_be_traced():
    find = fnx.jit(jnp.nonzero, static_argnames="size")
    same(find(jnp.array([0, 5, 0, 6]), size=3, fill_value=4)[0], [1, 3, 4])


def test_conditions_of_piecewise_in_one_array():
    x = jnp.arange(-4, 5)
    values = [lambda x: x * 0, lambda x: x * 10, lambda x: x * 100]
    same(jnp.piecewise(x, jnp.array([False, True, False]), values), 10 * np.arange(-4, 5))
    same(jnp.piecewise(x, x < 0, [1, 2]), np.where(np.arange(-4, 5) < 0, 1, 2))
    assert jnp.argpartition(x, 2).dtype == np.int32
    assert fnx.lax.broadcast_like(jnp.array([1, 2]), jnp.zeros((3, 2))).tolist() == [[1, 2]] * 3
