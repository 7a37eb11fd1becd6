"""Random keys: making, splitting and folding them.

Functions take keys in both of JAX's forms: `KeyArray`s from `key(seed)`, and arrays of dtype uint32
with two words in the last axis, from `PRNGKey(seed)`.
"""

import operator
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, as_written, is_array_like
from fnx.core.errors import FnxError, InvalidValue, ShapeError, TypeMismatch
from fnx.core.source import brief
from fnx.numpy.arrays.key_arrays import KEY_DTYPE, KeyDType, key_dtype_of
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import and_, shift_right_logical
from fnx.ops.structure.basic import convert, scalar
from fnx.ops.structure.join import Concatenate
from fnx.random import generators
from fnx.random.key_array import KeyArray

_U32 = np.dtype(np.uint32)


def words_of(key: Any, name: str, many: bool = False) -> Array:
    """The words of a key in either form: an array of shape (2,), or with `many` (..., 2)."""
    if type(key) is KeyArray:
        words = key.words
    else:
        if not is_array_like(key):
            raise TypeMismatch(
                f"{name} needs a random key first, not a {type(key).__name__}: {brief(key)}; make one "
                "with fnx.random.key(seed)"
            )
        words = key if isinstance(key, Array) else as_array(key)
        if words.dtype != _U32 or words.shape[-1:] != (2,):
            kind = key_dtype_of(None)  # whose words they are
            if words.dtype == _U32 and words.shape[-1:] == (kind.words,):
                return words if many else words_of(KeyArray(words, kind), name)
            raise TypeMismatch(
                f"{name} needs a random key, not an array of shape {words.shape} and dtype "
                f"{words.dtype}; make one with fnx.random.key(seed)"
            )
    if not many and len(words.shape) != 1:
        raise ShapeError(
            f"{name} needs a single key, not keys of shape {words.shape[:-1]}; use "
            f"fnx.vmap(fnx.random.{name}) for many"
        )
    if many or type(key) is not KeyArray or key.dtype is KEY_DTYPE:
        return words
    return key  # type: ignore[return-value]  # with its kind: fnx.random.generators takes such


# --- making keys -------------------------------------------------------------------------------


def _seed_words(seed: Any, name: str) -> Array:
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        value = operator.index(seed)
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{name}: the seed {value} does not fit in 64 bits")
        if isinstance(seed, np.integer) and seed.itemsize < 8:
            value &= 0xFFFFFFFF
        return ConcreteArray(np.array([value >> 32 & 0xFFFFFFFF, value & 0xFFFFFFFF], _U32))
    seed = seed if isinstance(seed, Array) else as_array(seed)
    if seed.shape:
        raise ShapeError(
            f"{name} needs one seed, not an array of shape {seed.shape}; use fnx.vmap for many"
        )
    if not dtypes.is_integer(seed.dtype):
        raise TypeMismatch(f"{name} needs an integer seed, not {seed.dtype}; round it first")
    if seed.dtype.itemsize < 8:
        high: Array = scalar(0, _U32)
    else:
        high = convert(shift_right_logical(seed, scalar(32, seed.dtype)), _U32)
        seed = and_(seed, scalar(0xFFFFFFFF, seed.dtype))
    low = convert(_unsigned(seed), _U32)
    return Concatenate(0)(Reshape((1,))(high), Reshape((1,))(low))


def _seeded(seed: Any, name: str, dtype: KeyDType) -> Array:
    """The words of a key of any generator."""
    if dtype.rules is not None:
        return dtype.rules.seed(as_array(seed))
    words = _seed_words(seed, name)
    return words if dtype.words == 2 else Concatenate(0)(words, words)


def _unsigned(x: Array) -> Array:
    # Conversions of integers wrap, so that negative small seeds keep their bits.
    return convert(x, dtypes.int64) if dtypes.kind(x.dtype) == "i" else x


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A key from an integer seed, as an array of two uint32 words.

    >>> fnx.random.PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    dtype = key_dtype_of(impl)
    return _seeded(seed, "PRNGKey", dtype)


