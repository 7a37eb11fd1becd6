"""Choices: categories, permutations, samples of arrays; and counts."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.key_arrays import is_keys, of_keys
from fnx.numpy.arrays.util import canonical_axis
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure import sorting
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, mul, sub
from fnx.ops.random.sampling import RandomPoisson, random_binomial
from fnx.ops.reduction.cumulative import Cumulative
from fnx.ops.reduction.reduction import ArgMax
from fnx.ops.reduction.sorting import Sort, TopK
from fnx.ops.structure.basic import broadcast_to, convert, move_axis, scalar
from fnx.ops.structure.movement import Concatenate, Iota
from fnx.random.continuous import gumbel_of
from fnx.random.generators import random_bits, threefry_words
from fnx.random.keys import canonical_shape, words_of
from fnx.random.uniform import (
    Shape,
    float_dtype,
    int_dtype,
    parameter,
    parameters,
    randint,
    result_shape,
    split_words,
    unit_interval,
)


def _axis(axis: int, ndim: int, name: str) -> int:
    return canonical_axis(axis, ndim, f"axis of {name}")


def _ends_with(shape: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """Whether a shape is one that arrays of another broadcast to."""
    try:
        return np.broadcast_shapes(shape, own) == shape
    except ValueError:
        return False


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Categories with probabilities softmax(logits) along an axis, by the Gumbel-max trick.

    `shape` ends with the shape of logits without the axis. Without `replace`, its leading axes are
    drawn from the categories without repetition.

    ShapeError for a `shape` that does not end with that of the logits; ValueError for more
    draws than categories without replacement.

    >>> logits = jnp.log(jnp.array([0.1, 0.7, 0.2]))
    >>> x = fnx.random.categorical(fnx.random.key(0), logits, shape=(2000,))
    >>> (jnp.bincount(x) / 2000).round(1)
    Array([0.1, 0.7, 0.2], dtype=float64)
    """
    words = words_of(key, "categorical")
    logits = logits if isinstance(logits, Array) else as_array(logits)
    logits = convert(logits, dtypes.to_inexact(logits.dtype))
    axis = _axis(axis, len(logits.shape), "categorical")
    own = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    shape = own if shape is None else canonical_shape(shape)
    lead = shape[: len(shape) - len(own)]
    if not _ends_with(shape, own):
        raise ShapeError(f"categorical: shape {shape} asked for does not end with {own}")
    if replace:
        inner = list(shape[len(lead) :])
        inner.insert(axis, logits.shape[axis])
        full = (*lead, *inner)
        noisy = add(gumbel_of(words, full, logits.dtype, mode), broadcast_to(logits, full))
        return ArgMax((axis + len(lead),), dtypes.default_for("i"))(noisy)
    k = math.prod(lead)
    if k > logits.shape[axis]:
        raise InvalidValue(
            f"categorical cannot draw {k} of {logits.shape[axis]} categories without replacement"
        )
    noisy = add(logits, gumbel_of(words, logits.shape, logits.dtype, mode))
    last = len(logits.shape) - 1
    _, drawn = TopK(k, last)(move_axis(noisy, axis, last))
    return Reshape(shape)(move_axis(drawn, last, 0))


def _shuffled(words: Array, x: Array, axis: int) -> Array:
    # Sorting by 32 random bits leaves ties in order; a few rounds make them rare enough.
    size = math.prod(x.shape)
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        words, sub_key = split_words(words)
        _, x = Sort(axis, True, 1)(random_bits(sub_key, 32, x.shape), x)
    return x


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Array:
    """An array in random order along an axis, or a random permutation of range(x) for an integer x.

    With `independent`, each line along the axis has an order of its own.

    >>> fnx.random.permutation(fnx.random.key(0), 5).shape
    (5,)
    """
    words = words_of(key, "permutation")
    if not np.shape(x):
        _axis(axis, 1, "permutation")
        return _shuffled(words, _range(_count(x, "permutation")), 0)
    if is_keys(x):
        return of_keys(lambda v: permutation(words, v, axis, independent), x)
    x = x if isinstance(x, Array) else as_array(x)
    axis = _axis(axis, len(x.shape), "permutation")
    if independent or len(x.shape) == 1:
        return _shuffled(words, x, axis)
    return _take(x, _shuffled(words, _range(x.shape[axis]), 0), axis)


def _count(x: Any, name: str) -> int:
    if isinstance(x, bool) or not dtypes.is_integer(np.asarray(x).dtype):
        raise TypeMismatch(f"{name} needs an integer or an array of rank 1 at least, not {x!r}")
    return max(int(x), 0)


def _range(n: int) -> Array:
    return Iota(0, dtypes.default_for("i"), (n,))()


def _take(x: Array, index: Array, axis: int) -> Array:
    return x[(slice(None),) * axis + (index,)]


