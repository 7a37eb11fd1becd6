"""The dtypes of results are JAX's."""

import math
from functools import partial

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp

same = partial(close, atol=1e-14)

SMALL = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"]


@pytest.mark.parametrize("dtype", [*SMALL, "int64", "uint64"])
def test_floats_of_integers(dtype):
    x = jnp.ones(3, dtype)
    float_ = np.float32 if dtype in SMALL else np.float64
    complex_ = np.complex64 if dtype in SMALL else np.complex128
    for f in (
        jnp.sin, jnp.mean, jnp.var, jnp.median, jnp.sqrt, jnp.fabs, jnp.reciprocal, fnx.nn.softmax,
        fnx.scipy.special.erf, lambda x: x / x, lambda x: jnp.arctan2(x, x),
        lambda x: jnp.quantile(x, np.array(0.5)), lambda x: jnp.float_power(x, x),
        lambda x: jnp.polymul(x, x), lambda x: jnp.histogram_bin_edges(x, x),
    ):  # fmt: skip
        assert f(x).dtype == fnx.jit(f)(x).dtype == float_
    assert jnp.fft.fft(x).dtype == jnp.sort_complex(x).dtype == complex_
    assert jnp.angle(x).dtype == jnp.rint(x).dtype == np.float64
    with fnx.enable_x64(False):
        assert jnp.sin(x).dtype == jnp.rint(x).dtype == np.float32


def test_integers_of_results():
    few, wide = jnp.arange(3, dtype="int8"), jnp.arange(3, dtype="uint16")
    assert jnp.cumulative_sum(few).dtype == np.int64
    assert jnp.cumulative_sum(wide).dtype == np.uint64
    assert jnp.cumulative_prod(few).dtype == np.int64
    assert jnp.cumulative_prod(wide).dtype == np.uint64
    assert jnp.cumulative_prod(wide, dtype="uint16").dtype == jnp.cumprod(wide).dtype == np.uint16
    assert jnp.searchsorted(few, few).dtype == jnp.digitize(few, few).dtype == np.int32


def test_quantiles_of_many_narrow_numbers():
    x = np.arange(3000, dtype=np.float16)
    for q in (0.5, np.float64(0.9), np.float32(0.3)):
        found = fnx.jit(jnp.quantile)(x, q)
        assert found.dtype == np.float16
        assert found == np.quantile(x.astype(float), q).astype(np.float16)


def test_fraction_has_slope_one_everywhere():
    for x in (-1.5, -1.0, -0.0, 0.0, 1.0, 1.5):
        fraction, whole = jnp.modf(x)
        assert math.copysign(1, fraction) == math.copysign(1, np.modf(x)[0]), x
        assert (fraction, whole) == np.modf(x)
        assert fnx.grad(lambda x: jnp.modf(x)[0])(x) == 1.0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_what_narrow_sums_start_from_is_not_rounded_before(dtype, wrap):
    x = jnp.array([100.0, 1.125], dtype)
    total = wrap(lambda x: jnp.sum(x, initial=-100.0))(x)
    assert total.dtype == x.dtype
    assert float(total) == 1.125


@pytest.mark.parametrize("side", ["left", "right"])
def test_complex_numbers_are_searched_in_their_order(side):
    values = np.array([0.5 + 1j, 0.5 - 1j, -2j, 1.0, 0.5, 0.5 + 2j])
    edges = np.sort(np.array([0.5 + 1j, 0.5, 0, 1j, 0.5 - 1j]))
    search = lambda a, v: jnp.searchsorted(a, v, side=side)
    expected = np.searchsorted(edges, values, side)
    for find in (search, fnx.jit(search)):
        np.testing.assert_array_equal(find(edges, values), expected)
    bins = fnx.jit(lambda v, e: jnp.digitize(v, e, right=side == "left"))(values, edges)
    np.testing.assert_array_equal(bins, expected)


def test_places_in_an_array_of_rank_0():
    for value in (0.0, 3.0):
        assert jnp.argwhere(jnp.float64(value)).shape == np.argwhere(value).shape
        assert fnx.jit(lambda x: jnp.argwhere(x, size=3))(value).shape == (3, 0)


def test_hypot_of_an_infinity_and_nan():
    values = np.array([np.inf, -np.inf, np.nan, 0.0])
    x, y = values[:, None], values[None]
    for hypot in (jnp.hypot, fnx.jit(jnp.hypot)):
        np.testing.assert_array_equal(hypot(x, y), np.hypot(x, y))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 0), 0), ((3, 2, 0), 1), ((0, 4), -1)])
def test_transforms_of_empty_arrays_keep_their_axes(name, shape, axis):
    found = getattr(jnp.fft, name)(jnp.zeros(shape), axis=axis)
    expected = getattr(np.fft, name)(np.zeros(shape), axis=axis)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_quantiles_of_the_normal_distribution_are_of_the_default_dtype(dtype):
    norm = fnx.scipy.stats.norm
    for f in (norm.ppf, norm.isf):
        assert f(jnp.full(2, 0.25, dtype)).dtype == "float64"
        with fnx.enable_x64(False):
            assert f(jnp.full(2, 0.25, dtype)).dtype == "float32"
