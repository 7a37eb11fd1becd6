"""Quotients by numbers of the program: computed as products, rounded as divisions."""

from math import frexp, ldexp

import numpy as np
import pytest

import fnx
from fnx.lowering.cpu.processor import features
from fnx.lowering.math import division_by_constant

needs_fma = pytest.mark.skipif(not features.has_fma(), reason="the CPU has no fused sums")
DIVISORS = [3.0, 10.0, 1e4, 1e-4, 0.004, -0.7, 7.0, 1 / 3, 2 * np.pi, 86400.0, 2.0**-7, 1e99, 5e-30]


def quotient(x, divisor):
    return np.asarray(fnx.jit(lambda x: x / divisor)(x))


def text(divisor):
    return fnx.jit(lambda x: x / divisor).lower(np.ones(100)).as_text("llvm")


@pytest.mark.parametrize("divisor", DIVISORS)
def test_hard_and_special_ones_of_float64(divisor):
    significand = int(ldexp(abs(frexp(divisor)[0]), 53))
    hard = np.array(division_by_constant._hard(significand, 53, 400), np.float64)
    usual = np.random.default_rng(3).normal(size=2000) * 10.0 ** np.arange(-150, 50, 0.1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 1.0, -3.0]
    x = np.concatenate([hard, -hard, usual, special])
    with np.errstate(over="ignore"):
        wanted = x / divisor
    found = quotient(x, divisor)
    np.testing.assert_array_equal(found, wanted)
    ordered = wanted == wanted
    np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(wanted[ordered]))


@pytest.mark.parametrize("divisor", [3.0, -0.7, 0.004, 1e4, 1 / 3])
def test_all_significands_of_float32(divisor):
    x = np.arange(1 << 23, 1 << 24, dtype=np.int32).astype(np.float32)
    np.testing.assert_array_equal(quotient(x, divisor), x / np.float32(divisor))


@pytest.mark.own_code
@needs_fma
def test_they_are_products():
    for divisor in (10.0, -1e4, 0.3, 2.0**-7):
        assert division_by_constant.parts(divisor, "float64")
        assert "llvm.fma" in text(divisor)
        assert "fdiv" not in text(divisor)
    assert text(10.0) == text(0.3)


@pytest.mark.own_code
def test_those_that_cannot_be_are_divisions():
    for divisor in (0.0, np.inf, np.nan, 1e-320, 1e300):
        assert division_by_constant.parts(divisor, "float64") is None
        assert "fdiv" in text(divisor)
    unsafe = [n / 7 for n in range(1, 300) if not division_by_constant.parts(n / 7, "float64")]
    assert 0 < len(unsafe) < 20  # a significand or two would be rounded wrongly
    x = np.linspace(1.0, 2.0, 1000)
    for divisor in unsafe:
        np.testing.assert_array_equal(quotient(x, divisor), x / divisor)


def test_parts_are_those_of_the_reciprocal():
    for dtype, bits in (("float32", 24), ("float64", 53)):
        for divisor in DIVISORS[:11]:
            divisor = float(np.dtype(dtype).type(divisor))
            high, low = division_by_constant.parts(divisor, dtype) or (1.0 / divisor, divisor)
            assert high == np.dtype(dtype).type(high)
            assert abs(high * divisor - 1.0) < 2.0 ** (1 - bits) + 2.0**-52
            assert low == np.dtype(dtype).type(low)
            assert low * divisor > 0.0
