"""The scatters that are not linear in all they write: set, multiply, minimum, maximum."""

from typing import Any, ClassVar

import numpy as np

from fnx.core import scalar
from fnx.core.array import Array
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.ops.base.broadcast import scalar_like, typed_zeros
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, div, eq, max_, min_, mul, ne, select, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import convert, full
from fnx.ops.structure.basic import scalar as number
from fnx.ops.structure.gather import AnyScatter, ScatterAdd
from fnx.ops.structure.movement import Iota

_INT = np.dtype(np.int64)


@dataclass(frozen=True)
class Scatter(AnyScatter):
    """An operand with windows replaced by updates; of several at one place any one may stay."""

    name = "scatter"
    update_kind = "set"

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        tx = typed_zeros(x.aval) if tx is None else tx
        tu = typed_zeros(updates.aval) if tu is None else tu
        w = self.windows(x, indices, updates)
        if self.unique_indices or w.single:
            return (out,), (self(tx, indices, tu),)
        written, won = self._winners(x, indices, updates)
        zero = scalar_like(0, out)
        kept, new = select(written, zero, tx), select(won, tu, zero)
        return (out,), (self.again(ScatterAdd)(kept, indices, new),)

    def _winners(self, x: Array, indices: Array, updates: Array) -> tuple[Array, Array]:
        """Which elements of the operand are written, and which updates stay: each writes its number."""
        count = Iota(0, _INT, (updates.size,))()
        numbers = add(Reshape(updates.shape)(count), number(1, _INT))
        owner = self(full(x.shape, 0, _INT), indices, numbers)
        seen = self.reader(x, indices, updates)(owner, indices)
        return ne(owner, number(0, _INT)), eq(seen, numbers)

    def transpose(self, cts: tuple, x: Any, indices: Array, updates: Any) -> tuple:  # type: ignore[override]
        # Linear only where no place is written twice: `jvp` makes no other.
        ct = cts[0]
        ct_x = ct_u = None
        if isinstance(x, Undefined):
            ct_x = self(ct, indices, typed_zeros(updates.aval))
        if isinstance(updates, Undefined):
            ct_u = self.reader(x, indices, updates)(ct, indices)
        return ct_x, None, ct_u


@dataclass(frozen=True)
class ScatterMul(AnyScatter):
    """An operand multiplied by windows of updates; updates of one place multiply."""

    name = "scatter-mul"
    update_kind = "mul"
    ufunc = np.multiply
    combine = staticmethod(lambda old, new: scalar.apply("mul", old, new))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        t = None if tx is None else self(tx, indices, updates)
        if tu is not None:
            w = self.windows(x, indices, updates)
            others = self._others(x, indices, updates, self.unique_indices or w.single)
            t = typed_zeros(x.aval) if t is None else t
            t = self.again(ScatterAdd)(t, indices, mul(tu, others))
        return (out,), (t,)

    def _others(self, x: Array, indices: Array, updates: Array, unique: bool) -> Array:
        """For each update the product of the operand's element and of the other updates there."""
        read = self.reader(x, indices, updates)
        if unique:
            return read(x, indices)
        # Zeros are counted apart, so that the division by the update itself is safe.
        zero, one = scalar_like(0, updates), scalar_like(1, updates)
        is_zero = eq(updates, zero)
        safe = select(is_zero, one, updates)
        product = read(self(x, indices, safe), indices)
        mine = convert(is_zero, updates.dtype)
        counts = self.again(ScatterAdd)(full(x.shape, 0, updates.dtype), indices, mine)
        others_zero = sub(read(counts, indices), mine)
        return select(eq(others_zero, zero), div(product, safe), zero)

    def transpose(self, cts: tuple, x: Any, indices: Array, updates: Any) -> tuple:  # type: ignore[override]
        return self(cts[0], indices, updates), None, None


@dataclass(frozen=True)
class _ScatterExtremum(AnyScatter):
    """The larger, or smaller, of what is there and what is written."""

    extremum: ClassVar[Any]  # of two elements

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """Those that are equal to the result share its tangent."""
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        read, add_to = self.reader(x, indices, updates), self.again(ScatterAdd)
        if self.unique_indices or self.windows(x, indices, updates).single:
            tx, tu = [typed_zeros(a.aval) if t is None else t for a, t in ((x, tx), (updates, tu))]
            pair = (read(x, indices), updates)
            _, (t,) = self.extremum.jvp(pair, (read(tx, indices), tu))
            return (out,), (self.again(Scatter)(tx, indices, t),)
        old = ConvertElementType(x.dtype, x.weak_type)(eq(x, out))
        new = ConvertElementType(x.dtype, updates.weak_type)(eq(updates, read(out, indices)))
        shares = add_to(old, indices, new)
        shares = select(eq(shares, number(0, x.dtype)), scalar_like(1, x), shares)
        t = typed_zeros(x.aval) if tx is None else mul(tx, old)
        if tu is not None:
            t = add_to(t, indices, mul(tu, new))
        return (out,), (div(t, shares),)


@dataclass(frozen=True)
class ScatterMin(_ScatterExtremum):
    """The minimum of an operand and windows of updates."""

    name = "scatter-min"
    update_kind = "min"
    extremum = min_
    ufunc = np.minimum
    combine = staticmethod(lambda old, new: scalar.apply("min", old, new))


@dataclass(frozen=True)
class ScatterMax(_ScatterExtremum):
    """The maximum of an operand and windows of updates."""

    name = "scatter-max"
    update_kind = "max"
    extremum = max_
    ufunc = np.maximum
    combine = staticmethod(lambda old, new: scalar.apply("max", old, new))
