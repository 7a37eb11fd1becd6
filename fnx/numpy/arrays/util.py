"""What functions make of their arguments: arrays of one dtype and of shapes that fit."""

import operator
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core import config, dtypes, lazy_imports
from fnx.core.array import Array, ConcreteArray, as_array, as_written, conversions
from fnx.core.errors import FnxError, InvalidValue, MissingRule, ShapeError, TypeMismatch
from fnx.core.interpreter import current, evaluate
from fnx.core.source import brief, is_internal
from fnx.ops.base import permute
from fnx.ops.elementwise.arithmetic import mul
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import select as _select
from fnx.ops.structure.basic import broadcast_to

PYTHON = frozenset((bool, int, float, complex))
Shape = tuple[int, ...]
INT = np.dtype(np.int64)


def eager() -> bool:
    """Whether primitives are evaluated at once."""
    return current.get() is evaluate


def to_array(x: Any, name: str = "function", position: int = 0) -> Array:
    """An argument as an Array; lists are refused, as everywhere but in array()."""
    if issubclass(type(x), Array):
        return x
    if type(x) in PYTHON or isinstance(x, (np.ndarray, np.generic)):
        return as_array(x)
    if isinstance(x, (bool, int, float, complex)):  # enums and other subclasses
        return as_array(next(t(x) for t in (bool, int, float, complex) if isinstance(x, t)))
    if hasattr(x, "__jax_array__"):
        return to_array(x.__jax_array__(), name, position)
    if type(x) in conversions:
        return as_array(x)
    raise TypeMismatch(
        f"{name} got a {type(x).__name__} as argument {position}: {brief(x)}; expected an array, a "
        "NumPy array or a Python number. Make an array of it first: fnx.numpy.asarray(...)"
    )


def to_arrays(name: str, *xs: Any) -> list[Array]:
    """Arguments as Arrays."""
    return [x if issubclass(type(x), Array) else to_array(x, name, k) for k, x in enumerate(xs)]


class _Quiet(threading.local):
    """Runs a NumPy call in a context where it does not warn; `np.errstate` costs twice the call."""

    def __init__(self) -> None:
        context = copy_context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


quiet = _Quiet()


# --- what lives above ---------------------------------------------------------------------------


def transformation(name: str) -> Callable:
    """`vmap`, a loop, or another that lives above: fnx says where, when it loads."""
    try:
        return lazy_imports.find(__name__, name)
    except AttributeError:
        text = f"this function needs {name}: import fnx, not a part of it alone"
        raise MissingRule(text) from None


# --- promotion ---------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _constant(value: Any, dtype: np.dtype, weak: bool) -> ConcreteArray:
    if type(value) is int and not -(1 << 63) <= value < 1 << 63 and dtype.kind in "iu":
        info = dtypes.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise OverflowError(f"Python integer {value} does not fit in {dtype}")
    with np.errstate(all="ignore"):
        # Integers wrap around, as JAX's do: uint8 of -1 is 255.
        return as_written(ConcreteArray(np.asarray(np.asarray(value).astype(dtype)), weak))


def constant(value: Any, dtype: np.dtype, weak: bool = True) -> ConcreteArray:
    """A Python number as an array of rank 0 of the dtype that promotion has chosen."""
    if type(value) is int or (value and type(value) is not complex):
        return _constant(value, dtype, weak)
    # -0.0 and 0.0 are equal as keys
    return as_written(ConcreteArray(np.asarray(value, dtype), weak))


def type_of(x: Any) -> tuple[np.dtype, bool]:
    """Dtype and weak type of an array or a Python number."""
    if issubclass(type(x), Array):
        return x.dtype, x.weak_type
    return dtypes.scalar_dtype(x), type(x) is not bool


def convert(x: Any, dtype: np.dtype, weak: bool = False) -> Array:
    """An array or a Python number in `dtype`."""
    if not issubclass(type(x), Array):
        return constant(x, dtype, weak)
    if x.dtype == dtype:
        return x
    return ConvertElementType(dtype, weak)(x)