def _one_of(impl: Any, dtype: Any) -> KeyDType:
    if impl is not None and dtype is not None:
        raise InvalidValue(f"keys with both impl={impl!r} and dtype={dtype!r}; expected one")
    return key_dtype_of(dtype if impl is None else impl)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> KeyArray:
    """A key from an integer seed, as a KeyArray of shape ().

    >>> fnx.random.key(42).shape
    ()
    """
    dtype = _one_of(impl, dtype)
    return KeyArray(_seeded(seed, "key", dtype), dtype)


def key_data(keys: Any) -> Array:
    """The words of keys: dtype uint32, one more axis of length 2.

    >>> fnx.random.key_data(fnx.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    return words_of(keys, "key_data", many=True)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> KeyArray:
    """Keys from their words, an array of shape (..., 2) and dtype uint32.

    >>> words = fnx.random.key_data(fnx.random.key(7))
    >>> bool(fnx.random.wrap_key_data(words) == fnx.random.key(7))
    True
    """
    kind = _one_of(impl, dtype)
    words = as_array(key_bits_array)
    if words.dtype != _U32 or words.shape[-1:] != (kind.words,):
        raise TypeMismatch(
            f"wrap_key_data of an array of shape {words.shape} and dtype {words.dtype}; expected the words "
            f"of {kind}: shape (..., {kind.words}) and dtype uint32"
        )
    return KeyArray(words, kind)


def key_dtype(impl: Any = None) -> KeyDType:
    """The dtype of arrays of keys.

    >>> fnx.random.key_dtype() == fnx.random.key(0).dtype
    True
    """
    return key_dtype_of(impl)


def key_impl(keys: Any) -> Any:
    """The name of the generator of keys; of a user's own, what `define_prng_impl` made.

    >>> fnx.random.key_impl(fnx.random.key(0))
    'threefry2x32'
    """
    words = words_of(keys, "key_impl", many=True)
    kind = keys.dtype if type(keys) is KeyArray else None
    found = KEY_DTYPE if kind is None and words.shape[-1] == 2 else key_dtype_of(kind)
    return found.impl if found.rules is None else found


def clone(key: Any) -> Any:
    """The same key, to be used on purpose a second time.

    >>> key = fnx.random.key(0)
    >>> bool(fnx.random.clone(key) == key)
    True
    """
    return key


# --- new keys from old -------------------------------------------------------------------------


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys from one: an array of keys of shape `num`, in the form of `key`.

    >>> fnx.random.split(fnx.random.PRNGKey(0)).shape
    (2, 2)
    """
    words = words_of(key, "split")
    found = generators.split(words, canonical_shape(num))
    return _in_form(key, found)


def _in_form(key: Any, found: Any) -> Any:
    """New keys in the form of the old one: a KeyArray, or words."""
    if type(key) is KeyArray:
        return found if type(found) is KeyArray else KeyArray(found)
    return found.words if type(found) is KeyArray else found


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer, of which 32 bits count.

    TypeError for what is no single integer.

    >>> fnx.random.fold_in(fnx.random.PRNGKey(0), 1)
    Array([ 928981903, 3453687069], dtype=uint32)
    """
    words = words_of(key, "fold_in")
    if isinstance(data, (int, np.integer)):
        word = np.array(operator.index(data) & 0xFFFFFFFF, _U32)
        number: Array = as_written(ConcreteArray(word))
    else:
        number = data if isinstance(data, Array) else as_array(data)
        if number.shape or not dtypes.is_integer(number.dtype):
            raise TypeMismatch(
                f"fold_in needs one integer, not an array of shape {number.shape} and dtype "
                f"{number.dtype}; use fnx.vmap for many"
            )
        number = convert(number, _U32)
    found = generators.fold_in(words, number)
    return _in_form(key, found)


def canonical_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of non-negative Python integers."""
    if type(shape) is tuple and all([type(n) is int and n >= 0 for n in shape]):
        return shape
    if isinstance(shape, (int, np.integer)) or getattr(shape, "shape", None) == ():
        shape = (shape,)
    try:
        sizes = tuple([operator.index(n) for n in shape])
    except FnxError:
        raise
    except TypeError as error:
        raise TypeMismatch(f"a shape is a sequence of integers, not {brief(shape)}") from error
    if any(n < 0 for n in sizes):
        raise InvalidValue(f"a shape has sizes of at least 0, not {sizes}")
    return sizes
