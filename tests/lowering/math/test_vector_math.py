"""Vector mathematics: errors against mpmath, special values against C99, and that it vectorises."""

import math
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.scalar import Expr, var
from fnx.lowering.cpu.jit import compiler, vector_library
from fnx.lowering.cpu.llvm import kernel_facts, vector_abi
from fnx.lowering.cpu.tools.accuracy import BINARY, SAMPLES, evaluate, inputs, table
from fnx.lowering.math import USUAL, VMATH

INF, NAN, PI = math.inf, math.nan, math.pi
DTYPES = ("float32", "float64")

# the largest error allowed, in ulps
TIGHT = "exp exp2 expm1 log log2 log10 log1p sin cos tan".split()
BOUND = {**dict.fromkeys(SAMPLES, 4.0), "tanh": 2.0, "pow": 2.0, **dict.fromkeys(TIGHT, 1.5)}


# --- accuracy ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> str:
    return table()


def rows(page: str) -> dict[str, tuple[float, float]]:
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return {name.strip(): (float(a), float(b)) for name, a, b in lines[2:]}


def test_every_function_is_in_the_table():
    assert {(op, d) for op in SAMPLES for d in DTYPES} == set(VMATH)


def test_errors_are_within_their_bounds(page):
    found = rows(page)
    assert set(SAMPLES) <= set(found)
    for name, pair in found.items():
        assert max(pair) <= BOUND[name.split(",")[0]], name


def test_the_published_table_is_true(page, repository: Path):
    assert (repository / "docs" / "vmath.md").read_text() == page


@pytest.mark.parametrize("op", sorted(SAMPLES))
def test_single_agrees_with_double(op):
    """Many numbers, cheaply: float32 against the same function in float64."""
    arrays = inputs(op, "float32", 20_000)
    if op in ("lgamma", "digamma"):
        arrays = [abs(a) for a in arrays]
    got = evaluate(op, arrays).astype("float64")
    want = evaluate(op, [a.astype("float64") for a in arrays])
    with np.errstate(over="ignore"):
        nearest = want.astype("float32")
    same = (np.isnan(got) & np.isnan(want)) | (np.isinf(nearest) & (got == nearest))
    known = ~same & np.isfinite(nearest)
    assert (same | known).all()
    ulp = np.spacing(np.maximum(abs(nearest[known]), np.float32(2.0**-126))).astype("float64")
    assert (abs(got[known] - want[known]) <= (BOUND[op] + 0.01) * ulp).all()


@pytest.mark.parametrize("op", sorted(SAMPLES))
@pytest.mark.parametrize("dtype", DTYPES)
def test_calls_give_the_bits_of_what_is_inlined(op, dtype, monkeypatch):
    arrays = inputs(op, dtype, 50)
    inlined = evaluate(op, arrays)
    monkeypatch.setattr(kernel_facts, "inlined_lines", lambda: 0)
    np.testing.assert_array_equal(evaluate(op, arrays), inlined)


# --- special values ----------------------------------------------------------------------------

