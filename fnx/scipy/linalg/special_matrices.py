"""Matrices with a pattern: block diagonal, Toeplitz, Hankel, companion, Hilbert, Pascal, DFT, ..."""

import math
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.arrays import creation
from fnx.numpy.arrays.util import integer, promote
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.padding import pad
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.ranges import eye
from fnx.numpy.structure.shapes import broadcast_to


def _vectors(name: str, *xs: Any) -> list[Array]:
    xs = promote(name, *xs)
    return [x if x.ndim else x[None] for x in xs]


def block_diag(*arrs):
    """Matrices along the diagonal of one matrix, with zeros elsewhere; vectors are rows.

    ShapeError for ranks above 2.

    >>> fnx.scipy.linalg.block_diag(np.ones((1, 2)), 3.0)
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float64)
    """
    if not arrs:
        arrs = (creation.zeros((1, 0)),)
    xs = promote("block_diag", *arrs)
    bad = [k for k, x in enumerate(xs) if x.ndim > 2]
    if bad:
        raise ShapeError(f"block_diag got arrays {bad} of rank above 2; expected matrices")
    xs = [x.reshape((1, -1)) if x.ndim < 2 else x for x in xs]
    width = sum(x.shape[1] for x in xs)
    rows, start = [], 0
    for x in xs:
        rows.append(pad(x, ((0, 0), (start, width - start - x.shape[1]))))
        start += x.shape[1]
    return concatenate(rows, axis=0)


def _along(values: Array, places: np.ndarray) -> Array:
    return values[..., places]


def toeplitz(c, r=None):
    """Constant diagonals: `c` is the first column, `r` (its conjugate, if not given) the first row.

    >>> fnx.scipy.linalg.toeplitz(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int64)
    """
    if r is None:
        (c,) = _vectors("toeplitz", c)
        r = u.conjugate(c)
    else:
        c, r = _vectors("toeplitz", c, r)
    rows, columns = c.shape[-1], r.shape[-1]
    lead = np.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = (broadcast_to(x, (*lead, x.shape[-1])) for x in (c, r))
    values = concatenate([c[..., ::-1], r[..., 1:]], axis=-1)
    return _along(values, rows - 1 + np.arange(columns)[None, :] - np.arange(rows)[:, None])


def hankel(c, r=None):
    """Constant antidiagonals: `c` is the first column, `r` (zeros, if not given) the last row.

    >>> fnx.scipy.linalg.hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int64)
    """
    (c,) = _vectors("hankel", c)
    r = creation.zeros_like(c) if r is None else r
    c, r = _vectors("hankel", c, r)
    lead = np.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = (broadcast_to(x, (*lead, x.shape[-1])) for x in (c, r))
    values = concatenate([c, r[..., 1:]], axis=-1)
    return _along(values, np.arange(c.shape[-1])[:, None] + np.arange(r.shape[-1])[None, :])


def circulant(c):
    """Columns that are rotations of `c`.

    >>> fnx.scipy.linalg.circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int64)
    """
    (c,) = _vectors("circulant", c)
    n = c.shape[-1]
    return _along(c, (np.arange(n)[:, None] - np.arange(n)[None, :]) % max(n, 1))


def leslie(f, s):
    """A population's matrix: fecundities in the first row, survivals below the diagonal.

    ShapeError for other shapes than (..., n) and (..., n - 1).

    >>> fnx.scipy.linalg.leslie(jnp.array([0.1, 2.0]), jnp.array([0.5]))
    Array([[0.1, 2. ],
           [0.5, 0. ]], dtype=float64)
    """
    f, s = _vectors("leslie", f, s)
    n = f.shape[-1]
    if s.shape[-1] != n - 1 or n < 2:
        raise ShapeError(
            f"leslie of shapes {f.shape} and {s.shape}; expected (..., n) and (..., n - 1)"
        )
    below = s[..., None] * eye(n - 1, n, dtype=s.dtype)
    return concatenate([f[..., None, :], below], axis=-2)


