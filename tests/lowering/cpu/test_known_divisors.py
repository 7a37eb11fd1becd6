"""Quotients and remainders by known numbers, in loops that become vectors."""

import random

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.llvm.integer_division import magic
from fnx.lowering.cpu.processor import features

DIVISORS = [
    1,
    2,
    3,
    5,
    7,
    10,
    64,
    641,
    2000,
    2**31 - 1,
    2**32 - 1,
    2**32,
    2**32 + 1,
    10**18,
    2**62 + 1,
]
DIVISORS += [2**63 - 1, 6700417, 1103515245]


def dividends(dtype, divisor):
    """Numbers at both ends, about multiples of the divisor, and any others."""
    info, rng = np.iinfo(dtype), random.Random(divisor)
    found = [info.min, info.min + 1, info.max - 1, info.max, 0, 1]
    multiples = [1, 2, 3, -1, -2, info.max // divisor, info.min // divisor, rng.randrange(10**6)]
    found += [m * divisor + k for m in multiples for k in (-1, 0, 1)]
    found += [rng.randrange(info.min, info.max + 1) >> rng.randrange(64) for _ in range(40)]
    return [n for n in found if info.min <= n <= info.max]


def cut_off(n, divisor):
    """n / divisor towards zero, by whole numbers."""
    return abs(n) // abs(divisor) * (1 if (n < 0) == (divisor < 0) else -1)


@pytest.mark.parametrize("divisor", [*DIVISORS, *[-d for d in DIVISORS]])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_quotients_and_remainders(dtype, divisor):
    if divisor < 0 and dtype == np.uint64:
        divisor = 2**64 + divisor
    numbers = dividends(dtype, divisor)
    x, by = jnp.asarray(np.array(numbers, dtype)), dtype(divisor)
    quotients, rests = jax.jit(lambda x: (lax.div(x, by), lax.rem(x, by)))(x)
    wanted = [cut_off(n, divisor) for n in numbers]
    bits = (1 << 64) - 1  # the least number by -1 wraps
    assert [int(q) & bits for q in quotients] == [q & bits for q in wanted]
    assert [int(r) for r in rests] == [
        n - q * divisor for n, q in zip(numbers, wanted, strict=True)
    ]


def test_magic_numbers_are_right_where_they_are_nearest_to_wrong():
    for divisor in [d for d in DIVISORS if d & (d - 1)]:
        for bits in (63, 64):
            m, s = magic(divisor, bits)
            last = (2**bits - 1) // divisor * divisor  # the error grows with the dividend
            for n in (last - 1, last, 2**bits - 1, divisor - 1, divisor):
                assert n * m >> 64 + s == n // divisor


@pytest.mark.skipif(
    features.vector_bits() != 512, reason="vectors of int64 lack products and shifts"
)
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("op", [lax.rem, lax.div])
def test_no_scalar_products(op, dtype):
    x = jnp.zeros(10_000, dtype)
    asm = jax.jit(lambda x: op(x, dtype(2000))).lower(x).as_text("asm")
    assert "vpmuludq" in asm
    assert not any(op in asm for op in ("imulq", "\tmulq", "\tmulxq"))


def floats(dtype):
    """Zeros, ends of the format, infinities, NaN, whole numbers, and any others."""
    info, rng = np.finfo(dtype), np.random.default_rng(3)
    found = [0.0, 1.0, 2.0, 0.5, 1.5, 7.75, np.inf, info.max, info.tiny, info.smallest_subnormal]
    found = np.array([*found, 1 - info.epsneg, 2 / info.eps, 1 / info.eps + 1, np.nan], dtype)
    scale = 10.0 ** rng.integers(-4, 4, 300)
    return np.concatenate([found, -found, (rng.normal(size=300) * scale).astype(dtype)])


@pytest.mark.parametrize("divisor", [1.0, 2.0, -1.0, -4.0, 1024.0, 2.0**15, 0.5, 3.0, np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_remainders_of_floats(dtype, divisor):
    x = floats(dtype)
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, dtype(divisor))
    made = np.asarray(jax.jit(lambda x: lax.rem(x, dtype(divisor)))(x))
    np.testing.assert_array_equal(made, wanted)
    number = ~np.isnan(wanted)
    assert (np.signbit(made) == np.signbit(wanted))[number].all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fraction_is_no_call(dtype):
    text = jax.jit(lambda x: x % 1.0).lower(jnp.zeros(1000, dtype)).as_text("llvm")
    assert "fnx_v_rem" not in text
    assert "fmod" not in text
