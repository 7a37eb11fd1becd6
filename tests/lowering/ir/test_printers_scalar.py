"""Every scalar operation on every dtype, printed both ways, against NumPy."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from kernels import native, pointwise, python
from scalar_checks import FLOATS, HALF, INTEGERS, UNSIGNED, op, pairs, run_all, same

from fnx.core import scalar

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def truncated_quotient(x, y):
    """Integer division as it is defined: toward zero, -1 for a zero divisor."""
    out = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        out.append(-1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return wrap(out, x.dtype)


def truncated_rest(x, y):
    out = [
        a
        if b == 0
        else int(math.copysign(abs(a) % abs(b), a))
        if abs(a) < 2**50
        else exact_rest(a, b)
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    return wrap(out, x.dtype)


def exact_rest(a, b):
    return abs(a) % abs(b) * (1 if a >= 0 else -1)


def wrap(values, dtype):
    width = 8 * dtype.itemsize
    wrapped = np.array([v % (1 << width) for v in values], np.uint64)
    return wrapped.astype(f"uint{width}").view(dtype)


def shifted(x, y, how):
    """Shifts by the width or more give 0, or the sign."""
    width, out = 8 * x.dtype.itemsize, []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        by = b if 0 <= b < width else None
        if how == "left":
            out.append(0 if by is None else a << by)
        elif how == "logical":
            out.append(0 if by is None else (a % (1 << width)) >> by)
        else:
            signed = wrap([a], x.dtype).view(f"int{width}").item()
            out.append(signed >> (width - 1 if by is None else by))
    return wrap(out, x.dtype)


def integer_power(x, y):
    out = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if b >= 0:
            out.append(pow(a, b, 1 << 64))
        elif a in (1, -1):
            out.append(a if b % 2 else 1)
        else:
            out.append(-1 if a == 0 else 0)
    return wrap(out, x.dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    x, y = pairs(dtype)
    width = 8 * x.dtype.itemsize
    bits = x.view(f"uint{width}").tolist()
    table = {
        "add": (op("add"), x + y),
        "sub": (op("sub"), x - y),
        "mul": (op("mul"), x * y),
        "div": (op("div"), truncated_quotient(x, y)),
        "rem": (op("rem"), truncated_rest(x, y)),
        "max": (op("max"), np.maximum(x, y)),
        "min": (op("min"), np.minimum(x, y)),
        "and": (op("and"), x & y),
        "or": (op("or"), x | y),
        "xor": (op("xor"), x ^ y),
        "shift_left": (op("shift_left"), shifted(x, y, "left")),
        "shift_right_logical": (op("shift_right_logical"), shifted(x, y, "logical")),
        "shift_right_arithmetic": (op("shift_right_arithmetic"), shifted(x, y, "arithmetic")),
        "neg": (lambda a, b: scalar.apply("neg", a), -x),
        "abs": (lambda a, b: scalar.apply("abs", a), np.abs(x)),
        "sign": (lambda a, b: scalar.apply("sign", a), np.sign(x)),
        "not": (lambda a, b: scalar.apply("not", a), ~x),
        "square": (lambda a, b: scalar.apply("square", a), x * x),
        "cube": (lambda a, b: scalar.apply("integer_pow", a, attr=3), x * x * x),
        "population_count": (
            lambda a, b: scalar.apply("population_count", a),
            np.array([b.bit_count() for b in bits], x.dtype),
        ),
        "clz": (
            lambda a, b: scalar.apply("clz", a),
            np.array([width - b.bit_length() for b in bits], x.dtype),
        ),
        "by_constant": (
            lambda a, b: scalar.apply("div", a, scalar.const(7, dtype)),
            truncated_quotient(x, np.full_like(x, 7)),
        ),
        "shift_by_constant": (
            lambda a, b: scalar.apply("shift_right_logical", a, scalar.const(3, dtype)),
            shifted(x, np.full_like(x, 3), "logical"),
        ),
        **{c: (op(c), getattr(np, n)(x, y)) for c, n in COMPARE.items()},
    }
    run_all(table, [x, y], compiled=dtype in ("int32", "uint64"))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers(dtype):
    x, y = pairs(dtype)
    run_all({"pow": (op("pow"), integer_power(x, y))}, [x, y])


COMPARE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


@pytest.mark.parametrize("dtype", FLOATS + HALF)
def test_floats(dtype):
    x, y = pairs(dtype)
    wide = dtype in HALF

    def rounded(f, *args):
        """In float32, rounded once more."""
        return f(*(a.astype("float32") for a in args)).astype(x.dtype) if wide else f(*args)

    one = x.dtype.type(1)
    table = {
        "add": (op("add"), rounded(np.add, x, y)),
        "sub": (op("sub"), rounded(np.subtract, x, y)),
        "mul": (op("mul"), rounded(np.multiply, x, y)),
        "div": (op("div"), rounded(np.divide, x, y)),
        "rem": (op("rem"), rounded(np.fmod, x, y)),
        "max": (op("max"), zeros_apart(rounded(np.maximum, x, y), x, y, one)),
        "min": (op("min"), zeros_apart(rounded(np.minimum, x, y), x, y, -one)),
        "neg": (lambda a, b: scalar.apply("neg", a), -x),
        "abs": (lambda a, b: scalar.apply("abs", a), np.abs(x)),
        "floor": (lambda a, b: scalar.apply("floor", a), rounded(np.floor, x)),
        "ceil": (lambda a, b: scalar.apply("ceil", a), rounded(np.ceil, x)),
        "trunc": (lambda a, b: scalar.apply("trunc", a), rounded(np.trunc, x)),
        "round_even": (lambda a, b: scalar.apply("round_even", a), rounded(np.rint, x)),
        "sqrt": (lambda a, b: scalar.apply("sqrt", a), rounded(np.sqrt, x)),
        "square": (lambda a, b: scalar.apply("square", a), rounded(np.square, x)),
        "is_finite": (lambda a, b: scalar.apply("is_finite", a), np.isfinite(x)),
        "sign": (lambda a, b: scalar.apply("sign", a), np.where(x == 0, x, np.sign(x))),
        "nextafter": (op("nextafter"), np.where(x == y, y, np.nextafter(x, y))),
        "integer_pow": (
            lambda a, b: scalar.apply("integer_pow", a, attr=4),
            rounded(np.square, rounded(np.square, x)),  # each product
        ),
        "reciprocal": (
            lambda a, b: scalar.apply("integer_pow", a, attr=-1),
            rounded(lambda v: 1 / v, x),
        ),
        "select": (
            lambda a, b: scalar.select(scalar.apply("lt", a, b), a, b),
            np.where(x < y, x, y),
        ),
        **{c: (op(c), getattr(np, n)(x, y)) for c, n in COMPARE.items()},
    }
    run_all(table, [x, y], compiled=dtype in ("float32", "bfloat16"))


BOUNDS = [0.0, -0.0, 2.5, -1.0, 1e-50, math.inf, math.nan]  # 1e-50 is zero in some formats


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", FLOATS + HALF)
def test_extremes_beside_a_number(dtype, name):
    x, _ = pairs(dtype)
    table = {}
    for bound in BOUNDS:
        y = np.full_like(x, bound)
        wanted = np.maximum(x, y) if name == "max" else np.minimum(x, y)
        wanted = zeros_apart(wanted, x, y, 1 if name == "max" else -1)
        for kind in (scalar.const, scalar.literal):
            number = kind(bound, dtype)
            table[f"{name} {kind.__name__} {bound}"] = partial(op(name), number), wanted
            table[f"{name} {bound} {kind.__name__}"] = lambda a, n=number: op(name)(a, n), wanted
    run_all(table, [x])


def zeros_apart(result, x, y, sign):
    """The larger of two zeros is the positive one (NumPy gives either)."""
    zero = x.dtype.type(0)
    negative = np.signbit(x) & np.signbit(y) if sign > 0 else np.signbit(x) | np.signbit(y)
    return np.where((x == 0) & (y == 0), np.where(negative, -zero, zero), result).astype(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_once(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=300).astype(dtype)
    y = (1 / x).astype(dtype)
    exact = [Fraction(float(a)) * Fraction(float(b)) - 1 for a, b in zip(x, y, strict=True)]
    expected = np.array([float(v) for v in exact]).astype(dtype)  # float32: exact in float64
    largest = np.finfo(dtype).max  # products beyond all numbers
    x, y = (np.append(a, [largest, b]).astype(dtype) for a, b in ((x, -largest), (y, largest)))
    expected = np.append(expected, np.array([np.inf, -np.inf], dtype))
    minus = scalar.const(-1, dtype)
    table = {"fma": (lambda a, b: scalar.apply("fma", a, b, minus), expected)}
    run_all(table, [x, y], compiled=True)
    with np.errstate(over="ignore"):
        assert np.any(expected != x * y - 1)


def test_bools():
    x, y = pairs("bool")
    table = {
        "and": (op("and"), x & y),
        "or": (op("or"), x | y),
        "xor": (op("xor"), x ^ y),
        "not": (lambda a, b: scalar.apply("not", a), ~x),
        "add": (op("add"), x | y),
        "mul": (op("mul"), x & y),
        "max": (op("max"), x | y),
        "min": (op("min"), x & y),
        "select": (lambda a, b: scalar.select(a, b, scalar.apply("not", b)), np.where(x, y, ~y)),
        **{c: (op(c), getattr(np, n)(x, y)) for c, n in COMPARE.items()},
    }
    run_all(table, [x, y], compiled=True)


def test_any_byte_but_zero_is_true():
    x = np.array([0, 1, 2, 255], np.uint8).view(bool)
    program = pointwise([lambda a: scalar.cast(a, "int32")], [x])
    np.testing.assert_array_equal(native(program, [x])[0], [0, 1, 1, 1])


# --- bounds of integers -------------------------------------------------------------------------


def _index(rng, variables, depth):
    """A random index expression, and the function that computes it from values of the variables."""
    kind = rng.integers(0, 8) if depth else rng.integers(6, 8)
    if kind == 6:
        n = int(rng.integers(-9, 10))
        return scalar.size(n), lambda at: n
    if kind == 7:
        k = int(rng.integers(len(variables)))
        return variables[k], lambda at: at[k]
    (a, f), (b, g) = (_index(rng, variables, depth - 1) for _ in range(2))
    if kind < 3:
        name = ("add", "sub", "mul")[kind]
        fn = (lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y)[kind]
        return scalar.apply(name, a, b), lambda at: fn(f(at), g(at))
    if kind == 3:
        low, high = scalar.size(-2), scalar.size(3)
        return scalar.clamp(low, a, high), lambda at: min(max(f(at), -2), 3)
    op = ("lt", "le", "gt", "ge", "eq", "ne")[rng.integers(6)]
    test = {
        "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
    }[op]  # fmt: skip
    chosen = scalar.select(scalar.compare(op, a, b), a, b)
    return chosen, lambda at: f(at) if test(f(at), g(at)) else g(at)


def _value(e, at):
    if e.op in ("size", "const"):
        return e.attr
    if e in at:
        return at[e]
    x = [_value(a, at) for a in e.args]
    return {
        "add": lambda: x[0] + x[1], "sub": lambda: x[0] - x[1], "mul": lambda: x[0] * x[1],
        "min": lambda: min(x), "max": lambda: max(x), "select": lambda: x[1] if x[0] else x[2],
        "lt": lambda: x[0] < x[1], "le": lambda: x[0] <= x[1], "gt": lambda: x[0] > x[1],
        "ge": lambda: x[0] >= x[1], "eq": lambda: x[0] == x[1], "ne": lambda: x[0] != x[1],
    }[e.op]()  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_index_expressions_keep_their_values_and_their_bounds(seed):
    """What is folded because of a counter's range is right for each number in it."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.integers(1, 6, 2)]
    variables = [scalar.counter("t", n) for n in sizes]
    e, f = _index(rng, variables, 4)
    low, high = scalar.bounds(e)
    for at in np.ndindex(*sizes):
        value = _value(e, dict(zip(variables, at)))
        assert value == f(at)
        assert low <= value <= high


@pytest.mark.own_code
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("divisor", [0, 1, -1, 2, 7, 100, -100])
def test_division_by_a_number_of_the_program(dtype, divisor):
    if divisor < 0 and dtype in UNSIGNED:
        return
    x, _ = pairs(dtype)
    y = np.full_like(x, divisor)
    by = scalar.literal(divisor, dtype)
    program = pointwise([lambda x, op=op: scalar.apply(op, x, by) for op in ("div", "rem")], [x])
    divide = lambda x, y: [scalar.apply(op, x, y) for op in ("div", "rem")]
    other = pointwise([lambda x, y, k=k: divide(x, y)[k] for k in (0, 1)], [x, y])
    for run in (native, python):
        for got, expected in zip(run(program, [x]), run(other, [x, y]), strict=True):
            same(got, expected)
    if abs(divisor) > 1:  # a multiplication or a mask then takes the place of the division
        import fnx

        report = fnx.jit(lambda x: x % divisor).lower(x).as_text("llvm")
        bits = dtype.split("int")[1]
        if bits == "64" and divisor & (divisor - 1):  # which LLVM would not do for vectors
            assert "rem i64 " not in report
        else:
            assert f"rem i{bits} " in report
            assert f", {divisor}\n" in report
