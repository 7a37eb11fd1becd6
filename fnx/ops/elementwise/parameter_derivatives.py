"""Derivatives of special functions in their parameters, for which there are no formulas.

A central difference of order 8, in float64, with a step that depends on the parameter alone: good to
about 1e-11 where the function is smooth over four steps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.cost import LIBRARY
from fnx.core.errors import MissingRule
from fnx.ops.elementwise.pointwise import FLOAT, Elementwise

WEIGHTS = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
# Steps, as functions for NumPy and for expressions.
Step = tuple[Callable[[Any], Any], Callable[[expr.Expr], expr.Expr]]


def number(value: float, like: expr.Expr) -> expr.Expr:
    """A constant of an expression's dtype."""
    return expr.const(value, like.dtype)


def in_double(fn: Callable[..., expr.Expr]) -> Callable[..., expr.Expr]:
    """A scalar operation computed in float64, with a result of the operands' dtype."""
    return lambda *xs: expr.cast(fn(*[expr.cast(x, "float64") for x in xs]), xs[0].dtype)


def _fixed(h: float) -> Step:
    return (lambda p: h), (lambda p: number(h, p))


def _above(low: float, h: float) -> Step:
    """Proportional to the distance d from a pole at `low`, and at most h: h d / (1 + d)."""

    def scalar_step(p: expr.Expr) -> expr.Expr:
        d = expr.sub(p, number(low, p))
        return expr.apply("div", expr.mul(number(h, p), d), expr.add(number(1.0, p), d))

    return (lambda p: h * (p - low) / (1 + (p - low))), scalar_step


def _spread(h: float) -> Step:
    """Proportional to p / sqrt(1 + p): the width of gamma and beta distributions."""

    def scalar_step(p: expr.Expr) -> expr.Expr:
        root = expr.apply("sqrt", expr.add(number(1.0, p), p))
        return expr.apply("div", expr.mul(number(h, p), p), root)

    return (lambda p: h * p / np.sqrt(1 + p)), scalar_step


def no_slope(name: str, of: str) -> Callable:
    """The rule of an operand in which there is a derivative, but no way to compute it."""

    def rule(*_: Any) -> Any:
        raise MissingRule(
            f"{name} has no derivative in {of}; treat it as a constant (stop_gradient)"
        )

    return rule


def slope_in(name: str, special: str, k: int, count: int, step: Step) -> Elementwise:
    """The derivative of SciPy's function `special` of `count` operands in operand k."""

    def impl(*xs: np.ndarray) -> Any:
        from scipy import special as functions

        fn = getattr(functions, special)
        wide = [x.astype(np.float64) for x in xs]
        with np.errstate(all="ignore"):
            h = step[0](wide[k])
            at = lambda j: fn(*wide[:k], wide[k] + j * h, *wide[k + 1 :])
            total = sum(w * (at(j) - at(-j)) for j, w in WEIGHTS)
            return np.asarray(total / h).astype(xs[0].dtype)

    def scalar_fn(*xs: expr.Expr) -> expr.Expr:
        h = step[1](xs[k])

        def at(j: int) -> expr.Expr:
            moved = expr.add(xs[k], expr.mul(number(float(j), xs[k]), h))
            return expr.special(special, *xs[:k], moved, *xs[k + 1 :])

        total = number(0.0, h)
        for j, w in WEIGHTS:
            total = expr.add(total, expr.mul(number(w, h), expr.sub(at(j), at(-j))))
        return expr.apply("div", total, h)

    rules = tuple(no_slope(name, f"operand {i}") for i in range(count))
    return Elementwise(name, impl, FLOAT, rules, expr=in_double(scalar_fn), cost=LIBRARY)


zeta_grad_s = slope_in("zeta_grad_s", "zeta", 0, 2, _above(1.0, 0.02))
beta_grad_a = slope_in("beta_grad_a", "betainc", 0, 3, _spread(0.05))
beta_grad_b = slope_in("beta_grad_b", "betainc", 1, 3, _spread(0.05))
hyp1f1_grad_a = slope_in("hyp1f1_grad_a", "hyp1f1", 0, 3, _fixed(0.02))
hyp1f1_grad_b = slope_in("hyp1f1_grad_b", "hyp1f1", 1, 3, _fixed(0.02))
hyp2f1_grad_a = slope_in("hyp2f1_grad_a", "hyp2f1", 0, 4, _fixed(0.02))
hyp2f1_grad_b = slope_in("hyp2f1_grad_b", "hyp2f1", 1, 4, _fixed(0.02))
hyp2f1_grad_c = slope_in("hyp2f1_grad_c", "hyp2f1", 2, 4, _fixed(0.02))
