"""Minimization of functions of vectors, compiled: BFGS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fnx.control_flow import while_loop
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.algebra import products
from fnx.numpy.arrays import creation
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.joining import concatenate
from fnx.ops.elementwise import arithmetic as ops
from fnx.transforms.grad import value_and_grad


class OptimizeResults(NamedTuple):
    """What `minimize` found.

    `status`: 0 converged, 1 maxiter reached, 3 zoom failed (no further decrease).

    >>> start = jnp.array([0.0])
    >>> found = fnx.scipy.optimize.minimize(lambda x: jnp.sum((x - 2) ** 2), start, method="BFGS")
    >>> found.x.round(4), bool(found.success)
    (Array([2.], dtype=float64), True)
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


class _State(NamedTuple):
    """Where BFGS is: a point, the function and its gradient there, and what is known of the Hessian."""

    x: Array
    f: Array
    g: Array
    inverse: Array  # of the Hessian, approximately
    evaluations: Array
    steps: Array
    failed: Array


class _Search(NamedTuple):
    """Where a line search is: its step, the bounds on it, and the point that it leads to."""

    step: Array
    low: Array
    high: Array
    x: Array
    f: Array
    g: Array
    tries: Array
    found: Array


def minimize(fun, x0, args=(), *, method, tol=None, options=None):
    """The x that makes `fun(x, *args)`, a real number, least; from the vector `x0` by `method` 'BFGS'.

    For a complex x0 the variables are the real and imaginary parts, and so are those of `hess_inv`.
    `tol`, or options['gtol'] (1e-5): the norm of the gradient (options['norm'], inf) to reach;
    options['maxiter']: the number of steps, 200 per variable by default. Works under jit and vmap.

    TypeError for `args` that are no tuple, and for unknown options; ValueError for another
    method; ShapeError for an `x0` that is no vector.

    >>> found = fnx.scipy.optimize.minimize(lambda x: jnp.sum((x - 3.0) ** 2), jnp.zeros(2), method="BFGS")
    >>> jnp.round(found.x, 6)
    Array([3., 3.], dtype=float64)
    """
    if not isinstance(args, tuple):
        raise TypeMismatch(f"minimize with args={args!r}; expected a tuple")
    if method.lower() not in ("bfgs", "l-bfgs-experimental-do-not-rely-on-this"):
        raise InvalidValue(f"minimize with method={method!r}; expected 'BFGS'")
    given = dict(options or {})
    gtol = given.pop("gtol", 1e-5 if tol is None else tol)
    maxiter, norm = given.pop("maxiter", None), given.pop("norm", np.inf)
    tries = given.pop("line_search_maxiter", 30)
    limited = method.lower() != "bfgs"
    if limited:
        for name in ("maxcor", "ftol", "maxfun", "maxgrad", "maxls"):
            given.pop(name, None)
    if given:
        raise TypeMismatch(f"minimize got unknown options: {', '.join(given)}")
    (x,) = promote_inexact("minimize", x0)
    if x.ndim != 1:
        raise ShapeError(f"minimize with x0 of shape {x.shape}; expected a vector")
    complex_, n = x.dtype.kind == "c", x.shape[0]
    join = (lambda v: ops.complex_(v[:n], v[n:])) if complex_ else (lambda v: v)
    x = concatenate([ops.real(x), ops.imag(x)]) if complex_ else x
    value = value_and_grad(lambda v: fun(join(v), *args))
    limit = 200 * x.shape[0] if maxiter is None else maxiter
    final = _bfgs(value, x, gtol, limit, norm, max(int(tries), 1))
    done = _norm(final.g, norm) < gtol
    status = u.where3(done, 0, u.where3(final.failed, 3, 1))
    inverse = None if limited else final.inverse
    return OptimizeResults(
        join(final.x),
        done,
        status,
        final.f,
        u.conjugate(join(final.g)),  # as grad gives it
        inverse,
        final.evaluations,
        final.evaluations,
        final.steps,
    )


