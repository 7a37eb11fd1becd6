"""jet: the derivatives of a function along a curve, up to any order (Taylor mode)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx import numpy
from fnx.core.dtypes import float0
from fnx.core.errors import InvalidValue
from fnx.pytree import operations
from fnx.transforms.grad import jvp

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

__all__ = ["jet", "jet2"]


def jet(
    fun: Callable,
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """The value of `fun` and its derivatives of order 1, 2, ... along a curve through `primals`.

    Argument k of `fun` is an array; it moves as the polynomial in t whose derivatives at t = 0 are
    `primals[k]` and the entries of `series[k]` (`factorial_scaled=False`: its coefficients). Returns
    `fun(*primals)`, and for each of its leaves the list of as many derivatives (or coefficients) as
    the series have entries. Derivatives are forward mode within itself, so work doubles with each
    order. ValueError for series of different lengths, or not as many as primals.

    >>> from fnx.experimental.jet import jet
    >>> y, (dy, d2y) = jet(jnp.sin, (0.5,), [[1.0, 0.0]])  # along 0.5 + t
    >>> print(y, dy, d2y)
    0.479425538604203 0.8775825618903728 -0.479425538604203
    """
    lengths = {len(terms) for terms in series}
    if len(series) != len(primals) or len(lengths) != 1:
        raise InvalidValue(
            f"jet got {len(primals)} primals and series of lengths {[len(s) for s in series]}; "
            "expected one series for each primal, all equally long"
        )
    (order,) = lengths
    scale = [1.0 if factorial_scaled else math.factorial(k + 1) for k in range(order)]
    terms = [[c * s for c, s in zip(cs, scale, strict=True)] for cs in series]

    def along(t: Any) -> Any:
        moved = [_polynomial(x, cs, t) for x, cs in zip(primals, terms, strict=True)]
        return (fun(*moved),)

    first, *rest = _with_derivatives(along, order)(0.0)
    rest = [operations.tree_map(lambda d, s=s: d / s, d) for d, s in zip(rest, scale, strict=True)]
    return first, operations.tree_map(lambda _, *ds: list(ds), first, *rest)


def _slope(d: Any) -> Any:
    """A derivative; that of integers and bools, which move in jumps, is a zero float."""
    return jnp.zeros(d.shape) if d.dtype == float0 else d


def jet2(fun: Callable, primals: Sequence[Any], series: Sequence[Sequence[Any]], **_: Any) -> Any:
    """`jet` of coefficients of polynomials, instead of derivatives.

    >>> from fnx.experimental.jet import jet2
    >>> y, (a, b) = jet2(jnp.square, (3.0,), [[1.0, 0.0]])  # (3 + t) ** 2
    >>> print(y, a, b)
    9.0 6.0 1.0
    """
    return jet(fun, primals, series, factorial_scaled=False)


def _polynomial(x: Any, derivatives: Sequence[Any], t: Any) -> Any:
    """x + d1 t + d2 t^2 / 2! + ..., in the dtype of x."""
    x = jnp.asarray(x)
    t = jnp.asarray(t, x.dtype)
    total: Any = 0.0
    for k in reversed(range(len(derivatives))):
        total = (derivatives[k] + total) * t / (k + 1)
    return x + jnp.asarray(total, x.dtype)


def _with_derivatives(f: Callable, order: int) -> Callable:
    """t -> f(t) and its derivatives up to an order, all of them one tuple."""
    if order == 0:
        return f
    lower = _with_derivatives(f, order - 1)

    def all_of_them(t: Any) -> Any:
        values, slopes = jvp(lower, (t,), (1.0,))
        return (*values, operations.tree_map(_slope, slopes[-1]))

    return all_of_them
