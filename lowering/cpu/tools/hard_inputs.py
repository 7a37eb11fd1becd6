"""Finds the inputs of hard.py: `python -m fnx.lowering.cpu.tools.hard_inputs` prints them.

A million numbers from each region of a function are compared with a better value: float32 with the
same function in float64, float64 with C's long double where it has 64 bits. Functions that
NumPy lacks keep the inputs they have.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.lowering.math.formulas import FORMAT

from .accuracy import SAMPLES, errors, evaluate, inputs
from .hard import HARD

COUNT = 1_000_000
KEPT = 4  # inputs of a function

WIDE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in "exp exp2 expm1 log log2 log10 log1p cbrt".split()},
    **{name: getattr(np, name) for name in "sin cos tan sinh cosh tanh".split()},
    **{name: getattr(np, "arc" + name[1:]) for name in "asin acos atan atan2".split()},
    **{name: getattr(np, "arc" + name[1:]) for name in "asinh acosh atanh".split()},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "pow": np.power,
}


def better(op: str, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """The function with more digits, or None where there are none."""
    if arrays[0].dtype == np.float32:
        return evaluate(op, [a.astype(np.float64) for a in arrays])
    if op not in WIDE or np.finfo(np.longdouble).nmant < 63:
        return None
    return WIDE[op](*(a.astype(np.longdouble) for a in arrays))


def candidates(op: str, dtype: str) -> list[tuple[float, ...]]:
    """Where the function seems to be worst."""
    arrays = inputs(op, dtype, COUNT)
    if op in ("lgamma", "digamma"):
        arrays = [abs(a) for a in arrays]
    with np.errstate(all="ignore"):
        want = better(op, arrays)
        if want is None:
            return []
        got, fmt = evaluate(op, arrays), FORMAT[dtype]
        exponent = np.maximum(np.frexp(abs(want))[1] - 1, 1 - fmt.bias)
        off = abs(got.astype(want.dtype) - want) / np.ldexp(
            want.dtype.type(1), exponent - fmt.fraction
        )
    off[~(np.isfinite(off) & np.isfinite(got))] = 0
    return [tuple(float(a[k]) for a in arrays) for k in np.argsort(off)[-4 * KEPT :]]


def hardest(op: str, dtype: str) -> list[tuple[float, ...]]:
    """The worst inputs, and those known before, by their true errors."""
    found = sorted({*candidates(op, dtype), *HARD[op, dtype]})
    arrays = list(np.array(found, dtype).T)
    error = errors(op, arrays, evaluate(op, arrays))
    return [found[k] for k in np.argsort(error)[::-1][:KEPT]]


def main(names: Sequence[str]) -> None:
    lines = [
        '"""Inputs of the largest errors that hard_inputs.py found, among a million of each region."""'
    ]
    lines += ["", "HARD: dict[tuple[str, str], list[tuple[float, ...]]] = {"]
    for op, dtype in sorted(HARD):
        kept = hardest(op, dtype) if op in (names or SAMPLES) else HARD[op, dtype]
        rows = [f"        ({', '.join(map(repr, row))}{',' * (len(row) == 1)})," for row in kept]
        lines += [f'    ("{op}", "{dtype}"): [', *rows, "    ],"]
    sys.stdout.write("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