def strong(x: Array) -> Array:
    """The same without a weak type."""
    if not x.weak_type:
        return x
    if type(x) is ConcreteArray and (hasattr(x, "written") or not config.rank_0_consts.get()):
        return x.with_weak_type(False)
    return ConvertElementType(x.dtype)(x)  # of an array from outside too: it stays one constant


def beside_constants(x: Array) -> Array:
    """The result of a formula with constants: those beside arrays are not weak in JAX."""
    return times_strong(x) if x.weak_type and x.shape else x


def times_strong(x: Array) -> Array:
    """A value, and its cotangents, as a number that is not weak would leave them."""
    if not x.weak_type or not dtypes.is_inexact(x.dtype):
        return strong(x)
    return strong(x) if type(x) is ConcreteArray else mul(x, _constant(1, x.dtype, False))


_FLOATS = frozenset(d for d in dtypes.ALL if dtypes.is_inexact(d))
_NUMBERS = frozenset(d for d in dtypes.ALL if d != dtypes.bool_)


def _of_one_dtype(xs: tuple) -> Sequence[Array] | None:
    """What `promote` gives in its common cases: arrays of one dtype, or one and a Python number."""
    first = xs[0]
    if not issubclass(type(first), Array):
        return None
    dtype = first.dtype
    if len(xs) == 2:
        second = xs[1]
        kind = type(second)
        if (kind is float and dtype in _FLOATS) or (kind is int and dtype in _NUMBERS):
            if kind is float or -_SAFE < second < _SAFE:
                return first, constant(second, dtype, first.weak_type)
            return None
    weak = 0
    for x in xs:
        if not issubclass(type(x), Array) or x.dtype != dtype:
            return None
        weak += x.weak_type
    # Beside others weak ones are made strong; truth values always are, as in JAX.
    if weak and (weak < len(xs) or dtype == dtypes.bool_):
        return [strong(x) for x in xs]
    return xs


_SAFE = 1 << 62


def _or_numbers(name: str, xs: tuple) -> list:
    """Arrays, but for the Python numbers among arguments."""
    kept = lambda x: issubclass(type(x), Array) or type(x) in PYTHON
    return [x if kept(x) else to_array(x, name, k) for k, x in enumerate(xs)]


def promote(name: str, *xs: Any, strictly: bool = True) -> Sequence[Array]:
    """Arguments in their common dtype, which settings may forbid if `strictly`; numbers are constants."""
    found = _of_one_dtype(xs)
    if found is not None:
        return found
    xs = _or_numbers(name, xs)
    dtype, weak = _joint_type(tuple([type_of(x) for x in xs]), strictly)
    return [_promoted(x, dtype, weak) for x in xs]


def of_one_dtype(name: str, *xs: Any) -> Sequence[Array]:
    """As `promote`, but what is weak stays weak, as in JAX's products."""
    dtype = getattr(xs[0], "dtype", None)
    if all([isinstance(x, Array) and x.dtype is dtype and not x.weak_type for x in xs]):
        return xs
    arrays = to_arrays(name, *xs)
    dtype, weak = dtypes.promote(tuple([(x.dtype, x.weak_type) for x in arrays]))
    return [convert(x, dtype, weak) for x in arrays]


def _promoted(x: Any, dtype: np.dtype, weak: bool) -> Array:
    out = convert(x, dtype, weak)
    return out if weak else strong(out)


def _joint_type(pairs: tuple, strictly: bool) -> tuple[np.dtype, bool]:
    if strictly:
        return dtypes.promote(pairs)
    return dtypes.promote_cached(pairs, config.default_float32.value)


def promote_inexact(name: str, *xs: Any, strictly: bool = True) -> Sequence[Array]:
    """As `promote`, and integers become floats."""
    found = _of_one_dtype(xs)
    if found is not None and found[0].dtype in _FLOATS:
        return found
    xs = _or_numbers(name, xs)
    dtype, weak = _joint_type(tuple([type_of(x) for x in xs]), strictly)
    if not dtypes.is_inexact(dtype):
        dtype = dtypes.to_inexact(dtype)
    return [_promoted(x, dtype, weak) for x in xs]


