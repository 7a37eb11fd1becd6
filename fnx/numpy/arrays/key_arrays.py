"""Functions that only move elements, for arrays of random keys too.

An array of keys is an array of words with one axis more. What moves elements moves each word alike,
so it is mapped over that axis.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.scalar_types import prng_key
from fnx.numpy.arrays.util import constant, transformation
from fnx.ops.structure.basic import broadcast_to
from fnx.pytree.operations import tree_flatten, tree_map, tree_unflatten


class KeyDType:
    """The dtype of arrays of keys of one generator, each of so many words.

    `rules` are what a user's own generator does with words; None: `fnx.random.generators` has them.
    """

    extended = "prng_key"  # its kind, to fnx.dtypes.issubdtype
    type = prng_key  # of which others read the name
    kind = "V"
    over: Callable  # keys of words and a dtype; `fnx.random` hands its class in

    def __init__(self, impl: str, tag: str, words: int, rules: Any = None):
        self.impl, self.name, self.words, self.rules = impl, f"key<{tag}>", words, rules

    @property
    def key_shape(self) -> tuple[int]:
        """The shape of the words of a key."""
        return (self.words,)

    @property
    def itemsize(self) -> int:
        return 4 * self.words

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __copy__(self) -> "KeyDType":
        return self

    def __deepcopy__(self, memo: Any) -> "KeyDType":
        return self  # dtypes are compared by identity

    def __reduce__(self) -> tuple:
        if self.rules is not None:
            raise TypeMismatch(
                f"keys of {self.impl!r}, a generator of a program's own, cannot be pickled; pickle "
                "fnx.random.key_data(keys)"
            )
        return key_dtype_of, (self.impl,)


_THREEFRY = KeyDType("threefry2x32", "fry", 2)
_OTHERS = (KeyDType("rbg", "rbg", 4), KeyDType("unsafe_rbg", "urbg", 4))
KEY_DTYPES = {d.impl: d for d in (_THREEFRY, *_OTHERS)}
KEY_DTYPE = _THREEFRY


def key_dtype_of(impl: Any) -> KeyDType:
    """The dtype of the keys of a generator: of its name, of its dtype, or of None, the default one."""
    if isinstance(impl, KeyDType):
        return impl
    if impl is None:
        impl = config.default_prng_impl.value
    name = "threefry2x32" if impl == "fry" else getattr(impl, "name", str(impl))
    if name not in KEY_DTYPES:
        raise InvalidValue(
            f"random number generator {impl!r} does not exist; expected one of {', '.join(KEY_DTYPES)}"
        )
    return KEY_DTYPES[name]


MOVES = frozenset(
    "append apply_along_axis array array_split asarray atleast_1d atleast_2d atleast_3d block "
    "broadcast_arrays broadcast_in_dim broadcast_to choose collapse column_stack compress concat "
    "concatenate copy delete dstack extract meshgrid put_along_axis "
    "dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim "
    "dynamic_update_slice dynamic_update_slice_in_dim empty_like expand_dims broadcast flip full full_like "
    "gather hstack index_in_dim index_take insert matrix_transpose moveaxis pad permute_dims ravel "
    "repeat reshape resize rev roll rollaxis rot90 select select_n slice slice_in_dim split squeeze "
    "stack swapaxes take take_along_axis tile transpose tril triu unstack vsplit vstack where "
    "zeros_like "
    "conj conjugate nan_to_num real".split()  # which leave numbers that are whole as they are
)


# Functions of one or two arrays that ask, and what they make of the answers for the words of a key.
QUESTIONS = {
    "isnan": "any", "isinf": "any", "isfinite": "all",
    "equal": "all", "eq": "all", "isclose": "all", "not_equal": "any", "ne": "any",
    "array_equal": "", "array_equiv": "", "allclose": "",
}  # fmt: skip

CONVERSIONS = frozenset(
    {"astype", "convert_element_type"}
)  # of which keys know the one to their own dtype


def is_keys(x: Any) -> bool:
    """Whether a value is an array of keys; `fnx.random` need not be imported to tell."""
    return getattr(type(x), "holds_keys", False)


def is_key_dtype(dtype: Any) -> bool:
    """Whether a dtype is one of random keys."""
    return type(dtype) is KeyDType


def of_keys(f: Callable, *args: Any, **kwargs: Any) -> Any:
    """`f`, word by word: its results are arrays of keys."""
    leaves, structure = tree_flatten((args, kwargs), is_leaf=is_keys)
    keys = [k for k, x in enumerate(leaves) if is_keys(x)]
    kind, dtype = type(leaves[keys[0]]), leaves[keys[0]].dtype
    if any([leaves[k].dtype is not dtype for k in keys]):
        names = ", ".join(sorted({leaves[k].dtype.name for k in keys}))
        raise TypeMismatch(f"keys of different generators in one array: {names}; expected one kind")

    def of_words(*words: Any) -> Any:
        given = list(leaves)
        for k, w in zip(keys, words, strict=True):
            given[k] = w
        positional, named = tree_unflatten(structure, given)
        return f(*positional, **named)

    words = [leaves[k].words for k in keys]
    results = transformation("vmap")(of_words, in_axes=-1, out_axes=-1)(*words)
    return tree_map(lambda words: kind(words, dtype), results)


# Functions that make arrays of a dtype, and what they fill them with.
_CREATE = {"empty": 0, "zeros": 0, "ones": 1, "ones_like": 1}


def _made(f: Callable, args: tuple, kwargs: dict) -> Any:
    """The keys that a function creates whose words are all one number."""
    dtype = next((x for x in (*args, *kwargs.values()) if isinstance(x, KeyDType)), None)
    if f.__name__ == "ones_like" and is_keys(args[0]) and dtype is None:
        dtype, shape = args[0].dtype, args[0].shape
    else:
        shape = kwargs.get("shape", args[0] if args else ())
    if dtype is None:
        return None
    shape = getattr(shape, "shape", shape)
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    words = constant(_CREATE[f.__name__], np.dtype("u4"), False)
    return KeyDType.over(broadcast_to(words, (*shape, dtype.words)), dtype)


def serve(module: dict[str, Any]) -> None:
    """Let the functions of a module that move elements take keys, at no cost to other arrays."""
    for name in MOVES & module.keys():
        module[name] = _also_of_keys(module[name])
        module[name].__module__ = module["__name__"]  # where pickle finds it
    for name in _CREATE.keys() & module.keys():
        module[name] = _also_makes_keys(module[name])
        module[name].__module__ = module["__name__"]
    for name in CONVERSIONS & module.keys():
        module[name] = _also_leaves_keys(module[name])
        module[name].__module__ = module["__name__"]
    for name in QUESTIONS.keys() & module.keys():
        module[name] = _also_asked_of_keys(module[name], QUESTIONS[name])
        module[name].__module__ = module["__name__"]


def _also_of_keys(f: Callable) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            if any(map(is_keys, tree_flatten((args, kwargs), is_leaf=is_keys)[0])):
                dtype = kwargs.pop("dtype", None)
                if dtype is not None and not getattr(dtype, "extended", None):
                    raise
                _check_values(f.__name__, args)
                return of_keys(f, *args, **kwargs)
            raise

    return either


# Functions of several arrays that become one, and which of their arguments these are.
_VALUES = {
    "where": (1, 2), "select": (1, 2), "append": (0, 1), "insert": (0, 2), "dynamic_update_slice": (0, 1),
    "select_n": (1, 2, 3, 4), "pad": (0, 1), "dynamic_update_index_in_dim": (0, 1),
    "choose": (1,), "put_along_axis": (0, 2),
}  # fmt: skip
_JOINS = frozenset("block column_stack concat concatenate dstack hstack stack vstack".split())


def _check_values(name: str, args: tuple) -> None:
    """Raise unless what becomes one array are keys alone."""
    values = (
        args[0] if name in _JOINS else [args[k] for k in _VALUES.get(name, ()) if k < len(args)]
    )
    values = tree_flatten(values, is_leaf=is_keys)[0]
    others = [x for x in values if not is_keys(x)]
    if others and len(others) < len(values):
        what = getattr(others[0], "dtype", type(others[0]).__name__)
        raise TypeMismatch(f"{name} of random keys and of {what}; expected keys alone")


def _also_makes_keys(f: Callable) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            keys = _made(f, args, kwargs)
            if keys is None:
                raise
            return keys

    return either


def same_keys(keys: Any, dtype: Any) -> Any:
    """Keys as they are; ValueError for another dtype than theirs."""
    if dtype == keys.dtype:
        return keys
    raise InvalidValue(
        f"cannot convert {keys.dtype} to {dtype}; fnx.random.key_data(keys) gives the words of keys, and "
        "fnx.random.wrap_key_data(words) makes keys of them"
    )


def _also_leaves_keys(f: Callable) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            if not (args and is_keys(args[0])):
                raise
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype", kwargs.get("new_dtype"))
            return same_keys(args[0], dtype)

    return either


def _also_asked_of_keys(f: Callable, joined: str) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            if not args or not all(map(is_keys, args[:2])):
                raise
            found = f(*[keys.words for keys in args[:2]], *args[2:], **kwargs)
            return getattr(found, joined)(axis=-1) if joined else found

    return either