ODD = [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)]
LOG = [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)]
PERIODIC = [(INF, NAN), (-INF, NAN), (NAN, NAN)]
SPECIAL: dict[str, list] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    "exp2": [
        (0.0, 1.0),
        (10.0, 1024.0),
        (-3.0, 0.125),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (3e3, INF),
    ],
    "expm1": [*ODD, (INF, INF), (-INF, -1.0), (-1e4, -1.0), (1e4, INF)],
    "log": LOG,
    "log2": [*LOG, (8.0, 3.0), (0.125, -3.0)],
    "log10": [*LOG, (1000.0, 3.0)],
    "log1p": [*ODD, (INF, INF), (-1.0, -INF), (-2.0, NAN), (-INF, NAN)],
    "sin": [*ODD, *PERIODIC],
    "cos": [*PERIODIC, (0.0, 1.0), (-0.0, 1.0)],
    "tan": [*ODD, *PERIODIC],
    "sinh": [*ODD, (INF, INF), (-INF, -INF), (1e4, INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (-1e4, INF)],
    "tanh": [*ODD, (INF, 1.0), (-INF, -1.0), (1e4, 1.0), (-1e4, -1.0)],
    "asin": [*ODD, (1.0, PI / 2), (-1.0, -PI / 2), (2.0, NAN), (-2.0, NAN), (INF, NAN)],
    "acos": [
        (1.0, 0.0),
        (-1.0, PI),
        (0.0, PI / 2),
        (2.0, NAN),
        (-2.0, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "atan": [*ODD, (INF, PI / 2), (-INF, -PI / 2), (1.0, PI / 4)],
    "asinh": [*ODD, (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-2.0, NAN), (-INF, NAN), (INF, INF), (NAN, NAN)],
    "atanh": [*ODD, (1.0, INF), (-1.0, -INF), (2.0, NAN), (-2.0, NAN), (INF, NAN)],
    "cbrt": [*ODD, (INF, INF), (-INF, -INF), (27.0, 3.0), (-8.0, -2.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN), (NAN, NAN)],
    "logistic": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (1e4, 1.0), (-1e4, 0.0)],
    "erf": [*ODD, (INF, 1.0), (-INF, -1.0), (10.0, 1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (100.0, 0.0), (NAN, NAN)],
    "erf_inv": [*ODD, (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN)],
    "lgamma": [
        (1.0, 0.0),
        (2.0, 0.0),
        (0.0, INF),
        (-0.0, INF),
        (-3.0, INF),
        (INF, INF),
        (-INF, INF),
        (NAN, NAN),
    ],
    "digamma": [(0.0, -INF), (-0.0, INF), (-1.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
}
POW = [
    *[(x, y, 1.0) for x in (0.0, -0.0, 2.0, -INF, NAN) for y in (0.0, -0.0)],
    *[(1.0, y, 1.0) for y in (3.0, -INF, INF, NAN)],
    *[(-1.0, y, 1.0) for y in (INF, -INF)],
    (-1.0, NAN, NAN), (NAN, 1.0, NAN), (2.0, NAN, NAN),
    (0.0, -3.0, INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-0.0, -2.5, INF), (0.0, -INF, INF),
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 2.5, 0.0), (-0.0, INF, 0.0),
    (-2.0, 0.5, NAN), (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5),
    (0.5, -INF, INF), (-0.5, -INF, INF), (2.0, -INF, 0.0), (-2.0, -INF, 0.0),
    (0.5, INF, 0.0), (-0.5, INF, 0.0), (2.0, INF, INF), (-2.0, INF, INF),
    (-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, -0.5, 0.0),
    (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF), (INF, -1.0, 0.0), (INF, 0.5, INF),
    (-2.0, 2.0**24, INF), (-2.0, 2.0**24 - 1, -INF), (-0.5, 2.0**24 - 1, -0.0), (3.0, 4.0, 81.0),
]  # fmt: skip
ATAN2 = [
    (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, PI), (-0.0, -0.0, -PI),
    (0.0, -1.0, PI), (-0.0, -1.0, -PI), (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0),
    (1.0, 0.0, PI / 2), (-1.0, -0.0, -PI / 2), (1.0, 1.0, PI / 4), (-1.0, -1.0, -3 * PI / 4),
    (1.0, -INF, PI), (-1.0, -INF, -PI), (1.0, INF, 0.0), (-1.0, INF, -0.0),
    (INF, 1.0, PI / 2), (-INF, -1.0, -PI / 2), (INF, INF, PI / 4), (INF, -INF, 3 * PI / 4),
    (-INF, INF, -PI / 4), (-INF, -INF, -3 * PI / 4), (NAN, 1.0, NAN), (1.0, NAN, NAN),
]  # fmt: skip
REM = [
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (7.0, 3.0, 1.0), (-7.0, 3.0, -1.0), (7.0, -3.0, 1.0),
    (6.0, 3.0, 0.0), (-6.0, 3.0, -0.0), (2.0, 3.0, 2.0), (-2.0, 3.0, -2.0),
    (0.0, 0.0, NAN), (1.0, 0.0, NAN), (-1.0, -0.0, NAN), (INF, 0.0, NAN), (INF, 2.0, NAN), (-INF, 2.0, NAN),
    (INF, INF, NAN), (5.0, INF, 5.0), (-5.0, -INF, -5.0), (0.0, INF, 0.0), (-0.0, -INF, -0.0),
    (NAN, 2.0, NAN), (2.0, NAN, NAN), (NAN, 0.0, NAN), (NAN, INF, NAN), (INF, NAN, NAN),
]  # fmt: skip
CASES = {**SPECIAL, "pow": POW, "atan2": ATAN2, "rem": REM}


def bits(x: np.ndarray) -> list[int]:
    """Bits, the same for all NaN."""
    x = np.where(np.isnan(x), x.dtype.type(NAN), x)
    return x.view(f"u{x.itemsize}").tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", sorted(SAMPLES))
def test_special_values_are_exact(op, dtype):
    *arrays, want = np.array(CASES[op], dtype).T.copy()
    assert bits(evaluate(op, arrays)) == bits(want)


@pytest.mark.parametrize(("dtype", "step"), [("float32", 2.0**-149), ("float64", 2.0**-1074)])
@pytest.mark.parametrize("op", "expm1 log1p sin tan sinh tanh asin atan asinh atanh".split())
def test_the_smallest_numbers_map_to_themselves(op, dtype, step):
    x = np.array([1, -1, 7, 1 << 12], dtype) * np.dtype(dtype).type(step)
    assert bits(evaluate(op, [x])) == bits(x)


def test_results_become_denormal_and_overflow_where_they_must():
    log_smallest, log_largest = math.log(5e-324), math.log(np.finfo(float).max)
    x = np.array([log_smallest - 0.7, log_smallest, -740.0, log_largest, 709.79])
    got = evaluate("exp", [x])
    assert got[:2].tolist() == [0.0, 5e-324]
    assert got[2] == math.exp(-740.0)
    assert math.isfinite(got[3])
    assert got[4] == INF
    assert evaluate("pow", [np.array([2.0]), np.array([-1074.0])]) == [5e-324]
    assert evaluate("exp2", [np.array([-149.0], "float32")]) == [np.float32(2.0**-149)]


def test_huge_angles():
    """sin(1e22), and the double that is nearest to a multiple of pi / 2."""
    assert evaluate("sin", [np.array([1e22])])[0] == -0.8522008497671888
    x = 6381956970095103.0 * 2.0**797
    assert evaluate("cos", [np.array([x])])[0] == -4.687165924254628e-19


# --- remainders --------------------------------------------------------------------------------


def hostile(dtype: str, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Dividends and divisors: any bits; quotients near whole numbers, of few and of all digits."""
    rng, info = np.random.default_rng(7), np.finfo(dtype)
    integer = np.dtype(f"u{info.dtype.itemsize}")
    bits = lambda: rng.integers(0, np.iinfo(integer).max, count, integer, endpoint=True).view(dtype)
    pairs = [(bits(), bits())]
    for digits in (2, info.nmant // 2, info.nmant, info.nmant + 2):
        y = rng.uniform(1, 2, count).astype(dtype)
        x = (y * rng.integers(1, 2**digits, count)).astype(dtype)
        steps = rng.integers(-2, 3, count).astype(integer)  # neighbours
        pairs.append(
            ((x.view(integer) + steps).view(dtype), np.negative(y, where=steps > 1, out=y))
        )
    x, y = pairs[2]
    tiny = info.dtype.type(2.0 ** (info.minexp - info.nmant // 2))
    return [*pairs, (x * tiny, y * tiny), (x, x * (1 + info.eps)), (x, x * (1 - info.epsneg))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_remainders_are_exact(dtype):
    for x, y in hostile(dtype, 20_000):
        want = [
            math.fmod(a, b) if b and abs(a) < INF else NAN for a, b in zip(x.tolist(), y.tolist())
        ]
        assert bits(evaluate("rem", [x, y])) == bits(np.array(want, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *DTYPES])
@pytest.mark.parametrize("divisor", [1.0, 2.0, 0.1, -6.5, 1e-3, math.tau, INF, 0.0])
def test_remainders_by_a_number_of_the_program(dtype, divisor):
    """Compiled as uncompiled: what has the sign of either operand, and quotients rounded down."""
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=999) * 10.0 ** rng.integers(-4, 5, 999), dtype)
    for f in (jnp.fmod, jnp.remainder, jnp.floor_divide):
        got, want = (np.asarray(g(x, divisor), "float64") for g in (fnx.jit(f), f))
        np.testing.assert_array_equal(got, want)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


# --- form --------------------------------------------------------------------------------------

PRIMITIVE = set(
    "const var add sub mul div neg abs fma sqrt floor round_even trunc eq ne lt le gt ge and or xor "
    "not select cast bitcast shift_left shift_right_logical".split()
)


def operations(e: Expr, found: set[str]) -> set[str]:
    if e.op not in found or e.args:
        found.add(e.op)
        for a in e.args:
            operations(a, found)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "cbrt", "atan2", "pow", "erf", "logistic"])
def test_only_primitive_operations(op, dtype):
    arguments = [var(dtype) for _ in range(2 if op in BINARY else 1)]
    assert operations(VMATH[op, dtype](*arguments), set()) <= PRIMITIVE


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", sorted(SAMPLES))
def test_vector_code_calls_nothing(op, dtype):
    """On vectors there is no call of a scalar function and no element is taken out."""
    import llvmlite.binding as llvm

    if not llvm.get_host_cpu_features().get("fma"):
        pytest.skip("without fma instructions llvm.fma is a call")
    width = vector_abi.widths(dtype)[-1]
    assembly = compiler.assembly(vector_library._text(op, dtype, width), "function")
    if vector_library._is_apart(op, dtype):
        # Unusual arguments, of 2**30 and more say, go to a function that calls the scalar one for each.
        rare = f"{vector_abi.name(op, dtype)}_w{width}_rare"
        before, _, after = assembly.partition(f"{rare}:")
        assembly = before + after.partition(".Lfunc_end")[2]
        assert assembly.count("call") == assembly.count(f"callq\t{rare}") == 1
    else:
        assert "call" not in assembly
    assert "%ymm" in assembly or "%zmm" in assembly


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
def test_neighbours_do_not_change_a_result(op, dtype):
    """Code branches on whether all elements of a vector are of ordinary size: the bits agree."""
    assert (op + ".usual", dtype) in USUAL
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 4096).astype(dtype) * np.exp2(rng.integers(-8, 30, 4096)).astype(dtype)
    mixed = x.copy()
    mixed[1::2] = 1e30
    assert bits(evaluate(op, [x])[::2]) == bits(evaluate(op, [mixed])[::2])


def test_functions_that_branch_are_listed():
    assert {f"{op}.usual" for op in vector_abi.BRANCHING} <= {op for op, _ in USUAL}
    assert all(op.partition(".")[0] in vector_abi.BRANCHING for op, _ in USUAL)


@pytest.mark.slow
def test_coefficients_are_those_of_the_fits():
    from fnx.lowering.cpu.tools import fit
    from fnx.lowering.math.coefficients import C

    for name in ("SIN", "EXP2_NARROW", "TANH"):
        f, low, high, weight, degrees = fit.FITS[name]
        for dtype, degree in degrees.items():
            values, error = fit.fit(f, low, high, degree, weight, dtype)
            assert C[name, dtype] == pytest.approx(values, rel=1e-12)
            assert error < {"float32": -24.0, "float64": -28.0}[dtype]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("y", [-1.5, 1.5, 2.5])
def test_powers_of_halves(dtype, y):
    """Those of 3/2 are made of a square root: as exact, and the same where x is special."""
    limits = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, limits.smallest_subnormal, limits.max]
    ends = np.log([float(limits.tiny), float(limits.max)])
    ordinary = np.exp(np.random.default_rng(1).uniform(*ends, 1000))
    x = np.array([*special, *ordinary], dtype)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), np.longdouble(y))
        want = exact.astype(dtype)
    got = np.asarray(fnx.jit(lambda x: x**y)(x))
    np.testing.assert_array_equal(got[:8], want[:8])
    np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(want[:4]))
    normal = np.isfinite(want) & (want > limits.tiny)
    errors = np.abs(got[normal] - exact[normal]) / np.spacing(want[normal])
    assert errors.max() <= BOUND["pow"]
