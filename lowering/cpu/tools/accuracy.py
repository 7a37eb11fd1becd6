"""Measures the mathematical functions against mpmath, through the compiler; writes docs/vmath.md."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.lowering.math.formulas import FORMAT

from .hard import HARD

Rng = np.random.Generator
Sample = Callable[[Rng, int, Any], np.ndarray]  # generator, count, Format
BINARY = ("pow", "atan2", "rem")
ON_NEGATIVES = ("lgamma", "digamma")  # have zeros near every negative integer: measured apart


# --- where to look -----------------------------------------------------------------------------


def between(low: float, high: float) -> Sample:
    return lambda rng, n, f: rng.uniform(low, high, n)


def spread(low: int, high: int) -> Sample:
    """Either sign, every power of two from low to high, within the format's exponents."""

    def sample(rng: Rng, n: int, f: Any) -> np.ndarray:
        exponents = rng.uniform(max(low, 1 - f.bias - f.fraction), min(high, f.bias + 1), n)
        return np.exp2(exponents) * rng.choice([-1.0, 1.0], n)

    return sample


def near(*centres: float) -> Sample:
    """At relative distances of 2**-1 to 2**-50."""

    def sample(rng: Rng, n: int, f: Any) -> np.ndarray:
        return rng.choice(centres, n) * (1 + rng.normal(size=n) * np.exp2(rng.uniform(-50, -1, n)))

    return sample


def scaled(low: float, high: float, scale: dict[str, float]) -> Sample:
    """As between, in units of a limit of each format."""
    return lambda rng, n, f: rng.uniform(low, high, n) * scale[f.dtype]


def quarter_turns(rng: Rng, n: int, f: Any) -> np.ndarray:
    """Next to multiples of pi / 2, also to huge ones: the hard cases of argument reduction."""
    return np.pi / 2 * np.floor(np.exp2(rng.uniform(0, f.bias - 2, n)))


ANY = spread(-2000, 2000)
SMALL = spread(-60, 2)
E_OVERFLOW = {"float32": 88.72, "float64": 709.78}
E_UNDERFLOW = {"float32": -103.97, "float64": -745.13}
TWO_OVERFLOW = {"float32": 128.0, "float64": 1024.0}

SAMPLES: dict[str, list[Sample]] = {
    "exp": [SMALL, scaled(0, 1, E_OVERFLOW), scaled(0, 1, E_UNDERFLOW)],
    "exp2": [SMALL, scaled(-1.07, 1, TWO_OVERFLOW)],
    "expm1": [ANY, SMALL, scaled(0, 1, E_OVERFLOW), between(-40, 1)],
    "log": [ANY, near(1), between(0, 3)],
    "log2": [ANY, near(1), between(0, 3)],
    "log10": [ANY, near(1), between(0, 3)],
    "log1p": [ANY, SMALL, near(-1), between(-1, 2)],
    "sin": [ANY, between(-8, 8), quarter_turns],
    "cos": [ANY, between(-8, 8), quarter_turns],
    "tan": [ANY, between(-8, 8), quarter_turns],
    "sinh": [SMALL, scaled(-1, 1, E_OVERFLOW), between(-3, 3)],
    "cosh": [SMALL, scaled(-1, 1, E_OVERFLOW), between(-3, 3)],
    "tanh": [ANY, SMALL, between(-2, 2)],
    "asin": [SMALL, between(-1, 1), near(1, -1)],
    "acos": [SMALL, between(-1, 1), near(1, -1)],
    "atan": [ANY, between(-3, 3)],
    "asinh": [ANY, between(-3, 3)],
    "acosh": [ANY, between(1, 3), near(1)],
    "atanh": [SMALL, between(-1, 1), near(1, -1)],
    "cbrt": [ANY, between(-3, 3)],
    "rsqrt": [ANY, between(0, 3)],
    "logistic": [SMALL, between(-40, 40), scaled(-1, 1, E_OVERFLOW)],
    "erf": [ANY, between(-4, 4), between(-1, 1)],
    "erfc": [SMALL, between(-3, 9), between(0, 27)],
    "erf_inv": [spread(-200, 0), between(-1, 1), near(1, -1)],
    "lgamma": [ANY, between(0, 10), near(1, 2)],
    "digamma": [ANY, between(0, 10), near(1.4616321449683623)],
    "atan2": [ANY, between(-3, 3)],
    "pow": [ANY, near(1)],
    "rem": [ANY, spread(-20, 20)],
}


