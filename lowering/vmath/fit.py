"""Derives the library's coefficients: `python -m fnx.lowering.vmath.fit [name ...]` prints them.

Every entry of FITS is a weighted minimax problem, solved by Remez exchange on a dense grid
in 60 digits. Where it helps, the lowest coefficients are rounded to the working precision first
and the others fitted again, so that rounding costs next to nothing.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

mp.dps = 60
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
        errors = [
            (t - mp.fdot(c, b)) * w for t, b, w in zip(target, basis, weights, strict=True)
        ]
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


def fit(
    f: Callable, lo: Any, hi: Any, degree: int, weight: Callable, dtype: str
) -> tuple[list[float], float]:
    """Coefficients, lowest first, of a polynomial for f on [lo, hi], and log2 of its error."""
    lo, hi = mpf(lo), mpf(hi)
    count = GRID * (degree + 2)
    points = [
        (lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (i + mpf("0.5")) / count)
        for i in range(count)
    ]
    target, weights = [f(x) for x in points], [abs(mpf(weight(x))) for x in points]
    best = None
    for steps in (0, 1, 2, 4):
        c = _round_stepwise(target, points, weights, degree, dtype, steps)
        errors = [
            abs(t - mp.polyval([mpf(v) for v in reversed(c)], x)) * w
            for t, x, w in zip(target, points, weights, strict=True)
        ]
        if best is None or max(errors) < best[1]:
            best = c, max(errors)
    return best[0], float(mp.log(best[1], 2))


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
    # tanh(x) = x + x**3 TANH(x**2)
    "TANH": (
        root(lambda x: (mp.tanh(x) - x) / x**3),
        0,
        mpf("0.6") ** 2,
        root(lambda x: x**3 / mp.tanh(x)),
        {"float32": 4},
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
    # tan(r) = r + r**3 TAN(r**2)
    "TAN": (
        root(lambda r: (mp.tan(r) - r) / r**3),
        0,
        QUARTER_PI**2,
        root(lambda r: r**3 / mp.tan(r)),
        {"float32": 6},
    ),
}


def main(names: Sequence[str]) -> None:
    lines = ['"""Coefficients, lowest first, made by fit.py; each with log2 of its largest error."""']
    lines += ["", "C: dict[tuple[str, str], tuple[float, ...]] = {"]
    for name in names or FITS:
        f, lo, hi, weight, degrees = FITS[name]
        for dtype, degree in degrees.items():
            values, error = fit(f, lo, hi, degree, weight, dtype)
            lines += [f'    ("{name}", "{dtype}"): (  # {error:.1f}']
            lines += [f"        {v!r}," for v in values] + ["    ),"]
    sys.stdout.write("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
