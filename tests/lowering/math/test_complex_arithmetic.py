"""Complex functions: accuracy against mpmath, special values against the C library's (Annex G)."""

import cmath
import functools

import mpmath
import numpy as np
import pytest
from kernels import native, numba, pointwise, python

from fnx.core import scalar
from fnx.ops.elementwise import arithmetic

FUNCTIONS = {
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "exp": mpmath.exp,
    "exp2": lambda z: mpmath.power(2, z),
    "expm1": lambda z: mpmath.exp(z) - 1,
    "log": mpmath.log,
    "log2": lambda z: mpmath.log(z) / mpmath.log(2),
    "log10": lambda z: mpmath.log(z) / mpmath.log(10),
    "log1p": lambda z: mpmath.log(1 + z),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "abs": abs,
    "sign": mpmath.sign,
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
}
PRIMITIVES = {"abs": "abs_"}
# Errors in units of the last place of |result|.
BOUND = dict.fromkeys(FUNCTIONS, 4.0) | {"exp2": 16.0, "logistic": 16.0}


def operation(name):
    return functools.partial(scalar.apply, name)


def points(dtype, count=150):
    rng = np.random.default_rng(11)
    scale = 10.0 ** rng.uniform(-4, 1, (2, count))
    z = rng.normal(size=count) * scale[0] + 1j * rng.normal(size=count) * scale[1]
    unit = np.exp(1j * rng.uniform(0, 6.28, 40)) * (1 + rng.normal(size=40) * 1e-6)
    return np.r_[z, unit, 1, -1, 0.5, -0.5 + 0.25j].astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_accuracy(dtype):
    z = points(dtype)
    names = list(FUNCTIONS)
    found = native(pointwise([operation(n) for n in names], [z]), [z])
    epsilon = np.finfo(dtype).eps
    with mpmath.workprec(150):
        for name, got in zip(names, found, strict=True):
            exact = np.array(
                [complex(FUNCTIONS[name](mpmath.mpc(v.real, v.imag))) for v in z.tolist()]
            )
            keep = (exact != 0) & np.isfinite(exact)
            assert np.all(np.isfinite(got[keep]))
            error = np.abs(got[keep] - exact[keep]) / np.abs(exact[keep]) / epsilon
            assert np.max(error) <= BOUND[name], (name, z[keep][np.argmax(error)])


@pytest.mark.slow
def test_printers_agree():
    z = points("complex128", 6)[:6]
    program = pointwise([operation(n) for n in FUNCTIONS], [z])
    for name, a, b in zip(FUNCTIONS, native(program, [z]), python(program, [z]), strict=True):
        finite = np.isfinite(a)
        np.testing.assert_allclose(b[finite], a[finite], rtol=1e-13, err_msg=name)
    program = pointwise([operation("sqrt"), operation("exp")], [z])
    for a, b in zip(native(program, [z]), numba(program, [z]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_powers():
    rng = np.random.default_rng(3)
    z, w = rng.normal(size=(2, 100)) + 1j * rng.normal(size=(2, 100))
    program = pointwise(
        [operation("pow"), lambda a, b: scalar.apply("integer_pow", a, attr=-3)], [z, w]
    )
    for run in (native, python):
        got, cubes = run(program, [z, w])
        np.testing.assert_allclose(got, z**w, rtol=1e-14)
        np.testing.assert_allclose(cubes, z**-3, rtol=1e-14)
    zero = np.array([0j, 0j, 2 + 0j])
    power = np.array([0j, 2 + 1j, 0j])
    (got,) = native(pointwise([operation("pow")], [zero, power]), [zero, power])
    np.testing.assert_array_equal(got, [1, 0, 1])


def test_no_overflow_on_the_way():
    big = np.array([1e300 + 1e300j, 1e-310 + 1e-310j, -1e300 + 1e-300j, 3e307 - 2e307j])
    names = ["abs", "sqrt", "log", "asinh", "atanh", "sign"]
    found = native(pointwise([operation(n) for n in names], [big]), [big])
    with mpmath.workprec(2300):  # log1p of the smallest numbers
        for name, got in zip(names, found, strict=True):
            exact = [complex(FUNCTIONS[name](mpmath.mpc(v.real, v.imag))) for v in big.tolist()]
            np.testing.assert_allclose(got, exact, rtol=1e-13, err_msg=name)
    far = np.array([709.9 + 1j, 710.2 + 1.5j, -709 + 2j, 800 + 1j])
    exps = native(pointwise([operation("exp"), operation("cosh"), operation("tanh")], [far]), [far])
    with mpmath.workprec(150):
        for name, got in zip(("exp", "cosh", "tanh"), exps, strict=True):
            for v, g in zip(far.tolist()[:3], got, strict=False):
                exact = complex(FUNCTIONS[name](mpmath.mpc(v.real, v.imag)))
                found = [g.real, g.imag], [exact.real, exact.imag]
                np.testing.assert_allclose(*found, rtol=1e-12, err_msg=name)
    assert np.isinf(exps[0][3])


PARTS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
SPECIAL = [complex(a, b) for a in PARTS for b in PARTS]


def c_library(name, z):
    """What C99 says, by Python's cmath, which follows Annex G but raises instead of overflowing."""
    try:
        return getattr(cmath, name)(z)
    except (ValueError, OverflowError):
        return None


@pytest.mark.parametrize(
    "name",
    ["sqrt", "exp", "log", "sinh", "cosh", "tanh", "sin", "cos", "tan", "asinh", "acosh", "atanh"],
)
def test_special_values(name):
    z = np.array(SPECIAL)
    (got,) = native(pointwise([operation(name)], [z]), [z])
    wrong = []
    for v, g in zip(SPECIAL, got.tolist(), strict=True):
        expected = c_library(name, v)
        beside = {"tanh": (v.real, v.imag), "tan": (v.imag, v.real)}.get(name, (1, 0))
        if expected is None or beside[0] == 0 and np.isnan(beside[1]):
            # C17 has tanh(0 + i NaN) = 0 + i NaN, Python still what C99 had
            continue
        pairs = ((g.real, expected.real), (g.imag, expected.imag))
        if not all(agree(a, b, v) for a, b in pairs):
            wrong.append((v, g, expected))
    assert not wrong


def agree(got, expected, z):
    """Equal; beside NaN the standard leaves the sign of an infinity and of a zero open."""
    if got != got or expected != expected:
        return got != got and expected != expected
    if z != z:
        return abs(got) == abs(expected)
    if abs(got) == abs(expected) == np.inf:
        return got == expected
    return abs(got - expected) < 1e-14 and (
        got or expected or np.signbit(got) == np.signbit(expected)
    )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"log2", "log10"}))
def test_accuracy_without_the_compiler(name, dtype):
    near = 10.0 ** np.arange(-20.0, -3)  # of numbers whose sum with 1 has none of their digits
    z = np.r_[points(dtype), near + 1j * near, near, 1j * near, -(near**2) / 2 + 1j * near]
    z = z[z != 0].astype(dtype)
    with mpmath.workprec(300), np.errstate(all="ignore"):
        found = getattr(arithmetic, PRIMITIVES.get(name, name)).impl(z)
        errors = [
            float(abs(mpmath.mpmathify(complex(y)) - exact) / abs(exact))
            for y, exact in zip(found, (FUNCTIONS[name](mpmath.mpc(complex(x))) for x in z))
            if exact != 0 and mpmath.isfinite(exact)
        ]
    assert max(errors) < 32 * np.finfo(dtype).eps, z[np.argmax(errors)]
