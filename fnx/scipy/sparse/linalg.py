"""Krylov solvers: conjugate gradients, GMRES, BiCGSTAB.

`A` is a matrix or a function of pytrees of arrays. Solutions are differentiated by further solves.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fnx.control_flow import fori_loop, while_loop
from fnx.core import dtypes
from fnx.core.array import Array, is_array_like
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy import linalg as np_linalg
from fnx.numpy.algebra import products
from fnx.numpy.arrays import creation
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.pytree.operations import tree_leaves, tree_map, tree_structure
from fnx.transforms.implicit_diff import custom_linear_solve
from fnx.transforms.ravel import ravel_pytree


def _operator(a: Any, what: str) -> Callable:
    if callable(a):
        return a
    if not is_array_like(a):
        if hasattr(a, "__matmul__"):
            return lambda x: a @ x
        raise TypeMismatch(
            f"{what} must be a matrix or a function, got {type(a).__name__}: {a!r:.60}"
        )
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ShapeError(f"{what} has shape {a.shape}; expected a square matrix")
    return lambda x: products.matmul(a, x)


class _Tolerance(NamedTuple):
    """How small a residual is to become, relative to the right side's norm, and absolutely."""

    relative: Any
    absolute: Any

    def of(self, b: Array) -> Array:
        """The square of the residual's norm to reach."""
        return u.maximum(u.square(self.relative) * _square(b), u.square(self.absolute))


def _square(x: Array) -> Array:
    return u.real(products.vdot(x, x))


def _solve(
    method: Callable,
    a: Any,
    b: Any,
    x0: Any,
    tolerance: _Tolerance,
    maxiter: Any,
    m: Any,
    symmetric: bool,
) -> tuple[Any, None]:
    apply = _operator(a, "A")
    precondition = (lambda x: x) if m is None else _operator(m, "M")
    b = tree_map(lambda x: promote_inexact("b", x)[0], b)
    x0 = tree_map(creation.zeros_like, b) if x0 is None else tree_map(creation.asarray, x0)
    if tree_structure(x0) != tree_structure(b):
        raise InvalidValue(
            f"x0 has the structure {tree_structure(x0)} and b {tree_structure(b)}; expected equal ones"
        )
    shapes = [(x.shape, y.shape) for x, y in zip(tree_leaves(x0), tree_leaves(b))]
    if any(x != y for x, y in shapes):
        raise ShapeError(f"arrays of x0 and b have the shapes {shapes}; expected equal ones")
    size = sum(x.size for x in tree_leaves(b))
    limit = 10 * size if maxiter is None else maxiter
    flat, unravel = ravel_pytree(b)
    start = ravel_pytree(x0)[0].astype(flat.dtype)
    flatten = lambda tree: ravel_pytree(tree)[0].astype(flat.dtype)
    real = not dtypes.is_complex(flat.dtype)

    def solve(matvec: Callable, rhs: Array) -> Array:
        return method(
            matvec,
            rhs,
            start,
            tolerance.of(rhs),
            limit,
            lambda v: flatten(precondition(unravel(v))),
        )

    x = custom_linear_solve(
        lambda v: flatten(apply(unravel(v))), flat, solve, solve, symmetric=symmetric and real
    )
    return unravel(x), None


# --- conjugate gradients -----------------------------------------------------------------------


def cg(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None) with A x = b, for Hermitian positive definite A, by conjugate gradients.

    Ends when |b - A x| <= max(tol |b|, atol), or after `maxiter` steps (10 per unknown). `M`
    approximates the inverse of A.

    >>> a = jnp.array([[2.0, 0.0], [0.0, 4.0]])
    >>> x, _ = fnx.scipy.sparse.linalg.cg(a, jnp.array([2.0, 8.0]))
    >>> x.round(6)
    Array([1., 2.], dtype=float64)
    """
    return _solve(_cg, A, b, x0, _Tolerance(tol, atol), maxiter, M, True)


def _cg(
    apply: Callable, b: Array, x: Array, target: Array, limit: Any, precondition: Callable
) -> Array:
    r = b - apply(x)
    z = precondition(r)
    rz = u.real(products.vdot(r, z)).astype(b.dtype)

    def go_on(s: tuple) -> Array:
        _, r, _, _, k = s
        return u.logical_and(_square(r) > target, k < limit)

    def step(s: tuple) -> tuple:
        x, r, p, rz, k = s
        ap = apply(p)
        alpha = rz / products.vdot(p, ap)
        x, r = x + alpha * p, r - alpha * ap
        z = precondition(r)
        new = u.real(products.vdot(r, z)).astype(b.dtype)
        return x, r, z + (new / rz) * p, new, k + 1

    return while_loop(go_on, step, (x, r, z, rz, creation.asarray(0)))[0]


# --- BiCGSTAB ----------------------------------------------------------------------------------


def bicgstab(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None) with A x = b, for any A, by the stabilized biconjugate gradient method.

    Ends when |b - A x| <= max(tol |b|, atol), or after `maxiter` steps (10 per unknown). `M`
    approximates the inverse of A.

    >>> a = jnp.array([[4.0, 1.0], [0.0, 2.0]])
    >>> x, _ = fnx.scipy.sparse.linalg.bicgstab(lambda v: a @ v, jnp.array([5.0, 2.0]))
    >>> x.round(4)
    Array([1., 1.], dtype=float64)
    """
    return _solve(_bicgstab, A, b, x0, _Tolerance(tol, atol), maxiter, M, False)


