"""Which operation an infinity in results comes from, whatever others a program makes and chooses against.

All infinities have the same bits. So while a program runs for this, each is a nan with a number, as those
of watched.py, and the infinity's sign. Operations are computed twice: of infinities, which gives their
values, and of the nans, which tells from which operand an infinity in them comes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.jaxpr import subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.source import Source
from fnx.process.watching.watched import _NANS, Found, _bits, _is_nan, _numbered, _numbers, earliest

GIVEN = (1 << 22) - 1  # the number of infinities that no operation made: float32 has no greater one


class TracedInfinities:
    """Looks at the operations of a program, and numbers the infinities that they make.

    Those of arguments have numbers up to `given`. With `wanted`, a number that another run found in
    results, `found` is called with what made it.
    """

    def __init__(self, given: int = 0, wanted: int = 0, found: Found | None = None):
        self.count, self.wanted, self.found = given, wanted, found

    def evaluate(self, prim: Primitive, values: Sequence[np.ndarray]) -> Any:
        """Results of an operation, in which infinities are the nans of those that they come from."""
        if any(subjaxprs(prim)):
            return prim.impl(*values)
        plain = [_restored(v) for v in values]
        outs = prim.impl(*plain)
        if prim.effects or not any(np.isinf(v).any() for v in plain if v.dtype.kind in "fc"):
            return outs
        marked = [_marked(v) for v in values]
        told = prim.impl(*marked)
        if not isinstance(outs, tuple):
            return _merged(prim, outs, told, marked)
        return tuple([_merged(prim, o, t, marked) for o, t in zip(outs, told, strict=True)])

    def __call__(
        self,
        prim: Primitive,
        source: Source | None,
        args: Sequence[Array],
        outs: Sequence[Array],
        written: Sequence[bool],
    ) -> None:
        if any(subjaxprs(prim)):
            return
        for out in outs:
            bits = _bits(out)
            if bits is None or not bits.flags.writeable:
                continue
            values = bits.view(f"f{bits.itemsize}")
            new = np.flatnonzero(np.isinf(values))
            if not len(new):
                continue
            first, self.count = self.count + 1, min(self.count + len(new), GIVEN - 1)
            if self.found is not None and first <= self.wanted <= self.count:
                at = int(new[self.wanted - first]) // (2 if out.dtype.kind == "c" else 1)
                index = tuple(map(int, np.unravel_index(at, out.shape)))
                plain = [[_as_before(x) for x in arrays] for arrays in (args, outs)]
                known = next(p for p, o in zip(plain[1], outs) if o is out)
                self.found(prim, source, plain[0], plain[1], written, (known, index))
            numbers = np.minimum(np.arange(first, first + len(new)), GIVEN - 1)
            _write(bits, new, numbers, np.signbit(values[new]))


def number_of_infinity(outs: Sequence[Array], given: int = 0) -> int:
    """The least number of infinities in results, rather of those made than given; 0 if none has one."""
    words = [b for b in map(_bits, outs) if b is not None]
    found = [_numbers(b)[_is_nan(b)] for b in words]
    return earliest([f[f < GIVEN] for f in found], given)


def marked(args: Sequence[Array], test: Callable) -> tuple[Array, ...]:
    """Arguments, in which what is looked for are nans with the argument's number, counted from 1."""
    return tuple([_marked_argument(a, k, test) for k, a in enumerate(args, 1)])


def _marked_argument(x: Array, number: int, test: Callable) -> Array:
    held = getattr(x, "_value", None)
    if type(held) is not np.ndarray or held.dtype.kind not in "fc" or np.isfinite(held).all():
        return x
    value, bits = _words(x)
    if bits is None:
        return x
    floats = bits.view(f"f{bits.itemsize}")
    at = np.flatnonzero(test(floats))
    negative = np.signbit(floats[at])
    bits[np.isnan(floats)] = _NANS[bits.dtype]  # those of users may have numbers, too
    _write(bits, at, np.full(len(at), number), negative)
    return ConcreteArray(value, x.weak_type)


def _words(x: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """An array of its own, and its floats as words, if these have room for numbers."""
    given: Any = x._value if isinstance(x, Array) else x  # type: ignore[attr-defined]
    value: np.ndarray = np.array(given, order="C")  # type: ignore[call-overload]
    return value, _bits(ConcreteArray(value))


def _write(bits: np.ndarray, at: np.ndarray, numbers: np.ndarray, negative: np.ndarray) -> None:
    """Nans with numbers and signs."""
    made = _numbered(bits.dtype, numbers.astype(np.uint64))
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    bits[at] = np.where(negative, made | sign, made)


def _as_before(x: Array) -> Array:
    return ConcreteArray(_restored(x._value))  # type: ignore[attr-defined]


def _restored(value: np.ndarray) -> np.ndarray:
    """The array with infinities for the nans that stand for them."""
    bits = _bits(ConcreteArray(value))
    if bits is None:
        return value
    at = np.flatnonzero(_is_nan(bits) & (_numbers(bits) > 0))
    if not len(at):
        return value
    copy, words = _words(value)
    assert words is not None
    floats = words.view(f"f{words.itemsize}")
    floats[at] = np.where(np.signbit(floats[at]), -np.inf, np.inf)
    return copy


def _marked(value: np.ndarray) -> np.ndarray:
    """The array with nans for infinities that were there before."""
    if value.dtype.kind not in "fc" or not np.isinf(value).any():
        return value
    copy, words = _words(value)
    if words is None:
        return value
    floats = words.view(f"f{words.itemsize}")
    at = np.flatnonzero(np.isinf(floats))
    _write(words, at, np.full(len(at), GIVEN), np.signbit(floats[at]))
    return copy


def _merged(prim: Primitive, out: Any, told: Any, operands: Sequence[np.ndarray]) -> Any:
    """A result, whose infinities are the nans of the operands from which they come."""
    value, bits = _words(out)
    if bits is None:
        return out
    floats = bits.view(f"f{bits.itemsize}")
    at = np.flatnonzero(np.isinf(floats))
    shadow = _words(told)[1]
    if not len(at) or shadow is None:
        return out
    numbers = np.where(_is_nan(shadow), _numbers(shadow), np.uint64(0))[at]
    # Products may lose the number of a nan, and nans are sorted otherwise: it is that of any operand then.
    lost = (numbers == 0) & (_is_nan(shadow)[at] | (not prim.elementwise))
    if lost.any():
        numbers = np.where(lost, np.uint64(_any_number(operands)), numbers)
    known = numbers > 0
    _write(bits, at[known], numbers[known], np.signbit(floats[at[known]]))
    return ConcreteArray(value, out.weak_type) if isinstance(out, ConcreteArray) else value


def _any_number(operands: Sequence[np.ndarray]) -> int:
    """A number in operands, rather of an infinity that an operation made."""
    found = [number_of_infinity([ConcreteArray(v)]) for v in operands]
    return next((k for k in found if k), GIVEN)


__all__ = ["TracedInfinities", "marked", "number_of_infinity"]
