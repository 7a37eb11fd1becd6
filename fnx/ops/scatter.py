"""The scatters that are not linear in all they write: set, multiply, minimum, maximum."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.core.array import Array
from fnx.core.primitive import Undefined
from fnx.ops.basic import zeros
from fnx.ops.elementwise import add, convert, div, eq, mul, select_n, sub
from fnx.ops.indexing import AnyScatter, Gather, ScatterAdd
from fnx.ops.shape import Reshape, iota
from fnx.ops.basic import full

_INT = np.dtype(np.int64)


@dataclass(frozen=True)
class Scatter(AnyScatter):
    """An operand with windows replaced by updates; of several at one place any one may stay."""

    name = "scatter"

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        tx = zeros(x.aval.tangent()) if tx is None else tx
        tu = zeros(updates.aval.tangent()) if tu is None else tu
        w = self.windows(x, indices, updates)
        if self.unique_indices or w.single:
            return (out,), (self(tx, indices, tu),)
        written, won = self._winners(x, indices, updates)
        kept = select_n(written, tx, zeros(tx.aval))
        add_to = self.again(ScatterAdd)
        return (out,), (add_to(kept, indices, select_n(won, zeros(tu.aval), tu)),)

    def _winners(self, x: Array, indices: Array, updates: Array) -> tuple[Array, Array]:
        """Which elements of the operand are written, and which updates stay: each writes its number."""
        numbers = add(Reshape(updates.shape)(iota(_INT, updates.size)), full((), 1, _INT))
        owner = self(full(x.shape, 0, _INT), indices, numbers)
        seen = self.reader(x, indices, updates)(owner, indices)
        return _ne(owner, full((), 0, _INT)), eq(seen, numbers)

    def transpose(self, cts: tuple, x: Any, indices: Array, updates: Any) -> tuple:  # type: ignore[override]
        # Linear only where no place is written twice: `jvp` makes no other.
        ct = cts[0]
        ct_x = ct_u = None
        if isinstance(x, Undefined):
            ct_x = self(ct, indices, zeros(updates.aval.strong()))
        if isinstance(updates, Undefined):
            ct_u = self.reader(x, indices, updates)(ct, indices)
        return ct_x, None, ct_u


def _ne(a: Array, b: Array) -> Array:
    from fnx.ops.elementwise import ne

    return ne(a, b)


def _as(mask: Array, dtype: np.dtype) -> Array:
    return convert(mask, dtype)


@dataclass(frozen=True)
class ScatterMul(AnyScatter):
    """An operand multiplied by windows of updates; updates of one place multiply."""

    name = "scatter-mul"
    ufunc = np.multiply
    combine = staticmethod(lambda old, new: scalar.apply("mul", old, new))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        t = None if tx is None else self(tx, indices, updates)
        if tu is not None:
            w = self.windows(x, indices, updates)
            others = self._others(x, indices, updates, self.unique_indices or w.single)
            t = zeros(x.aval.tangent()) if t is None else t
            t = self.again(ScatterAdd)(t, indices, mul(tu, others))
        return (out,), (t,)

    def _others(self, x: Array, indices: Array, updates: Array, unique: bool) -> Array:
        """For each update the product of the operand's element and of the other updates there."""
        read = self.reader(x, indices, updates)
        if unique:
            return read(x, indices)
        # Zeros are counted apart, so that the division by the update itself is safe.
        zero, one = full((), 0, updates.dtype), full((), 1, updates.dtype)
        is_zero = eq(updates, zero)
        safe = select_n(is_zero, updates, full(updates.shape, 1, updates.dtype))
        product = read(self(x, indices, safe), indices)
        mine = _as(is_zero, updates.dtype)
        counts = self.again(ScatterAdd)(full(x.shape, 0, updates.dtype), indices, mine)
        others_zero = sub(read(counts, indices), mine)
        del one
        return select_n(eq(others_zero, zero), full(updates.shape, 0, updates.dtype), div(product, safe))

    def transpose(self, cts: tuple, x: Any, indices: Array, updates: Any) -> tuple:  # type: ignore[override]
        return self(cts[0], indices, updates), None, None


@dataclass(frozen=True)
class _ScatterExtremum(AnyScatter):
    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """Those that are equal to the result share its tangent."""
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        read, add_to = self.reader(x, indices, updates), self.again(ScatterAdd)
        old = _as(eq(x, out), x.dtype)
        new = _as(eq(updates, read(out, indices)), x.dtype)
        shares = add_to(old, indices, new)
        shares = select_n(eq(shares, full((), 0, x.dtype)), shares, full(x.shape, 1, x.dtype))
        t = zeros(x.aval.tangent()) if tx is None else mul(tx, old)
        if tu is not None:
            t = add_to(t, indices, mul(tu, new))
        return (out,), (div(t, shares),)


@dataclass(frozen=True)
class ScatterMin(_ScatterExtremum):
    """The minimum of an operand and windows of updates."""

    name = "scatter-min"
    ufunc = np.minimum
    combine = staticmethod(lambda old, new: scalar.apply("min", old, new))


@dataclass(frozen=True)
class ScatterMax(_ScatterExtremum):
    """The maximum of an operand and windows of updates."""

    name = "scatter-max"
    ufunc = np.maximum
    combine = staticmethod(lambda old, new: scalar.apply("max", old, new))


__all__ = ["Gather", "Scatter", "ScatterMax", "ScatterMin", "ScatterMul"]
