"""Random keys: making, splitting and folding them.

Functions take keys in both of JAX's forms: `KeyArray`s from `key(seed)`, and arrays of dtype uint32
with two words in the last axis, from `PRNGKey(seed)`.
"""

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, as_written, is_array_like
from fnx.core.errors import FnxError, InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.key_arrays import of_keys
from fnx.numpy.arrays.scalar_types import prng_key
from fnx.numpy.elementwise.ufuncs import equal, logical_not
from fnx.numpy.reductions.reduce import all as all_true
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import and_, shift_right_logical
from fnx.ops.random.prng import RandomSplit, random_fold_in
from fnx.ops.structure.basic import convert, scalar
from fnx.ops.structure.join import Concatenate
from fnx.pytree.operations import leaves_elsewhere, register_pytree_node

_U32 = np.dtype(np.uint32)
IMPL = "threefry2x32"
_NAMES = {None, IMPL, "fry"}


class KeyDType:
    """The dtype of arrays of keys."""

    extended = "prng_key"  # its kind, to fnx.dtypes.issubdtype
    type = prng_key  # of which others read the name
    name = "key<fry>"
    itemsize = 8
    kind = "V"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


KEY_DTYPE = KeyDType()


class KeyArray:
    """An array of random keys; a pytree with one leaf, the array of their words.

    >>> fnx.random.split(fnx.random.key(0), 3).shape
    (3,)
    """

    __slots__ = ("words",)
    __hash__ = None  # type: ignore[assignment]  # == is elementwise
    holds_keys = True  # for fnx.numpy, whose functions need not import this class
    itemsize = 8
    is_fully_addressable = True

    def __init__(self, words: Any):
        self.words = words

    @property  # so that users' isinstance(key, Array) says yes, as in JAX
    def __class__(self) -> type:  # type: ignore[override]
        return Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.words.shape[:-1]

    @property
    def dtype(self) -> KeyDType:
        return KEY_DTYPE

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def device(self) -> Any:
        return self.words.device

    @property
    def sharding(self) -> Any:
        return self.words.sharding

    @property
    def T(self) -> "KeyArray":
        return self.transpose()

    @property
    def at(self) -> "_At":
        return _At(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeMismatch("len() of a single key")
        return self.shape[0]

    def __iter__(self) -> Iterator["KeyArray"]:
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> tuple:
        return KeyArray, (self.words,)

    def __bool__(self) -> bool:
        raise TypeMismatch("the truth of random keys; compare them with ==")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeMismatch(
            "an array of keys cannot become a NumPy array; fnx.random.key_data(keys) gives its words"
        )

    def __getitem__(self, index: Any) -> "KeyArray":
        index = index if isinstance(index, tuple) else (index,)
        rest = (slice(None),) if any(i is Ellipsis for i in index) else ()
        words = self.words[(*index, *rest)]
        if words.shape[-1:] != (2,):
            raise IndexError(
                f"too many indices for an array of keys of shape {self.shape}: {index}"
            )
        return KeyArray(words)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, KeyArray):
            return NotImplemented
        return all_true(equal(self.words, other.words), -1)

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else logical_not(same)

    def reshape(self, *shape: Any) -> "KeyArray":
        """The keys in another shape; one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        sizes = [operator.index(n) for n in sizes]
        if -1 in sizes:
            rest = -math.prod(sizes)
            sizes[sizes.index(-1)] = self.size // rest if rest else 0
        return KeyArray(Reshape((*sizes, 2))(self.words))

    def ravel(self) -> "KeyArray":
        return self.reshape(-1)

    flatten = ravel

    def transpose(self, *axes: Any) -> "KeyArray":
        """The keys with their axes in another order."""
        return of_keys(lambda x: x.transpose(*axes), self)

    def swapaxes(self, axis1: int, axis2: int) -> "KeyArray":
        """The keys with two axes swapped."""
        return of_keys(lambda x: x.swapaxes(axis1, axis2), self)

    def squeeze(self, axis: Any = None) -> "KeyArray":
        """The keys without axes of length 1."""
        return of_keys(lambda x: x.squeeze(axis), self)

    def repeat(self, repeats: Any, axis: int | None = None, **options: Any) -> "KeyArray":
        """Each key several times."""
        return of_keys(lambda x: x.repeat(repeats, axis, **options), self)

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> "KeyArray":
        """The keys at some indices."""
        return of_keys(lambda x: x.take(indices, axis, **options), self)

    def copy(self) -> "KeyArray":
        """The same keys."""
        return KeyArray(self.words.copy())

    def block_until_ready(self) -> "KeyArray":
        return self

    def copy_to_host_async(self) -> None:
        return None

    def devices(self) -> set:
        return self.words.devices()

    def delete(self) -> None:
        """Drop the keys; who reads them afterwards gets an error."""
        self.words.delete()

    def is_deleted(self) -> bool:
        """Whether the keys were deleted, or donated to a function that took their memory."""
        return self.words.is_deleted()

    def __repr__(self) -> str:
        return f"KeyArray({self.shape}, {KEY_DTYPE}) with words\n{self.words!r}"


class _At:
    """`keys.at`."""

    __slots__ = ("index", "keys")

    def __init__(self, keys: KeyArray, index: Any = None):
        self.keys, self.index = keys, index

    def __getitem__(self, index: Any) -> "_At":
        return _At(self.keys, index)

    def get(self, **options: Any) -> KeyArray:
        """The keys at the index; what lies outside is all ones."""
        return of_keys(lambda x: x.at[self.index].get(**options), self.keys)

    def set(self, values: KeyArray, **options: Any) -> KeyArray:
        """The keys with others in some places."""
        return of_keys(lambda x, y: x.at[self.index].set(y, **options), self.keys, values)


leaves_elsewhere.add(KeyArray)
register_pytree_node(
    KeyArray,
    lambda k: ((k.words,), None),
    # None for a leaf is no leaf, here too.
    lambda _, children: None if children[0] is None else KeyArray(*children),
)


def check_impl(impl: Any) -> None:
    """Raise unless `impl` is the one implementation that there is."""
    name = impl if impl is None or isinstance(impl, str) else getattr(impl, "name", str(impl))
    if name not in _NAMES and not isinstance(impl, KeyDType):
        raise InvalidValue(
            f"random number generator {impl!r} does not exist in fnx; expected {IMPL!r}, JAX's default"
        )


def words_of(key: Any, name: str, many: bool = False) -> Array:
    """The words of a key in either form: an array of shape (2,), or with `many` (..., 2)."""
    if isinstance(key, KeyArray):
        words = key.words
    else:
        if not is_array_like(key):
            raise TypeMismatch(
                f"{name} needs a random key first, not a {type(key).__name__}: {key!r:.60}; make one with "
                "fnx.random.key(seed)"
            )
        words = key if isinstance(key, Array) else as_array(key)
        if words.dtype != _U32 or words.shape[-1:] != (2,):
            raise TypeMismatch(
                f"{name} needs a random key, not an array of shape {words.shape} and dtype "
                f"{words.dtype}; make one with fnx.random.key(seed)"
            )
    if not many and len(words.shape) != 1:
        raise ShapeError(
            f"{name} needs a single key, not keys of shape {words.shape[:-1]}; use "
            f"fnx.vmap(fnx.random.{name}) for many"
        )
    return words


def like(key: Any, words: Array) -> Any:
    """Keys in the form of `key`."""
    return KeyArray(words) if isinstance(key, KeyArray) else words


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


def _unsigned(x: Array) -> Array:
    # Conversions of integers wrap, so that negative small seeds keep their bits.
    return convert(x, dtypes.int64) if dtypes.kind(x.dtype) == "i" else x


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A key from an integer seed, as an array of two uint32 words.

    >>> fnx.random.PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    check_impl(impl)
    return _seed_words(seed, "PRNGKey")


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> KeyArray:
    """A key from an integer seed, as a KeyArray of shape ().

    >>> fnx.random.key(42).shape
    ()
    """
    check_impl(impl)
    check_impl(dtype)
    return KeyArray(_seed_words(seed, "key"))


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
    check_impl(impl)
    check_impl(dtype)
    return KeyArray(words_of(key_bits_array, "wrap_key_data", many=True))


def key_dtype(impl: Any = None) -> KeyDType:
    """The dtype of arrays of keys.

    >>> fnx.random.key_dtype() == fnx.random.key(0).dtype
    True
    """
    check_impl(impl)
    return KEY_DTYPE


def key_impl(keys: Any) -> str:
    """The name of the generator of keys.

    >>> fnx.random.key_impl(fnx.random.key(0))
    'threefry2x32'
    """
    words_of(keys, "key_impl", many=True)
    return IMPL


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
    shape = canonical_shape(num)
    if type(key) is KeyArray:
        return KeyArray(RandomSplit(shape)(words))
    return RandomSplit(shape)(words)


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
    return like(key, random_fold_in(words, number))


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
        raise TypeMismatch(f"a shape is a sequence of integers, not {shape!r}") from error
    if any(n < 0 for n in sizes):
        raise InvalidValue(f"a shape has sizes of at least 0, not {sizes}")
    return sizes
