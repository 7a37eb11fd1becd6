"""Scalar operations in native code: conversions between dtypes, and complex arithmetic."""

import math

import numpy as np
import pytest
from kernels import canonical, native, pointwise, python
from scalar_checks import COMPLEX, FLOATS, HALF, REAL, op, pairs, run_all, same

from fnx.core import scalar

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# --- conversions -------------------------------------------------------------------------------


def converted(x, dtype):
    """Value conversion: saturating from float to integer, NaN to 0."""
    target = canonical(dtype)
    if target.kind == "b":
        return x != 0
    if x.dtype.kind not in "biu" and target.kind in "iu":
        info = np.iinfo(target)
        values = [
            0
            if math.isnan(v)
            else info.max
            if v > info.max
            else info.min
            if v < info.min
            else int(v)
            for v in x.astype("float64").tolist()
        ]
        return np.array(values, target)
    if target.name == "bfloat16" and x.dtype.name in (
        "float64",
        "int64",
        "uint64",
        "int32",
        "uint32",
    ):
        return once_rounded(x.astype("float64"), target)
    return x.astype(target)


def once_rounded(x, target):
    """float64 to bfloat16 with one rounding (ml_dtypes goes by way of float32)."""
    with np.errstate(all="ignore"):
        near = x.astype("float32")
        out = near.view("uint32")
        back = near.astype("float64")
        down = np.abs(back) > np.abs(x)
        odd = (out - down) | np.uint32(1)
        fixed = np.where((back != x) & ~np.isnan(x), odd, out).astype("uint32")
    return fixed.view("float32").astype(target)


@pytest.mark.parametrize("source", ["bool", *REAL])
def test_casts(source):
    x, _ = pairs(source)
    if canonical(source).kind == "f" or source == "bfloat16":
        more = [127.6, -128.9, 255.5, 256.0, 65504, 65520, 2.0**31, -(2.0**31), 2.0**53 + 2, 1e19]
        x = np.r_[x, np.array(more).astype(x.dtype)]
    table = {
        target: (lambda a, target=target: scalar.cast(a, target), converted(x, target))
        for target in ["bool", *REAL]
        if target != source
    }
    run_all(table, [x], compiled=source in ("int64", "float64", "float16"))


def test_rounding_to_float16_once():
    """A number just above the middle of two float16 is in float32 the middle."""
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 2.0**-25 * (1 + 2.0**-30), 65519.9999999])
    run_all({"f16": (lambda a: scalar.cast(a, "float16"), x.astype("float16"))}, [x])


@pytest.mark.parametrize("dtype", REAL)
def test_bitcasts(dtype):
    x, _ = pairs(dtype)
    x = x[x == x]  # which NaN it is may change
    width = 8 * x.dtype.itemsize
    names = [
        f"int{width}",
        f"uint{width}",
        *[d for d in HALF + FLOATS if canonical(d).itemsize == x.dtype.itemsize],
    ]
    table = {}
    for name in names:
        expected = x.view(canonical(name))
        if canonical(name).kind in "iu" and name != dtype:
            table[name] = (lambda a, name=name: scalar.bitcast(a, name), expected)
    run_all(table, [x], compiled=dtype == "float64")
    if canonical(dtype).kind in "iu" and width > 8:
        name = {16: "bfloat16", 32: "float32", 64: "float64"}[width]
        expected = x.view(canonical(name))
        run_all({name: (lambda a: scalar.bitcast(a, name), expected)}, [x])


@pytest.mark.parametrize("has_half", [True, False])
def test_float16_with_and_without_hardware(has_half, monkeypatch):
    from fnx.lowering.cpu.llvm import module_printer

    monkeypatch.setattr(module_printer, "has_half", lambda: has_half)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    rng = np.random.default_rng(1)
    singles = rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    scaled = (rng.normal(size=1 << 16) * 10.0 ** rng.uniform(-9, 6, 1 << 16)).astype("float32")
    arrays = [every, singles, scaled]
    program = pointwise(
        [
            lambda h, s, t: scalar.cast(h, "float32"),
            lambda h, s, t: scalar.cast(s, "float16"),
            lambda h, s, t: scalar.cast(t, "float16"),
            lambda h, s, t: h,
        ],
        arrays,
    )
    wide, first, second, back = native(program, arrays)
    same(wide, every.astype("float32"))
    same(first, singles.astype("float16"))
    same(second, scaled.astype("float16"))
    same(back, every)


# --- complex arithmetic ------------------------------------------------------------------------


