"""Random bits, and what is made of them with a few operations: uniform floats and integers, coins."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.policy import UNROLLED_ROW
from fnx.numpy.elementwise import ufuncs
from fnx.ops.base.broadcast import Sum
from fnx.ops.elementwise.arithmetic import add, max_, mul, or_, rem, shift_right_logical, sub
from fnx.ops.elementwise.convert import BitcastConvertType
from fnx.ops.elementwise.fma import fma
from fnx.ops.elementwise.select import and_, ge, gt, lt, select
from fnx.ops.random.prng import BITS
from fnx.ops.random.sampling import bit_width
from fnx.ops.structure.basic import broadcast_to, convert, reshape, scalar, slice_axis
from fnx.random.generators import random_bits, split
from fnx.random.keys import canonical_shape, words_of

Shape = tuple[int, ...]


# --- what all samplers do with their arguments -------------------------------------------------


def float_dtype(dtype: Any, name: str, inexact: bool = False) -> np.dtype:
    """The dtype asked for, by default the default float; a ValueError unless it is one of floats."""
    found = dtypes.canonical(float if dtype is None else dtype)
    if not (dtypes.is_inexact(found) if inexact else dtypes.is_float(found)):
        kinds = "float or complex" if inexact else "float"
        raise InvalidValue(f"dtype argument to {name} must be a {kinds} dtype, not {found}")
    return found


def int_dtype(dtype: Any, name: str) -> np.dtype:
    """The same for integers."""
    found = dtypes.canonical(int if dtype is None else dtype)
    if not dtypes.is_integer(found):
        raise InvalidValue(f"dtype argument to {name} must be an integer dtype, not {found}")
    return found


def result_shape(name: str, shape: Any, *parameters: Array) -> Shape:
    """The shape asked for, by default the common shape of parameters, which must broadcast to it."""
    own = np.broadcast_shapes(*[p.shape for p in parameters])
    if shape is None:
        return own
    shape = canonical_shape(shape)
    try:
        fits = np.broadcast_shapes(shape, own) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name} parameters of shapes {[p.shape for p in parameters]} do not broadcast to the shape "
            f"{shape} asked for"
        )
    return shape


def parameter(x: Any, dtype: np.dtype) -> Array:
    """A parameter of a distribution as an array of its dtype."""
    return convert(x if isinstance(x, Array) else as_array(x), dtype)


def parameters(name: str, shape: Any, dtype: np.dtype, *xs: Any) -> tuple[Shape, list[Array]]:
    """The shape of a result, and its parameters in this shape and its dtype."""
    arrays = [parameter(x, dtype) for x in xs]
    shape = result_shape(name, shape, *arrays)
    return shape, [broadcast_to(x, shape) for x in arrays]


def split_words(words: Array, n: int = 2) -> list[Array]:
    """The words of n new keys."""
    keys = split(words, (n,))
    return [keys[i] for i in range(n)]


# --- samplers ----------------------------------------------------------------------------------


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Uniform random bits, as unsigned integers of `dtype` (default uint64).

    ValueError for a dtype that is not unsigned.

    >>> fnx.random.bits(fnx.random.key(0), (2,), "uint8")
    Array([167, 146], dtype=uint8)
    """
    found = dtypes.default_for("u") if dtype is None else dtypes.canonical(dtype)
    if dtypes.kind(found) != "u":
        raise InvalidValue(f"dtype argument to bits must be an unsigned integer dtype, not {found}")
    return random_bits(words_of(key, "bits"), 8 * found.itemsize, canonical_shape(shape))


def unit_interval(words: Array, shape: Shape, dtype: np.dtype) -> Array:
    """Uniform floats in [0, 1): random mantissas of numbers in [1, 2), less 1."""
    width = bit_width(dtype)
    unsigned = BITS[8 * dtype.itemsize]
    mantissa = convert(random_bits(words, width, shape), unsigned)
    shift = width - ml_dtypes.finfo(dtype).nmant
    mantissa = shift_right_logical(mantissa, scalar(shift, unsigned))
    one = int(np.ones((), dtype).view(unsigned))
    return sub(BitcastConvertType(dtype)(or_(mantissa, scalar(one, unsigned))), scalar(1.0, dtype))


def product_sum(x: Array, y: Array, z: Array) -> Array:
    """x y + z, rounded as programs of XLA's round it on CPUs: once, but after each step in bfloat16."""
    return _exact_product_sum(x, y, z) if x.dtype == dtypes.bfloat16 else fma(x, y, z)


def _exact_product_sum(x: Array, y: Array, z: Array) -> Array:
    return add(mul(x, y), z)


def sum_of_products(x: Array, y: Array) -> Array:
    """Sums of x y over the last axis: of few terms one after the other, each as `product_sum` does."""
    *lead, n = x.shape
    if not 0 < n <= UNROLLED_ROW or x.dtype not in (dtypes.float32, dtypes.float64):
        return Sum((len(lead),))(mul(x, y))
    terms = [
        [reshape(slice_axis(v, k, k + 1, len(lead)), tuple(lead)) for v in (x, y)] for k in range(n)
    ]
    total = mul(*terms[0])
    for pair in terms[1:]:
        total = fma(*pair, total)
    return total


