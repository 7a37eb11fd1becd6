"""Solutions of linear equations from factors, with triangular and general matrices."""

from typing import Any

import numpy as np

from fnx.control_flow import fori_loop
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax import linalg as lax_linalg
from fnx.numpy import linalg as np_linalg
from fnx.numpy.algebra import products
from fnx.numpy.arrays.creation import zeros_like
from fnx.numpy.arrays.util import common_shape, convert, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.selection import take_along_axis
from fnx.numpy.structure.shapes import broadcast_to
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg import matrix as m
from fnx.scipy.linalg.factorizations import cho_factor, schur
from fnx.transforms.vmap import vmap

_TRANS = {0: (False, False), 1: (True, False), 2: (True, True)}
_TRANS |= {"N": _TRANS[0], "T": _TRANS[1], "C": _TRANS[2]}


def _trans(name: str, trans: Any) -> tuple[bool, bool]:
    if trans not in _TRANS:
        raise InvalidValue(f"{name} with trans={trans!r}; expected 0, 1, 2, 'N', 'T' or 'C'")
    return _TRANS[trans]


def _system(name: str, a: Any, b: Any) -> tuple[Array, Array, bool]:
    """Matrices and right-hand sides in stacks of one shape, and whether the latter were vectors."""
    a, b = promote_inexact(name, a, b)
    if a.dtype not in m.LAPACK:
        a, b = (convert(x, np.dtype(np.float32)) for x in (a, b))
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or b.ndim < 1:
        raise ShapeError(f"{name} of shapes {a.shape} and {b.shape}; expected square matrices")
    y = b[..., None] if vector else b
    if y.shape[-2] != a.shape[-1]:
        raise ShapeError(
            f"{name} of shapes {a.shape} and {b.shape}; expected (..., n, n), and (n,) or (..., n, k)"
        )
    lead = common_shape(name, [a.shape[:-2], y.shape[:-2]])
    a = broadcast_to(a, (*lead, *a.shape[-2:]))
    return a, broadcast_to(y, (*lead, *y.shape[-2:])), vector