def complex_pairs(dtype):
    rng = np.random.default_rng(5)
    part = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
    special = np.array([complex(a, b) for a in part for b in part])
    z = (rng.normal(size=(2, 200)) + 1j * rng.normal(size=(2, 200))) * 10.0 ** rng.integers(
        -3, 4, (2, 200)
    )
    return np.r_[special, z[0]].astype(dtype), np.r_[special[::-1], z[1]].astype(dtype)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_arithmetic_is_exact(dtype):
    z, w = complex_pairs(dtype)
    part = z.real.dtype
    table = {
        "add": (op("add"), z + w),
        "sub": (op("sub"), z - w),
        "neg": (lambda a, b: scalar.apply("neg", a), -z),
        "conj": (lambda a, b: scalar.apply("conj", a), z.conj()),
        "real": (lambda a, b: scalar.apply("real", a), z.real.copy()),
        "imag": (lambda a, b: scalar.apply("imag", a), z.imag.copy()),
        "eq": (op("eq"), z == w),
        "ne": (op("ne"), z != w),
        "select": (
            lambda a, b: scalar.select(scalar.apply("eq", a, b), a, b),
            np.where(z == w, z, w),
        ),
        "narrow": (lambda a, b: scalar.cast(a, "complex64"), z.astype("complex64")),
        "wide": (lambda a, b: scalar.cast(a, "complex128"), z.astype("complex128")),
        "to_real": (lambda a, b: scalar.cast(a, "float32"), z.real.astype("float32")),
        "to_bool": (lambda a, b: scalar.cast(a, "bool"), z != 0),
        "from_real": (
            lambda a, b: scalar.cast(scalar.apply("real", a), dtype),
            z.real.astype(dtype),
        ),
        "complex": (
            lambda a, b: scalar.apply("complex", scalar.apply("imag", a), scalar.apply("real", b)),
            np.array([complex(*p) for p in zip(z.imag, w.real, strict=True)], dtype),
        ),
    }
    assert part == canonical(scalar._TO_REAL[dtype])
    run_all(table, [z, w], compiled=dtype == "complex64")


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_products_and_quotients(dtype):
    rng = np.random.default_rng(7)
    big, small = (120, -120) if dtype == "complex64" else (1000, -1000)
    scales = [1.0, 2.0**big, 2.0**small]
    z, w = (rng.normal(size=(2, 300)) + 1j * rng.normal(size=(2, 300))).astype(dtype)
    products = {
        "mul": (op("mul"), z * w),
        "square": (lambda a, b: scalar.apply("square", a), z * z),
    }
    program = pointwise([fn for fn, _ in products.values()], [z, w])
    for run in (native, python):
        for got, (_, expected) in zip(run(program, [z, w]), products.values(), strict=True):
            assert np.max(np.abs(got - expected) / np.abs(expected)) < 4 * np.finfo(dtype).eps
    program = pointwise([op("div"), lambda a, b: scalar.apply("abs", a)], [z, w])
    for s in scales:
        a, b = (z * z.real.dtype.type(s)).astype(dtype), (w * w.real.dtype.type(s)).astype(dtype)
        exact = a.astype("clongdouble") / b.astype("clongdouble")
        for run in (native, python):
            quotient, modulus = run(program, [a, b])
            assert np.max(np.abs(quotient - exact) / np.abs(exact)) < 3 * np.finfo(dtype).eps
            np.testing.assert_allclose(
                modulus,
                np.abs(a.astype("clongdouble")).astype(z.real.dtype),
                rtol=2 * np.finfo(dtype).eps,
            )


def test_division_of_special_values():
    """Annex G.5.1: infinities and zeros of the denominator."""
    z = np.array([1 + 1j, 1 + 0j, np.inf + 1j, complex(np.inf, np.nan), 1 + 1j, 0j])
    w = np.array([0j, 0j, 1 + 1j, 1 + 0j, complex(np.inf, np.nan), 0j])
    (q,) = native(pointwise([op("div")], [z, w]), [z, w])
    assert np.all(np.isinf(np.abs(q[:4])))
    assert q[4] == 0
    assert np.isnan(q[5])


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_functions(dtype):
    from scipy import special

    x, y = pairs(dtype)
    table = {
        name: (lambda x, y, name=name: scalar.special(name, x, y), getattr(special, name)(x, y))
        for name in ("gammainc", "gammaincc", "jv", "zeta", "owens_t")
    }
    for part, name in enumerate(("sine", "cosine")):
        fn = lambda x, y, part=part: scalar.special("sici", x, part=part)
        table[name] = (fn, special.sici(x)[part])
    run_all(table, [x, y])


def test_special_functions_of_complex_numbers():
    from scipy import special

    rng = np.random.default_rng(5)
    z = rng.normal(size=20) + 1j * rng.normal(size=20)
    table = {
        name: (lambda z, name=name: scalar.special(name, z), getattr(special, name)(z))
        for name in ("wofz", "dawsn")
    }
    run_all(table, [z])
