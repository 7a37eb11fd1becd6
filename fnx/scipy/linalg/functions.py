"""Functions of matrices: exponential, square root, and any other by the Schur form."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.control_flow import cond, fori_loop
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy import linalg as np_linalg
from fnx.numpy.algebra import products
from fnx.numpy.arrays.creation import zeros_like
from fnx.numpy.arrays.util import convert, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.ranges import eye
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg import matrix as m
from fnx.scipy.linalg.factorizations import matrices, rsf2csf, schur
from fnx.scipy.linalg.solvers import solve_triangular
from fnx.transforms.grad import jvp
from fnx.transforms.vmap import vmap


def _stacked(fn: Callable, rank: int) -> Callable:
    for _ in range(rank - 2):
        fn = vmap(fn)
    return fn


# --- the exponential ---------------------------------------------------------------------------

# The order of the Pade approximant, and the 1-norm up to which it is exact to rounding (Higham 2005).
_ORDERS = {
    np.dtype(np.float64): (13, 5.371920351148152),
    np.dtype(np.float32): (7, 3.925724783138660),
}


def _coefficients(order: int) -> list[float]:
    """Of the numerator of the diagonal Pade approximant to exp, scaled to integers."""
    f = math.factorial
    return [float(f(2 * order - k) // (f(k) * f(order - k))) for k in range(order + 1)]


def _pade(a: Array, order: int) -> tuple[Array, Array]:
    """The odd and the even part of the numerator."""
    b = _coefficients(order)
    power: Any = m.eye(a.shape, a.dtype)
    square = products.matmul(a, a)
    odd, even = b[1] * power, b[0] * power
    for k in range(2, order + 1, 2):
        power = products.matmul(power, square) if k > 2 else square
        even = even + b[k] * power
        if k < order:
            odd = odd + b[k + 1] * power
    return products.matmul(a, odd), even


def expm(A, *, upper_triangular=False, max_squarings=16):
    """The exponential of square matrices, by scaling and squaring; nan if 2**max_squarings is too little.

    >>> fnx.scipy.linalg.expm(np.zeros((2, 2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    x = matrices("expm", A, square=True)
    one = lambda a: _expm(a, bool(upper_triangular), int(max_squarings))
    return _stacked(one, x.ndim)(x)


def _expm(a: Array, triangular: bool, limit: int) -> Array:
    if not a.shape[0]:
        return a
    order, top = _ORDERS[dtypes.real_of(a.dtype)]
    norm = ops.stop_gradient(reduce.max(reduce.sum(u.abs(a), axis=0)))
    count = u.ceil(u.log2(u.maximum(norm / top, 1.0)))
    scaled = a * convert(u.exp2(-u.minimum(count, float(limit))), a.dtype)
    odd, even = _pade(scaled, order)
    solve = solve_triangular if triangular else np_linalg.solve
    out = solve(even - odd, even + odd)
    steps = convert(u.minimum(count, float(limit)), np.dtype(np.int32))
    # A loop of static length, so that it can be differentiated in reverse.
    repeat = lambda k, r: cond(k < steps, lambda r: products.matmul(r, r), lambda r: r, r)
    out = fori_loop(0, limit, repeat, out)
    return u.where3(count > limit, math.nan, out)


def expm_frechet(A, E, *, method=None, compute_expm=True):
    """The exponential of A, and its derivative in the direction E.

    ValueError for shapes that are not equal and square.

    >>> a, e = jnp.zeros((2, 2)), jnp.eye(2)
    >>> fnx.scipy.linalg.expm_frechet(a, e, compute_expm=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    del method
    a, e = promote_inexact("expm_frechet", A, E)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape != e.shape:
        raise InvalidValue(
            f"expm_frechet of shapes {a.shape} and {e.shape}; expected equal shapes of square matrices"
        )
    out, derivative = jvp(expm, (a,), (e,))
    return (out, derivative) if compute_expm else derivative


# --- others ------------------------------------------------------------------------------------


def sqrtm(A, blocksize=1):
    """The principal square root of a square matrix, complex.

    NotImplementedError for blocks.

    >>> fnx.scipy.linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real
    Array([[2., 0.],
           [0., 3.]], dtype=float64)
    """
    if blocksize > 1:
        raise NotImplementedError("sqrtm with blocksize > 1; expected 1")
    x = matrices("sqrtm", A, square=True)
    return _stacked(_sqrtm, x.ndim)(x)


def _sqrtm(a: Array) -> Array:
    t, z = schur(a, output="complex")
    root = _triangular(t, u.sqrt, _root_system)
    return products.matmul(products.matmul(z, root), m.adjoint(z))


def _triangular(t: Array, function: Callable, system: Callable) -> Array:
    """F, a function of an upper triangular matrix T, one column after the other.

    `system(t, f, diagonal of f, j)` gives the triangular matrix and right-hand side whose solution
    is column j above the diagonal; of F, the columns left of j are known.
    """
    n = t.shape[0]
    rows = np.arange(n)
    diagonal = function(t.diagonal())

    def column(j: Any, f: Array) -> Array:
        left, right = system(t, f, diagonal, j)
        above = rows < j
        inside = above[:, None] & above[None, :]
        left = u.where3(inside, left, np.eye(n, dtype=t.dtype))
        # What divides by zero counts as zero: its row is solved with a pivot beyond all numbers.
        huge = float(np.finfo(t.dtype).max) ** 0.5
        singular = (left == 0) & np.eye(n, dtype=bool)
        left = u.where3(singular, convert(huge, t.dtype), left)
        found = solve_triangular(left, u.where3(above, right, 0))
        found = u.where3(above, found, u.where3(rows == j, diagonal, 0))
        return f.at[:, j].set(found)

    return fori_loop(0, n, column, zeros_like(t)) if n else t


def _root_system(t: Array, f: Array, diagonal: Array, j: Any) -> tuple[Array, Array]:
    """From R R = T: (R + r_jj I) r_j = t_j."""
    return f + diagonal[j] * np.eye(t.shape[0], dtype=t.dtype), t[:, j]


def _commuting_system(t: Array, f: Array, diagonal: Array, j: Any) -> tuple[Array, Array]:
    """From T F = F T: (T - t_jj I) f_j = F t_j - f_jj t_j."""
    above = u.where3(np.arange(t.shape[0]) < j, t[:, j], 0)
    left = t - t[j, j] * np.eye(t.shape[0], dtype=t.dtype)
    return left, products.matmul(f, above) - diagonal[j] * above


def funm(A, func, disp=True):
    """`func`, a function of numbers, of a square matrix; with disp=False also an estimate of the error.

    ShapeError for what is not one square matrix.

    >>> a = jnp.array([[1.0, 1.0], [0.0, 2.0]])
    >>> fnx.scipy.linalg.funm(a, lambda x: x**2).real.round(6)
    Array([[1., 3.],
           [0., 4.]], dtype=float64)
    """
    x = matrices("funm", A, square=True)
    if x.ndim != 2:
        raise ShapeError(f"funm of shape {x.shape}; expected one square matrix")
    t, z = schur(x)
    if x.dtype.kind != "c":  # so that real eigenvalues stay real
        t, z = rsf2csf(t, z)
    inner = _triangular(t, func, _commuting_system)
    out = products.matmul(products.matmul(z, inner), m.adjoint(z))
    if disp:
        return out
    gap = u.abs(t.diagonal()[:, None] - t.diagonal()[None, :])
    gap = reduce.min(u.where3(eye(x.shape[0], dtype=bool), math.inf, gap))
    eps = float(np.finfo(gap.dtype).eps)
    error = u.minimum(
        1.0, u.maximum(eps, (eps / u.where3(gap == 0, eps, gap)) * np_linalg.norm(m.triu(t, 1), 1))
    )
    return out, error


__all__ = ["expm", "expm_frechet", "funm", "sqrtm"]