def _bicgstab(
    apply: Callable, b: Array, x: Array, target: Array, limit: Any, precondition: Callable
) -> Array:
    residual = b - apply(x)
    one = creation.ones((), b.dtype)
    zero = creation.zeros_like(b)
    tiny = np.finfo(b.dtype).eps ** 2

    def go_on(s: tuple) -> Array:
        r, k = s[1], s[-1]
        return u.logical_and(u.logical_and(_square(r) > target, k < limit), k >= 0)

    def step(s: tuple) -> tuple:
        old, r, shadow, p, v, rho, alpha, omega, k = s
        new = products.vdot(shadow, r)
        # A residual at right angles to its shadow leads nowhere: start afresh from here.
        lost = u.square(u.abs(new)) <= tiny * _square(shadow) * _square(r)
        shadow = u.where3(lost, r, shadow)
        new = u.where3(lost, _square(r).astype(b.dtype), new)
        p = r + u.where3(lost, 0.0, new / rho * (alpha / omega) * (p - omega * v))
        ph = precondition(p)
        v = apply(ph)
        alpha = new / products.vdot(shadow, v)
        half = r - alpha * v
        early = _square(half) <= target
        sh = precondition(half)
        t = apply(sh)
        omega = products.vdot(t, half) / products.vdot(t, t)
        x = old + alpha * ph + u.where3(early, 0.0, omega * sh)
        r = u.where3(early, half, half - omega * t)
        stuck = u.logical_and(omega == 0, u.logical_not(early))
        broken = u.logical_or(stuck, u.logical_not(u.isfinite(_square(r))))
        x = u.where3(broken, old, x)
        return x, r, shadow, p, v, new, alpha, omega, u.where3(broken, -1, k + 1)

    start = (x, residual, residual, zero, zero, one, one, one, creation.asarray(0))
    return while_loop(go_on, step, start)[0]


# --- GMRES -------------------------------------------------------------------------------------


def gmres(
    A, b, x0=None, *, tol=1e-5, atol=0.0, restart=20, maxiter=None, M=None, solve_method="batched"
):
    """(x, None) with A x = b, for any A: the least residual in Krylov spaces of dimension `restart`.

    Ends when |b - A x| <= max(tol |b|, atol), or after `maxiter` restarts (10 per unknown). `M`
    approximates the inverse of A.

    ValueError for another `solve_method` than 'batched' or 'incremental'.

    >>> a = jnp.array([[4.0, 1.0], [0.0, 2.0]])
    >>> x, _ = fnx.scipy.sparse.linalg.gmres(lambda v: a @ v, jnp.array([5.0, 2.0]))
    >>> x.round(4)
    Array([1., 1.], dtype=float64)
    """
    if solve_method not in ("batched", "incremental"):
        raise InvalidValue(
            f"gmres with solve_method={solve_method!r}; expected 'batched' or 'incremental'"
        )
    size = sum(to_array(x, "gmres").size for x in tree_leaves(b))
    dimension = max(1, min(int(restart), size))

    def method(
        apply: Callable, rhs: Array, x: Array, target: Array, limit: Any, precondition: Callable
    ) -> Array:
        return _gmres(apply, rhs, x, target, limit, precondition, dimension)

    return _solve(method, A, b, x0, _Tolerance(tol, atol), maxiter, M, False)


def _gmres(
    apply: Callable, b: Array, x: Array, target: Array, limit: Any, precondition: Callable, m: int
) -> Array:
    def go_on(s: tuple) -> Array:
        _, r, k = s
        return u.logical_and(_square(r) > target, k < limit)

    def cycle(s: tuple) -> tuple:
        x, r, k = s
        basis, h, norm = _arnoldi(lambda v: precondition(apply(v)), precondition(r), m)
        rhs = creation.zeros(m + 1, b.dtype).at[0].set(norm.astype(b.dtype))
        y = np_linalg.lstsq(h, rhs)[0]
        x = x + products.matmul(y, basis[:m])
        return x, b - apply(x), k + 1

    return while_loop(go_on, cycle, (x, b - apply(x), creation.asarray(0)))[0]


def _arnoldi(apply: Callable, r: Array, m: int) -> tuple[Array, Array, Array]:
    """Orthonormal rows that span r, A r, A^2 r, ... and A in this basis, (m + 1, m)."""
    norm = u.sqrt(_square(r))
    first = _over(r, norm)
    basis = creation.zeros((m + 1, r.shape[0]), r.dtype).at[0].set(first)
    h = creation.zeros((m + 1, m), r.dtype)

    def step(k: Array, s: tuple) -> tuple:
        basis, h = s
        w = apply(basis[k])
        before = u.sqrt(_square(w))
        column = creation.zeros(m + 1, r.dtype)
        for _ in range(2):  # twice is enough, for orthogonality to rounding
            part = products.matmul(basis.conj(), w)
            w = w - products.matmul(part, basis)
            column = column + part
        size = u.sqrt(_square(w))
        # What rounding alone left is no direction: the space is invariant.
        size = u.where3(size > float(np.finfo(size.dtype).eps) * before, size, 0.0)
        column = column.at[k + 1].set(size.astype(r.dtype))
        return basis.at[k + 1].set(_over(w, size)), h.at[:, k].set(column)

    basis, h = fori_loop(0, m, step, (basis, h))
    return basis, h, norm


def _over(x: Array, size: Array) -> Array:
    zero = size == 0
    return u.where3(zero, 0.0, x / u.where3(zero, 1.0, size).astype(x.dtype)).astype(x.dtype)


__all__ = ["bicgstab", "cg", "gmres"]

_retell(globals())
