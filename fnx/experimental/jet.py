"""jet: the derivatives of a function along a curve, up to any order (Taylor mode)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx import numpy
from fnx.core import dtypes
from fnx.core.dtypes import float0
from fnx.core.errors import InvalidValue
from fnx.experimental import taylor
from fnx.pytree import operations
from fnx.transforms.grad import jvp
from fnx.transforms.make_jaxpr import make_jaxpr

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
    the series have entries. Arithmetic and common functions have rules for series; loops, branches
    and rare functions are forward mode within itself, whose work doubles with each order. ValueError
    for series of different lengths, or not as many as primals.

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

    if order > 1:
        first, rest = _by_series(fun, primals, terms, order)
    else:
        along = lambda t: (
            fun(*[_polynomial(x, c, t) for x, c in zip(primals, terms, strict=True)]),
        )
        first, *rest = _with_derivatives(along, order)(0.0)
    rest = [operations.tree_map(lambda d, s=s: d / s, d) for d, s in zip(rest, scale, strict=True)]
    return first, operations.tree_map(lambda _, *ds: list(ds), first, *rest)


def _by_series(fun: Callable, primals: Sequence[Any], terms: list, order: int) -> tuple[Any, list]:
    """The result and its derivatives by Taylor series through the function's jaxpr."""
    closed, types = make_jaxpr(fun, return_shape=True)(*primals)
    consts = [taylor.Series(c, None) for c in closed.consts]
    given = [
        taylor.Series(x, _coefficients(derivatives, x))
        for x, derivatives in zip(map(jnp.asarray, primals), terms, strict=True)
    ]
    outs = taylor.through(closed.jaxpr, [*consts, *given], order, _coefficients_of)
    treedef = operations.tree_structure(types)
    rest = []
    for k in range(1, order + 1):
        found = [(o.value, o(k)) for o in outs]
        zero = lambda y: jnp.zeros(y.shape, y.dtype if dtypes.is_inexact(y.dtype) else None)
        leaves = [zero(y) if c is None else c * math.factorial(k) for y, c in found]
        rest.append(operations.tree_unflatten(treedef, leaves))
    return operations.tree_unflatten(treedef, [o.value for o in outs]), rest


def _coefficients(derivatives: Sequence[Any], x: Any) -> Callable[[int], Any] | None:
    """Of t^k, from derivatives, in the dtype of `x`; None for what cannot move."""
    if not dtypes.is_inexact(x.dtype):
        return None
    return lambda k: jnp.broadcast_to(
        jnp.asarray(derivatives[k - 1], x.dtype) / math.factorial(k), x.shape
    )


def _coefficients_of(fun: Callable, primals: Sequence[Any], terms: list, order: int) -> tuple:
    """The same from coefficients to coefficients, by forward mode within itself."""
    factors = [float(math.factorial(k)) for k in range(order + 1)]
    derivatives = [[c * f for c, f in zip(cs, factors[1:], strict=True)] for cs in terms]
    along = lambda t: (
        fun(*[_polynomial(x, c, t) for x, c in zip(primals, derivatives, strict=True)]),
    )
    orders = _with_derivatives(along, order)(0.0)
    return tuple(
        [tuple([y / f for y in ys]) if k else ys for k, (ys, f) in enumerate(zip(orders, factors))]
    )


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