def shuffle(key: Any, x: Any, axis: int = 0) -> Array:
    """An array in random order along an axis; each line has an order of its own.

    >>> jnp.sort(fnx.random.shuffle(fnx.random.key(0), jnp.arange(4)))
    Array([0, 1, 2, 3], dtype=int64)
    """
    return permutation(key, x, axis, independent=True)


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Elements (along an axis) of an array, or integers below a, with probabilities p.

    TypeError for a shape that is no sequence of integers; ValueError for an empty a, and for
    more draws than elements without replacement.

    >>> x = fnx.random.choice(fnx.random.key(0), jnp.array([10, 20, 30]), (3,), replace=False)
    >>> jnp.sort(x)
    Array([10, 20, 30], dtype=int64)
    """
    words = words_of(key, "choice")
    if isinstance(shape, int):
        raise TypeMismatch(f"shape of choice must be a sequence of integers, not {shape}")
    shape = canonical_shape(shape)
    scalar_a = not np.shape(a)
    if scalar_a:
        n, lead, rest = _count(a, "choice"), (), ()
        arr = None
    elif is_keys(a):
        return of_keys(lambda v: choice(words, v, shape, replace, p, axis, mode), a)
    else:
        arr = a if isinstance(a, Array) else as_array(a)
        axis = _axis(axis, len(arr.shape), "choice")
        n, lead, rest = arr.shape[axis], arr.shape[:axis], arr.shape[axis + 1 :]
    draws = math.prod(shape)
    if n <= 0 and draws:
        raise InvalidValue("choice: a must have elements, unless no samples are taken")
    if not replace and draws > n:
        raise InvalidValue(f"choice cannot take {draws} of {n} elements without replacement")
    if draws == 0:
        dtype = dtypes.default_for("i") if arr is None else arr.dtype
        return Broadcast((*lead, *shape, *rest), ())(scalar(0, dtype))
    if p is None and not replace:
        found = permutation(words, n if arr is None else arr, axis)
        found = found[(slice(None),) * (0 if arr is None else axis) + (slice(draws),)]
    else:
        index = (
            randint(words, shape, 0, n)
            if p is None
            else _weighted(words, n, shape, replace, p, mode)
        )
        found = index if arr is None else _take(arr, index, axis)
    return Reshape((*lead, *shape, *rest))(found)


def _weighted(words: Array, n: int, shape: Shape, replace: bool, p: Any, mode: str | None) -> Array:
    p = p if isinstance(p, Array) else as_array(p)
    p = convert(p, dtypes.to_inexact(p.dtype))
    if p.shape != (n,):
        raise ShapeError(
            f"choice needs p of shape {(n,)}, one probability per element, not {p.shape}"
        )
    if not replace:
        noisy = add(gumbel_of(words, (n,), p.dtype, mode), ufuncs.log(p))
        return convert(TopK(math.prod(shape), 0)(noisy)[1], dtypes.default_for("i"))
    total = Cumulative("cumsum", 0)(p)
    u = sub(scalar(1.0, p.dtype), unit_interval(words, shape, p.dtype))
    return convert(sorting.searchsorted(total, mul(total[-1], u)), dtypes.default_for("i"))


# --- counts ------------------------------------------------------------------------------------


def poisson(
    key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Poisson numbers of rate lam (rounded to float32), in an integer dtype.

    -1 where lam is negative or nan; for numbers beyond the dtype the nearest that it holds.

    >>> float(fnx.random.poisson(fnx.random.key(0), 3.0, (2000,)).mean().round(0))
    3.0
    """
    words, dtype = words_of(key, "poisson"), int_dtype(dtype, "poisson")
    _, (lam,) = parameters("poisson", shape, dtypes.float32, lam)
    return RandomPoisson(dtype)(threefry_words(words), lam)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Numbers of successes of n trials of probability p, in a float dtype.

    >>> float(fnx.random.binomial(fnx.random.key(0), 10, 0.3, (2000,)).mean().round(0))
    3.0
    """
    words, dtype = words_of(key, "binomial"), float_dtype(dtype, "binomial")
    inexact = dtypes.to_inexact(as_array(p).dtype)
    _, (n, p) = parameters("binomial", shape, inexact, n, p)
    return convert(random_binomial(threefry_words(words), n, p), dtype)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: Any = 1
) -> Array:
    """How often each category (the last axis of p) came in n trials.

    >>> counts = fnx.random.multinomial(fnx.random.key(0), 1000, jnp.array([0.25, 0.75]))
    >>> counts.shape, float(counts.sum())
    ((2,), 1000.0)
    """
    words, dtype = words_of(key, "multinomial"), float_dtype(dtype, "multinomial")
    p = as_array(p)
    p = convert(p, dtypes.to_inexact(p.dtype))
    shape = p.shape if shape is None else canonical_shape(shape)
    p = broadcast_to(p, result_shape("multinomial", shape, p))
    left = broadcast_to(parameter(n, p.dtype), shape[:-1])
    rest = Cumulative("cumsum", len(shape) - 1, True)(p)
    ratios = ufuncs.clip(
        p / ufuncs.maximum(rest, scalar(float(ml_dtypes.finfo(p.dtype).tiny), p.dtype)), 0, 1
    )
    counts = []
    for k, sub_key in enumerate(split_words(words, shape[-1])):
        count = random_binomial(threefry_words(sub_key), left, ratios[..., k])
        left = sub(left, count)
        counts.append(count[..., None])
    return convert(Concatenate(len(shape) - 1)(*counts), dtype)
