"""Derives the coefficients of lowering/math: `python -m fnx.lowering.cpu.tools.fit [name ...]` prints them.

Every entry of FITS is a weighted minimax problem, solved by exchange (Remez 1934) on a dense
grid in 60 digits. Where it helps, the lowest coefficients are rounded to the working precision first
and the others fitted again, so that rounding costs next to nothing.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _context() -> Any:
    """A context of our own, in 60 digits: the precision of mpmath.mp is not ours to change."""
    from mpmath.ctx_mp import MPContext

    context = MPContext()
    context.dps = 60
    return context


mp = _context()
mpf = mp.mpf
GRID = 30  # points a coefficient


def minimax(
    target: Sequence[Any], points: Sequence[Any], weights: Sequence[Any], powers: Sequence[int]
) -> tuple[list[Any], Any]:
    """c minimising max |target - sum c[j] points**powers[j]| * weights, and that maximum."""
    count = len(powers)
    basis = [[x**p for p in powers] for x in points]
    picks = [round(i * (len(points) - 1) / count) for i in range(count + 1)]
    for _ in range(30):
        rows = [[*basis[i], (-1) ** k / weights[i]] for k, i in enumerate(picks)]
        solution = list(mp.lu_solve(mp.matrix(rows), mp.matrix([target[i] for i in picks])))
        c = solution[:count]
        errors = [(t - mp.fdot(c, b)) * w for t, b, w in zip(target, basis, weights, strict=True)]
        worst = max(map(abs, errors))
        if worst <= abs(solution[count]) * mpf("1.001"):
            break
        picks = _alternation(errors, count + 1, picks)
    return c, worst


def _alternation(errors: list[Any], count: int, before: list[int]) -> list[int]:
    """The largest error of each run of one sign, less the smallest at the ends."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs if len(runs) == count else before


def _grid(lo: Any, hi: Any, count: int) -> list[Any]:
    """Chebyshev's points, increasing."""
    angles = [mp.pi * (i + mpf("0.5")) / count for i in range(count)]
    return [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(a) for a in angles]


def fit(
    f: Callable, lo: Any, hi: Any, degree: int, weight: Callable, dtype: str
) -> tuple[list[float], float]:
    """Coefficients, lowest first, of a polynomial for f on [lo, hi], and log2 of its error."""
    lo, hi = mpf(lo), mpf(hi)
    count = GRID * (degree + 2)
    points = _grid(lo, hi, count)
    target, weights = [f(x) for x in points], [abs(mpf(weight(x))) for x in points]
    tried = []
    for steps in (0, 1, 2, 4):
        c = _round_stepwise(target, points, weights, degree, dtype, steps)
        errors = [
            abs(t - mp.fsum(mpf(v) * x**j for j, v in enumerate(c))) * w
            for t, x, w in zip(target, points, weights, strict=True)
        ]
        tried.append((max(errors), c))
    worst, best = min(tried)
    return best, float(mp.log(worst, 2))


def _round_stepwise(
    target: list, points: list, weights: list, degree: int, dtype: str, steps: int
) -> list[float]:
    """Coefficients, of which the first `steps` are rounded before the next are fitted."""
    done: list[float] = []
    while len(done) <= degree:
        rest = [
            t - sum((mpf(c) * x**j for j, c in enumerate(done)), mpf(0))
            for t, x in zip(target, points, strict=True)
        ]
        c, _ = minimax(rest, points, weights, list(range(len(done), degree + 1)))
        done += [_round(v, dtype) for v in (c[:1] if len(done) < steps else c)]
    return done


def _round(value: Any, dtype: str) -> float:
    """The nearest number of the format."""
    if dtype == "float64":
        return float(value)
    mantissa, exponent = mp.frexp(value)
    return float(np.float32(float(mp.ldexp(mp.nint(mantissa * 2**24), exponent - 24))))


HALF_LN2 = mp.log(2) / 2 * mpf("1.0001")
QUARTER_PI = mp.pi / 4 * mpf("1.0001")
SQRT_HALF = mp.sqrt(mpf("0.5"))
CENTRE = 3 - 2 * mp.sqrt(2)  # (m - 1) / (m + 1) at m = sqrt(2)


def root(f: Callable) -> Callable:
    """f as a function of the square of its argument."""
    return lambda z: f(mp.sqrt(z))


ERF_SPLIT = mpf("0.9")
ERFC_CENTRE = 2


