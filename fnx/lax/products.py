"""Products and Fourier transforms of fnx.lax."""

import enum
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.lax.elementwise import ge, lt
from fnx.lax.parameterized import select
from fnx.lax.reductions import cumsum
from fnx.lax.shapes import broadcast_in_dim, iota, reshape
from fnx.numpy.algebra.products import widened
from fnx.numpy.arrays.util import convert as as_dtype
from fnx.numpy.arrays.util import integer, to_array
from fnx.ops.elementwise.convert import convert
from fnx.ops.linalg.contraction import DotGeneral, canonical_dims
from fnx.ops.linalg.fft import FFT
from fnx.ops.structure.basic import zeros

__all__ = [
    "FftType",
    "Precision",
    "batch_matmul",
    "dot",
    "dot_general",
    "fft",
    "ragged_dot",
]


class Precision(enum.Enum):
    """Accepted where JAX asks for it; products are always computed in full precision.

    >>> lax.dot(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]), precision=lax.Precision.HIGHEST)
    Array(11., dtype=float64)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Precision.{self.name}"


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Products summed over contracted axes, element by element along batch axes.

    `dimension_numbers`: ((lhs contracted, rhs contracted), (lhs batch, rhs batch)).

    >>> x, y = jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))
    >>> lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))).shape
    (5, 2, 4)
    """
    del precision, out_sharding
    x, y = to_array(lhs, "dot_general"), to_array(rhs, "dot_general", 1)
    wanted = None if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    if x.dtype != y.dtype:
        x, y = widened(x, y, wanted)
        finer, weak = max((x.dtype, y.dtype), key=_precision), x.weak_type and y.weak_type
        x, y = (as_dtype(v, finer, weak) for v in (x, y))
    return DotGeneral(canonical_dims(dimension_numbers), wanted)(x, y)


def _precision(dtype: np.dtype) -> tuple:
    """What tells which of two dtypes a product of both has: XLA's order, not that of promotion."""
    real = dtypes.real_of(dtype)
    inexact = ml_dtypes.finfo(real) if dtypes.is_float(real) else None
    digits = (inexact.maxexp, inexact.nmant) if inexact else (-1, -1)
    bits = 1 if real == dtypes.bool_ else 8 * real.itemsize
    return dtypes.is_complex(dtype), *digits, bits, dtypes.kind(real) != "u"


def dot(
    lhs: Any,
    rhs: Any,
    *args: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    dimension_numbers: Any = None,
    **_: Any,
) -> Array:
    """Vector and matrix products.

    ShapeError for more than two axes, and for sizes that differ.

    >>> lax.dot(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0]))
    Array([21., 43.], dtype=float64)
    """
    del args, precision
    x, y = to_array(lhs, "dot"), to_array(rhs, "dot", 1)
    if dimension_numbers is None:
        if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2):
            raise ShapeError(f"lax.dot takes vectors and matrices, got shapes {x.shape}, {y.shape}")
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, None, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Matrix products of stacks of matrices.

    >>> lax.batch_matmul(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = to_array(lhs, "batch_matmul"), to_array(rhs, "batch_matmul", 1)
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Rows of `lhs` [m, k] times the matrix of their group in `rhs` [g, k, n]; group follows group.

    Rows behind the last group are zero. It is one product of matrices, g times as long.

    ShapeError for other shapes, and for a `group_offset`.

    >>> rows, matrices = jnp.ones((3, 1)), jnp.array([[[2.0]], [[5.0]]])
    >>> lax.ragged_dot(rows, matrices, jnp.array([1, 2]))
    Array([[2.],
           [5.],
           [5.]], dtype=float64)
    """
    del out_sharding
    x, w, sizes = (to_array(a, "ragged_dot", k) for k, a in enumerate((lhs, rhs, group_sizes)))
    if group_offset is not None:
        raise ShapeError("ragged_dot with group_offset; expected all groups")
    if x.ndim != 2 or w.ndim != 3 or x.shape[1] != w.shape[1] or sizes.shape != w.shape[:1]:
        raise ShapeError(
            f"ragged_dot of shapes {x.shape}, {w.shape}, {sizes.shape}; expected [m, k], [g, k, n], [g]"
        )
    (m, k), (g, _, n) = x.shape, w.shape
    ends = cumsum(sizes)
    row = broadcast_in_dim(iota(sizes.dtype, m), (m, g), (0,))
    starts = broadcast_in_dim(ends - sizes, (m, g), (1,))
    mine = ge(row, starts) & lt(row, broadcast_in_dim(ends, (m, g), (1,)))
    rows = broadcast_in_dim(x, (m, g, k), (0, 2))
    rows = select(broadcast_in_dim(mine, (m, g, k), (0, 1)), rows, zeros(rows.aval.strong()))
    flat = reshape(rows, (m, g * k)), reshape(w, (g * k, n))
    return dot_general(*flat, (((1,), (0,)), ((), ())), precision, preferred_element_type)


# --- transforms --------------------------------------------------------------------------------


class FftType(enum.IntEnum):
    """Kinds of Fourier transforms.

    >>> lax.fft(jnp.ones(4), lax.FftType.RFFT, (4,)).real
    Array([4., 0., 0.], dtype=float64)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: Any, fft_type: Any, fft_lengths: Sequence[int]) -> Array:
    """The Fourier transform over the last axes.

    TypeError for lengths that are no sequence.

    >>> lax.fft(jnp.array([1.0, 0.0, 0.0, 0.0], dtype="complex128"), "FFT", (4,)).real
    Array([1., 1., 1., 1.], dtype=float64)
    """
    kind = fft_type.name.lower() if isinstance(fft_type, FftType) else str(fft_type).lower()
    x = to_array(x, "fft")
    if isinstance(fft_lengths, (int, np.integer)):
        raise TypeMismatch(f"fft_lengths {fft_lengths}; expected one length an axis, in a sequence")
    if not len(fft_lengths):
        return x
    transform = FFT(kind, tuple(integer(n, "an entry of fft_lengths") for n in fft_lengths))
    if kind != "rfft" and not dtypes.is_complex(x.dtype):
        x = convert(x, dtypes.complex_of(x.dtype))
    transform.abstract(x.aval)  # evaluation would cut or fill up
    return transform(x)