def inputs(op: str, dtype: str, count: int) -> list[np.ndarray]:
    """`count` numbers from each region of an operation, and the hard ones that searches found."""
    fmt = FORMAT[dtype]
    rng = np.random.default_rng(sum(map(ord, op)))
    with np.errstate(over="ignore", under="ignore"):
        x = np.concatenate([s(rng, count, fmt) for s in SAMPLES[op]]).astype(dtype)
        arrays = [x]
        if op in ("atan2", "rem"):
            arrays.append(rng.permutation(x))
        if op == "pow":
            arrays = [abs(x), _exponents(rng, abs(x), fmt)]
    hard = np.array(HARD.get((op, dtype), []), dtype).reshape(-1, len(arrays))
    return [np.concatenate([a, h]) for a, h in zip(arrays, hard.T, strict=True)]


def _exponents(rng: Rng, x: np.ndarray, fmt: Any) -> np.ndarray:
    """y with x**y all over the range of the format."""
    with np.errstate(divide="ignore"):
        octaves = np.maximum(abs(np.log2(x.astype("float64"))), 2.0**-fmt.fraction)
    return (rng.uniform(-1.05, 1.0, x.size) * (fmt.bias + 1) / octaves).astype(x.dtype)


# --- values and what they should be ------------------------------------------------------------


def program(op: str, arrays: Sequence[np.ndarray]) -> Any:
    """The operation on arrays, as Kernel IR."""
    from fnx.lowering.ir import kernel

    n, dtype = arrays[0].size, arrays[0].dtype.name
    buffers = [kernel.Buffer(f"x{k}", dtype, n, "argument", k) for k in range(len(arrays) + 1)]
    i = scalar.var("int64", "i")
    value = scalar.apply(op, *(scalar.load(b, i, dtype) for b in buffers[:-1]))
    store = kernel.Store(buffers[-1], i, value)
    nest = kernel.Nest(
        "all", [kernel.Loop(i, scalar.size(n), [store], kind=kernel.LoopKind.VECTORIZED)]
    )
    return kernel.Program(op, buffers[:-1], buffers[-1:], [nest])