def uniform_between(words: Array, shape: Shape, dtype: np.dtype, low: Any, high: Any) -> Array:
    """Uniform floats in [low, high), for bounds that are floats or arrays that broadcast to `shape`."""
    unit = unit_interval(words, shape, dtype)
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        if low == 0 and high == 1:
            return unit
        low, high = np.asarray(low, dtype), np.asarray(high, dtype)
        width, low = float(high - low), scalar(low.item(), dtype)
        product_is_exact = abs(math.frexp(width)[0]) == 0.5  # a power of 2, as of normal numbers
        scaled = _exact_product_sum if product_is_exact else product_sum
        return max_(scaled(unit, scalar(width, dtype), low), low)
    low, high = parameter(low, dtype), parameter(high, dtype)
    if low.shape or high.shape:
        low, high = broadcast_to(low, shape), broadcast_to(high, shape)
    return max_(product_sum(unit, sub(high, low), low), low)


def uniform(
    key: Any,
    shape: Any = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    *,
    out_sharding: Any = None,
) -> Array:
    """Uniform floats in [minval, maxval), which broadcast to `shape`; rounding may give maxval itself.

    >>> x = fnx.random.uniform(fnx.random.key(0), (1000,))
    >>> bool((0 <= x).all() and (x < 1).all())
    True
    """
    words = words_of(key, "uniform")
    return uniform_between(
        words, canonical_shape(shape), float_dtype(dtype, "uniform"), minval, maxval
    )


def _clipped(x: Array, dtype: np.dtype) -> Array:
    """Integers in another dtype, moved into its range."""
    if x.dtype == dtype:
        return x
    info, own = np.iinfo(dtype), np.iinfo(x.dtype)
    low, high = max(info.min, own.min), min(info.max, own.max)
    return convert(ufuncs.clip(x, scalar(low, x.dtype), scalar(high, x.dtype)), dtype)


def _integers(x: Any) -> Array:
    x = x if isinstance(x, Array) else as_array(x)
    return x if dtypes.is_integer(x.dtype) else convert(x, dtypes.default_for("i"))


def randint(
    key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Integers in [minval, maxval), which broadcast to `shape`.

    Remainders of twice as many random bits as the dtype has (at least 64): the bias is of the order
    of span / 2 ** 64. Where maxval <= minval the result is minval.

    >>> fnx.random.randint(fnx.random.key(0), (5,), 0, 10)
    Array([5, 1, 5, 7, 3], dtype=int64)
    """
    words = words_of(key, "randint")
    dtype, shape = int_dtype(dtype, "randint"), canonical_shape(shape)
    minval, maxval = _integers(minval), _integers(maxval)
    result_shape("randint", shape, minval, maxval)
    info = np.iinfo(dtype)
    if info.bits >= 32:
        return _randint(words, shape, minval, maxval, dtype)
    low = ufuncs.clip(convert(minval, dtypes.int32), int(info.min), int(info.max))
    high = ufuncs.clip(convert(maxval, dtypes.int32), int(info.min), int(info.max) + 1)
    return convert(_randint(words, shape, low, high, dtypes.int32), dtype)


def _randint(words: Array, shape: Shape, minval: Array, maxval: Array, dtype: np.dtype) -> Array:
    top = min(np.iinfo(dtype).max, np.iinfo(maxval.dtype).max)
    beyond = gt(maxval, scalar(int(top), maxval.dtype))  # maxval itself does not fit in the dtype
    low, high = _clipped(minval, dtype), _clipped(maxval, dtype)
    if low.shape or high.shape:
        low, high, beyond = (broadcast_to(x, shape) for x in (low, high, beyond))
    nbits = 8 * dtype.itemsize
    unsigned = BITS[nbits]
    first, second = (random_bits(k, nbits, shape) for k in split_words(words))
    one = scalar(1, unsigned)
    span = select(ge(low, high), one, convert(sub(high, low), unsigned))
    span = select(and_(beyond, lt(low, high)), add(span, one), span)
    factor = rem(scalar(1 << nbits // 2, unsigned), span)
    factor = rem(mul(factor, factor), span)  # 2 ** nbits modulo the span
    offset = add(mul(rem(first, span), factor), rem(second, span))
    return add(low, convert(rem(offset, span), dtype))


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Array:
    """True with probability p, else False; `mode="high"` uses twice as many bits.

    TypeError for probabilities that are not floats; ValueError for another mode.

    >>> fnx.random.bernoulli(fnx.random.key(0), 0.5, (3,)).dtype
    dtype('bool')
    """
    words = words_of(key, "bernoulli")
    p = p if isinstance(p, Array) else as_array(p)
    if not dtypes.is_float(p.dtype):
        raise TypeMismatch(f"bernoulli needs a float probability, not {p.dtype}; convert it")
    if mode not in ("low", "high"):
        raise InvalidValue(f"mode of bernoulli must be 'low' or 'high', not {mode!r}")
    shape = result_shape("bernoulli", shape, p)
    p = p if not p.shape else broadcast_to(p, shape)
    if mode == "low":
        return lt(unit_interval(words, shape, p.dtype), p)
    both = unit_interval(words, (2, *shape), p.dtype)
    fine = both[1] * 2.0 ** -ml_dtypes.finfo(p.dtype).nmant
    return ufuncs.less(fine, p - both[0])


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """-1 or 1, with probability 1/2 each.

    >>> x = fnx.random.rademacher(fnx.random.key(0), (100,))
    >>> jnp.unique(x)
    Array([-1,  1], dtype=int64)
    """
    coins = bernoulli(key, 0.5, canonical_shape(shape))
    dtype = dtypes.canonical(int if dtype is None else dtype)
    return convert(2 * convert(coins, dtypes.default_for("i")) - 1, dtype)


__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]