def solve_triangular(
    a,
    b,
    trans=0,
    lower=False,
    unit_diagonal=False,
    overwrite_b=False,
    debug=None,
    check_finite=True,
):
    """The x with op(a) x = b for triangular a; `trans`: 0 'N', 1 'T' (transposed), 2 'C' (adjoint).

    `a` is (..., n, n), `b` (n,) or (..., n, k).

    >>> fnx.scipy.linalg.solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    Array([1., 2.], dtype=float64)
    """
    del overwrite_b, debug, check_finite
    transposed, conjugate = _trans("solve_triangular", trans)
    a, b, vector = _system("solve_triangular", a, b)
    out = lax_linalg.triangular_solve(
        a, b, left_side=True, lower=bool(lower), transpose_a=transposed, conjugate_a=conjugate,
        unit_diagonal=bool(unit_diagonal),
    )  # fmt: skip
    return out[..., 0] if vector else out


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """The x with a x = b, from the factor of a that `cho_factor` gave.

    >>> factor = fnx.scipy.linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> fnx.scipy.linalg.cho_solve(factor, jnp.array([6.0, 7.0])).round(6)
    Array([1., 1.], dtype=float64)
    """
    del overwrite_b, check_finite
    factor, lower = c_and_lower
    y = solve_triangular(factor, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(factor, y, trans=2 if lower else 0, lower=lower)


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """The x with op(a) x = b, from the factors of a that `lu_factor` gave.

    ValueError for another `trans` than 0, 1 or 2.

    >>> factors = fnx.scipy.linalg.lu_factor(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> fnx.scipy.linalg.lu_solve(factors, jnp.array([3.0, 8.0]))
    Array([1., 1.], dtype=float64)
    """
    del overwrite_b, check_finite
    if trans not in (0, 1, 2):
        raise InvalidValue(f"lu_solve with trans={trans!r}; expected 0, 1 or 2")
    lu, pivots = lu_and_piv
    lu, b, vector = _system("lu_solve", lu, b)
    n = lu.shape[-1]
    order = lax_linalg.lu_pivots_to_permutation(pivots, n)
    order = broadcast_to(order, (*lu.shape[:-2], n))[..., None]
    if trans == 0:
        y = take_along_axis(b, order, axis=-2)
        y = solve_triangular(lu, y, lower=True, unit_diagonal=True)
        out = solve_triangular(lu, y)
    else:
        y = solve_triangular(lu, b, trans=trans)
        y = solve_triangular(lu, y, trans=trans, lower=True, unit_diagonal=True)
        out = take_along_axis(y, order.argsort(axis=-2), axis=-2)
    return out[..., 0] if vector else out


def solve(
    a,
    b,
    lower=False,
    overwrite_a=False,
    overwrite_b=False,
    debug=False,
    check_finite=True,
    assume_a="gen",
):
    """The x with a x = b; with assume_a='pos' by Cholesky from one triangle of a.

    `a` is (..., n, n), `b` (n,) or (..., n, k).

    ValueError for an unknown structure.

    >>> fnx.scipy.linalg.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 8.0]))
    Array([1., 2.], dtype=float64)
    """
    del overwrite_a, overwrite_b, debug, check_finite
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise InvalidValue(
            f"solve with assume_a={assume_a!r}; expected 'gen', 'sym', 'her' or 'pos'"
        )
    a, b, vector = _system("solve", a, b)
    if assume_a == "pos":
        out = cho_solve(cho_factor(a, lower), b)
    else:
        out = np_linalg.solve(a, b)
    return out[..., 0] if vector else out


def solve_sylvester(A, B, C, *, method="schur", tol=1e-8):
    """The X with A X + X B = C; leading axes broadcast.

    ShapeError for other shapes than (..., n, n), (..., k, k) and (..., n, k); ValueError for
    another method than 'schur' or 'eigen'.

    >>> a, b = jnp.diag(jnp.array([1.0, 2.0])), jnp.eye(2)
    >>> fnx.scipy.linalg.solve_sylvester(a, b, jnp.ones((2, 2))).round(6)
    Array([[0.5     , 0.5     ],
           [0.333333, 0.333333]], dtype=float64)
    """
    del tol
    if method not in ("schur", "eigen"):
        raise InvalidValue(f"solve_sylvester with method={method!r}; expected 'schur' or 'eigen'")
    a, b, c = promote_inexact("solve_sylvester", A, B, C)
    sizes = a.shape[-2:] + b.shape[-2:]
    if min(a.ndim, b.ndim, c.ndim) < 2 or sizes != c.shape[-2:-1] * 2 + c.shape[-1:] * 2:
        raise ShapeError(
            f"solve_sylvester of shapes {a.shape}, {b.shape} and {c.shape}; expected (..., n, n), "
            "(..., k, k), (..., n, k)"
        )
    lead = common_shape("solve_sylvester", [x.shape[:-2] for x in (a, b, c)])
    a, b, c = (broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b, c))
    one = _sylvester
    for _ in lead:
        one = vmap(one)
    return one(a, b, c)


def _sylvester(a: Array, b: Array, c: Array) -> Array:
    # Columns of A Y + Y T = U^H C V one after the other: T = V^H B V is upper triangular.
    ta, ua = schur(a, output="complex")
    tb, ub = schur(b, output="complex")
    rhs = products.matmul(products.matmul(m.adjoint(ua), convert(c, ta.dtype)), ub)
    eye = np.eye(a.shape[0], dtype=ta.dtype)

    def column(k: Any, y: Array) -> Array:
        known = u.where3(np.arange(b.shape[0]) < k, tb[:, k], 0)
        right = rhs[:, k] - products.matmul(y, known)
        return y.at[:, k].set(solve_triangular(ta + tb[k, k] * eye, right))

    y = fori_loop(0, b.shape[0], column, zeros_like(rhs)) if rhs.size else rhs
    x = products.matmul(products.matmul(ua, y), m.adjoint(ub))
    return x if c.dtype.kind == "c" else ops.real(x)


__all__ = ["cho_solve", "lu_solve", "solve", "solve_sylvester", "solve_triangular"]
