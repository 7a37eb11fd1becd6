"""Linear algebra with numpy.linalg's names, on stacks of matrices."""

import numpy as np

from fnx.numpy.algebra import products
from fnx.numpy.algebra.factorizations import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from fnx.numpy.algebra.norms import matrix_norm, norm, vector_norm
from fnx.numpy.algebra.products import cross as _cross
from fnx.numpy.algebra.products import matmul as _matmul
from fnx.numpy.algebra.products import outer as _outer
from fnx.numpy.algebra.products import tensordot as _tensordot
from fnx.numpy.algebra.products import vecdot as _vecdot
from fnx.numpy.algebra.systems import (
    SlogdetResult,
    cond,
    det,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    multi_dot,
    pinv,
    slogdet,
    solve,
    tensorinv,
    tensorsolve,
)
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.structure.diagonals import diagonal as _diagonal
from fnx.numpy.structure.shapes import matrix_transpose


def cross(x1, x2, /, *, axis=-1):
    """The cross product of vectors of 3 components.

    >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int64)
    """
    return _cross(x1, x2, axis=axis)


def outer(x1, x2, /):
    """All products of elements of two vectors.

    >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([1, 10]))
    Array([[ 1, 10],
           [ 2, 20]], dtype=int64)
    """
    return _outer(x1, x2)


def matmul(x1, x2, /, *, precision=None, preferred_element_type=None):
    """The product of matrices, or of stacks of them.

    >>> jnp.linalg.matmul(jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [4.0]]))
    Array([[11.]], dtype=float64)
    """
    return _matmul(x1, x2, preferred_element_type=preferred_element_type)


def tensordot(x1, x2, /, *, axes=2, precision=None, preferred_element_type=None):
    """Sums of products over the last `axes` axes of x1 and the first of x2, or over pairs of axes.

    ShapeError for axes that differ in number or size.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    return _tensordot(x1, x2, axes, preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Inner products along an axis.

    >>> jnp.linalg.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int64)
    """
    return _vecdot(x1, x2, axis=axis, preferred_element_type=preferred_element_type)


def diagonal(x, /, *, offset=0):
    """Diagonals of the matrices in the last two axes.

    >>> jnp.linalg.diagonal(jnp.arange(8).reshape(2, 2, 2))
    Array([[0, 3],
           [4, 7]], dtype=int64)
    """
    return _diagonal(x, offset, -2, -1)


def trace(x, /, *, offset=0, dtype=None):
    """Sums of the diagonals of the matrices in the last two axes.

    >>> jnp.linalg.trace(jnp.arange(8).reshape(2, 2, 2))
    Array([ 3, 11], dtype=int64)
    """
    return products.trace(x, offset, -2, -1, dtype)


__all__ = [
    "EigResult",
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
LinAlgError = np.linalg.LinAlgError

_retell(globals())
