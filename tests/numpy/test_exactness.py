"""Results to the last bit, dtype and slope where numbers are infinite, small, rounded or absent."""

import math

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@pytest.mark.parametrize("x", [math.inf, -math.inf, 2.0])
def test_equal_operands_of_logaddexp_share_the_slope(name, x):
    fn = getattr(jnp, name)
    assert [float(g) for g in fnx.grad(fn, (0, 1))(x, x)] == [0.5, 0.5]
    assert float(fn(x, x)) == float(getattr(np, name)(x, x))


def test_slopes_of_powers_of_weak_numbers_are_weak_again():
    first, second = fnx.grad(jnp.power), fnx.grad(fnx.grad(jnp.power))
    assert not first(1.7, 1.3).weak_type
    assert second(1.7, 1.3).weak_type
    assert not second(jnp.float64(1.7), 1.3).weak_type


@pytest.mark.filterwarnings("ignore:values of dtype:FutureWarning")
@pytest.mark.parametrize("jit", [False, True])
def test_sums_and_products_at_indices_are_rounded_once(jit):
    run = fnx.jit if jit else lambda f: f
    places = jnp.array([0, 2, 0])
    x = jnp.array([1, 2, 3], dtype="int8")
    values = jnp.array([1.7, 2.5, 3.5])
    assert run(lambda x, y: x.at[places].add(y))(x, values).tolist() == [6, 2, 5]
    assert run(lambda x, y: x.at[places].subtract(y))(x, values).tolist() == [-4, 2, 0]
    assert run(lambda x, y: x.at[places].multiply(y))(x, values).tolist() == [5, 2, 7]
    assert run(lambda x: x.at[places].add(2.5))(x).tolist() == [6, 2, 5]
    assert run(lambda x: x.at[0].multiply(2.5))(x).dtype == np.int8
    small = jnp.full(200, 3e-8, "float64")
    total = run(jnp.ones(1, "float32").at[jnp.zeros(200, int)].add)(small)
    close(total, np.float32([1 + 6e-6]), rtol=1e-7)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_parts_of_numbers_of_eight_bits(dtype):
    x = jnp.array([1, 3, 0, -0.125, math.inf, math.nan], dtype=dtype)
    mantissa, exponent = jnp.frexp(x)
    assert mantissa.dtype == x.dtype
    assert mantissa[:4].astype(float).tolist() == [0.5, 0.75, 0, -0.5]
    assert exponent[:4].tolist() == [1, 2, 0, -2]
    assert jnp.ldexp(mantissa, exponent)[:4].astype(float).tolist() == [1, 3, 0, -0.125]
    assert jnp.ldexp(x, 7)[3].astype(float) == -16
    assert bool(jnp.isfinite(jnp.nan_to_num(x)).all())


def test_unique_rows_without_elements():
    assert jnp.unique(jnp.zeros((2, 0)), axis=0, size=3).shape == (3, 0)
    assert jnp.unique(jnp.zeros((0, 2)), axis=1, size=3).shape == (0, 3)
    with pytest.raises(ValueError, match="nothing to repeat"):
        jnp.unique(jnp.zeros(0), size=3)


@pytest.mark.parametrize("jit", [False, True])
def test_fmax_and_fmin_order_complex_numbers_as_comparisons_do(jit):
    run = fnx.jit if jit else lambda f: f
    x, y = jnp.array([1 + 2j, 1 - 1j, math.nan]), jnp.array([1 + 1j, 2, 5j])
    assert run(jnp.fmax)(x, y).tolist() == [1 + 2j, 2, 5j]
    assert run(jnp.fmin)(x, y).tolist() == [1 + 1j, 1 - 1j, 5j]


def test_places_out_of_bounds_are_moved_inside_where_no_mode_is_given():
    x, rows = jnp.array([1.0, 2.0, 3.0]), lax.GatherDimensionNumbers((0,), (), (0,))
    for start, found in ((-2, [1.0, 2.0]), (5, [2.0, 3.0])):
        assert lax.gather(x, jnp.array([start]), rows, (2,)).tolist() == found
        filled = lax.gather(x, jnp.array([start]), rows, (2,), mode="fill", fill_value=7)
        assert filled.tolist() == [7.0, 7.0]
    assert jnp.put(x, jnp.array([9]), 5.0, inplace=False).tolist() == [1.0, 2.0, 5.0]
    assert jnp.put(x, jnp.array([-9]), 5.0, inplace=False).tolist() == [5.0, 2.0, 3.0]
    assert jnp.put(x, jnp.array([-1]), 5.0, inplace=False).tolist() == [1.0, 2.0, 5.0]