def companion(a):
    """The companion matrix of a polynomial, highest power first.

    ValueError for fewer than two coefficients.

    >>> fnx.scipy.linalg.companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float64)
    """
    (a,) = _vectors("companion", a)
    if a.shape[-1] < 2:
        raise InvalidValue(f"companion of shape {a.shape}; expected at least two coefficients")
    n = a.shape[-1] - 1
    first = -a[..., 1:] / a[..., :1]
    below = broadcast_to(eye(n - 1, n, dtype=first.dtype), (*a.shape[:-1], n - 1, n))
    return concatenate([first[..., None, :], below], axis=-2)


def fiedler(a):
    """|a[i] - a[j]|.

    >>> fnx.scipy.linalg.fiedler(jnp.array([1, 4, 6]))
    Array([[0, 3, 5],
           [3, 0, 2],
           [5, 2, 0]], dtype=int64)
    """
    (a,) = _vectors("fiedler", a)
    return u.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a):
    """A pentadiagonal matrix with the roots of a polynomial (highest power first) as eigenvalues.

    ValueError for what is no vector of coefficients.

    >>> fnx.scipy.linalg.fiedler_companion(jnp.array([1.0, -3.0, 2.0])).shape
    (2, 2)
    """
    (a,) = _vectors("fiedler_companion", a)
    *lead, n = a.shape
    n -= 1
    if n < 0:
        raise InvalidValue(f"fiedler_companion of shape {a.shape}; expected coefficients")
    out = creation.zeros((*lead, n, n), (a / 1).dtype)
    if n < 1:
        return out
    c = -a / a[..., :1]
    out = out.at[..., 0, 0].set(c[..., 1])
    if n == 1:
        return out
    # Rows with coefficients, and columns beside them.
    even, odd = np.arange(2, n, 2), np.arange(1, n, 2)
    out = out.at[..., 0, 1].set(c[..., 2]).at[..., 1, 0].set(1)
    out = out.at[..., even, even - 1].set(c[..., even + 1])
    out = out.at[..., odd[1:] - 1, odd[1:]].set(c[..., odd[1:] + 1])
    return out.at[..., even - 2, even].set(1).at[..., odd[1:], odd[1:] - 2].set(1)


def convolution_matrix(a, n, mode="full"):
    """The matrix whose product with a vector of length n is its convolution with `a`.

    ShapeError for a scalar; ValueError for lengths of 0, and for an unknown mode.

    >>> fnx.scipy.linalg.convolution_matrix(jnp.array([1, 2]), 3)
    Array([[1, 0, 0],
           [2, 1, 0],
           [0, 2, 1],
           [0, 0, 2]], dtype=int64)
    """
    if not np.ndim(a):
        raise ShapeError("convolution_matrix of a scalar; expected a vector")
    (a,) = _vectors("convolution_matrix", a)
    n = integer(n, "n")
    if n <= 0 or a.shape[-1] == 0:
        raise InvalidValue(f"convolution_matrix of {a.shape} and n={n}; expected positive lengths")
    if mode not in ("full", "valid", "same"):
        raise InvalidValue(
            f"convolution_matrix with mode={mode!r}; expected 'full', 'valid' or 'same'"
        )
    size = a.shape[-1]
    shift = np.arange(size + n - 1)[:, None] - np.arange(n)[None, :]
    inside = creation.asarray((shift >= 0) & (shift < size))
    full = u.where3(inside, a[..., np.clip(shift, 0, size - 1)], 0)
    if mode == "full":
        return full
    short = min(size, n)
    length = max(size, n) - short + 1 if mode == "valid" else max(size, n)
    start = short - 1 if mode == "valid" else (short - 1) // 2
    return full[..., start : start + length, :]


def _float_matrix(x: np.ndarray) -> Array:
    return creation.asarray(x, dtype=float)


def hilbert(n):
    """1 / (i + j + 1).

    >>> fnx.scipy.linalg.hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333333]], dtype=float64)
    """
    k = np.arange(integer(n, "n"))
    return _float_matrix(1 / (k[:, None] + k[None, :] + 1))


def invhilbert(n):
    """The inverse of `hilbert`.

    >>> fnx.scipy.linalg.invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float64)
    """
    n = integer(n, "n")
    c = math.comb
    rows = [
        [
            (-1) ** (i + j)
            * (i + j + 1)
            * c(n + i, n - j - 1)
            * c(n + j, n - i - 1)
            * c(i + j, i) ** 2
            for j in range(n)
        ]
        for i in range(n)
    ]
    return _float_matrix(np.array(rows, dtype=float).reshape(n, n))


