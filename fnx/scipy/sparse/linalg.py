"""Iterative solvers of linear systems A x = b, where A is a function of trees of arrays."""


from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import lax
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy import ufuncs as u
from fnx.numpy.contract import matmul, vdot
from fnx.numpy.creation import asarray, zeros, zeros_like
from fnx.numpy.linalg import lstsq
from fnx.numpy.reduce import sum as _sum
from fnx.tree_util import tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten

Tree = Any


def _dot(x: Tree, y: Tree) -> Any:
    total: Any = 0.0
    for a, b in zip(tree_leaves(x), tree_leaves(y), strict=True):
        total = total + vdot(a, b)
    return total


def _norm2(x: Tree) -> Any:
    total: Any = 0.0
    for a in tree_leaves(x):
        total = total + _sum(u.square(u.abs(a)))
    return total


def _combine(x: Tree, scale: Any, y: Tree) -> Tree:
    """x + scale * y."""
    return tree_map(lambda a, b: a + scale * b, x, y)


def _subtract(x: Tree, y: Tree) -> Tree:
    return tree_map(u.subtract, x, y)


def _operator(A: Any) -> Callable:
    if callable(A):
        return A
    a = asarray(A)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ShapeError(f"a linear operator of shape {a.shape}; expected a square matrix or a function")
    return lambda x: matmul(a, x)


def _solve(name: str, solver: Callable, A: Any, b: Tree, x0: Tree, maxiter: Any, M: Any, symmetric: bool) -> tuple:
    operator, precondition = _operator(A), (lambda x: x) if M is None else _operator(M)
    b = tree_map(asarray, b)
    b = tree_map(lambda x: u.multiply(x, 1.0), b)
    x0 = tree_map(zeros_like, b) if x0 is None else tree_map(asarray, x0)
    if tree_structure(x0) != tree_structure(b):
        raise InvalidValue(f"{name}: x0 and b differ in structure: {tree_structure(x0)}, {tree_structure(b)}")
    if [x.shape for x in tree_leaves(x0)] != [x.shape for x in tree_leaves(b)]:
        raise ShapeError(f"{name}: x0 and b differ in shape")
    size = sum(x.size for x in tree_leaves(b))
    limit = 10 * size if maxiter is None else maxiter
    x0 = tree_map(lambda x, y: u.multiply(x, 1.0).astype(y.dtype), x0, b)
    run = lambda matvec, rhs: solver(matvec, rhs, x0, limit, precondition)
    out = lax.custom_linear_solve(operator, b, run, None if symmetric else run, symmetric)
    return out, None