def test_means_as_integers_are_of_sums_of_integers():
    x = np.array([2**53 + 1, -(2**53), 1, 0])
    assert jnp.mean(x, dtype=np.int64).tolist() == np.mean(x, dtype=np.int64) == 0
    wrapped = np.array([2**62, 2**62, 2**62, 2**62, 40, 10])
    assert int(jnp.mean(wrapped, dtype="int64")) == 8
    assert int(jnp.mean(wrapped, dtype="int8")) == 8


@pytest.mark.parametrize("jit", [False, True])
def test_polygamma_of_complex_numbers_is_refused(jit):
    run = fnx.jit if jit else lambda f: f
    with pytest.raises(TypeError, match="complex"):
        run(lambda x: fnx.scipy.special.polygamma(1, x))(jnp.array([1 + 1j]))


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_positions_in_dtypes_that_do_not_hold_the_sizes(dtype, jit):
    run = fnx.jit if jit else lambda f: f
    x, k = jnp.arange(300), jnp.array(-2 if dtype[0] == "i" else 100, dtype=dtype)
    at = int(k) % 300
    places, flat = jnp.array([3, 100], dtype=dtype), np.array([3, 100])
    assert run(lambda k: lax.dynamic_slice(x, (k,), (2,)))(k).tolist() == [at, at + 1]
    assert run(lambda k: lax.dynamic_update_slice(x, jnp.array([-7]), (k,)))(k)[at] == -7
    assert (
        run(lambda k: jnp.roll(x, k))(k)[:2].tolist()
        == np.roll(np.arange(300), int(k))[:2].tolist()
    )
    one_hot = run(lambda i: fnx.nn.one_hot(i, 300))(places)
    assert one_hot.sum() == 2
    assert one_hot.argmax(1).tolist() == flat.tolist()
    for got, want in zip(
        run(lambda i: jnp.unravel_index(i, (2, 300)))(places), np.unravel_index(flat, (2, 300))
    ):
        assert got.tolist() == want.tolist()
    ravel = run(lambda i: jnp.ravel_multi_index((i, i), (300, 300), mode="clip"))
    assert ravel(places).tolist() == np.ravel_multi_index((flat, flat), (300, 300)).tolist()


def test_starts_of_slices_that_one_dtype_does_not_hold():
    x = jnp.arange(10)
    assert lax.dynamic_slice(x, (300,), (2,)).tolist() == [8, 9]
    rows = jnp.arange(600).reshape(2, 300)
    assert lax.dynamic_slice(rows, (jnp.int8(0), 250), (1, 1)).tolist() == [[250]]
    assert lax.dynamic_slice(rows, (jnp.int8(0), jnp.int64(250)), (1, 1)).tolist() == [[250]]
    assert lax.dynamic_slice(rows, (jnp.uint8(1), -300), (1, 1)).tolist() == [[300]]


@pytest.mark.parametrize("mode", [None, "clip"])
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_negative_numbers_of_segments(dtype, mode):
    ids = jnp.array([-1, 0, 2, -4], dtype=dtype)
    for n in (3, 200):
        sums = fnx.ops.segment_sum(jnp.array([1.0, 2.0, 4.0, 8.0]), ids, n, mode=mode)
        assert sums[:3].tolist() == [11.0 if mode else 2.0, 0.0, 4.0]
        assert float(sums.sum()) == (15.0 if mode else 6.0)


def test_slopes_of_entropy_below_zero():
    x = jnp.array([-1.0, -math.inf, 0.5])
    entr = fnx.scipy.special.entr
    assert entr(x)[:2].tolist() == [-math.inf, -math.inf]
    slope = fnx.grad(lambda x: entr(x).sum())
    assert slope(x)[:2].tolist() == [0, 0]
    assert fnx.grad(lambda x: slope(x).sum())(x).tolist() == [0, 0, -2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_inverse_cosine_transforms_of_narrow_floats(dtype):
    x = jnp.array([[1.0, 2.0, 3.5], [0.5, -1.0, 4.0]], dtype=dtype)
    back = fnx.jit(fnx.scipy.fft.idctn)(x)
    assert back.dtype == np.float32
    close(back, fnx.scipy.fft.idctn(x.astype("float64")), rtol=1e-5)


def test_functions_applied_at_places_of_an_array_without_elements():
    assert jnp.zeros(0, "uint16").at[jnp.array([4, -2, -2])].apply(jnp.square).dtype == np.uint16
