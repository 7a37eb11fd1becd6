"""Arrays of random keys: of shape and dtype of their own, over an array of their words."""

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx.core import lazy_imports
from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidIndex, TypeMismatch
from fnx.numpy.arrays.indexing import refuse_lists
from fnx.numpy.arrays.key_arrays import KEY_DTYPE, KeyDType, of_keys, same_keys
from fnx.numpy.elementwise.ufuncs import equal, logical_not
from fnx.numpy.reductions.reduce import all as all_true
from fnx.ops.base.permute import Reshape
from fnx.pytree.operations import leaves_elsewhere, register_pytree_node


class KeyArray:
    """An array of random keys; a pytree with one leaf, the array of their words.

    >>> fnx.random.split(fnx.random.key(0), 3).shape
    (3,)
    """

    __slots__ = ("dtype", "words")
    __hash__ = None  # type: ignore[assignment]  # == is elementwise
    holds_keys = True  # for fnx.numpy, whose functions need not import this class
    is_fully_addressable = True
    weak_type = False

    def __init__(self, words: Any, dtype: KeyDType = KEY_DTYPE):
        self.words, self.dtype = words, dtype

    @property  # so that users' isinstance(key, Array) says yes, as in JAX
    def __class__(self) -> type:  # type: ignore[override]
        return Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.words.shape[:-1]

    @property
    def aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

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
        return KeyArray, (self.words, self.dtype)

    def __bool__(self) -> bool:
        raise TypeMismatch("the truth of random keys; compare them with ==")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeMismatch(
            "an array of keys cannot become a NumPy array; fnx.random.key_data(keys) gives its words"
        )

    def __getitem__(self, index: Any) -> "KeyArray":
        refuse_lists(index)
        index = index if isinstance(index, tuple) else (index,)
        used = sum([_axes_of(i) for i in index])
        if used > self.ndim:
            raise InvalidIndex(
                f"too many indices for an array of keys of shape {self.shape}: {index}"
            )
        rest = (slice(None),) if any(i is Ellipsis for i in index) else ()
        words = self.words[(*index, *rest)]
        return self._like(words)

    def __eq__(self, other: object) -> Any:
        if type(other) is not KeyArray or other.dtype is not self.dtype:
            what = other.dtype if hasattr(other, "dtype") else type(other).__name__
            raise TypeMismatch(
                f"{self.dtype} == {what}: keys are equal to keys of their kind alone"
            )
        return all_true(equal(self.words, other.words), -1)

    def __ne__(self, other: object) -> Any:
        return logical_not(self.__eq__(other))

    def reshape(self, *shape: Any) -> "KeyArray":
        """The keys in another shape; one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        sizes = [operator.index(n) for n in sizes]
        if -1 in sizes:
            rest = -math.prod(sizes)
            sizes[sizes.index(-1)] = self.size // rest if rest else 0
        return self._like(Reshape((*sizes, self.dtype.words))(self.words))

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

    def astype(self, dtype: Any, **_: Any) -> "KeyArray":
        """The keys themselves, whose own dtype is the only one that they can have."""
        return same_keys(self, dtype)

    def copy(self) -> "KeyArray":
        """The same keys."""
        return self._like(self.words.copy())

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
        return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{self.words}"

    __str__ = __repr__
    _repr_html_ = lazy_imports.repr_html

    def _like(self, words: Array) -> "KeyArray":
        """Keys of the same kind."""
        return KeyArray(words, self.dtype)


def _axes_of(i: Any) -> int:
    """How many axes an index of one position takes up."""
    if i is None or i is Ellipsis or isinstance(i, bool):
        return 0
    return np.ndim(i) if getattr(i, "dtype", None) == np.bool_ else 1


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
        if type(values) is not KeyArray:
            raise TypeMismatch(
                f"{type(values).__name__} set among keys; expected keys: {values!r:.60}"
            )
        return of_keys(lambda x, y: x.at[self.index].set(y, **options), self.keys, values)


KeyDType.over = KeyArray
leaves_elsewhere[KeyArray] = type.__instancecheck__.__get__(KeyArray)


def _of_leaf(dtype: KeyDType, children: tuple) -> KeyArray:
    """Keys of what a function of trees made of their words; NumPy's numbers are an array again."""
    words = children[0]
    numbers = type(words) is np.ndarray and words.dtype == np.uint32
    return KeyArray(as_array(words) if numbers else words, dtype)


register_pytree_node(KeyArray, lambda k: ((k.words,), k.dtype), _of_leaf)