def cg(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """x with A x = b for a Hermitian positive definite A, by conjugate gradients; and None.

    Stops where |b - A x| <= max(tol |b|, atol). `M` approximates the inverse of A. Source:
    Hestenes and Stiefel (1952).
    """

    def run(matvec: Callable, b: Tree, x0: Tree, limit: Any, precondition: Callable) -> Tree:
        threshold = u.maximum(tol**2 * _norm2(b), atol**2)

        def going(state: tuple) -> Any:
            _, r, _, _, k = state
            return u.logical_and(_norm2(r) > threshold, k < limit)

        def step(state: tuple) -> tuple:
            x, r, gamma, p, k = state
            q = matvec(p)
            alpha = gamma / _dot(p, q).astype(gamma.dtype)
            x, r = _combine(x, alpha, p), _combine(r, -alpha, q)
            z = precondition(r)
            new = _dot(r, z).astype(gamma.dtype)
            return x, r, new, _combine(z, new / gamma, p), k + 1

        r = _subtract(b, matvec(x0))
        p = precondition(r)
        return lax.while_loop(going, step, (x0, r, _dot(r, p), p, asarray(0)))[0]

    return _solve("cg", run, A, b, x0, maxiter, M, symmetric=True)


def bicgstab(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """x with A x = b, by stabilized biconjugate gradients; and None.

    Stops where |b - A x| <= max(tol |b|, atol). Source: van der Vorst (1992), doi:10.1137/0913035.
    """

    def run(matvec: Callable, b: Tree, x0: Tree, limit: Any, precondition: Callable) -> Tree:
        threshold = u.maximum(tol**2 * _norm2(b), atol**2)

        def going(state: tuple) -> Any:
            _, r, *_, k = state
            return u.logical_and(_norm2(r) > threshold, u.logical_and(k < limit, k >= 0))

        def step(state: tuple) -> tuple:
            x, r, shadow, alpha, omega, rho, p, q, k = state
            new = _dot(shadow, r)
            beta = new / rho * alpha / omega
            p = tree_map(lambda r, p, q: r + beta * (p - omega * q), r, p, q)
            p_hat = precondition(p)
            q = matvec(p_hat)
            alpha = new / _dot(shadow, q)
            s = _combine(r, -alpha, q)
            done = _norm2(s) < threshold
            s_hat = precondition(s)
            t = matvec(s_hat)
            omega = _dot(t, s) / _dot(t, t)
            x1 = _combine(x, alpha, p_hat)
            x = tree_map(lambda a, c: u.where3(done, a, a + omega * c), x1, s_hat)
            r = tree_map(lambda s, t: u.where3(done, s, s - omega * t), s, t)
            broken = u.logical_or(omega == 0, u.logical_or(alpha == 0, new == 0))
            k = u.where3(broken, -11, k + 1)
            return x, r, shadow, alpha, omega, new, p, q, k

        r = _subtract(b, matvec(x0))
        one = asarray(1.0).astype(_dot(r, r).dtype)
        nothing = tree_map(zeros_like, r)
        start = (x0, r, r, one, one, one, nothing, nothing, asarray(0))
        return lax.while_loop(going, step, start)[0]

    return _solve("bicgstab", run, A, b, x0, maxiter, M, symmetric=False)


def gmres(A, b, x0=None, *, tol=1e-5, atol=0.0, restart=20, maxiter=None, M=None, solve_method="batched"):
    """x with A x = b, by minimal residuals in Krylov spaces of dimension `restart`; and None.

    Stops where |M (b - A x)| <= max(tol |b|, atol). Source: Saad and Schultz (1986),
    doi:10.1137/0907058.
    """
    if solve_method not in ("batched", "incremental"):
        raise InvalidValue(f"gmres with solve_method={solve_method!r}; expected 'batched' or 'incremental'")

    def run(matvec: Callable, b: Tree, x0: Tree, limit: Any, precondition: Callable) -> Tree:
        leaves, structure = tree_flatten(b)
        shapes, sizes = [x.shape for x in leaves], [x.size for x in leaves]
        dtype = np.result_type(*[x.dtype for x in leaves])
        n = sum(sizes)
        width = min(int(restart), n)

        def flat(x: Tree) -> Any:
            from fnx.numpy.shape import concatenate, ravel

            return concatenate([ravel(y).astype(dtype) for y in tree_leaves(x)])

        def tree(v: Any) -> Tree:
            parts, at = [], 0
            for shape, size, like in zip(shapes, sizes, leaves):
                parts.append(v[at : at + size].reshape(shape).astype(like.dtype))
                at += size
            return tree_unflatten(structure, parts)

        apply = lambda v: flat(precondition(matvec(tree(v))))
        rhs = flat(precondition(b))
        bound = u.maximum(tol * u.sqrt(_norm2(b)), atol)
        bound = bound * u.sqrt(_norm2(rhs)) / u.maximum(u.sqrt(_norm2(b)), float(np.finfo(dtype).tiny))

        def cycle(state: tuple) -> tuple:
            x, r, k = state
            size = u.sqrt(_norm2(r))
            basis = zeros((n, width + 1), dtype).at[:, 0].set(r / size)
            h = zeros((width + 1, width), dtype)

            def grow(j: Any, state: tuple) -> tuple:
                basis, h = state
                w = apply(basis[:, j])
                column = zeros((width + 1,), dtype)
                for _ in range(2):  # twice is enough
                    along = matmul(u.conj(basis).T, w)
                    w, column = w - matmul(basis, along), column + along
                length = u.sqrt(_norm2(w)).astype(dtype)
                safe = u.where3(u.abs(length) > float(np.finfo(dtype).eps) * u.abs(size), length, 1.0)
                w = u.where3(u.abs(length) > float(np.finfo(dtype).eps) * u.abs(size), w / safe, 0.0)
                basis = basis.at[:, j + 1].set(w)
                return basis, h.at[:, j].set(column.at[j + 1].set(length))

            basis, h = lax.fori_loop(0, width, grow, (basis, h))
            target = zeros((width + 1,), dtype).at[0].set(size.astype(dtype))
            y = lstsq(h, target)[0]
            x = x + matmul(basis[:, :width], y)
            return x, rhs - apply(x), k + 1

        def going(state: tuple) -> Any:
            _, r, k = state
            return u.logical_and(u.sqrt(_norm2(r)) > bound, k < limit)

        start = flat(x0)
        out = lax.while_loop(going, cycle, (start, rhs - apply(start), asarray(0)))
        return tree(out[0])

    return _solve("gmres", run, A, b, x0, maxiter, M, symmetric=False)


__all__ = ["bicgstab", "cg", "gmres"]

