"""Scalar operations, printed both ways, against NumPy: dtypes, operands, and the comparison."""

import numpy as np
from kernels import canonical, native, numba, pointwise, python

from fnx.core import scalar

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGERS = SIGNED + UNSIGNED
FLOATS = ["float32", "float64"]
HALF = ["float16", "bfloat16"]
COMPLEX = ["complex64", "complex128"]
REAL = [*INTEGERS, *HALF, *FLOATS]


def pairs(dtype, count=60):
    """Pairs of numbers: all pairs of special ones, and random ones."""
    dtype = canonical(dtype)
    rng = np.random.default_rng(3)
    if dtype.kind == "b":
        return np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        special = [0, 1, 2, 3, 7, info.min, info.max, info.max - 1, info.min + 1]
        special += [-1, -2, -7] if dtype.kind == "i" else [info.max // 2]
        x, y = rng.integers(info.min, info.max, (2, count), dtype, endpoint=True)
        y[::3] = rng.integers(0, 8 * dtype.itemsize, len(y[::3]))
    else:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 100.0, np.inf, -np.inf, np.nan, 1e-30, 6e4]
        x, y = rng.normal(size=(2, count)) * 10.0 ** rng.integers(-3, 4, (2, count))
    a, b = np.meshgrid(np.array(special).astype(dtype), np.array(special).astype(dtype))
    return np.r_[a.ravel(), x.astype(dtype)], np.r_[b.ravel(), y.astype(dtype)]


def same(got, expected, ulps=0):
    """Equal bits, NaN aside, or within so many ulps of the result's format."""
    assert got.dtype == expected.dtype
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    if got.dtype.kind == "c":
        same(got.real, expected.real, ulps)
        same(got.imag, expected.imag, ulps)
        return
    g, e = got.astype("float64"), expected.astype("float64")
    if not ulps:
        np.testing.assert_array_equal(g, e)
        zero = e == 0
        np.testing.assert_array_equal(np.signbit(g[zero]), np.signbit(e[zero]))
        return
    epsilon = {"float32": 2.0**-23, "float64": 2.0**-52}[got.dtype.name]
    np.testing.assert_allclose(
        g, e, rtol=ulps * epsilon, atol=np.finfo(got.dtype).smallest_subnormal
    )


def run_all(table, arrays, ulps=0, compiled=False):
    """table: name -> (expression of operands, NumPy's answer); both printers."""
    program = pointwise([fn for fn, _ in table.values()], arrays)
    runs = {"native": native, "python": python} | ({"numba": numba} if compiled else {})
    for how, run in runs.items():
        for (name, (_, expected)), got in zip(table.items(), run(program, arrays), strict=True):
            try:
                same(got, expected, ulps)
            except AssertionError as error:
                raise AssertionError(f"{name} on {arrays[0].dtype}, {how}: {error}") from None


def op(name, **options):
    """The scalar operation of that name, as a function of its operands."""
    return lambda *args: scalar.apply(name, *args, **options)
