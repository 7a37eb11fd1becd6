"""Sorting, selection, and running extrema in native code, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_arrays import both_ways, run

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import dtypes
from fnx.ops.reduction.sorting import Sort, TopK

ORDERED = "float64 float32 float16 bfloat16 int64 int8 uint32 bool".split()


def data(dtype, *shape, seed=0):
    """Few different numbers, with zeros of both signs, infinities and nans where there are such."""
    rng = np.random.default_rng([seed, *shape])
    dtype = dtypes.canonical(dtype)
    kind = dtypes.kind(dtype)
    x = rng.integers(0 if kind in "bu" else -4, 2 if kind == "b" else 5, shape).astype(float)
    if kind in "biu":
        return x.astype(dtype)
    for value, share in ((np.nan, 0.15), (np.inf, 0.05), (-np.inf, 0.05), (-0.0, 0.05)):
        x[rng.random(shape) < share] = value
    if kind == "c":
        y = data("float64", *shape, seed=seed + 1)
        z = np.empty(shape, complex)
        z.real, z.imag = x, y
        return z.astype(dtype)
    return x.astype(dtype)


def same(found, expected):
    """Equal to the bit: the order of zeros of both signs shows whether a sort is stable."""
    a, b = np.asarray(found), np.asarray(expected)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if dtypes.is_inexact(a.dtype):
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        parts = [(a.real, b.real), (a.imag, b.imag)]
    else:
        parts = [(a, b)]
    for x, y in parts:
        np.testing.assert_array_equal(x, y)
        if x.dtype.kind == "f":
            ordinary = ~np.isnan(x)
            np.testing.assert_array_equal(np.signbit(x)[ordinary], np.signbit(y)[ordinary])


def agrees(*cases):
    """Each (primitive, *operands) gives natively what its impl gives, to the bit."""
    found, expected, _ = both_ways(*cases)
    for a, b in zip(found, expected, strict=True):
        same(a, b)


SHAPES = [((5,), 0), ((16,), 0), ((17,), 0), ((101,), 0), ((7, 33), 1), ((33, 2), 0), ((30, 3), 1)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*ORDERED, "complex64", "complex128"])
def test_sort_with_positions(dtype):
    cases = []
    for shape, axis in SHAPES:
        x, places = data(dtype, *shape), np.arange(np.prod(shape)).reshape(shape)
        cases += [(Sort(axis), x), (Sort(axis), x, places)]
    agrees(*cases)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 4), (4, 1)])
def test_nothing_to_sort(shape):
    x = data("float64", *shape)
    agrees((Sort(0), x), (Sort(1), x, x), (TopK(0, 0), x), (TopK(shape[1], 1), x))


@pytest.mark.parametrize("shape", [(9,), (200,), (4, 50), (50, 4)])
def test_several_keys_and_operands(shape):
    first, second = data("int8", *shape) % 2, data("float32", *shape)
    third, places = data("complex128", *shape), np.arange(np.prod(shape)).reshape(shape)
    axis = len(shape) - 1
    agrees(
        (Sort(axis, num_keys=2), first, second, places),
        (Sort(axis, num_keys=3), first, second, third, places, second),
        (Sort(axis, num_keys=1), second, first, places, third),
        (Sort(0, num_keys=1), data("bool", *shape), places),
    )


@settings(max_examples=30)
@given(st.integers(1, 600), st.integers(0, 5))
def test_sort_is_stable_at_all_lengths(n, seed):
    # The lengths share their code: most of these only run.
    x = data("float64", n, seed=seed)
    order = np.argsort(x, kind="stable")
    values, places = run(Sort(0).apply, x, np.arange(n))[0]
    same(places, order)
    same(values, x[order])


@pytest.mark.parametrize("arrange", [np.sort, lambda x: -np.sort(-x), np.zeros_like, lambda x: x])
def test_runs_that_are_in_order_already(arrange):
    x = arrange(np.random.default_rng(0).normal(size=5000))
    (found,) = run(lambda x: (jnp.sort(x),), x)[0]
    same(found, np.sort(x, kind="stable"))


@pytest.mark.parametrize("dtype", ORDERED)
def test_top_k(dtype):
    cases = []
    for shape, axis in SHAPES:
        n = shape[axis]
        cases += [(TopK(k, axis), data(dtype, *shape)) for k in sorted({0, 1, min(3, n), n})]
    agrees(*cases)


@pytest.mark.own_code
def test_code_is_shared_by_all_lengths():
    def text(n):
        x = np.zeros(n)
        return fnx.jit(lambda x: (jnp.sort(x), jnp.argsort(x))).lower(x).as_text("llvm")

    assert text(200) == text(501)


def test_functions_on_top():
    x = np.random.default_rng(1).normal(size=(6, 40))

    def fn(x):
        return (
            jnp.argsort(x, axis=0),
            jnp.median(x, axis=1),
            jnp.sort(x, axis=None),
            jnp.quantile(x, 0.3),
            lax.top_k(x, 2)[1],
        )

    found = run(fn, x)[0]
    expected = [
        np.argsort(x, axis=0, kind="stable"),
        np.median(x, axis=1),
        np.sort(x, axis=None),
        np.quantile(x, 0.3),
        np.argsort(-x, axis=1, kind="stable")[:, :2].astype(np.int32),
    ]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("shape", [(7,), (30,), (5, 8)])
def test_derivative_of_sort(shape):
    x = np.random.default_rng(2).permutation(np.prod(shape)).reshape(shape).astype(float)
    weights = np.random.default_rng(3).normal(size=shape)

    def loss(x):
        return jnp.sum(weights * jnp.sort(x, axis=-1)) + jnp.sum(lax.top_k(x, 2)[0] ** 2)

    (found,) = run(lambda x: (fnx.grad(loss)(x),), x)[0]
    rank = np.argsort(np.argsort(x, axis=-1), axis=-1)
    expected = np.take_along_axis(weights, rank, -1)
    expected = expected + 2 * x * (rank >= shape[-1] - 2)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_sort_inside_a_loop():
    x = np.random.default_rng(4).normal(size=(5, 37))

    def fn(xs):
        def step(c, x):
            c = jnp.sort(c + x)
            return c, jnp.argsort(-c)

        return lax.scan(step, xs[0], xs)

    c, places = x[0], []
    for row in x:
        c = np.sort(c + row)
        places.append(np.argsort(-c, kind="stable"))
    last, found = run(fn, x)[0]
    np.testing.assert_array_equal(last, c)
    np.testing.assert_array_equal(found, places)