def erfc_scaled(q: Any) -> Any:
    """(a + c) exp(a**2) erfc(a) at q = (a - c) / (a + c)."""
    a = ERFC_CENTRE * (1 + q) / (1 - q)
    return (a + ERFC_CENTRE) * mp.exp(a * a) * mp.erfc(a)


def stirling(u: Any) -> Any:
    """lgamma(x) = (x - 1/2) log(x) - x + log(2 pi) / 2 + r STIRLING(r**2), with r = 1 / x."""
    with mp.workdps(120):
        x = 1 / mp.sqrt(u)
        return x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def digamma_series(u: Any) -> Any:
    """digamma(x) = log(x) - r / 2 - r**2 DIGAMMA_SERIES(r**2), with r = 1 / x."""
    with mp.workdps(120):
        x = 1 / mp.sqrt(u)
        return x * x * (mp.log(x) - 1 / (2 * x) - mp.digamma(x))


# name: (function, low, high, weight, {dtype: degree})
FITS: dict[str, tuple[Callable, Any, Any, Callable, dict[str, int]]] = {
    # e**r = 1 + r + r**2 EXP(r)
    "EXP": (
        lambda r: (mp.expm1(r) - r) / r**2,
        -HALF_LN2,
        HALF_LN2,
        lambda r: r**2 / mp.exp(r),
        {"float32": 4, "float64": 10},
    ),
    # 2**r = 1 + r EXP2(r)
    "EXP2": (
        lambda r: mp.expm1(r * mp.log(2)) / r,
        -0.5,
        0.5,
        lambda r: r / 2**r,
        {"float32": 5, "float64": 10},
    ),
    # log(1 + f) = f - f**2 / 2 + f**3 LOG1P(f)
    "LOG1P": (
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        SQRT_HALF - 1,
        mp.sqrt(2) - 1,
        lambda f: f**3 / mp.log1p(f),
        {"float32": 8},
    ),
    # 2 atanh(s) = 2 s + s**3 LOG(s**2)
    "LOG": (
        root(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3),
        0,
        CENTRE**2,
        lambda z: z,
        {"float64": 6},
    ),
    # the same to float64's 53 bits and 13 more: 2 s + 2/3 s**3 + s**5 LOG_WIDE(s**2)
    "LOG_WIDE": (
        root(lambda s: (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5),
        0,
        CENTRE**2,
        lambda z: z**2,
        {"float64": 8},
    ),
    # log2 and exp2 for float32's pow, in float64
    "LOG_NARROW": (
        root(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3 / mp.log(2)),
        0,
        CENTRE**2,
        lambda z: z,
        {"float64": 4},
    ),
    "EXP2_NARROW": (
        lambda r: mp.expm1(r * mp.log(2)) / r,
        -0.5,
        0.5,
        lambda r: r / 2**r,
        {"float64": 5},
    ),
    # tanh(y) = y + y**3 TANH(y**2)
    "TANH": (
        root(lambda y: (mp.tanh(y) - y) / y**3),
        0,
        (HALF_LN2 / 2) ** 2,
        root(lambda y: y**3 / mp.tanh(y)),
        {"float32": 2, "float64": 5},
    ),
    # sin(r) = r + r**3 SIN(r**2)
    "SIN": (
        root(lambda r: (mp.sin(r) - r) / r**3),
        0,
        QUARTER_PI**2,
        root(lambda r: r**3 / mp.sin(r)),
        {"float32": 2, "float64": 5},
    ),
    # cos(r) = 1 - r**2 / 2 + r**4 COS(r**2)
    "COS": (
        root(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        0,
        QUARTER_PI**2,
        root(lambda r: r**4 / mp.cos(r)),
        {"float32": 2, "float64": 5},
    ),
    # atan(t) = t + t**3 ATAN(t**2)
    "ATAN": (
        root(lambda t: (mp.atan(t) - t) / t**3),
        0,
        (mp.sqrt(2) - 1) ** 2,
        root(lambda t: t**3 / mp.atan(t)),
        {"float32": 4, "float64": 10},
    ),
    # asin(s) = s + s**3 ASIN(s**2)
    "ASIN": (
        root(lambda s: (mp.asin(s) - s) / s**3),
        0,
        0.25,
        root(lambda s: s**3 / mp.asin(s)),
        {"float32": 4, "float64": 11},
    ),
    # sin(pi f) / pi = f + f**3 SIN_PI(f**2), cos(pi f) = (1 - 4 f**2) COS_PI(f**2)
    "SIN_PI": (
        root(lambda f: (mp.sin(mp.pi * f) / mp.pi - f) / f**3),
        0,
        0.25,
        root(lambda f: f**3 / mp.sin(mp.pi * f) * mp.pi),
        {"float64": 8},
    ),
    "COS_PI": (
        lambda z: mp.cos(mp.pi * mp.sqrt(z)) / (1 - 4 * z),
        0,
        0.25,
        lambda z: 1 / (mp.cos(mp.pi * mp.sqrt(z)) / (1 - 4 * z)),
        {"float64": 8},
    ),
    # erf(x) = x + x ERF(x**2) for small x, 1 - exp(-x ERF_TAIL(x)) beyond
    "ERF": (
        root(lambda x: (mp.erf(x) - x) / x),
        0,
        ERF_SPLIT**2,
        root(lambda x: x / mp.erf(x)),
        {"float64": 12},
    ),
    # ends where erf is 1
    "ERF_TAIL": (
        lambda x: -mp.log(mp.erfc(x)) / x,
        ERF_SPLIT,
        6,
        lambda x: mp.erfc(x) * x / mp.erf(x),
        {"float64": 17},
    ),
    # for float32 to 1, and 1 - ERFC_ROOT(x)**4 beyond, till erf is 1
    "ERF_NARROW": (
        root(lambda x: (mp.erf(x) - x) / x),
        0,
        1,
        root(lambda x: x / mp.erf(x)),
        {"float32": 6},
    ),
    "ERFC_ROOT": (
        lambda x: mp.erfc(x) ** mpf("0.25"),
        1,
        mpf("3.95"),
        lambda x: 4 * mp.erfc(x) ** mpf("0.75") / mp.erf(x),
        {"float32": 8},
    ),
    # ends where erfc is zero
    "ERFC": (erfc_scaled, -1, mpf(8.5) / mpf(12.5), lambda q: 1 / erfc_scaled(q), {"float32": 11}),
    "ERFC_WIDE": (
        erfc_scaled,
        -1,
        mpf(26) / mpf(30),
        lambda q: 1 / erfc_scaled(q),
        {"float64": 24},
    ),
    # for x >= 3
    "STIRLING": (stirling, mpf("1e-6"), mpf(1) / 9, lambda u: 1, {"float64": 10}),
    "DIGAMMA_SERIES": (digamma_series, mpf("1e-6"), mpf(1) / 9, lambda u: 1, {"float64": 10}),
    # tan(r) = r + r**3 TAN(r**2)
    "TAN": (
        root(lambda r: (mp.tan(r) - r) / r**3),
        0,
        QUARTER_PI**2,
        root(lambda r: r**3 / mp.tan(r)),
        {"float32": 6},
    ),
}


# --- rational functions ------------------------------------------------------------------------


def rational(
    f: Callable,
    base: Callable,
    lo: Any,
    hi: Any,
    degrees: tuple[int, int],
    centre: Any,
    iterations: int = 10,
) -> tuple[list[float], list[float], float]:
    """P and Q in x - centre with base + P / Q near f; log2 of the relative error, nearly minimax.

    Each iteration is a linear least squares fit of Q f - P, weighted with the Q of the one before
    (Sanathanan & Koerner 1963) and by the errors found so far (Lawson 1961).
    """
    lo, hi, centre = mpf(lo), mpf(hi), mpf(centre)
    p, q = degrees
    count = 8 * (p + q + 2)
    points = _grid(lo, hi, count)
    whole = [f(x) for x in points]
    target = [v - base(x) for v, x in zip(whole, points, strict=True)]
    width = (hi - lo) / 2
    powers = [[((x - centre) / width) ** j for j in range(max(p, q) + 1)] for x in points]
    lawson, last_q = [mpf(1)] * count, [mpf(1)] * count
    best: tuple[list, list, Any] = [], [], mp.inf
    for k in range(iterations):
        top, bottom = _linear_rational(target, whole, powers, p, q, lawson, last_q)
        last_q = [mp.fdot(bottom, row[: q + 1]) for row in powers]
        errors = [
            abs((mp.fdot(top, row[: p + 1]) / d - t) / v)
            for t, v, row, d in zip(target, whole, powers, last_q, strict=True)
        ]
        worst = max(errors)
        if worst < best[2]:
            best = top, bottom, worst
        if k >= 2:
            lawson = [w * e / worst + mpf(10) ** -12 for w, e in zip(lawson, errors, strict=True)]
            mean = mp.fsum(lawson) / count
            lawson = [w / mean for w in lawson]
    top, bottom = ([float(c / width**j) for j, c in enumerate(v)] for v in best[:2])
    return top, bottom, float(mp.log(best[2], 2))


def _linear_rational(
    target: list, whole: list, powers: list, p: int, q: int, lawson: list, last_q: list
) -> tuple[list, list]:
    """P and Q (Q(0) = 1) minimising the weighted squares of (target - P / Q) / whole, linearised."""
    size = p + 1 + q
    a, b = mp.matrix(size, size), mp.matrix(size, 1)
    for t, v, row, w, d in zip(target, whole, powers, lawson, last_q, strict=True):
        scale = w / (v * d) ** 2
        terms = [*row[: p + 1], *(-t * v for v in row[1 : q + 1])]
        for i in range(size):
            weighted = terms[i] * scale
            b[i] += weighted * t
            for j in range(i, size):
                a[i, j] += weighted * terms[j]
    for i in range(size):
        for j in range(i):
            a[i, j] = a[j, i]
    solution = list(mp.lu_solve(a, b))
    return solution[: p + 1], [mpf(1), *solution[p + 1 :]]


def inverse_erfc_exp(s: Any) -> Any:
    """x with erfc(x) = exp(-s**2), by Halley's iteration."""
    c = mp.exp(-s * s)
    x = s * mpf("0.9")
    for _ in range(80):
        step = (mp.erfc(x) - c) / (2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        step = step / (1 - x * step) if abs(x * step) < 0.5 else step
        x += step
        if abs(step) < mpf(10) ** -50:
            break
    return x


def erf_inv_ratio(z: Any) -> Any:
    return mp.erfinv(mp.sqrt(z)) / mp.sqrt(z)


DIGAMMA_ROOT = mp.findroot(mp.digamma, mpf("1.4616321449683623"))

# name: (function, what is added to P / Q, low, high, degrees of P and Q, centre)
RATIONALS: dict[str, tuple[Callable, Callable, Any, Any, tuple[int, int], Any]] = {
    # erf_inv(y) = y (7/8 + ERF_INV(y**2)) for |y| <= 3/4
    "ERF_INV": (erf_inv_ratio, lambda z: mpf("0.875"), 1e-30, 0.5626, (6, 6), 0.5625),
    "ERF_INV_NARROW": (erf_inv_ratio, lambda z: mpf("0.875"), 1e-30, 0.5626, (3, 2), 0.5625),
    # and s + ERF_INV_TAIL(s), s = sqrt(-log(1 - |y|)), beyond
    "ERF_INV_TAIL": (inverse_erfc_exp, lambda s: s, 1.177, 6.07, (8, 8), 1),
    "ERF_INV_TAIL_NARROW": (inverse_erfc_exp, lambda s: s, 1.177, 4.1, (4, 3), 1),
    # lgamma(z) = (z - 1) (z - 2) (7/16 + LGAMMA(z)), digamma(z) = (z - root) (3/4 + DIGAMMA(z))
    "LGAMMA": (
        lambda z: mp.loggamma(z) / ((z - 1) * (z - 2)),
        lambda z: mpf("0.4375"),
        0.5,
        3,
        (9, 9),
        0.5,
    ),
    "DIGAMMA": (
        lambda z: mp.digamma(z) / (z - DIGAMMA_ROOT),
        lambda z: mpf("0.75"),
        0.5,
        3,
        (7, 7),
        0.5,
    ),
}


def _entry(name: str, dtype: str, values: Sequence[float], error: float) -> list[str]:
    digits = [f"        {v!r}," for v in values]
    return [f'    ("{name}", "{dtype}"): (  # {error:.1f}', *digits, "    ),"]


def main(names: Sequence[str]) -> None:
    lines = [
        '"""Coefficients, lowest first, made by cpu/tools/fit.py; each with log2 of its largest error."""'
    ]
    lines += ["", "C: dict[tuple[str, str], tuple[float, ...]] = {"]
    for name in names or [*FITS, *RATIONALS]:
        if name in RATIONALS:
            top, bottom, error = rational(*RATIONALS[name])
            lines += _entry(name + "_P", "float64", top, error)
            lines += _entry(name + "_Q", "float64", bottom, error)
            continue
        f, lo, hi, weight, degrees = FITS[name]
        for dtype, degree in degrees.items():
            lines += _entry(name, dtype, *fit(f, lo, hi, degree, weight, dtype))
    sys.stdout.write("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