def evaluate(op: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The operation on arrays, by the compiler."""
    from fnx.lowering.cpu.llvm import module_printer
    from fnx.lowering.cpu.loader import load

    spec = (arrays[0].shape, arrays[0].dtype)
    run = load.load(module_printer.emit(program(op, arrays)), [spec] * len(arrays), [spec], 0)
    return np.asarray(run(list(arrays))[0])


def reference(op: str) -> Callable[..., Any]:
    """The function in mpmath."""
    from mpmath import mp

    table = {
        "exp2": lambda x: mp.mpf(2) ** x,
        "log2": lambda x: mp.log(x, 2),
        "log1p": mp.log1p,
        "logistic": lambda x: 1 / (1 + mp.exp(-x)),
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "pow": mp.power,
        "rem": _truncated_rest,
        "erf_inv": _erf_inv,
        "lgamma": lambda x: mp.re(mp.loggamma(x)),
    }
    return table[op] if op in table else getattr(mp, op)


def _truncated_rest(x: Any, y: Any) -> Any:
    """By integers."""
    from mpmath import mp

    if not y:
        return mp.nan
    least = min(mp.frexp(x)[1], mp.frexp(y)[1]) - 53
    a, b = (int(mp.ldexp(abs(z), -least)) for z in (x, y))
    return mp.sign(x) * mp.ldexp(a % b, least)


def _erf_inv(y: Any) -> Any:
    """By Halley's iteration on erfc, from the double precision value."""
    from mpmath import mp
    from scipy import special

    a = abs(y)
    if a >= 1:
        return mp.inf * mp.sign(y) if a == 1 else mp.nan
    if a < mp.mpf(2) ** -30:
        return y * mp.sqrt(mp.pi) / 2 * (1 + mp.pi * y * y / 12)
    x = mp.mpf(float(special.erfinv(float(a))))
    for _ in range(2):
        step = (mp.erfc(x) - (1 - a)) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
        x += step / (1 - x * step)
    return x * mp.sign(y)


def errors(
    op: str, arrays: Sequence[np.ndarray], got: np.ndarray, least: float = 0.0
) -> np.ndarray:
    """Errors in ulps of the result, or of `least` where the result is less.

    Where the function is not defined the error is 0 if the answer is NaN, and infinite if not.
    """
    from mpmath import mp

    fmt, exact = FORMAT[got.dtype.name], reference(op)
    found = np.empty(got.size)
    with mp.workprec(140):
        for k, (g, *xs) in enumerate(zip(got.tolist(), *(a.tolist() for a in arrays), strict=True)):
            want = exact(*map(mp.mpf, xs))
            if not isinstance(want, mp.mpf) or mp.isnan(want):
                found[k] = 0.0 if g != g else np.inf
            elif mp.isinf(want):
                found[k] = 0.0 if g == float(want) else np.inf
            else:
                found[k] = _ulps(g, want, fmt, least)
    return found


def _ulps(got: float, want: Any, fmt: Any, least: float) -> float:
    from mpmath import mp

    if got != got:
        return np.inf
    largest = mp.mpf(2) ** (fmt.bias + 1)
    if abs(got) == np.inf and abs(want) < largest:
        got = mp.sign(got) * largest  # the next number, as if exponents went on
    if abs(got) == np.inf:
        return 0.0 if (got > 0) == (want > 0) else np.inf
    exponent = mp.frexp(max(abs(want), mp.mpf(least)))[1] if want or least else 0
    exponent = min(max(exponent, 2 - fmt.bias), fmt.bias + 1)
    return float(abs(mp.mpf(got) - want) * mp.mpf(2) ** (fmt.fraction + 1 - exponent))


# --- the table ---------------------------------------------------------------------------------

COUNT = 300  # numbers a region


def worst(op: str, dtype: str, count: int = COUNT) -> float:
    """The largest error, in ulps."""
    arrays = inputs(op, dtype, count)
    if op in ON_NEGATIVES:
        arrays = [abs(arrays[0])]
    return float(errors(op, arrays, evaluate(op, arrays)).max())


def worst_on_negatives(op: str, dtype: str, count: int = COUNT) -> float:
    """The largest error between -50 and 0, in ulps of the result or of 1, whichever is larger."""
    x = np.random.default_rng(1).uniform(-50.0, 0.0, count).astype(dtype)
    return float(errors(op, [x], evaluate(op, [x]), least=1.0).max())


HEADER = """# Errors of the mathematical functions

`python -m fnx.lowering.cpu.tools.accuracy` writes this page; a test compares. Each
number is the largest error, in units in the last place of the exact result (mpmath), over {count} inputs
from each region where a function is hard (near zeros, poles, overflow and underflow; every binary exponent;
multiples of pi / 2 up to the largest numbers) and over the worst of about a million inputs searched before.
Results that are denormal count in units of the smallest one. Correct rounding is 0.5.

Special values (zeros with their signs, infinities, NaN, and C99's cases of `pow` and `atan2`) are
exact; results are the same on every CPU, in scalar and in vector code. Without `jit` the same code
runs (`lowering/cpu/ufuncs.py`), and gives the same bits.

float16 and bfloat16 are computed in float32.

| function | float32 | float64 |
|---|---|---|
"""
FOOTER = """
Rows marked `x < 0`: near the zeros on the negative axis errors are in units in the last place of 1.
"""


def table() -> str:
    """The page docs/vmath.md."""
    rows = []
    for op in SAMPLES:
        rows.append((op, *(worst(op, d) for d in ("float32", "float64"))))
        if op in ON_NEGATIVES:
            rows.append(
                (f"{op}, x < 0", *(worst_on_negatives(op, d) for d in ("float32", "float64")))
            )
    body = "".join(f"| {name} | {a:.2f} | {b:.2f} |\n" for name, a, b in rows)
    return HEADER.format(count=COUNT) + body + FOOTER


if __name__ == "__main__":
    sys.stdout.write(table())
