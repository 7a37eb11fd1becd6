"""Minimization with scipy.optimize's names."""

from typing import Any, NamedTuple

import numpy as np

from fnx import lax
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy import ufuncs as u
from fnx.numpy.contract import dot, outer
from fnx.numpy.creation import asarray, eye
from fnx.numpy.functional import transformation
from fnx.numpy.reduce import max as _max
from fnx.numpy.reduce import sum as _sum
from fnx.numpy.util import to_array


class OptimizeResults(NamedTuple):
    """Where the search ended.

    `status`: 0 converged, 1 too many iterations, 3 the line search found no step; nit, nfev and
    njev count iterations and evaluations.
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(fun, x0, args=(), *, method, tol=None, options=None):
    """The local minimum of fun(x, *args) near x0, by the method of Broyden, Fletcher, Goldfarb and
    Shanno ("BFGS").

    Options: `maxiter`, `gtol` (the largest component of the gradient at the end), `line_search_maxiter`.
    Source: Nocedal and Wright, Numerical Optimization, 2nd edition, algorithms 6.1, 3.5 and 3.6.
    """
    if method.lower() != "bfgs":
        raise InvalidValue(f"minimize with method={method!r}; expected 'BFGS'")
    if not isinstance(args, tuple):
        raise TypeMismatch(f"minimize with args={args!r:.40}; expected a tuple")
    x0 = to_array(x0, "minimize")
    if x0.ndim != 1:
        raise InvalidValue(f"minimize from x0 of shape {x0.shape}; expected a vector")
    if not dtypes.is_float(x0.dtype):
        raise TypeMismatch(f"minimize from x0 of dtype {x0.dtype}; expected floats")
    settings = {"gtol": 1e-5, "maxiter": None, "norm": np.inf, "line_search_maxiter": 10}
    unknown = set(options or {}) - set(settings)
    if unknown:
        raise InvalidValue(f"minimize with options {sorted(unknown)}; expected {list(settings)}")
    settings |= options or {}
    if tol is not None:
        settings["gtol"] = tol
    return _bfgs(lambda x: fun(x, *args), x0, **settings)


class _State(NamedTuple):
    x: Array
    f: Array
    g: Array
    h: Array
    evaluations: Array
    k: Array
    failed: Array
    previous: Array


def _bfgs(fun: Any, x0: Array, gtol: float, maxiter: Any, norm: Any, line_search_maxiter: int) -> OptimizeResults:
    value_and_grad = transformation("value_and_grad")(fun)
    n = x0.shape[0]
    limit = 200 * n if maxiter is None else maxiter
    size = lambda g: _max(u.abs(g)) if norm == np.inf else _sum(u.abs(g) ** norm) ** (1 / norm)

    def going(s: _State) -> Array:
        return u.logical_and(size(s.g) > gtol, u.logical_and(s.k < limit, u.logical_not(s.failed)))

    def step(s: _State) -> _State:
        p = -dot(s.h, s.g)
        found = _line_search(value_and_grad, s, p, line_search_maxiter)
        alpha, f, g, count, failed = found
        dx, dg = alpha * p, g - s.g
        curvature = dot(dg, dx)
        rho = u.where3(curvature > 0, 1.0 / u.where3(curvature > 0, curvature, 1.0), 0.0)
        left = eye(n, dtype=s.x.dtype) - rho * outer(dx, dg)
        h = dot(left, dot(s.h, left.T)) + rho * outer(dx, dx)
        h = u.where3(rho > 0, h, s.h)
        keep = lambda new, old: u.where3(failed, old, new)
        return _State(
            keep(s.x + dx, s.x), keep(f, s.f), keep(g, s.g), keep(h, s.h), s.evaluations + count,
            s.k + 1, failed, s.f,
        )  # fmt: skip

    f0, g0 = value_and_grad(x0)
    start = _State(
        x0, f0, g0, eye(n, dtype=x0.dtype), asarray(1), asarray(0), asarray(False),
        f0 + u.sqrt(_sum(g0 * g0)) / 2,
    )  # fmt: skip
    end = lax.while_loop(going, step, start)
    converged = size(end.g) <= gtol
    status = u.where3(converged, 0, u.where3(end.failed, 3, 1))
    return OptimizeResults(
        end.x, converged, status, end.f, end.g, end.h, end.evaluations, end.evaluations, end.k
    )


_C1, _C2 = 1e-4, 0.9  # of the strong Wolfe conditions: enough descent, and a flat enough end


class _Search(NamedTuple):
    alpha: Array  # the step tried next
    low: Array  # the best end of the bracket, its value and slope
    f_low: Array
    d_low: Array
    high: Array  # the other end
    bracketed: Array
    done: Array
    k: Array
    best: Array  # the step accepted, its value and gradient
    f: Array
    g: Array


def _line_search(value_and_grad: Any, s: _State, p: Array, limit: int) -> tuple:
    """A step along p that meets the strong Wolfe conditions."""
    d0 = dot(s.g, p)
    inf = asarray(np.inf, dtype=s.f.dtype)
    # The first step as of a parabola through the last decrease.
    guess = 1.01 * 2.0 * (s.f - s.previous) / d0
    first = u.where3(s.k == 0, u.minimum(1.0, 1.0 / u.maximum(_sum(u.abs(s.g)), 1e-300)), 1.0)
    first = u.where3(u.logical_and(u.logical_and(guess > 0, guess < 1), s.k > 0), 1.0, first)

    def going(q: _Search) -> Array:
        return u.logical_and(u.logical_not(q.done), q.k < limit + 20)

    def step(q: _Search) -> _Search:
        f, g = value_and_grad(s.x + q.alpha * p)
        d = dot(g, p)
        armijo = f <= s.f + _C1 * q.alpha * d0
        worse = u.logical_or(u.logical_not(armijo), u.logical_and(q.bracketed | (q.k > 0), f >= q.f_low))
        worse = u.logical_or(worse, f != f)
        flat = u.logical_and(u.abs(d) <= -_C2 * d0, u.logical_not(worse))
        ahead = u.logical_and(u.logical_not(worse), u.logical_not(flat))
        # The minimum is between the low end and alpha where alpha is worse, or its slope points back.
        back = d * u.where3(q.bracketed, q.high - q.low, 1.0) >= 0
        high = u.where3(worse, q.alpha, u.where3(u.logical_and(ahead, back), q.low, q.high))
        low = u.where3(ahead, q.alpha, q.low)
        f_low, d_low = u.where3(ahead, f, q.f_low), u.where3(ahead, d, q.d_low)
        bracketed = q.bracketed | worse | (ahead & back)
        middle = _between(low, f_low, d_low, high, q.alpha, f, worse)
        alpha = u.where3(bracketed, middle, 2.0 * q.alpha)
        return _Search(
            alpha, low, f_low, d_low, high, bracketed, flat, q.k + 1,
            u.where3(flat, q.alpha, u.where3(ahead, q.alpha, q.best)),
            u.where3(flat | ahead, f, q.f), u.where3(flat | ahead, g, q.g),
        )  # fmt: skip

    zero = asarray(0.0, dtype=s.f.dtype)
    start = _Search(
        first.astype(s.f.dtype), zero, s.f, d0, inf, asarray(False), asarray(False), asarray(0), zero, s.f, s.g
    )
    q = lax.while_loop(going, step, start)
    failed = u.logical_and(u.logical_not(q.done), q.best == 0)
    return q.best, q.f, q.g, q.k, failed


def _between(low: Array, f_low: Array, d_low: Array, high: Array, alpha: Array, f: Array, worse: Array) -> Array:
    """A step inside the bracket: the parabola's minimum where it is well inside, else the middle."""
    width = high - low
    middle = low + 0.5 * width
    bend = f - f_low - d_low * width
    parabola = low - d_low * width * width / u.where3(bend > 0, 2.0 * bend, 1.0)
    share = (parabola - low) / u.where3(width == 0, 1.0, width)
    good = worse & (bend > 0) & (share > 0.1) & (share < 0.9) & (alpha == high)
    return u.where3(good, parabola, middle)


__all__ = ["OptimizeResults", "minimize"]
