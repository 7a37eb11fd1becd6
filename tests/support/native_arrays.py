"""Primitives in native code against their own impl, for tests of routines."""

import numpy as np

import fnx
from fnx.core import config, dtypes
from fnx.core.array import ConcreteArray

DTYPES = ["float32", "float64", "complex64", "complex128"]
EPS = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}
EPS |= {"float16": 2e-3, "bfloat16": 2e-2}


def random(*shape, dtype="float64", seed=0):
    """Normal numbers, of any dtype."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(size=shape)
    dtype = dtypes.canonical(dtype)
    kind = dtypes.kind(dtype)
    if kind == "c":
        x = x + 1j * rng.normal(size=shape)
    elif kind == "b":
        x = x > 0
    elif kind in "iu":
        x = np.abs(3 * x) if kind == "u" else 3 * x
    return x.astype(dtype)


def positive(*shape, dtype="float64"):
    """Hermitian positive definite matrices."""
    a = random(*shape, shape[-1], dtype=dtype)
    return (a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def run(fn, *args):
    """The results of the compiled function, which must not call the host, and its report.

    On other backends than fnx's own, routines are libraries that the host calls.
    """
    args = [ConcreteArray(np.ascontiguousarray(a)) for a in args]
    with config.check():
        f = fnx.jit(fn)
        report = f.lower(*args).compile().report()
        assert "host call" not in report or config.backend.value != "cpu", report
        return [np.asarray(x) for x in f(*args)], report


def close(found, expected, factor=1.0):
    """The same shape and dtype; equal integers, floats within the rounding of their dtype."""
    a, b = np.asarray(found), np.asarray(expected)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if not dtypes.is_inexact(a.dtype):
        np.testing.assert_array_equal(a, b)
        return
    eps = EPS[dtypes.NAME[a.dtype]] * factor
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(a, b, rtol=eps, atol=eps * scale)


def both_ways(*cases):
    """What each (primitive, *operands) gives natively, what its impl gives, and the report."""
    flat = [a for _, *operands in cases for a in operands]

    def fn(*arrays):
        rest = iter(arrays)
        return [o for p, *operands in cases for o in p.apply(*[next(rest) for _ in operands])]

    expected = [
        o
        for p, *operands in cases
        for o in p.apply(*[ConcreteArray(np.asarray(a)) for a in operands])
    ]
    found, report = run(fn, *flat)
    return found, expected, report


def agrees(*cases, factor=100.0):
    """Each (primitive, *operands) gives natively what its impl gives, but for rounding."""
    found, expected, report = both_ways(*cases)
    for a, b in zip(found, expected, strict=True):
        close(a, b, factor)
    return report