def _norm(g: Array, order: float) -> Array:
    from fnx.numpy.linalg import norm

    return norm(g, order)


def _bfgs(value: Callable, x: Array, gtol: float, limit: Any, order: float, tries: int) -> _State:
    """Steps along minus (inverse Hessian) gradient; Nocedal and Wright, algorithm 6.1."""
    eye = np.eye(x.shape[0], dtype=x.dtype)
    f, g = value(x)
    one, zero, no = (creation.asarray(v) for v in (1, 0, False))
    first = _State(x, f, g, creation.asarray(eye), one, zero, no)

    def go_on(s: _State) -> Array:
        more = u.logical_and(_norm(s.g, order) >= gtol, s.steps < limit)
        return u.logical_and(more, u.logical_not(s.failed))

    def advance(s: _State) -> _State:
        direction = -products.dot(s.inverse, s.g)
        search = _line_search(value, s, direction, tries)
        moved, change = search.x - s.x, search.g - s.g
        curvature = products.dot(moved, change)
        good = u.logical_and(search.found, u.isfinite(search.f))
        # The first step sets the scale of the Hessian.
        scale = curvature / products.dot(change, change)
        old = u.where3(u.logical_and(s.steps == 0, curvature > 0), scale * eye, s.inverse)
        rho = 1 / u.where3(curvature > 0, curvature, 1.0)
        left = eye - rho * products.outer(moved, change)
        new = left @ old @ left.T + rho * products.outer(moved, moved)
        inverse = u.where3(u.logical_and(good, curvature > 0), new, s.inverse).astype(x.dtype)
        keep = lambda a, b: u.where3(good, a, b)
        return _State(
            keep(search.x, s.x), keep(search.f, s.f), keep(search.g, s.g), inverse,
            s.evaluations + search.tries, s.steps + 1, u.logical_not(good),
        )  # fmt: skip

    return while_loop(go_on, advance, first)


def _line_search(value: Callable, s: _State, direction: Array, tries: int) -> _Search:
    """A step that satisfies the weak Wolfe conditions, by bisection (Lewis and Overton 2013)."""
    slope = products.dot(s.g, direction)
    one = creation.ones_like(s.f)
    # Nothing is known of the scale at first: a step of length 1, or less where the slope is small.
    size = u.sqrt(products.dot(s.g, s.g))
    first = u.minimum(one, 1 / u.where3(size > 0, size, one))
    start = _Search(
        u.where3(s.steps == 0, first, one),
        0 * one,
        np.inf * one,
        s.x,
        s.f,
        s.g,
        creation.asarray(0),
        creation.asarray(False),
    )

    def go_on(w: _Search) -> Array:
        return u.logical_and(u.logical_not(w.found), w.tries < tries)

    def attempt(w: _Search) -> _Search:
        x = s.x + w.step * direction
        f, g = value(x)
        decrease = f <= s.f + 1e-4 * w.step * slope  # false for nan
        steep = products.dot(g, direction) < 0.9 * slope
        high = u.where3(decrease, w.high, w.step)
        low = u.where3(u.logical_and(decrease, steep), w.step, w.low)
        middle = 0.5 * (low + u.where3(u.isfinite(high), high, 0.0))
        step = u.where3(u.isfinite(high), middle, 2 * w.step)
        found = u.logical_and(decrease, u.logical_not(steep))
        # The last decrease is kept, should no step satisfy both conditions.
        keep = lambda a, b: u.where3(decrease, a, b)
        return _Search(
            step, low, high, keep(x, w.x), keep(f, w.f), keep(g, w.g), w.tries + 1, found
        )

    end = while_loop(go_on, attempt, start)
    return end._replace(found=u.logical_or(end.found, end.f < s.f))


__all__ = ["OptimizeResults", "minimize"]

_retell(globals())
