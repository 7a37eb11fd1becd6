"""Operators of arrays: a short path for small concrete arrays, and NumPy's functions for the rest."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray, any_placed, install, when_placed
from fnx.core.errors import FnxError, TypeMismatch, hide_frames
from fnx.core.interpreter import current, evaluate
from fnx.core.source import brief
from fnx.numpy.arrays.util import constant, quiet
from fnx.numpy.elementwise import ufuncs
from fnx.ops.elementwise import arithmetic as ops

_rank_promotion = config.numpy_rank_promotion
_FLOATS = frozenset({np.dtype("f4"), np.dtype("f8")})
_NUMBERS = frozenset({*_FLOATS, *(np.dtype(f"{k}{n}") for k in "iu" for n in (1, 2, 4, 8))})


_LISTS = frozenset({list, tuple, set, dict})  # a subclass may have the operator itself
_REFUSED = _LISTS | {str, bytes, type(None), frozenset}
_EQUALITY = frozenset({ufuncs.equal, ufuncs.not_equal})  # Python asks whether things are equal


def operand(x: Any) -> Any:
    """An operand as an array or a number; NotImplemented where it is none, as it may say itself.

    Python then asks the other operand, or raises TypeError.
    """
    if not _known(x) and hasattr(x, "__jax_array__"):
        x = x.__jax_array__()
    return x if _known(x) else NotImplemented


def _known(x: Any) -> bool:
    return issubclass(type(x), (Array, np.ndarray, np.generic, bool, int, float, complex))


def _slow(fn: Callable, swap: bool, x: Any, y: Any) -> Any:
    other = operand(y)
    if other is NotImplemented:
        if type(y) in _REFUSED and (type(y) in _LISTS or fn not in _EQUALITY):
            raise TypeMismatch(
                f"{fn.__name__} of an array and a {type(y).__name__}: {brief(y)}; expected an array or a "
                "number. Make an array of it first: jnp.asarray(...)"
            )
        return NotImplemented
    return fn(other, x) if swap else fn(x, other)


def _fast(prim: Any, fn: Callable, kinds: frozenset, swap: bool = False) -> Callable:
    """An operator: `prim` for concrete arrays of one dtype, `fn` for all else.

    Shapes that do not fit make NumPy raise; then `fn` says better what is wrong.
    """
    impl = prim.impl

    def op(x: Any, y: Any) -> Any:
        try:
            if type(x) is ConcreteArray and current.get() is evaluate:
                a = x._value
                kind = type(y)
                if kind is ConcreteArray:
                    b, dtype = y._value, a.dtype
                    if (
                        b.dtype is not dtype
                        or dtype not in kinds
                        or (a.ndim != b.ndim and _rank_promotion.value != "allow")
                    ):
                        return _slow(fn, swap, x, y)
                    both = x.weak_type and y.weak_type
                elif (kind is float and a.dtype in _FLOATS) or (kind is int and a.dtype in kinds):
                    b = constant(y, a.dtype)._value
                    both = x.weak_type
                else:
                    return _slow(fn, swap, x, y)
                try:
                    out = quiet.run(impl, b, a) if swap else quiet.run(impl, a, b)
                except (ValueError, RuntimeError):
                    return _slow(fn, swap, x, y)
                if type(out) is not np.ndarray:
                    out = np.asarray(out)
                return ConcreteArray(out, both)
            return _slow(fn, swap, x, y)
        except FnxError as error:
            hide_frames(error)
            raise

    return op


def _plain(fn: Callable, swap: bool = False) -> Callable:
    def op(x: Any, y: Any) -> Any:
        try:
            return _slow(fn, swap, x, y)
        except FnxError as error:
            hide_frames(error)
            raise

    return op


def _pow(x: Any, y: Any, modulo: Any = None) -> Any:
    if modulo is not None:
        return NotImplemented
    if type(y) is int and y == 2 and type(x) is ConcreteArray and current.get() is evaluate:
        a = x._value
        if a.dtype in _NUMBERS:
            return ConcreteArray(np.asarray(quiet.run(np.square, a)), x.weak_type)
    try:
        return _slow(ufuncs.power, False, x, y)
    except FnxError as error:
        hide_frames(error)
        raise


def _neg(x: Any) -> Any:
    if type(x) is ConcreteArray and x._value.dtype in _NUMBERS and current.get() is evaluate:
        return ConcreteArray(np.asarray(quiet.run(np.negative, x._value)), x.weak_type)
    try:
        return ufuncs.negative(x)
    except FnxError as error:
        hide_frames(error)
        raise


def operators(short: bool = True) -> dict[str, Callable]:
    """The special methods of operators, by name; those that take the short way, where there is one."""
    found: dict[str, Callable] = {}
    way: Callable = _fast if short else lambda prim, fn, kinds, swap=False: _plain(fn, swap)
    arithmetic = (
        ("add", ops.add, ufuncs.add, _NUMBERS),
        ("sub", ops.sub, ufuncs.subtract, _NUMBERS),
        ("mul", ops.mul, ufuncs.multiply, _NUMBERS),
        ("truediv", ops.div, ufuncs.true_divide, _FLOATS),
    )
    for name, prim, fn, kinds in arithmetic:
        found[f"__{name}__"] = way(prim, fn, kinds)
        found[f"__r{name}__"] = way(prim, fn, kinds, swap=True)
    comparisons = (
        ("lt", ops.lt, ufuncs.less),
        ("le", ops.le, ufuncs.less_equal),
        ("gt", ops.gt, ufuncs.greater),
        ("ge", ops.ge, ufuncs.greater_equal),
        ("eq", ops.eq, ufuncs.equal),
        ("ne", ops.ne, ufuncs.not_equal),
    )
    for name, prim, fn in comparisons:
        found[f"__{name}__"] = way(prim, fn, _NUMBERS)
    others = (
        ("floordiv", ufuncs.floor_divide),
        ("mod", ufuncs.remainder),
        ("divmod", ufuncs.divmod),
        ("and", ufuncs.bitwise_and),
        ("or", ufuncs.bitwise_or),
        ("xor", ufuncs.bitwise_xor),
        ("lshift", ufuncs.left_shift),
        ("rshift", ufuncs.right_shift),
    )
    for name, fn in others:
        found[f"__{name}__"] = _plain(fn)
        found[f"__r{name}__"] = _plain(fn, swap=True)
    power = _pow if short else _plain(ufuncs.power)
    found |= {"__pow__": power, "__rpow__": _plain(ufuncs.power, swap=True)}
    found |= {"__neg__": _neg if short else ufuncs.negative}
    found |= {"__pos__": lambda x: x, "__abs__": ufuncs.absolute}
    found["__invert__"] = ufuncs.invert
    for name, fn in found.items():
        if fn.__module__ == __name__:
            fn.__name__ = fn.__qualname__ = name
    return found


def _see_placed() -> None:
    """Let operators take the short way for arrays that do not lie on several devices."""
    short, slow = operators(), operators(short=False)
    install({name: _choosing(short[name], slow[name]) for name in short})


def _choosing(short: Callable, slow: Callable) -> Callable:
    def op(*xs: Any) -> Any:  # in this file, where who called is looked for (util.py)
        try:
            return slow(*xs) if any_placed(xs) else short(*xs)
        except FnxError as error:
            hide_frames(error)
            raise

    op.__name__ = op.__qualname__ = short.__name__
    return op


when_placed(_see_placed)

__all__ = ["operators"]