def pascal(n, kind=None):
    """Binomial coefficients, in float32: 'symmetric' (the default), 'lower' or 'upper'.

    ValueError for another kind.

    >>> fnx.scipy.linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    return _binomials(n, kind).astype("float32")


def _binomials(n: Any, kind: Any) -> Array:
    kind = "symmetric" if kind is None else kind
    n = integer(n, "n")
    lower = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)], float).reshape(n, n)
    found = {"symmetric": lambda: lower @ lower.T, "lower": lambda: lower, "upper": lambda: lower.T}
    if kind not in found:
        raise InvalidValue(f"pascal with kind={kind!r}; expected 'symmetric', 'lower' or 'upper'")
    return _float_matrix(found[kind]())


def invpascal(n, kind=None):
    """The inverse of `pascal`.

    ValueError for another kind.

    >>> fnx.scipy.linalg.invpascal(2)
    Array([[ 2., -1.],
           [-1.,  1.]], dtype=float64)
    """
    kind = "symmetric" if kind is None else kind
    lower = np.asarray(_binomials(n, "lower"))
    k = np.arange(integer(n, "n"))
    lower = lower * (1 - 2 * ((k[:, None] + k[None, :]) % 2))
    found = {"symmetric": lambda: lower.T @ lower, "lower": lambda: lower, "upper": lambda: lower.T}
    if kind not in found:
        raise InvalidValue(
            f"invpascal with kind={kind!r}; expected 'symmetric', 'lower' or 'upper'"
        )
    return _float_matrix(found[kind]())


def helmert(n, full=False):
    """Orthogonal rows that compare each element with the mean of those before it.

    ValueError for sizes that are not positive.

    >>> h = fnx.scipy.linalg.helmert(3, full=True)
    >>> bool(jnp.allclose(h @ h.T, jnp.eye(3)))
    True
    """
    n = integer(n, "n")
    if n < 1:
        raise InvalidValue(f"helmert of {n}; expected a positive size")
    out = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    out[0] = 1
    norms = np.arange(n) * (np.arange(n) + 1.0)
    norms[:1] = n
    out = out / np.sqrt(norms)[:, None]
    return _float_matrix(out if full else out[1:])


def hadamard(n, dtype=int):
    """The matrix of signs of orthogonal rows, for powers of two.

    ValueError for other sizes.

    >>> fnx.scipy.linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int64)
    """
    n = integer(n, "n")
    if n < 1 or n & (n - 1):
        raise InvalidValue(f"hadamard of {n}; expected a power of two")
    out = np.ones((1, 1), int)
    while out.shape[0] < n:
        out = np.block([[out, out], [out, -out]])
    return creation.asarray(out, dtype=dtype)


def dft(n, scale=None, *, dtype=None):
    """The matrix of the discrete Fourier transform; scale 'sqrtn' or 'n' divides by it.

    ValueError for another scale, and for a dtype that is not complex.

    >>> fnx.scipy.linalg.dft(2).real.round(6)
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float64)
    """
    n = integer(n, "n")
    if scale not in (None, "sqrtn", "n"):
        raise InvalidValue(f"dft with scale={scale!r}; expected None, 'sqrtn' or 'n'")
    if dtype is not None and np.dtype(dtype).kind != "c":
        raise InvalidValue(f"dft with dtype={dtype!r}; expected a complex dtype")
    k = np.arange(n)
    out = np.exp(-2j * np.pi * ((k[:, None] * k[None, :]) % max(n, 1)) / max(n, 1))
    out = out / {None: 1.0, "sqrtn": math.sqrt(n), "n": n}[scale]
    return creation.asarray(out, dtype=complex if dtype is None else dtype)


__all__ = [
    "block_diag",
    "circulant",
    "companion",
    "convolution_matrix",
    "dft",
    "fiedler",
    "fiedler_companion",
    "hadamard",
    "hankel",
    "helmert",
    "hilbert",
    "invhilbert",
    "invpascal",
    "leslie",
    "pascal",
    "toeplitz",
]