def floats(name: str, x: Any) -> Array:
    """Integers of any size as the default floats; other numbers as they are."""
    x = to_array(x, name)
    return x if dtypes.is_inexact(x.dtype) else convert(x, dtypes.default_for("f"))


def result_dtype(*xs: Any) -> np.dtype:
    """The common dtype of arrays, Python numbers and dtypes."""
    return dtypes.promote(tuple([type_of_any(x) for x in xs]))[0]


def type_of_any(x: Any) -> tuple[np.dtype, bool]:
    """As `type_of`, of NumPy arrays and of words for dtypes too."""
    if issubclass(type(x), Array) or type(x) in PYTHON:
        return type_of(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return dtypes.taken(x.dtype), False
    if isinstance(x, type) and x in PYTHON:
        return dtypes.canonical(x), x is not bool
    if hasattr(x, "dtype") and not isinstance(x, (type, np.dtype)):
        return dtypes.canonical(x.dtype), bool(getattr(x, "weak_type", False))
    return dtypes.canonical(x), False


def select(mask: Array, on_true: Array, on_false: Array) -> Array:
    """`on_true` where the mask holds, else `on_false`; weak if both are, whatever the mask is."""
    out = _select(mask, on_true, on_false)
    if type(out) is ConcreteArray and on_true.weak_type and on_false.weak_type:
        return out.with_weak_type(True)
    return out


# --- shapes ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _common(shapes: tuple[Shape, ...]) -> Shape | None:
    out: list[int] = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        for k in range(1, len(shape) + 1):
            n = shape[-k]
            if n != 1 and out[-k] not in (1, n):
                return None
            if n != 1:
                out[-k] = n
    return tuple(out)


_OF_ALL_SHAPES = frozenset({"broadcast_arrays", "broadcast_shapes", "where"})


def common_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape to which shapes broadcast."""
    found = _common(tuple(shapes))
    if found is None:
        got = ", ".join(map(str, shapes))
        message = f"{name} got incompatible shapes for broadcasting: {got}"
        if name in _OF_ALL_SHAPES:  # programs look for these words, as JAX has them
            message = f"Incompatible shapes for broadcasting: shapes=[{got}], in {name}"
        raise ShapeError(
            f"{message}; axes are aligned at the end, and must be equal or 1. Add axes with "
            "x[:, None], or reshape."
        )
    return found


def broadcast_arrays(name: str, xs: Sequence[Array]) -> list[Array]:
    """Arrays in their common shape."""
    shape = common_shape(name, [x.shape for x in xs])
    return [broadcast_to(x, shape) for x in xs]


def fit(name: str, xs: Sequence[Array]) -> Sequence[Array]:
    """Arrays of a common shape, or of rank 0, as elementwise primitives take them."""
    shape = None
    for x in xs:
        s = x.shape
        if s and s != shape:
            if shape is not None:
                break
            shape = s
    else:
        return xs
    shape = common_shape(name, [x.shape for x in xs])
    if config.numpy_rank_promotion.value != "allow" and _called_by_user():
        check_ranks(name, [x.shape for x in xs])
    return [x if x.shape == shape or not x.shape else broadcast_to(x, shape) for x in xs]


_UFUNCS = tuple(
    f"{name}.py" for name in "util arithmetic elementary logic rounding operators".split()
)


def _called_by_user() -> bool:
    """Whether the elementwise function that is running was called by the user, not by fnx itself."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(_UFUNCS):
        frame = frame.f_back
    return frame is None or not is_internal(frame.f_code.co_filename)


def check_ranks(name: str, shapes: Sequence[Shape]) -> None:
    """Raise or warn, as the setting `numpy_rank_promotion` says, where shapes of two ranks broadcast."""
    if config.numpy_rank_promotion.value == "allow" or len({len(s) for s in shapes if s}) < 2:
        return
    ranks = ", ".join(map(str, shapes))
    message = f"{name} got shapes of different ranks, {ranks}; expected axes of size 1"
    if config.numpy_rank_promotion.value == "raise":
        raise ShapeError(f"{message}, since numpy_rank_promotion='raise': x[None]")
    warnings.warn(message, UserWarning, stacklevel=4)


def integer(value: Any, name: str) -> int:
    """A parameter as a Python integer; floats are refused, as their fractions would be lost."""
    try:
        return operator.index(value)
    except FnxError:
        raise  # a tracer says best what it is
    except TypeError as error:
        raise TypeMismatch(f"{name} must be an integer, not {brief(value)}") from error


def integers(values: Any, name: str) -> Shape:
    """A parameter as a tuple of Python integers."""
    if isinstance(values, (str, bytes)) or not np.iterable(values):
        raise TypeMismatch(f"{name} must be integers, not {brief(values)}")
    return tuple([integer(n, f"an entry of {name}") for n in values])


def pairs_of_integers(values: Any, name: str) -> tuple[tuple[int, int], ...]:
    """A parameter as pairs of Python integers."""
    paired = np.iterable(values) and all(np.iterable(p) and len(p) == 2 for p in values)
    if not paired:
        raise ShapeError(f"{name} must be pairs of integers, not {brief(values)}")
    return tuple([integers(pair, name) for pair in values])  # type: ignore[return-value]


def canonical_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A non-negative axis."""
    k = integer(axis, name)
    if not -ndim <= k < ndim:
        expected = f"expected -{ndim} <= axis < {ndim}" if ndim else "it has no axes"
        raise AxisError(f"{name} {k} is out of bounds for an array of rank {ndim}; {expected}")
    return k + ndim if k < 0 else k


class AxisError(InvalidValue, IndexError):
    """An axis that the array does not have; a ValueError and an IndexError, as NumPy's."""


def canonical_axes(axis: Any, ndim: int, name: str = "axis") -> Shape:
    """Non-negative, distinct axes; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (tuple, list, range)):
        axes = tuple([canonical_axis(a, ndim, name) for a in axis])
        if len(set(axes)) != len(axes):
            raise InvalidValue(f"{name} {axis} names an axis twice; expected distinct axes")
        return axes
    return (canonical_axis(axis, ndim, name),)


def canonical_shape(shape: Any, name: str = "shape") -> Shape:
    """A shape as a tuple of Python integers."""
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    elif isinstance(shape, (Array, np.ndarray)):
        shape = (shape,) if shape.ndim == 0 else tuple(shape)
    try:
        sizes = tuple([operator.index(n) for n in shape])
    except FnxError:
        raise  # a tracer says best what it is
    except TypeError as error:
        raise TypeMismatch(f"{name} must be an integer or integers, not {brief(shape)}") from error
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{name} {sizes} has a negative entry; expected sizes of at least 0")
    return sizes


reshape_to = permute.reshape


def no_out(name: str, out: Any) -> None:
    """Arrays are immutable: there is no out= argument."""
    if out is not None:
        raise MissingOut(
            f"the 'out' argument of {name} is not supported: arrays are immutable. Use the result."
        )


def ufunc_operands(name: str, args: tuple, count: int, out: Any, where: Any) -> tuple:
    """The operands of a universal function of `count` arrays, which has neither out= nor where=."""
    no_out(name, out)
    if where is not None:
        raise TypeMismatch(f"{name} has no where= without out=; use fnx.numpy.where")
    if len(args) != count:
        expected = "1 array" if count == 1 else f"{count} arrays"
        raise TypeMismatch(f"{name} takes {expected}, got {len(args)}")
    return args


class Unsupported(InvalidValue, NotImplementedError):
    """A choice that NumPy offers and fnx does not."""


class MissingOut(InvalidValue, NotImplementedError):
    """An argument of NumPy's that immutable arrays cannot have."""


def shown(what: str, call: str, gives: str, dtype: str = "float64") -> str:
    """A docstring: what a function does, and an example with an array as its result."""
    return f"{what}\n\n    >>> {call}\n    Array({gives}, dtype={dtype})\n    "


def named(name: str, doc: str) -> Callable[[Callable], Callable]:
    """Gives a function made by a factory its public name and docstring."""

    def decorate(fn: Callable) -> Callable:
        fn.__name__ = fn.__qualname__ = name
        fn.__doc__ = doc
        return fn

    return decorate
